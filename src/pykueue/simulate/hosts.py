"""The hosts that pods of a Workload are assigned to, and those of them that failed.

Where pods are is known for flavors with a topology whose lowest level is the host name. A workload that loses
a host there stops until its pods have another one or the host is back; the engine assigns the other one, or
evicts the workload. Source of the rules: docs/reference/topology-aware-scheduling.md 15.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.topologies import HOSTNAME, expand


def hosts_of(admission: kueue.Admission | None) -> frozenset[str]:
    """The hosts that an admission assigns; none where the lowest level is not the host name."""
    found: set[str] = set()
    for each in admission.pod_set_assignments if admission is not None else ():
        assignment = each.topology_assignment
        if assignment is not None and assignment.levels[-1:] == [HOSTNAME]:
            found.update(domain.values[-1] for domain in expand(assignment))
    return frozenset(found)


def with_unhealthy(workload: kueue.Workload, hosts: Iterable[str]) -> kueue.Workload:
    """The workload with these hosts as its unhealthy nodes."""
    listed = [kueue.UnhealthyNode(name=host) for host in sorted(hosts)]
    return replace(workload, status=replace(workload.status, unhealthy_nodes=listed))


def unhealthy(workload: kueue.Workload) -> frozenset[str]:
    """Its unhealthy nodes."""
    return frozenset(each.name for each in workload.status.unhealthy_nodes)
