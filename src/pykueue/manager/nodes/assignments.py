"""What the topology assignment of a Workload says, read from its status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pykueue.api import conditions
from pykueue.api.objects import Object, get
from pykueue.api.topologies import HOSTNAME

_ENDED: Final = conditions.IS_FINISHED | conditions.IS_EVICTED


def pod_set_assignments(workload: Mapping[str, Any]) -> Iterator[Object]:
    """Its pod set assignments that have a topology assignment."""
    for given in get(workload, "status", "admission", "podSetAssignments") or ():
        if given.get("topologyAssignment"):
            yield given


def is_placed(workload: Mapping[str, Any]) -> bool:
    """Whether it is admitted, goes on, and has a topology assignment."""
    # Asked several times at every event, and few Workloads have one: hence no helper.
    status = workload.get("status")
    admission = status.get("admission") if status else None
    for given in (admission.get("podSetAssignments") or ()) if admission else ():
        if given.get("topologyAssignment"):
            held = conditions.HOLDS_QUOTA | conditions.IS_ADMITTED
            return conditions.holding(workload) & (held | _ENDED) == held
    return False


def hosts_of(given: Mapping[str, Any]) -> Iterator[str]:
    """The hosts of a pod set assignment; none where the lowest level is not the host name."""
    # Read as it is stored: every event of a Workload asks for it.
    assignment: Any = given["topologyAssignment"]
    if (get(assignment, "levels") or [""])[-1] != HOSTNAME:
        return
    for part in get(assignment, "slices") or ():
        hosts = part["valuesPerLevel"][-1]
        if "universal" in hosts:
            yield hosts["universal"]
            continue
        listed = hosts["individual"]
        prefix, suffix = listed.get("prefix") or "", listed.get("suffix") or ""
        for root in listed.get("roots") or ():
            yield f"{prefix}{root}{suffix}"


def assigned_hosts(workload: Mapping[str, Any]) -> Iterable[str]:
    """The hosts that an admitted Workload is assigned to, each once."""
    if not is_placed(workload):
        return ()
    return dict.fromkeys(host for given in pod_set_assignments(workload) for host in hosts_of(given))


def unhealthy_nodes(workload: Mapping[str, Any]) -> list[str]:
    """`status.unhealthyNodes`: the hosts whose pods wait for another one."""
    return [str(one.get("name")) for one in get(workload, "status", "unhealthyNodes") or ()]
