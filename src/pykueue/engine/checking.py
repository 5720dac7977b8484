"""The engine's books audited: everything kept incrementally, computed again from the workloads."""

from __future__ import annotations

from pykueue.engine.state import State
from pykueue.engine.tree import Cohort, Node
from pykueue.engine.workload import ACTIVE, HOLDING, IN_FLIGHT, PARKED, Record


def problems(state: State) -> list[str]:
    """What is wrong; empty if nothing is."""
    found: list[str] = []
    holding: dict[str, dict[int, int]] = {}
    for key, record in state.records.items():
        found += _record_problems(key, record)
        if record.place == HOLDING:
            assert record.queue is not None
            usage = holding.setdefault(record.queue.name, {})
            for pair, amount in record.usage:
                usage[pair] = usage.get(pair, 0) + amount
    for name, queue in state.queues.items():
        usage = holding.get(name, {})
        reserved = {pair: amount for pair, amount in queue.tally.reserved.items() if amount}
        if reserved != {pair: amount for pair, amount in usage.items() if amount}:
            found.append(f"ClusterQueue {name} counts {reserved}, its workloads hold {usage}")
        for cell in queue.cells.values():
            if cell.usage != usage.get(cell.pair, 0):
                found.append(
                    f"ClusterQueue {name} uses {cell.usage} of {state.pairs.names[cell.pair]}, "
                    f"its workloads {usage.get(cell.pair, 0)}"
                )
        if queue.seats != sorted(record.seat for record in queue.holding.values()):
            found.append(f"ClusterQueue {name} has its workloads in the wrong order")
        if set(queue.evicted) != {key for key, record in queue.holding.items() if record.evicted}:
            found.append(f"ClusterQueue {name} is wrong about who is on the way out")
        admitted = sum(record.admitted for record in queue.holding.values())
        if (queue.tally.reserving, queue.tally.admitted) != (len(queue.holding), admitted):
            found.append(f"ClusterQueue {name} miscounts its workloads")
        for key, record in queue.pending.records.items():
            if record.queue is not queue or state.records.get(key) is not record:
                found.append(f"ClusterQueue {name} has {key} waiting, which is not its own")
        for bucket in queue.pending.buckets():
            live = sum(1 for _ in bucket.records())
            if live != bucket.size:
                found.append(f"ClusterQueue {name} counts {bucket.size} alike workloads, {live} wait")
    for cohort in state.forest.cohorts.values():
        found += _cohort_problems(cohort)
    return found


def _record_problems(key: str, record: Record) -> list[str]:
    queue = record.queue
    if record.place == IN_FLIGHT:
        return [f"workload {key} was never put back"]
    if record.place in (ACTIVE, PARKED) and (queue is None or queue.pending.records.get(key) is not record):
        return [f"workload {key} waits in no queue"]
    if record.place == HOLDING and (queue is None or queue.holding.get(key) is not record):
        return [f"workload {key} holds quota of no queue"]
    return []


def _cohort_problems(cohort: Cohort) -> list[str]:
    found = []
    children: list[Node] = [*cohort.children.values(), *cohort.queues.values()]
    for pair, cell in cohort.cells.items():
        usage = 0
        for child in children:
            part = child.cells.get(pair)
            if part is not None and part.parent is cell:
                usage += max(0, part.usage - part.local)
        if usage != cell.usage:
            found.append(f"Cohort {cohort.name} counts {cell.usage} of pair {pair}, its members {usage}")
    return found
