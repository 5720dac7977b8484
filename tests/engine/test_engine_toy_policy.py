"""A policy hook takes one file: nothing that runs longer than an hour starts before a maintenance."""

from __future__ import annotations

from engine_world import START, World

from pykueue.engine.policies import Held, Policies
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.workload import WorkloadInfo

#: Seconds since 1970.
MAINTENANCE_BEGINS, MAINTENANCE_ENDS = START + 3600, START + 7200


def ends_before_maintenance(info: WorkloadInfo, queue: ClusterQueue, now: float) -> Held | None:
    """Workloads that would still run when the maintenance begins wait until it ends."""
    seconds = info.obj.spec.maximum_execution_time_seconds
    ends = now + seconds if seconds is not None else float("inf")
    if now >= MAINTENANCE_ENDS or ends <= MAINTENANCE_BEGINS:
        return None
    return Held("does not end before the maintenance", MAINTENANCE_ENDS)


def test_what_does_not_end_before_the_maintenance_waits_until_it_is_over() -> None:
    made = World(policies=Policies(eligible=ends_before_maintenance))
    made.flavor()
    made.queue("q", {"cpu": "4"}, strict=True)
    made.workload("long", "q", 1, prio=1, maximumExecutionTimeSeconds=10_000)
    made.workload("short", "q", 1, maximumExecutionTimeSeconds=600)
    made.stable()
    assert made.reserved() == {"short"}
    decision = made.last["long"]
    assert (decision.reason, decision.explanation.problem) == (
        "Waiting",
        "does not end before the maintenance",
    )
    assert made.engine.next_wake(made.now) == MAINTENANCE_ENDS
    made.driver.advance(MAINTENANCE_ENDS)
    made.cycle()
    assert made.reserved() == {"short", "long"}
