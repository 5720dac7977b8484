"""The invariants of the fault runs find what they are there for."""

from __future__ import annotations

from manager_stack import V1BETA2, Stack, job, story

from pykueue.api.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES
from pykueue.manager.configuration import parse
from pykueue.manager.workloads import transitions
from pykueue.simulate.faults.causes import Causes
from pykueue.simulate.faults.queue_status import miscounted
from pykueue.simulate.faults.quiet import misplaced
from pykueue.simulate.faults.stored import Stored


def test_wrong_figures_in_the_status_of_queues_are_found() -> None:
    async def life(s: Stack) -> None:
        for number in range(3):
            await s.apply(job(f"j{number}", 6))
        await s.settle(10)
        stored = Stored(s.server)
        assert list(miscounted(stored)) == []
        await s.stop_manager()
        wrong = {"pendingWorkloads": 1, "flavorsUsage": None}
        await s.patch(CLUSTER_QUEUES, "cq", {"status": wrong}, "status")
        await s.patch(LOCAL_QUEUES, "lq", {"status": {"reservingWorkloads": 2}}, "status")
        usage = "{('default-flavor', 'cpu'): (6000, 0)}"
        assert list(miscounted(stored)) == [
            "ClusterQueue cq says pendingWorkloads 1, there are 2",
            f"ClusterQueue cq says flavorsUsage {{}}, it is {usage}",
            "LocalQueue lq says reservingWorkloads 2, there are 1",
        ]

    story(life)


def test_job_that_waits_although_admitted_or_runs_although_not_is_found() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.apply(job("b", 6))
        await s.settle(10)
        stored = Stored(s.server)
        assert list(misplaced(stored)) == []
        await s.stop_manager()
        await s.patch(JOBS, "a", {"spec": {"suspend": True}})
        await s.patch(JOBS, "b", {"spec": {"suspend": False}})
        assert list(misplaced(stored)) == [
            "job a is suspended and its workload is admitted",
            "job b runs and no workload of it is admitted",
        ]

    story(life)


def test_evictions_and_stops_without_a_cause_are_found() -> None:
    async def life(s: Stack) -> None:
        causes = Causes(Stored(s.server), s.clock, parse(V1BETA2))
        await s.apply(job("a"))
        await s.settle()
        before = await s.workload("a")
        causes.job_stored(None, await s.job("a"))

        def evicted(reason: str) -> list[str]:
            return list(causes.missing(before, transitions.evicted(before, reason, "", s.clock.time())))

        assert evicted("ClusterQueueStopped") == [
            "was evicted for ClusterQueueStopped: the queue does not drain"
        ]
        assert evicted("AdmissionCheck") == ["was evicted for AdmissionCheck: no check asks for a retry"]
        assert evicted("Preempted") == ["was evicted for Preempted: it names no preemptor"]
        assert evicted("Deactivated") == ["was evicted for Deactivated: spec.active is true"]
        assert evicted("Boredom") == ["was evicted for Boredom: the reason is unknown"]
        running = await s.job("a")
        stop = {**running, "spec": {**running["spec"], "suspend": True}}
        assert causes.stopped(running, stop) == "was stopped although its workload is admitted"
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        assert evicted("ClusterQueueStopped") == []
        await s.settle()
        assert causes.stopped(running, stop) == ""

    story(life)
