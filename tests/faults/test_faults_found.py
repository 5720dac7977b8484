"""What the fault runs have found, each with a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from manager_stack import QUEUES, Stack, job, story

from pykueue.api.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, COHORTS, JOBS, WORKLOADS
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request, Transport, WatchEvent
from queue_manifests import cluster_queue, flavor, local_queue

BLOCKING = """
waitForPodsReady:
  timeout: 1h
  blockAdmission: true
"""
TWO_FLAVORS = [
    flavor("one"),
    flavor("two"),
    cluster_queue("cq", {"one": {"cpu": 4}, "two": {"cpu": 4}}),
    local_queue("lq", "cq"),
]


def test_the_scheduler_rests_while_pods_are_not_ready_although_flavors_are_left_to_try() -> None:
    async def life(s: Stack) -> None:
        cycles, cycle = [], s.manager.engine.cycle
        s.manager.engine.cycle = lambda now: cycles.append(now) or cycle(now)  # type: ignore[func-returns-value, method-assign]
        await s.apply(job("first", 2))
        await s.settle()
        await s.apply(job("second", 2))
        await s.settle(60)
        assert (await s.conditions("second"))["QuotaReserved"] == ("False", "WaitingForPodsReady")
        assert len(cycles) < 20
        await s.run_job("first")
        await s.settle()
        (assigned,) = (await s.workload("second"))["status"]["admission"]["podSetAssignments"]
        assert assigned["flavors"] == {"cpu": "one"}

    story(life, BLOCKING, TWO_FLAVORS)


def test_a_job_that_runs_with_the_fewest_pods_it_accepts_can_be_stopped() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("busy", 9))
        await s.settle()
        await s.apply(job("a", 2, annotations={"kueue.x-k8s.io/job-min-parallelism": "1"}))
        await s.settle()
        await s.run_job("a")
        assert (await s.job("a"))["spec"]["parallelism"] == 1
        await s.patch(WORKLOADS, (await s.workload("a"))["metadata"]["name"], {"spec": {"active": False}})
        await s.settle()
        assert await s.suspended("a")
        await s.stop_pods("a")
        await s.settle()
        assert (await s.job("a"))["spec"]["parallelism"] == 2
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Deactivated")

    story(life)


def test_a_job_evicted_with_some_pods_done_starts_again_once() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 3))
        await s.settle()
        await s.run_job("a")
        await s.job_status("a", succeeded=1, active=2, ready=2)
        await s.settle()
        name = (await s.workload("a"))["metadata"]["name"]
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        await s.stop_pods("a")
        await s.settle()
        s.transport.writes.clear()
        await s.patch(WORKLOADS, name, {"spec": {"active": True}})
        await s.settle()
        (assigned,) = (await s.workload("a"))["status"]["admission"]["podSetAssignments"]
        assert assigned["count"] == 2
        assert not await s.suspended("a")
        assert s.transport.writes["PATCH jobs"] == 1

    story(life)


def test_a_priority_class_named_after_the_reservation_does_not_keep_a_job_from_stopping() -> None:
    classes = (
        QUEUES
        + """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
