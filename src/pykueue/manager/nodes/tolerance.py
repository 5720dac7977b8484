"""Whether the pods of a Workload tolerate the taints of a node they are assigned to.

Tolerations are those of the pod set, of its flavors, and of the admission checks
(docs/reference/topology-aware-scheduling.md 15.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any

from pykueue.api.core import Taint, Toleration
from pykueue.api.decoding import decode_as
from pykueue.api.objects import Object, get

from .assignments import hosts_of, pod_set_assignments


class Tolerance(IntEnum):
    """How long pods stay on a node with taints; of several taints the worst counts."""

    FOREVER = 0
    FOR_A_TIME = 1
    NONE = 2


def tolerance(
    workload: Mapping[str, Any],
    host: str,
    taints: Iterable[Mapping[str, Any]],
    flavor: Callable[[str], Object | None],
) -> Tolerance:
    """How the pods that a Workload has on a host tolerate the taints of its node."""
    found = [decode_as(Taint, dict(taint)) for taint in taints]
    if not found:
        return Tolerance.FOREVER
    worst = Tolerance.FOREVER
    for given in pod_set_assignments(workload):
        if host in hosts_of(given):
            tolerations = [decode_as(Toleration, one) for one in _tolerations(workload, given, flavor)]
            worst = max(worst, *(_of_taint(tolerations, taint) for taint in found))
    return worst


def _of_taint(tolerations: Iterable[Toleration], taint: Taint) -> Tolerance:
    fitting = [one for one in tolerations if one.tolerates(taint)]
    if any(one.toleration_seconds is None for one in fitting):
        return Tolerance.FOREVER
    return Tolerance.FOR_A_TIME if fitting else Tolerance.NONE


def _tolerations(
    workload: Mapping[str, Any], given: Mapping[str, Any], flavor: Callable[[str], Object | None]
) -> Iterator[Object]:
    name = given.get("name")
    for pod_set in get(workload, "spec", "podSets") or ():
        if pod_set.get("name") == name:
            yield from get(pod_set, "template", "spec", "tolerations") or ()
    for flavor_name in dict.fromkeys((given.get("flavors") or {}).values()):
        yield from get(flavor(flavor_name) or {}, "spec", "tolerations") or ()
    for check in get(workload, "status", "admissionChecks") or ():
        for update in check.get("podSetUpdates") or ():
            if update.get("name") == name:
                yield from update.get("tolerations") or ()
