# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""Preemptions, their preemptors and the lost work: from PreemptionPolicies and conditions of Workloads.

Without PreemptionPolicies the last preemption of each Workload that exists is known, without what it lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pykueue.api import kueue
from pykueue.api.meta import find_condition
from pykueue.api.preemption_policies import PreemptionPolicy
from pykueue.engine.preemption.damping import preemption_paths, preemptor_uid
from pykueue.engine.quota.usage import in_gibi, is_bytes
from pykueue.questions.answers import Answer

_HOUR = 3600


class Preemption(Answer, kw_only=True):
    """One preemption."""

    time: str
    workload: str
    """The preempted Workload, `namespace/name`."""
    cluster_queue: str
    preemptor: str
    """The Workload it was preempted for, `namespace/name`; its uid if it is gone."""
    preemptor_cluster_queue: str
    reason: str
    lost: dict[str, int] = {}
    """Resource-seconds by resource (cpus, bytes, pieces); empty where no PreemptionPolicy counted them."""


class Total(Answer, kw_only=True):
    """All preemptions of workloads of one ClusterQueue for another, since its PreemptionPolicy exists."""

    preemptor_cluster_queue: str
    cluster_queue: str
    count: int
    lost: dict[str, int] = {}
    """Resource-seconds by resource."""
    policy: str
    """The PreemptionPolicy that counts them."""


class Preemptions(Answer, kw_only=True):
    """Preemptions, newest first, and their totals by pair of ClusterQueues."""

    recent: list[Preemption]
    totals: list[Total]
    unread: list[str] = []
    notes: list[str] = []


def preemptions(
    workloads: Iterable[kueue.Workload], policies: Iterable[PreemptionPolicy], limit: int
) -> Preemptions:
    """The latest `limit` preemptions, and all totals."""
    workloads = list(workloads)
    names = {each.metadata.uid: each.metadata.key for each in workloads}
    found: dict[tuple[str, str], Preemption] = {}
    totals: list[Total] = []
    for policy in policies:
        for each in policy.status.recent:
            found[each.workload, each.time] = Preemption(
                time=each.time,
                workload=each.workload,
                cluster_queue=each.cluster_queue,
                preemptor=names.get(each.preemptor_uid, each.preemptor_uid),
                preemptor_cluster_queue=each.preemptor_cluster_queue,
                reason=each.reason,
                lost=each.lost_resource_seconds,
            )
        totals += [
            Total(
                preemptor_cluster_queue=each.preemptor_cluster_queue,
                cluster_queue=each.cluster_queue,
                count=each.count,
                lost=each.lost_resource_seconds,
                policy=policy.metadata.name,
            )
            for each in policy.status.totals
        ]
    for workload in workloads:
        preemption = _of(workload, names)
        if preemption is not None:
            found.setdefault((preemption.workload, preemption.time), preemption)
    recent = sorted(found.values(), key=lambda each: (each.time, each.workload), reverse=True)
    totals.sort(key=lambda each: (-each.count, each.preemptor_cluster_queue, each.cluster_queue))
    return Preemptions(recent=recent[:limit], totals=totals)


def _of(workload: kueue.Workload, names: Mapping[str, str]) -> Preemption | None:
    """The preemption that the conditions of a Workload show, if it was not admitted again since."""
    condition = find_condition(workload.status.conditions, "Preempted")
    if condition is None or condition.status != "True":
        return None
    paths = preemption_paths(condition.message)
    uid = preemptor_uid(condition.message)
    return Preemption(
        time=condition.last_transition_time or "",
        workload=workload.metadata.key,
        cluster_queue=paths[1][-1] if paths is not None else "",
        preemptor=names.get(uid, uid),
        preemptor_cluster_queue=paths[0][-1] if paths is not None else "",
        reason=condition.reason,
    )


def lost_text(lost: Mapping[str, int]) -> str:
    """Lost work in hours of each resource; a dash for none."""
    found = []
    for resource, amount in lost.items():
        if amount:
            unit = "Gi-hours" if is_bytes(resource) else "hours"
            found.append(f"{in_gibi(resource, amount / _HOUR):.2f} {unit} of {resource}")
    return ", ".join(found) or "-"