"""
    )

    async def life(s: Stack) -> None:
        await s.apply(job("a"))
        await s.settle()
        await s.run_job("a")
        label = {"kueue.x-k8s.io/priority-class": "high"}
        await s.stop_manager()
        for kind in ("mjob.kb.io", "vjob.kb.io"):
            s.server.admission.unregister(kind)
        await s.patch(JOBS, "a", {"metadata": {"labels": label}})
        await s.start_manager()
        await s.settle()
        workload = await s.workload("a")
        assert "priorityClassRef" not in workload["spec"]
        await s.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})
        await s.settle()
        assert await s.suspended("a")
        await s.stop_pods("a")
        await s.settle()
        assert (await s.workload("a"))["spec"]["priorityClassRef"]["name"] == "high"

    story(life, queues=classes)


class _NoAnswer:
    """Loses the answer to the first reservation, and shows no more of the watch of Workloads from then on."""

    def __init__(self, inner: Transport, stack: Stack) -> None:
        self._inner = inner
        self._stack = stack
        self.lost = False

    async def call(self, request: Request) -> Any:
        answer = await self._inner.call(request)
        reserves = request.method == "PATCH" and "admission" in str((request.body or {}).get("status"))
        if reserves and not self.lost:
            self.lost = True
            raise ConnectionError("reset by peer")
        return answer

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        async for event in self._inner.watch(request):
            if self.lost and "/workloads" in request.path:
                await self._stack.clock.sleep(30)
            yield event

    async def close(self) -> None:
        await self._inner.close()


def test_quota_is_not_given_twice_when_the_answer_to_a_reservation_is_lost() -> None:
    async def life(s: Stack) -> None:
        await s.stop_manager()
        inner = s.server.transport("pykueue-manager")
        s.server.transport = lambda user="": _NoAnswer(inner, s)  # type: ignore[method-assign, assignment, return-value]
        await s.apply(job("low", 8))
        await s.start_manager()
        await s.settle(5)
        await s.apply(job("other", 8))
        await s.settle(20)
        held = [w for w in await s.workloads() if (w.get("status") or {}).get("admission")]
        assert len(held) == 1

    story(life)


COHORT = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: f0}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: f1}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq0}
spec:
  namespaceSelector: {}
  cohortName: all
  queueingStrategy: StrictFIFO
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: f0
      resources: [{name: cpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq1}
spec:
  namespaceSelector: {}
  cohortName: all
  queueingStrategy: StrictFIFO
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: f0
      resources: [{name: cpu, nominalQuota: 0}]
    - name: f1
      resources: [{name: cpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq0, namespace: default}
spec: {clusterQueue: cq0}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq1, namespace: default}
spec: {clusterQueue: cq1}
"""


def test_the_scheduler_rests_when_a_flavor_that_would_fit_is_kept_for_another_queue() -> None:
    async def life(s: Stack) -> None:
        cycles, cycle = [], s.manager.engine.cycle
        s.manager.engine.cycle = lambda now: cycles.append(now) or cycle(now)  # type: ignore[func-returns-value, method-assign]
        await s.apply(job("left", 3, queue="lq0"))
        await s.apply(job("right", 4, queue="lq1"))
        await s.settle()
        await s.apply(job("first", 2, queue="lq0"))
        await s.settle()
        await s.apply(job("second", 1, queue="lq1"))
        await s.settle(60)
        assert (await s.conditions("first"))["QuotaReserved"][0] == "False"
        assert len(cycles) < 30
        await s.run_job("left")
        await s.finish_job("left")
        await s.settle()
        assert (await s.conditions("first"))["QuotaReserved"][0] == "True"
        assert (await s.conditions("second"))["QuotaReserved"][0] == "True"

    story(life, queues=COHORT)


class _Forgetful:
    """Forgets all history at the first reservation and lists nothing for a while; the answer takes 5 s."""

    def __init__(self, inner: Transport, stack: Stack) -> None:
        self._inner = inner
        self._stack = stack
        self.broken = False
        self._reserved = False

    async def call(self, request: Request) -> Any:
        if self.broken and request.method == "GET" and request.path.endswith("/workloads"):
            raise ConnectionError("reset by peer")
        answer = await self._inner.call(request)
        if "admission" in str((request.body or {}).get("status")) and not self._reserved:
            self.broken = self._reserved = True
            await self._stack.clock.sleep(5)
        return answer

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        async for event in self._inner.watch(request):
            if self.broken and "/workloads" in request.path:
                raise ApiError(410, "Expired", "too old resource version")
            yield event

    async def close(self) -> None:
        await self._inner.close()


def test_reservation_removed_before_the_cache_saw_it_is_decided_again() -> None:
    async def life(s: Stack) -> None:
        await s.stop_manager()
        forgetful = _Forgetful(s.server.transport("pykueue-manager"), s)
        s.server.transport = lambda user="": forgetful  # type: ignore[method-assign, assignment, return-value]
        await s.apply(job("a"))
        await s.start_manager()
        await s.settle(3)
        assert forgetful.broken
        workload = await s.workload("a")
        conditions = [
            {**condition, "status": "False", "reason": "Pending", "message": "taken back"}
            for condition in workload["status"]["conditions"]
        ]
        status = {"admission": None, "conditions": conditions}
        await s.patch(WORKLOADS, workload["metadata"]["name"], {"status": status}, "status")
        await s.settle(10)
        forgetful.broken = False
        await s.settle(60)
        assert (await s.conditions("a"))["QuotaReserved"] == ("True", "QuotaReserved")

    story(life)


