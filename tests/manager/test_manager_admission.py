"""Admission in all its forms: checks, parts of jobs, priorities, preemption, time limits, readiness."""

from __future__ import annotations

import pytest
from manager_stack import QUEUES, Stack, job, story

from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    NAMESPACES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from pykueue.kube.errors import ApiError

CHECK = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: c}
spec: {controllerName: example.com/c}
"""
CLASSES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: low}
value: 10
"""
PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}


def priority(name: str) -> dict[str, str]:
    return {"kueue.x-k8s.io/priority-class": name}


async def with_check(s: Stack) -> None:
    """A check that is active, on the ClusterQueue."""
    await s.apply(CHECK)
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "m",
        "lastTransitionTime": s.now(),
    }
    await s.patch(ADMISSION_CHECKS, "c", {"status": {"conditions": [condition]}}, "status")
    rule = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
    await s.patch(CLUSTER_QUEUES, "cq", {"spec": rule})
    await s.settle()


async def answer(s: Stack, name: str, state: str, **more: object) -> None:
    """The check's controller answers for a job's Workload."""
    workload = await s.workload(name)
    check = {"name": "c", "state": state, "lastTransitionTime": s.now(), "message": "m", **more}
    name = workload["metadata"]["name"]
    await s.patch(WORKLOADS, name, {"status": {"admissionChecks": [check]}}, "status")
    await s.settle()


class TestChecks:
    def test_hold_the_start_until_ready_and_may_add_to_the_pods(self) -> None:
        async def life(s: Stack) -> None:
            await with_check(s)
            await s.apply(job("a"))
            await s.settle()
            found = await s.conditions("a")
            assert found["QuotaReserved"] == ("True", "QuotaReserved")
            assert found["Admitted"] == ("False", "UnsatisfiedAdmissionChecks")
            assert await s.suspended("a")
            assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 1
            assert (await s.cluster_queue())["status"]["admittedWorkloads"] == 0
            updates = [{"name": "main", "annotations": {"a": "b"}, "nodeSelector": {"pool": "new"}}]
            await answer(s, "a", "Ready", podSetUpdates=updates)
            assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")
            template = (await s.job("a"))["spec"]["template"]
            assert template["metadata"]["annotations"]["a"] == "b"
            assert template["spec"]["nodeSelector"] == {"pool": "new"}

        story(life)

    def test_that_ask_for_a_retry_release_the_quota_until_then(self) -> None:
        async def life(s: Stack) -> None:
            await with_check(s)
            await s.apply(job("a"))
            await s.settle()
            await answer(s, "a", "Retry", requeueAfterSeconds=60)
            found = await s.conditions("a")
            assert found["Evicted"] == ("True", "AdmissionCheck")
            assert found["QuotaReserved"] == ("False", "PendingEvaluation")
            (check,) = (await s.workload("a"))["status"]["admissionChecks"]
            assert (check["state"], check["retryCount"]) == ("Pending", 1)
            await s.settle(61)
            assert (await s.conditions("a"))["QuotaReserved"][0] == "True"

        story(life)

    def test_that_reject_deactivate(self) -> None:
        async def life(s: Stack) -> None:
            await with_check(s)
            await s.apply(job("a"))
            await s.settle()
            await answer(s, "a", "Rejected")
            assert (await s.workload("a"))["spec"]["active"] is False
            assert (await s.conditions("a"))["Evicted"] == ("True", "DeactivatedDueToAdmissionCheck")
            assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 0
            assert "AdmissionCheckRejected" in await s.events((await s.workload("a"))["metadata"]["name"])

        story(life)


class TestPartialAdmission:
    def test_starts_with_what_fits_and_asks_for_all_again_after_an_eviction(self) -> None:
        async def life(s: Stack) -> None:
            annotations = {
                "kueue.x-k8s.io/job-min-parallelism": "8",
                "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
            }
            await s.apply(job("a", 16, annotations=annotations, completionMode="Indexed"))
            await s.settle()
            spec = (await s.job("a"))["spec"]
            assert (spec["suspend"], spec["parallelism"], spec["completions"]) == (False, 10, 10)
            workload = await s.workload("a")
            assert workload["status"]["admission"]["podSetAssignments"][0]["count"] == 10
            assert workload["spec"]["podSets"][0]["minCount"] == 8
            await s.run_job("a")
            await s.settle()
            assert (await s.conditions("a"))["PodsReady"] == ("True", "Started")
            await s.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})
            await s.settle()
            await s.stop_pods("a")
            await s.settle()
            spec = (await s.job("a"))["spec"]
            assert (spec["suspend"], spec["parallelism"], spec["completions"]) == (True, 16, 16)
            assert [w["metadata"]["uid"] for w in await s.workloads()] == [workload["metadata"]["uid"]]

        story(life)


