"""Checks usage accounting: everything kept incrementally, computed again from the workloads."""

from __future__ import annotations

from pykueue.engine.quota.tree import Cohort, Node
from pykueue.engine.state import State
from pykueue.engine.workload import ACTIVE, IN_FLIGHT, INADMISSIBLE, RESERVED, WorkloadInfo


def problems(state: State) -> list[str]:
    """What is wrong; empty if nothing is."""
    found: list[str] = []
    reserved: dict[str, dict[int, int]] = {}
    for key, info in state.workloads.items():
        found += _workload_problems(key, info)
        if info.place == RESERVED:
            assert info.queue is not None
            usage = reserved.setdefault(info.queue.name, {})
            for flavor_resource, amount in info.usage:
                usage[flavor_resource] = usage.get(flavor_resource, 0) + amount
    for name, queue in state.queues.items():
        usage = reserved.get(name, {})
        counted = {
            flavor_resource: amount
            for flavor_resource, amount in queue.usage_counts.reserved.items()
            if amount
        }
        if counted != {flavor_resource: amount for flavor_resource, amount in usage.items() if amount}:
            found.append(f"ClusterQueue {name} counts {counted}, its workloads reserve {usage}")
        for flavor_usage in queue.flavor_usages.values():
            if flavor_usage.usage != usage.get(flavor_usage.flavor_resource, 0):
                found.append(
                    f"ClusterQueue {name} uses {flavor_usage.usage} of "
                    f"{state.flavor_resources.names[flavor_usage.flavor_resource]}, "
                    f"its workloads {usage.get(flavor_usage.flavor_resource, 0)}"
                )
        if queue.candidate_order != sorted(
            filter(None, (info.candidate for info in queue.reservations.values()))
        ):
            found.append(f"ClusterQueue {name} has its workloads in the wrong order")
        if set(queue.evicted) != {key for key, info in queue.reservations.items() if info.evicted}:
            found.append(f"ClusterQueue {name} has an incomplete list of evicted workloads")
        admitted = sum(info.admitted for info in queue.reservations.values())
        if (queue.usage_counts.reserving, queue.usage_counts.admitted) != (len(queue.reservations), admitted):
            found.append(f"ClusterQueue {name} miscounts its workloads")
        for key, info in queue.pending.workloads.items():
            if info.queue is not queue or state.workloads.get(key) is not info:
                found.append(f"ClusterQueue {name} has {key} pending, which belongs to another queue")
        for bucket in queue.pending.buckets():
            live = sum(1 for _ in bucket.workloads())
            if live != bucket.size:
                found.append(
                    f"ClusterQueue {name} counts {bucket.size} workloads of one class, {live} are pending"
                )
    for cohort in state.forest.cohorts.values():
        found += _cohort_problems(cohort)
    for shared in state.capacities:
        reservations = [
            reservation
            for info in state.workloads.values()
            if info.place == RESERVED
            for other, reservation in info.shared
            if other is shared
        ]
        found += shared.problems(reservations)
    return found


def _workload_problems(key: str, info: WorkloadInfo) -> list[str]:
    queue = info.queue
    if info.place == IN_FLIGHT:
        return [f"workload {key} was never put back"]
    if info.place in (ACTIVE, INADMISSIBLE) and (
        queue is None or queue.pending.workloads.get(key) is not info
    ):
        return [f"workload {key} waits in no queue"]
    if info.place == RESERVED and (queue is None or queue.reservations.get(key) is not info):
        return [f"workload {key} holds quota of no queue"]
    return []


def _cohort_problems(cohort: Cohort) -> list[str]:
    found = []
    children: list[Node] = [*cohort.children.values(), *cohort.queues.values()]
    for flavor_resource, flavor_usage in cohort.flavor_usages.items():
        usage = 0
        for child in children:
            part = child.flavor_usages.get(flavor_resource)
            if part is not None and part.parent is flavor_usage:
                usage += max(0, part.usage - part.local)
        if usage != flavor_usage.usage:
            found.append(
                f"Cohort {cohort.name} counts {flavor_usage.usage} of FlavorResource {flavor_resource}, "
                f"its members {usage}"
            )
    return found