def test_a_check_that_answers_between_eviction_and_release_is_asked_again() -> None:
    check = """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: ok}
spec: {controllerName: example.com/ok}
"""
    queues = QUEUES.replace(
        "spec:\n  namespaceSelector: {}",
        "spec:\n  admissionChecksStrategy: {admissionChecks: [{name: ok}]}\n  namespaceSelector: {}",
    )

    async def life(s: Stack) -> None:
        active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
        condition = {**active, "lastTransitionTime": s.now()}
        await s.patch(ADMISSION_CHECKS, "ok", {"status": {"conditions": [condition]}}, "status")
        await s.apply(job("a"))
        await s.settle()
        name = (await s.workload("a"))["metadata"]["name"]

        async def answer(state: str) -> None:
            entry = {"name": "ok", "state": state, "message": "", "lastTransitionTime": s.now()}
            await s.patch(WORKLOADS, name, {"status": {"admissionChecks": [entry]}}, "status")
            await s.settle()

        await answer("Ready")
        await s.run_job("a")
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        await answer("Retry")
        await s.stop_pods("a")
        await s.settle()
        await s.patch(WORKLOADS, name, {"spec": {"active": True}})
        await s.settle()
        assert (await s.conditions("a"))["QuotaReserved"] == ("True", "QuotaReserved")
        (entry,) = (await s.workload("a"))["status"]["admissionChecks"]
        assert (entry["state"], entry["retryCount"]) == ("Pending", 1)

    story(life, queues=queues + check)


def test_a_job_with_a_minimum_starts_again_when_fewer_pods_are_left_than_that() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 4, annotations={"kueue.x-k8s.io/job-min-parallelism": "3"}))
        await s.settle()
        await s.run_job("a")
        await s.job_status("a", succeeded=3, active=1, ready=1)
        await s.settle()
        name = (await s.workload("a"))["metadata"]["name"]
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        await s.stop_pods("a")
        await s.settle()
        await s.patch(WORKLOADS, name, {"spec": {"active": True}})
        await s.settle()
        assert not await s.suspended("a")
        assert (await s.job("a"))["spec"]["parallelism"] == 1

    story(life)


def test_the_share_of_a_cohort_follows_what_its_queues_use() -> None:
    queues = (
        QUEUES.replace("  namespaceSelector: {}", "  cohortName: left\n  namespaceSelector: {}")
        + """
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: left}
spec: {parentName: root}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: root}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 10}]
"""
    )

    async def life(s: Stack) -> None:
        async def share() -> int:
            status = (await s.get(COHORTS, "left")).get("status") or {}
            return int((status.get("fairSharing") or {}).get("weightedShare") or 0)

        assert await share() == 0
        await s.apply(job("a", 15))
        await s.settle(5)
        assert await share() == 250
        await s.finish_job("a")
        await s.settle(5)
        assert await share() == 0

    story(life, "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}", queues)


class _NoReservations:
    """Refuses every write of a reservation, after 5 s."""

    def __init__(self, inner: Transport, stack: Stack) -> None:
        self._inner = inner
        self._stack = stack

    async def call(self, request: Request) -> Any:
        if "podSetAssignments" in str(request.body):
            await self._stack.clock.sleep(5)
            raise ApiError(500, "InternalError", "no")
        return await self._inner.call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self._inner.watch(request)

    async def close(self) -> None:
        await self._inner.close()


def test_a_queue_is_not_kept_alive_by_a_reservation_that_could_not_be_written() -> None:
    async def life(s: Stack) -> None:
        await s.stop_manager()
        refusing = _NoReservations(s.server.transport("pykueue-manager"), s)
        s.server.transport = lambda user="": refusing  # type: ignore[method-assign, assignment, return-value]
        await s.start_manager()
        await s.settle()
        await s.apply(job("a"))
        await s.settle(0.5)
        await s.delete(CLUSTER_QUEUES, "cq")
        await s.settle(20)
        assert [q["metadata"]["name"] for q in (await s.client.list(CLUSTER_QUEUES)).items] == []

    story(life)


