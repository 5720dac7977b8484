"""The invariants of the fault runs find what they are there for."""

from __future__ import annotations

from edited_statuses import forged
from manager_stack import QUEUES, V1BETA2, Stack, job, story

from pykueue.api.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS
from pykueue.manager.configuration import parse
from pykueue.manager.workloads import transitions
from pykueue.simulate.faults.causes import Causes
from pykueue.simulate.faults.invariants import Invariants
from pykueue.simulate.faults.priority_order import PriorityOrder
from pykueue.simulate.faults.queue_status import miscounted
from pykueue.simulate.faults.quiet import misplaced
from pykueue.simulate.faults.stored import Stored
from pykueue.simulate.faults.trace import Trace


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


def test_pending_workload_that_fits_is_found() -> None:
    async def life(s: Stack) -> None:
        for number in range(2):
            await s.apply(job(f"j{number}", 6))
        await s.settle(10)
        stored = Stored(s.server)
        order = PriorityOrder(stored, parse(V1BETA2))
        assert list(order.passed_over(await s.workloads())) == []
        await s.stop_manager()
        waiting = await s.workload("j1")
        assert list(order.passed_over([waiting])) == [f"{waiting['metadata']['name']} fits cq and is pending"]
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        status = {"status": {"conditions": []}}
        await s.patch(CLUSTER_QUEUES, "cq", status, "status")
        assert list(order.passed_over([waiting])) == []

    story(life)


def test_workload_that_overtakes_one_of_higher_priority_in_a_strict_queue_is_found() -> None:
    async def life(s: Stack) -> None:
        for name, priority in (("low", 1), ("high", 2)):
            await s.apply(job(name, 20))
            await s.settle(1)
            workload = await s.workload(name)
            await s.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"priority": priority}})
        await s.settle(10)
        order = PriorityOrder(Stored(s.server), parse(V1BETA2))
        low, high = await s.workload("low"), await s.workload("high")
        admitted = {**low, "status": {"admission": {"clusterQueue": "cq"}}}
        assert list(order.overtaken(admitted, lambda obj: True)) == [
            f"got quota before {high['metadata']['name']}, whose priority is higher, in cq"
        ]
        assert list(order.overtaken(admitted, lambda obj: False)) == []

    story(
        life, queues=QUEUES.replace("  resourceGroups:", "  queueingStrategy: StrictFIFO\n  resourceGroups:")
    )


def test_workload_that_gets_quota_before_one_of_higher_priority_that_requests_no_more_is_found() -> None:
    async def life(s: Stack) -> None:
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        for name, size, priority in (("low", 5, 1), ("equal", 5, 2), ("larger", 6, 2)):
            await s.apply(job(name, size))
            await s.settle(1)
            workload = await s.workload(name)
            await s.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"priority": priority}})
        await s.stop_manager()
        s.server.admission.unregister("vclusterqueue.kb.io")
        s.server.admission.unregister("mclusterqueue.kb.io")
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": None}})
        active = [{**forged(s, "Active"), "reason": "Ready"}]
        await s.patch(CLUSTER_QUEUES, "cq", {"status": {"conditions": active}}, "status")
        order = PriorityOrder(Stored(s.server), parse(V1BETA2))
        low, equal = await s.workload("low"), await s.workload("equal")
        got = {"name": "main", "flavors": {"cpu": "default-flavor"}, "resourceUsage": {"cpu": "5"}}
        admission = {"clusterQueue": "cq", "podSetAssignments": [{**got, "count": 5}]}
        admitted = {**low, "status": {"admission": admission}}
        assert list(order.overtaken(admitted, lambda obj: True)) == [
            f"got quota before {equal['metadata']['name']}, whose priority is higher, in cq"
        ]

    story(life)


def test_write_that_makes_a_workload_use_more_than_its_quota_is_found() -> None:
    async def life(s: Stack) -> None:
        for name in ("a", "b"):
            await s.apply(job(name, 5))
        await s.settle()
        await s.stop_manager()
        s.unregister_webhooks()
        workload = (await s.workload("a"))["metadata"]["name"]

        async def reclaim(count: int) -> None:
            entries = [{"name": "main", "count": count}]
            await s.patch(WORKLOADS, workload, {"status": {"reclaimablePods": entries}}, "status")

        await s.job_status("a", succeeded=3, startTime=s.now())
        await reclaim(3)
        quota = {"name": "default-flavor", "resources": [{"name": "cpu", "nominalQuota": 8}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"resourceGroups": groups}})
        trace, configuration = Trace(), parse(V1BETA2)
        causes = Causes(Stored(s.server), s.clock, configuration)
        Invariants(s.server, s.clock, trace, causes, configuration)
        await reclaim(2)
        assert trace.violations == []
        await reclaim(1)
        assert trace.violations == [f"{workload}: got 4000m default-flavor/cpu of cq, which had 3000m left"]

    story(life)


def test_start_without_exactly_the_node_labels_and_tolerations_of_the_flavor_is_found() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a"))
        await s.settle()
        await s.stop_manager()
        s.unregister_webhooks()
        trace, configuration = Trace(), parse(V1BETA2)
        causes = Causes(Stored(s.server), s.clock, configuration)
        Invariants(s.server, s.clock, trace, causes, configuration)

        async def start(**pods: object) -> list[str]:
            await s.patch(JOBS, "a", {"spec": {"suspend": True}})
            trace.violations.clear()
            await s.patch(JOBS, "a", {"spec": {"suspend": False, "template": {"spec": pods}}})
            return list(trace.violations)

        assert await start() == []
        assert await start(nodeSelector={"pool": "other"}) == [
            "a: has the nodeSelector {'pool': 'other'}, not {}"
        ]
        toleration = {"key": "gpu", "operator": "Exists"}
        assert await start(nodeSelector=None, tolerations=[toleration]) == [
            f"a: has the tolerations [{toleration}], not []"
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
