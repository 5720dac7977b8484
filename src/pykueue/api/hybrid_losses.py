"""Pods of a hybrid assignment that lost their flavor: the policy of a queue, and what a Workload shows.

A flavor is lost to a Workload while one of its conditions `lost.pykueue.io/FLAVOR` is True. Its part then has
the pods that still run there; the others are missing until the scheduler has a flavor for them. So quota,
parts and what is missing follow from the status alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from pykueue.api import conditions
from pykueue.api.decoding import DecodeError, decode_as
from pykueue.api.durations import parse_duration
from pykueue.api.hybrid import Part, parts_of, with_parts
from pykueue.api.kueue.names import HYBRID_LOSS_POLICY_ANNOTATION
from pykueue.api.kueue.workload import PodSetAssignment, Workload
from pykueue.api.meta import set_condition
from pykueue.api.model import Model
from pykueue.api.objects import Object, annotations_of, get, replaced
from pykueue.api.quantity import Quantity

LOST_PREFIX: Final = "lost.pykueue.io/"
_EXAMPLE: Final = '{"lostAfter": "30s", "retryAfter": "5m"}'


class LossPolicy(Model, forbid_unknown_fields=True):
    """What the annotation of a ClusterQueue says."""

    lost_after: str = "30s"
    """For how long pods cannot be scheduled before they have lost their flavor."""
    retry_after: str = "5m"
    """For how long the flavor is not used again."""
    shrink_after: str | None = None
    """After which time without another flavor a job that may be smaller goes on without the pods; None:
    never."""

    @property
    def lost_seconds(self) -> float:
        return parse_duration(self.lost_after)

    @property
    def retry_seconds(self) -> float:
        return parse_duration(self.retry_after)

    @property
    def shrink_seconds(self) -> float | None:
        return None if self.shrink_after is None else parse_duration(self.shrink_after)


def parse_loss_policy(text: str) -> LossPolicy:
    """The annotation of a ClusterQueue. Raises ValueError with what is wrong and what is accepted."""
    try:
        found = decode_as(LossPolicy, msgspec.json.decode(text))
    except DecodeError as error:
        raise ValueError(error.why) from None
    except msgspec.DecodeError:
        raise ValueError(f"must be a JSON object such as {_EXAMPLE}") from None
    for field, value in (
        ("lostAfter", found.lost_after),
        ("retryAfter", found.retry_after),
        ("shrinkAfter", found.shrink_after),
    ):
        try:
            if value is not None and parse_duration(value) <= 0:
                raise ValueError
        except ValueError:
            raise ValueError(f"{field}: {value} is not accepted: must be a duration such as 5m") from None
    return found


def loss_policy(queue: Mapping[str, Any] | None) -> LossPolicy | None:
    """The policy of a ClusterQueue; None: lost pods wait for their flavor."""
    text = annotations_of(queue).get(HYBRID_LOSS_POLICY_ANNOTATION) if queue is not None else None
    if text is None:
        return None
    try:
        return parse_loss_policy(str(text))
    except ValueError:
        return None


def lost_flavors(workload: Mapping[str, Any]) -> dict[str, float]:
    """The flavors that are lost to a Workload, and since when, in seconds since 1970."""
    found = {}
    for one in get(workload, "status", "conditions") or ():
        kind = str(one.get("type") or "")
        if kind.startswith(LOST_PREFIX) and one.get("status") == "True":
            found[kind.removeprefix(LOST_PREFIX)] = conditions.since(workload, kind)
    return found


def lost_flavors_of(workload: Workload) -> set[str]:
    """The flavors that are lost to a decoded Workload."""
    return {
        one.type.removeprefix(LOST_PREFIX)
        for one in workload.status.conditions
        if one.type.startswith(LOST_PREFIX) and one.status == "True"
    }


def marked_lost(workload: Mapping[str, Any], flavor: str, message: str, now: float) -> Object:
    """The Workload with a flavor that it lost."""
    return _marked(workload, flavor, "True", "PodsUnschedulable", message, now)


def marked_usable(workload: Mapping[str, Any], flavors: Iterable[str], why: str, now: float) -> Object:
    """The Workload with flavors that may be used again."""
    result = dict(workload)
    for flavor in flavors:
        result = _marked(result, flavor, "False", why, f"Flavor {flavor} may be used again", now)
    return result


def _marked(
    workload: Mapping[str, Any], flavor: str, status: str, reason: str, message: str, now: float
) -> Object:
    known = get(workload, "status", "conditions") or ()
    changed = set_condition(known, LOST_PREFIX + flavor, status, reason, message, now)
    return replaced(workload, ("status", "conditions"), changed)


def missing_pods(workload: Workload) -> Iterator[tuple[int, int]]:
    """(index of a pod set that is split, pods that need quota and have no flavor)."""
    admission = workload.status.admission
    if admission is None:
        return
    done = None
    for index, given in enumerate(admission.pod_set_assignments):
        if given.topology_assignment is None:
            continue
        parts = parts_of(given)
        if not parts:
            continue
        if done is None:
            done = {one.name: one.count for one in workload.status.reclaimable_pods}
        full = next((each.count for each in workload.spec.pod_sets if each.name == given.name), 0)
        admitted = full if given.count is None else given.count
        missing = min(admitted, full - done.get(given.name, 0)) - sum(part.pods for part in parts)
        if missing > 0:
            yield index, missing


def split_otherwise(
    given: PodSetAssignment, parts: Sequence[Part], count: int | None = None
) -> PodSetAssignment:
    """A pod set that is split, with other parts, and admitted with fewer pods if `count` is given."""
    before = parts_of(given)[0].flavor
    names = {
        resource: parts[0].flavor if flavor == before else flavor
        for resource, flavor in given.flavors.items()
    }
    changed = msgspec.structs.replace(given, flavors=names)
    if count is not None and given.count is not None and count != given.count:
        usage = {
            resource: Quantity(amount.nanos // given.count * count)
            for resource, amount in given.resource_usage.items()
        }
        changed = msgspec.structs.replace(changed, resource_usage=usage, count=count)
    return with_parts(changed, parts)
