"""How long a workload can be first in its queue: a number where the policy guarantees one.

Assumed is that no workload holds quota for longer than a given time, checks and the end of its pods included.
A workload is first in its ClusterQueue if none of a higher priority, and no earlier one of its priority, is
pending there. Considered are workloads that fit into the nominal quota of one flavor.

If the queue is StrictFIFO, no other workload of the queue is admitted while the same one is first. After that
time all that the queue holds has ended, so the workload is admitted if no other queue can use the quota. In a
cohort with others no bound is derived, not even with a lendingLimit of 0: in each scheduling cycle, as in
Kueue, a pending workload of another queue reserves its nominal quota although that is lent, which leaves less
for the workloads after it in the cycle.
"""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.api.durations import format_duration

from .findings import Finding
from .policy import Policy, quotas_of

#: Kinds whose rules can hold a workload back for longer, by a name for people.
_OTHER_RULES = {
    "BackfillPolicy": "reservations",
    "Budget": "budgets",
    "PreemptionPolicy": "preemption policies",
    "Reservation": "reservations",
}


def bounds(policy: Policy, seconds: float) -> Iterator[Finding]:
    """A note about each ClusterQueue: its bound, or why none is derived.

    `seconds` is the longest time for which any workload holds quota.
    """
    for name in sorted(policy.cluster_queues):
        reason = _unbounded(policy, name)
        if reason:
            message, remedy = f"no bound on waiting is derived: {reason}", None
        else:
            bound = format_duration(seconds)
            message = (
                f"a workload within the nominal quota of a flavor is first in the queue for at most {bound}; "
                f"with N workloads before it, it waits for at most (N + 1) x {bound}"
            )
            remedy = ""
        title = f"ClusterQueue {name}"
        yield Finding("starvation-bound", title, message, policy.place(title), remedy=remedy)


def _unbounded(policy: Policy, name: str) -> str:
    """Why there is no bound; empty where there is one."""
    spec = policy.cluster_queues[name].spec
    others = sorted({manifest["kind"] for manifest in policy.manifests} & _OTHER_RULES.keys())
    if spec.queueing_strategy != "StrictFIFO":
        return "queueingStrategy is BestEffortFIFO, so that workloads that fit pass the first one"
    if spec.stop_policy != "None":
        return f"stopPolicy is {spec.stop_policy}"
    if policy.options.block_admission or policy.options.admission_fair_sharing is not None:
        return "the configuration of the manager orders or delays admissions otherwise"
    if others:
        return f"{' and '.join(dict.fromkeys(_OTHER_RULES[kind] for kind in others))} can delay admissions"
    flavors = {flavor for flavor, _ in quotas_of(policy.cluster_queues[name])}
    if any(policy.flavors[flavor].spec.topology_name for flavor in flavors if flavor in policy.flavors):
        return "a flavor has a topology, in which free quota can be split over nodes"
    if len(policy.members(name)) > 1:
        return "other queues of its cohort can use its nominal quota, or reserve quota that is lent"
    return ""