class TestPriorities:
    def test_come_from_the_class_on_the_job_and_follow_its_value(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(CLASSES)
            await s.apply(job("a", labels=priority("high")))
            await s.settle()
            workload = await s.workload("a")
            assert workload["spec"]["priority"] == 1000
            assert workload["spec"]["priorityClassRef"] == {
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": "high",
            }
            await s.patch(WORKLOAD_PRIORITY_CLASSES, "high", {"value": 2000})
            await s.settle()
            assert (await s.workload("a"))["spec"]["priority"] == 2000
            await s.patch(JOBS, "a", {"metadata": {"labels": priority("low")}})
            await s.settle()
            assert (await s.workload("a"))["spec"]["priority"] == 10

        story(life)

    def test_a_missing_class_is_waited_for(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", labels=priority("high")))
            await s.settle()
            assert await s.workloads() == []
            assert "WorkloadPriorityClassNotFound" in await s.events("a")
            await s.apply(CLASSES)
            await s.settle()
            assert not await s.suspended("a")

        story(life)

    def test_pods_bring_their_own_where_no_class_is_named(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(
                """
                apiVersion: scheduling.k8s.io/v1
                kind: PriorityClass
                metadata: {name: batch}
                value: 7
                """
            )
            obj = job("a")
            obj["spec"]["template"]["spec"]["priorityClassName"] = "batch"
            await s.apply(obj)
            await s.settle()
            assert (await s.workload("a"))["spec"]["priority"] == 7

        story(life)

    def test_the_higher_one_goes_first_and_may_preempt(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(CLASSES)
            await s.patch(CLUSTER_QUEUES, "cq", PREEMPTION)
            await s.apply(job("low", 6, labels=priority("low")))
            await s.settle()
            await s.run_job("low")
            await s.apply(job("high", 6, labels=priority("high")))
            await s.settle()
            victim = await s.conditions("low")
            assert victim["Evicted"] == ("True", "Preempted")
            assert victim["Preempted"] == ("True", "InClusterQueue")
            assert (await s.conditions("high"))["QuotaReserved"] == ("False", "WaitingForPreemptedWorkloads")
            assert await s.suspended("low")
            assert await s.suspended("high")
            await s.stop_pods("low")
            await s.settle()
            assert not await s.suspended("high")
            victim = await s.conditions("low")
            assert victim["Requeued"] == ("True", "Preempted")
            assert victim["QuotaReserved"] == ("False", "WaitingForQuota")
            await s.finish_job("high")
            await s.settle()
            assert not await s.suspended("low")
            assert (await s.conditions("low"))["Preempted"] == ("False", "QuotaReserved")

        story(life)


class TestReadiness:
    BLOCKING = "waitForPodsReady: {timeout: 10m, blockAdmission: true}"

    def test_blocks_the_next_job_until_the_pods_of_the_first_are_ready(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", 2))
            await s.settle()
            await s.apply(job("b", 2))
            await s.settle()
            assert await s.suspended("b")
            assert (await s.conditions("b"))["QuotaReserved"] == ("False", "WaitingForPodsReady")
            await s.run_job("a", ready=1)
            await s.settle()
            assert await s.suspended("b")
            await s.run_job("a", ready=2)
            await s.settle(1)
            assert not await s.suspended("b")

        story(life, self.BLOCKING)

    def test_does_not_block_where_it_is_not_asked_to(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", 2))
            await s.apply(job("b", 2))
            await s.settle()
            assert not await s.suspended("a")
            assert not await s.suspended("b")

        story(life)

    def test_lost_and_regained_is_recovery(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", 2))
            await s.settle()
            await s.run_job("a")
            await s.settle()
            await s.run_job("a", ready=1)
            await s.settle()
            assert (await s.conditions("a"))["PodsReady"] == ("False", "WaitForRecovery")
            await s.run_job("a")
            await s.settle()
            assert (await s.conditions("a"))["PodsReady"] == ("True", "Recovered")
            await s.run_job("a", ready=1)
            await s.settle(31)
            assert (await s.conditions("a"))["Evicted"] == ("True", "PodsReadyTimeout")

        story(life, "waitForPodsReady: {timeout: 10m, recoveryTimeout: 30s}")


class TestTimeLimit:
    def test_deactivates_and_counts_only_time_admitted(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", labels={"kueue.x-k8s.io/max-exec-time-seconds": "100"}))
            await s.settle(1)
            await s.run_job("a")
            await s.settle(58)
            name = (await s.workload("a"))["metadata"]["name"]
            await s.patch(WORKLOADS, name, {"spec": {"active": False}})
            await s.settle(1)
            await s.stop_pods("a")
            await s.settle(500)
            past = (await s.workload("a"))["status"]["accumulatedPastExecutionTimeSeconds"]
            assert 59 <= past <= 61
            await s.patch(WORKLOADS, name, {"spec": {"active": True}})
            await s.settle(1)
            await s.run_job("a")
            await s.settle(35)
            assert not await s.suspended("a")
            await s.settle(10)
            assert await s.suspended("a")
            await s.stop_pods("a")
            await s.settle()
            reason = "DeactivatedDueToMaximumExecutionTimeExceeded"
            assert (await s.conditions("a"))["Evicted"] == ("True", reason)

        story(life)


class TestReclaim:
    def test_finished_pods_release_quota_before_the_job_ends(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", 3, cpu="3", backoffLimit=0))
            await s.settle()
            await s.run_job("a")
            await s.apply(job("b", 1, cpu="3"))
            await s.settle()
            assert await s.suspended("b")
            await s.job_status("a", active=2, ready=2, succeeded=1)
            await s.settle()
            assert (await s.workload("a"))["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
            assert not await s.suspended("b")
            assert (await s.cluster_queue())["status"]["flavorsUsage"][0]["resources"][0]["total"] == "9"

        story(life)


class TestFlavors:
    def test_labels_and_tolerations_reach_the_pods_and_go_again(self) -> None:
        flavored = QUEUES.replace(
            "metadata: {name: default-flavor}",
            "metadata: {name: default-flavor}\n"
            "spec: {nodeLabels: {instance: spot}, tolerations: [{key: spot, operator: Exists}]}",
        )

        async def life(s: Stack) -> None:
            await s.apply(job("a"))
            await s.settle()
            before = (await s.job("a"))["spec"]["template"]
            assert before["spec"]["nodeSelector"] == {"instance": "spot"}
            assert before["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
            labels = before["metadata"]["labels"]
            assert labels["kueue.x-k8s.io/podset"] == "main"
            assert labels["kueue.x-k8s.io/local-queue-name"] == "lq"
            assert labels["kueue.x-k8s.io/cluster-queue-name"] == "cq"
            await s.run_job("a")
            await s.patch(WORKLOADS, (await s.workload("a"))["metadata"]["name"], {"spec": {"active": False}})
            await s.settle()
            await s.stop_pods("a")
            await s.settle()
            after = (await s.job("a"))["spec"]["template"]
            assert "nodeSelector" not in after["spec"]
            assert "tolerations" not in after["spec"]
            assert "kueue.x-k8s.io/podset" not in after["metadata"]["labels"]

        story(life, queues=flavored)


class TestWhoIsManaged:
    def test_job_without_a_queue_is_not_suspended(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", queue=None))
            await s.settle()
            assert not await s.suspended("a")
            assert await s.workloads() == []

        story(life)

    def test_all_jobs_wait_where_all_are_managed(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", queue=None))
            await s.settle()
            assert await s.suspended("a")
            assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Misconfigured")

        story(life, "manageJobsWithoutQueueName: true")

    def test_the_queue_named_default_takes_jobs_that_name_none(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", queue=None))
            await s.settle()
            assert (await s.job("a"))["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
            assert not await s.suspended("a")

        story(life, queues=QUEUES.replace("name: lq,", "name: default,"))

    def test_the_deprecated_annotation_names_a_queue_with_a_warning(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", queue=None, annotations={"kueue.x-k8s.io/queue-name": "lq"}))
            await s.settle()
            assert (await s.workload("a"))["spec"]["queueName"] == "lq"
            assert not await s.suspended("a")
            assert "DeprecatedQueueNameAnnotation" in await s.events("a")

        story(life)

    def test_a_queue_takes_only_from_the_namespaces_it_selects(self) -> None:
        selective = QUEUES.replace("namespaceSelector: {}", "namespaceSelector: {matchLabels: {team: a}}")

        async def life(s: Stack) -> None:
            await s.apply(job("a"))
            await s.settle()
            assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Misconfigured")
            await s.patch(NAMESPACES, "default", {"metadata": {"labels": {"team": "a"}}})
            await s.settle()
            assert not await s.suspended("a")

        story(life, queues=selective)

    def test_a_running_job_that_gets_a_queue_is_stopped_and_queued(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", queue=None))
            await s.run_job("a")
            await s.settle()
            assert not await s.suspended("a")
            with pytest.raises(ApiError):
                await s.patch(JOBS, "a", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}})

        story(life)


class TestEnds:
    def test_a_failed_job_finishes_its_workload_as_failed(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a"))
            await s.settle()
            await s.run_job("a")
            await s.finish_job("a", failed=True)
            await s.settle()
            assert (await s.conditions("a"))["Finished"] == ("True", "Failed")

        story(life)

    def test_finished_workloads_are_deleted_after_their_retention(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a"))
            await s.settle()
            await s.finish_job("a")
            await s.settle(55)
            assert len(await s.workloads()) == 1
            await s.settle(10)
            assert await s.workloads() == []

        story(life, "objectRetentionPolicies: {workloads: {afterFinished: 60s}}")

    def test_jobs_that_the_system_deactivated_are_deleted_after_their_retention(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a", labels={"kueue.x-k8s.io/max-exec-time-seconds": "10"}))
            await s.settle(12)
            assert (await s.workload("a"))["spec"]["active"] is False
            await s.settle(65)
            with pytest.raises(ApiError) as caught:
                await s.job("a")
            assert caught.value.not_found

        story(life, "objectRetentionPolicies: {workloads: {afterDeactivatedByKueue: 60s}}")

    def test_workload_whose_job_is_gone_is_finished_without_finalizer(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a"))
            await s.settle()
            name = (await s.workload("a"))["metadata"]["name"]
            await s.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}})
            await s.delete(JOBS, "a")
            await s.settle()
            (left,) = [w for w in await s.workloads() if w["metadata"]["name"] == name]
            assert not left["metadata"].get("finalizers")
            assert any(c["reason"] == "OwnerNotFound" for c in left["status"]["conditions"])

        story(life)

    @pytest.mark.parametrize("external", [False, True])
    def test_finalizer_of_deleted_workload_of_an_unqueued_kind_is_removed(self, external: bool) -> None:
        """Another installation created it; an external controller, if named, removes its finalizer itself."""

        async def life(s: Stack) -> None:
            await s.apply(job("a"))
            await s.settle()
            template = await s.workload("a")
            owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "b", "uid": "b", "controller": True}
            metadata = {
                "name": "rayjob-b",
                "namespace": template["metadata"]["namespace"],
                "finalizers": ["kueue.x-k8s.io/resource-in-use"],
                "ownerReferences": [owner],
            }
            await s.apply({**template, "metadata": metadata, "status": {}})
            await s.settle()
            await s.delete(WORKLOADS, "rayjob-b")
            await s.settle()
            left = {workload["metadata"]["name"] for workload in await s.workloads()}
            assert ("rayjob-b" in left) is external

        story(life, "integrations: {externalFrameworks: [RayJob.v1.ray.io]}" if external else "")

    def test_deleted_workload_stops_its_job_which_is_queued_again(self) -> None:
        async def life(s: Stack) -> None:
            await s.apply(job("a"))
            await s.settle()
            await s.run_job("a")
            before = await s.workload("a")
            await s.delete(WORKLOADS, before["metadata"]["name"])
            await s.settle()
            assert await s.suspended("a")
            await s.stop_pods("a")
            await s.settle()
            after = await s.workload("a")
            assert after["metadata"]["uid"] != before["metadata"]["uid"]
            assert not await s.suspended("a")

        story(life)

    def test_a_job_that_can_never_start_as_admitted_says_so(self) -> None:
        async def life(s: Stack) -> None:
            obj = job("a")
            obj["spec"]["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/podset": "other"}}
            await s.apply(obj)
            await s.settle()
            assert (await s.conditions("a"))["Finished"] == ("True", "FailedToStart")
            assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 0

        story(life)


def test_a_closed_preemption_gate_is_the_reason_until_it_is_opened() -> None:
    high = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "high", "namespace": "default"},
        "spec": {
            "queueName": "lq",
            "priority": 1000,
            "preemptionGates": [{"name": "example.com/gate"}],
            "podSets": [{"name": "main", "count": 6, "template": job("high")["spec"]["template"]}],
        },
    }

    async def blocked(s: Stack) -> tuple[str, str]:
        (found,) = [
            one
            for one in (await s.get(WORKLOADS, "high"))["status"]["conditions"]
            if one["type"] == "BlockedOnPreemptionGates"
        ]
        return found["status"], found["reason"]

    async def life(s: Stack) -> None:
        await s.patch(CLUSTER_QUEUES, "cq", PREEMPTION)
        await s.apply(job("low", 6))
        await s.settle()
        await s.run_job("low")
        await s.apply(high)
        await s.settle()
        (reserved,) = [
            one
            for one in (await s.get(WORKLOADS, "high"))["status"]["conditions"]
            if one["type"] == "QuotaReserved"
        ]
        assert reserved["reason"] == "AdmissionGated"
        assert "preemption gate is closed" in reserved["message"]
        assert await blocked(s) == ("True", "PreemptionGated")
        opened = {
            "name": "example.com/gate",
            "position": "Open",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await s.client.patch(
            WORKLOADS, "high", "default", {"status": {"preemptionGates": [opened]}}, subresource="status"
        )
        await s.settle()
        assert (await s.conditions("low"))["Evicted"] == ("True", "Preempted")
        await s.stop_pods("low")
        await s.settle()
        assert await blocked(s) == ("False", "QuotaReserved")

    story(life, "featureGates: {ConcurrentAdmission: true}")