def test_queue_drops_a_failed_reservation_of_a_job_that_moved_to_another_queue() -> None:
    async def life(s: Stack) -> None:
        await s.apply([cluster_queue("other", {"cpu": 10}), local_queue("other")])
        await s.stop_manager()
        refusing = _NoReservations(s.server.transport("pykueue-manager"), s)
        s.server.transport = lambda user="": refusing  # type: ignore[method-assign, assignment, return-value]
        await s.start_manager()
        await s.settle()
        await s.apply(job("a"))
        await s.settle(3)
        assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 1
        await s.patch(JOBS, "a", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        await s.settle(20)
        assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 0
        assert (await s.local_queue())["status"]["reservingWorkloads"] == 0

    story(life)


def test_a_job_that_shrinks_while_it_waits_is_admitted_for_all_that_is_left_of_it() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 2))
        await s.settle()
        await s.run_job("a")
        await s.job_status("a", succeeded=1, active=1, ready=1)
        await s.settle()
        workload = await s.workload("a")
        assert workload["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
        name = workload["metadata"]["name"]
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        await s.stop_pods("a")
        await s.settle()
        await s.patch(JOBS, "a", {"spec": {"parallelism": 1}})
        await s.settle()
        await s.patch(WORKLOADS, name, {"spec": {"active": True}})
        await s.settle()
        (assigned,) = (await s.workload("a"))["status"]["admission"]["podSetAssignments"]
        assert assigned["count"] == 1
        assert not await s.suspended("a")

    story(life)


class _StillJobs:
    """A transport whose watch of Jobs delivers no further events."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.still = False

    async def call(self, request: Request) -> Any:
        return await self._inner.call(request)

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        async for event in self._inner.watch(request):
            if self.still and request.path.endswith("/jobs"):
                await asyncio.get_running_loop().create_future()
            yield event

    async def close(self) -> None:
        await self._inner.close()


def test_a_job_that_another_replaced_is_not_queued_again_and_again_while_the_watch_is_late() -> None:
    async def life(s: Stack) -> None:
        await s.stop_manager()
        still = _StillJobs(s.server.transport("pykueue-manager"))
        s.server.transport = lambda user="": still  # type: ignore[method-assign, assignment, return-value]
        await s.start_manager()
        elastic = {"kueue.x-k8s.io/elastic-job": "true"}
        await s.apply(job("a", 20, annotations=elastic))
        await s.settle()
        old = (await s.job("a"))["metadata"]["uid"]
        still.still = True
        await s.delete(JOBS, "a")
        await s.apply(job("a", 20, annotations=elastic))
        for _ in range(20):
            for workload in await s.workloads():
                if workload["metadata"]["ownerReferences"][0]["uid"] == old:
                    # As the garbage collector does.
                    await s.delete(WORKLOADS, workload["metadata"]["name"])
            await s.settle(1)
        assert s.transport.writes["POST workloads"] <= 4
        (left,) = await s.workloads()
        assert left["metadata"]["ownerReferences"][0]["uid"] != old

    story(life)


def test_a_job_that_is_gone_is_not_queued_again_and_again_while_the_watch_is_late() -> None:
    async def life(s: Stack) -> None:
        await s.stop_manager()
        still = _StillJobs(s.server.transport("pykueue-manager"))
        s.server.transport = lambda user="": still  # type: ignore[method-assign, assignment, return-value]
        await s.start_manager()
        await s.apply(job("big", 10))
        await s.apply(job("a", 10))
        await s.settle()
        still.still = True
        await s.delete(JOBS, "a")
        await s.delete(JOBS, "big")
        for _ in range(20):
            for workload in await s.workloads():
                await s.delete(WORKLOADS, workload["metadata"]["name"])
            await s.settle(1)
        assert s.transport.writes["POST workloads"] <= 4

    story(life)
