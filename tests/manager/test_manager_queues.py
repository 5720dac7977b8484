"""Queues as administrators change them: status, stops, quota, flavors and checks that come and go."""

from __future__ import annotations

import pytest
from manager_stack import Object, Stack, job, story

from pykueue.api import conditions
from pykueue.api.kueue import LocalQueue
from pykueue.api.quantity import parse
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    EVENTS,
    JOBS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)
from pykueue.engine.dump import objects_of
from pykueue.kube.errors import ApiError
from queue_manifests import QUEUES


def active(obj: Object) -> tuple[str, str]:
    """Status and reason of the condition Active."""
    return next((c["status"], c["reason"]) for c in obj["status"]["conditions"] if c["type"] == "Active")


async def quota(s: Stack, cpu: str, name: str = "cq") -> None:
    queue = await s.cluster_queue(name)
    groups = queue["spec"]["resourceGroups"]
    resource = {**groups[0]["flavors"][0]["resources"][0], "nominalQuota": cpu}
    flavor = {**groups[0]["flavors"][0], "resources": [resource]}
    await s.patch(CLUSTER_QUEUES, name, {"spec": {"resourceGroups": [{**groups[0], "flavors": [flavor]}]}})


def test_queue_status_has_active_condition_and_reservations() -> None:
    async def life(s: Stack) -> None:
        assert active(await s.cluster_queue()) == ("True", "Ready")
        assert active(await s.local_queue()) == ("True", "Ready")
        await s.apply(job("a", 6))
        await s.apply(job("b", 6))
        await s.settle()
        for queue in (await s.cluster_queue(), await s.local_queue()):
            status = queue["status"]
            assert [status[f"{kind}Workloads"] for kind in ("pending", "reserving", "admitted")] == [1, 1, 1]
            (flavor,) = status["flavorsUsage"]
            assert flavor["name"] == "default-flavor"
            assert flavor["resources"][0]["total"] == "6"

    story(life)


def test_queues_whose_parts_are_missing_say_which() -> None:
    async def life(s: Stack) -> None:
        await s.apply(
            """
            apiVersion: kueue.x-k8s.io/v1beta2
            kind: ClusterQueue
            metadata: {name: incomplete}
            spec:
              namespaceSelector: {}
              resourceGroups:
              - coveredResources: [cpu]
                flavors:
                - name: absent
                  resources: [{name: cpu, nominalQuota: 1}]
              admissionChecksStrategy: {admissionChecks: [{name: nowhere}]}
            ---
            apiVersion: kueue.x-k8s.io/v1beta2
            kind: LocalQueue
            metadata: {name: incomplete, namespace: default}
            spec: {clusterQueue: incomplete}
            ---
            apiVersion: kueue.x-k8s.io/v1beta2
            kind: LocalQueue
            metadata: {name: lost, namespace: default}
            spec: {clusterQueue: nowhere}
            """
        )
        await s.settle()
        queue = await s.cluster_queue("incomplete")
        assert active(queue) == ("False", "FlavorNotFound")
        assert "absent" in queue["status"]["conditions"][0]["message"]
        assert "nowhere" in queue["status"]["conditions"][0]["message"]
        assert active(await s.local_queue("incomplete")) == ("False", "ClusterQueueIsInactive")
        assert active(await s.local_queue("lost")) == ("False", "ClusterQueueDoesNotExist")
        for name, queue_name, reason in (
            ("a", "incomplete", "Suspended"),
            ("b", "lost", "Misconfigured"),
            ("c", "nowhere", "Misconfigured"),
        ):
            await s.apply(job(name, queue=queue_name))
            await s.settle()
            assert (await s.conditions(name))["QuotaReserved"] == ("False", reason)
        await s.apply("{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: absent}}")
        await s.patch(CLUSTER_QUEUES, "incomplete", {"spec": {"admissionChecksStrategy": None}})
        await s.settle()
        assert active(await s.cluster_queue("incomplete")) == ("True", "Ready")
        assert active(await s.local_queue("incomplete")) == ("True", "Ready")
        assert not await s.suspended("a")

    story(life)


def test_quota_patched_to_zero_and_back_lets_the_waiting_job_start_untouched() -> None:
    async def life(s: Stack) -> None:
        await quota(s, "0")
        await s.apply(job("a", 2, cpu="500m"))
        await s.settle()
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "ExceedsMaxQuota")
        assert (await s.cluster_queue())["status"]["pendingWorkloads"] == 1
        await quota(s, "4")
        await s.settle(1)
        assert not await s.suspended("a")

    story(life)


def test_lowering_quota_evicts_no_workload_and_admits_none() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        await quota(s, "4")
        await s.apply(job("b", 1))
        await s.settle()
        assert not await s.suspended("a")
        assert await s.suspended("b")

    story(life)


@pytest.mark.parametrize(
    ("resource", "name", "reason"),
    [(CLUSTER_QUEUES, "cq", "ClusterQueue"), (LOCAL_QUEUES, "lq", "LocalQueue")],
)
def test_a_held_queue_keeps_what_runs_and_a_drained_one_evicts_it_until_restarted(
    resource: Resource, name: str, reason: str
) -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        await s.run_job("a")
        await s.patch(resource, name, {"spec": {"stopPolicy": "Hold"}})
        await s.apply(job("b", 1))
        await s.settle()
        assert not await s.suspended("a")
        assert (await s.conditions("b"))["QuotaReserved"] == ("False", "Suspended")
        await s.patch(resource, name, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await s.settle()
        assert await s.suspended("a")
        await s.stop_pods("a")
        await s.settle()
        found = await s.conditions("a")
        assert found["Evicted"] == ("True", f"{reason}Stopped")
        assert found["Requeued"] == ("False", f"{reason}Stopped")
        assert found["QuotaReserved"] == ("False", "Suspended")
        await s.patch(resource, name, {"spec": {"stopPolicy": "None"}})
        await s.settle()
        assert (await s.conditions("a"))["Requeued"] == ("True", f"{reason}Restarted")
        assert not await s.suspended("a")
        assert not await s.suspended("b")

    story(life)


def test_queues_and_flavors_in_use_are_deleted_when_no_longer_used() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        await s.delete(CLUSTER_QUEUES, "cq")
        await s.delete(RESOURCE_FLAVORS, "default-flavor")
        await s.apply(job("b", 1))
        await s.settle()
        assert active(await s.cluster_queue()) == ("False", "Terminating")
        assert not await s.suspended("a")
        assert await s.suspended("b")
        await s.finish_job("a")
        await s.settle(3)
        for resource, name in ((CLUSTER_QUEUES, "cq"), (RESOURCE_FLAVORS, "default-flavor")):
            with pytest.raises(ApiError) as caught:
                await s.get(resource, name)
            assert caught.value.not_found

    story(life)


def test_a_check_is_kept_while_a_queue_names_it() -> None:
    async def life(s: Stack) -> None:
        await s.apply(
            """
            apiVersion: kueue.x-k8s.io/v1beta2
            kind: AdmissionCheck
            metadata: {name: c}
            spec: {controllerName: example.com/c}
            """
        )
        rule = {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}}
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": rule})
        await s.settle()
        assert active(await s.cluster_queue()) == ("False", "AdmissionCheckInactive")
        assert (await s.get(ADMISSION_CHECKS, "c"))["metadata"]["finalizers"]
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"admissionChecksStrategy": None}})
        await s.settle()
        assert not (await s.get(ADMISSION_CHECKS, "c"))["metadata"].get("finalizers")

    story(life)


def test_a_topology_is_kept_while_a_flavor_names_it() -> None:
    async def life(s: Stack) -> None:
        await s.apply(
            """
            apiVersion: kueue.x-k8s.io/v1beta2
            kind: Topology
            metadata: {name: racks}
            spec: {levels: [{nodeLabel: rack}]}
            ---
            apiVersion: kueue.x-k8s.io/v1beta2
            kind: ResourceFlavor
            metadata: {name: racked}
            spec: {nodeLabels: {pool: racked}, topologyName: racks}
            """
        )
        await s.settle()
        await s.delete(TOPOLOGIES, "racks")
        await s.settle()
        assert (await s.get(TOPOLOGIES, "racks"))["metadata"]["deletionTimestamp"]
        await s.delete(RESOURCE_FLAVORS, "racked")
        await s.settle()
        with pytest.raises(ApiError) as caught:
            await s.get(TOPOLOGIES, "racks")
        assert caught.value.not_found

    story(life)


def test_a_waiting_job_moves_to_another_queue() -> None:
    async def life(s: Stack) -> None:
        await s.apply(
            """
            apiVersion: kueue.x-k8s.io/v1beta2
            kind: LocalQueue
            metadata: {name: other, namespace: default}
            spec: {clusterQueue: cq}
            """
        )
        await s.apply(job("a", 1, queue="nowhere"))
        await s.settle()
        assert await s.suspended("a")
        await s.patch(JOBS, "a", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        await s.settle()
        assert (await s.workload("a"))["spec"]["queueName"] == "other"
        assert not await s.suspended("a")
        with pytest.raises(ApiError, match="immutable"):
            await s.patch(JOBS, "a", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}})

    story(life)


def test_workload_that_waits_for_replacement_pods_is_not_counted_as_pending_until_they_are_there() -> None:
    async def life(s: Stack) -> None:
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await s.apply(job("a"))
        await s.settle(10)
        workload = await s.workload("a")
        for status, pending in (("True", 0), ("False", 1)):
            waits = {"type": "WaitingForReplacementPods", "status": status, "reason": "Preempted"}
            condition = {**waits, "message": "", "lastTransitionTime": s.now()}
            present = [*workload["status"]["conditions"], condition]
            name = workload["metadata"]["name"]
            await s.patch(WORKLOADS, name, {"status": {"conditions": present}}, "status")
            await s.settle(10)
            assert (await s.cluster_queue())["status"].get("pendingWorkloads", 0) == pending
            assert (await s.local_queue())["status"].get("pendingWorkloads", 0) == pending

    story(life)


def test_a_status_write_of_a_queue_is_not_paid_per_job() -> None:
    async def life(s: Stack) -> None:
        s.transport.writes.clear()
        for number in range(50):
            await s.apply(job(f"j{number}", cpu="10m"))
        await s.settle(3)
        assert (await s.cluster_queue())["status"]["admittedWorkloads"] == 50
        assert s.transport.writes["PATCH clusterqueues/status"] <= 3
        assert s.transport.writes["PATCH localqueues/status"] <= 3

    story(life)


def test_a_busy_queue_gets_one_status_write_a_second() -> None:
    async def life(s: Stack) -> None:
        await s.settle(10)
        s.transport.writes.clear()
        for number in range(50):
            await s.apply(job(f"waits-{number}", 20))
            await s.settle(0.1)
        assert s.transport.writes["PATCH localqueues/status"] in (5, 6)
        assert s.transport.writes["PATCH clusterqueues/status"] in (5, 6)

    story(life)


def test_condition_has_the_observed_generation_in_one_write() -> None:
    async def life(s: Stack) -> None:
        before = {
            CLUSTER_QUEUES: (await s.cluster_queue())["status"]["conditions"],
            LOCAL_QUEUES: (await s.local_queue())["status"]["conditions"],
        }
        await s.settle(30)
        s.transport.writes.clear()
        await quota(s, "9")
        await s.settle(10)
        assert s.transport.writes["PATCH clusterqueues/status"] == 1
        assert s.transport.writes["PATCH localqueues/status"] == 0
        fair = {"fairSharing": {"weight": "2"}}
        await s.patch(LOCAL_QUEUES, "lq", {"spec": fair})
        await s.settle(10)
        assert s.transport.writes["PATCH clusterqueues/status"] == 1
        assert s.transport.writes["PATCH localqueues/status"] == 1
        for resource, name in ((CLUSTER_QUEUES, "cq"), (LOCAL_QUEUES, "lq")):
            queue = await s.get(resource, name)
            (was,), (now,) = before[resource], queue["status"]["conditions"]
            assert now == {**was, "observedGeneration": queue["metadata"]["generation"]}
            assert now["observedGeneration"] == was["observedGeneration"] + 1

    story(life)


def test_nothing_is_written_or_read_while_nothing_happens() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        await s.apply(job("b", 6))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        s.transport.calls = 0
        await s.settle(1500)
        assert s.transport.calls == 0

    story(life)


def test_workload_without_a_job_is_admitted() -> None:
    async def life(s: Stack) -> None:
        await s.apply(
            """
            apiVersion: kueue.x-k8s.io/v1beta1
            kind: Workload
            metadata: {name: sample-job, namespace: default}
            spec:
              active: true
              queueName: lq
              podSets:
              - count: 3
                name: main
                template:
                  spec:
                    restartPolicy: Never
                    containers:
                    - {name: c, image: i, resources: {requests: {cpu: "1"}}}
            """
        )
        await s.settle()
        assert (await s.conditions("sample-job"))["Admitted"] == ("True", "Admitted")
        assert (await s.cluster_queue())["status"]["flavorsUsage"][0]["resources"][0]["total"] == "3"
        await s.patch(WORKLOADS, "sample-job", {"spec": {"active": False}})
        await s.settle()
        assert (await s.conditions("sample-job"))["QuotaReserved"] == ("False", "Deactivated")
        assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 0

    story(life)


def test_every_pending_workload_has_a_reason_even_if_it_was_never_a_head() -> None:
    async def life(s: Stack) -> None:
        for number in range(20):
            await s.apply(job(f"j{number}", 6))
        await s.settle(10)
        reasons = [(await s.conditions(f"j{number}"))["QuotaReserved"] for number in range(20)]
        assert sorted(set(reasons)) == [("False", "WaitingForQuota"), ("True", "QuotaReserved")]
        assert reasons.count(("False", "WaitingForQuota")) == 19

    story(life)


def test_the_second_of_two_equal_jobs_reports_the_amounts_and_limits_of_the_first_with_an_event() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("running", 6))
        await s.settle()
        for name in ("first", "second", "third"):
            await s.apply(job(name, 6))
        await s.settle(10)
        messages = [await s.message(name) for name in ("first", "second", "third")]
        assert len(set(messages)) == 1
        assert "insufficient unused quota for cpu in flavor default-flavor, 2 more needed" in messages[0]
        for name in ("first", "second", "third"):
            workload = await s.workload(name)
            assert "WaitingForQuota" in await s.events(workload["metadata"]["name"])
            assert workload["status"]["resourceRequests"] == [{"name": "main", "resources": {"cpu": "6"}}]

    story(life)


def test_cohorts_that_form_a_cycle_are_named_by_workload_queue_and_cohort_until_the_cycle_is_gone() -> None:
    async def life(s: Stack) -> None:
        cohort = "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {{name: {}}}, spec: {}}}"
        for name, parent in (("a", "c"), ("b", "a"), ("c", "b"), ("below", "a"), ("other", "root")):
            await s.apply(cohort.format(name, "{parentName: " + parent + "}"))
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"cohortName": "below"}})
        await s.apply(job("waiting", 1))
        await s.settle(10)
        cycle = "Can't admit new workloads: parentName of Cohorts forms a cycle: a -> c -> b -> a"

        async def activity(name: str) -> tuple[str, str, str]:
            obj = await s.get(COHORTS, name) if name != "cq" else await s.cluster_queue()
            (found,) = (c for c in obj["status"]["conditions"] if c["type"] == "Active")
            return found["status"], found["reason"], found["message"]

        for name in ("a", "b", "c", "below", "cq"):
            assert await activity(name) == ("False", "CohortCycle", cycle)
        assert "conditions" not in (await s.get(COHORTS, "other")).get("status", {})
        assert (await s.conditions("waiting"))["QuotaReserved"] == ("False", "Suspended")
        assert "parentName of Cohorts forms a cycle: a -> c -> b -> a" in await s.message("waiting")
        await s.patch(COHORTS, "c", {"spec": {"parentName": None}})
        await s.settle(10)
        for name in ("a", "b", "c", "below", "cq"):
            assert await activity(name) == ("True", "Ready", "Can admit new workloads")
        assert not await s.suspended("waiting")

    story(life)


def test_a_cycle_that_forms_above_a_running_job_leaves_it_running_and_keeps_the_next_one_waiting() -> None:
    async def life(s: Stack) -> None:
        cohort = "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {{name: {}}}, spec: {}}}"
        await s.apply(cohort.format("a", "{}"))
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"cohortName": "a"}})
        await s.apply(job("running", 6))
        await s.apply(job("waiting", 6))
        await s.settle(10)
        await s.patch(COHORTS, "a", {"spec": {"parentName": "a"}})
        await s.settle(10)
        assert active(await s.cluster_queue()) == ("False", "CohortCycle")
        assert not await s.suspended("running")
        assert "forms a cycle: a -> a" in await s.message("waiting")
        await s.finish_job("running")
        await s.settle(10)
        assert await s.suspended("waiting")

    story(life)


@pytest.mark.parametrize(
    ("resource", "quantity"),
    [("cpu", "1e30"), ("cpu", "9223372036854775807"), ("memory", "1e30"), ("memory", "8Ei")],
)
def test_a_request_out_of_range_is_misconfigured_with_the_resource_and_the_limit(
    resource: str, quantity: str
) -> None:
    async def life(s: Stack) -> None:
        manifest = job("huge", 1)
        manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {resource: quantity}
        await s.apply(manifest)
        await s.settle(10)
        assert (await s.conditions("huge"))["QuotaReserved"] == ("False", "Misconfigured")
        text = await s.message("huge")
        assert f"the request for {resource} is out of range: must be less than 9223372036854775807" in text

    story(life)


def test_workloads_behind_a_blocked_head_of_a_strict_queue_say_so() -> None:
    async def life(s: Stack) -> None:
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"queueingStrategy": "StrictFIFO"}})
        await s.apply(job("running", 6))
        await s.settle()
        await s.apply(job("blocked", 6))
        await s.settle()
        await s.apply(job("behind", 1))
        await s.settle(10)
        assert (await s.conditions("behind"))["QuotaReserved"] == ("False", "PendingEvaluation")
        assert "waits for its turn" in await s.message("behind")
        await s.finish_job("running")
        await s.settle()
        assert not await s.suspended("blocked")
        assert not await s.suspended("behind")

    story(life)


def test_reasons_of_a_long_queue_are_written_slowly_and_do_not_delay_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pykueue.manager.scheduler.pending_reasons.BURST", 10)

    async def life(s: Stack) -> None:
        async def told(prefix: str) -> int:
            found = [
                w
                for w in await s.workloads()
                if w["metadata"]["ownerReferences"][0]["name"].startswith(prefix)
            ]
            return sum(conditions.is_false(w, conditions.QUOTA_RESERVED) for w in found)

        await s.apply(QUEUES.replace("cq", "other").replace("lq", "other").split("---", 1)[1])
        for queue in ("lq", "other"):
            await s.apply(job(f"running-{queue}", 10, queue=queue))
            await s.settle()
            await s.apply(job(f"first-{queue}", 6, queue=queue))
        await s.settle(10)
        await s.apply([job(f"long-{number}", 6) for number in range(200)])
        await s.apply(job("short-1", 6, queue="other"))
        await s.settle(8)
        assert await told("short") == 1
        assert 20 <= await told("long") <= 50
        await s.settle(10)
        assert 100 <= await told("long") <= 150
        await s.settle(10)
        assert await told("long") == 200

    story(life)


async def make_queues_wait(s: Stack, count: int) -> None:
    """Create LocalQueues, and a job in each that waits; count the writes since the first job."""
    for number in range(count):
        await s.apply(QUEUES.rsplit("---", 1)[1].replace("lq", f"lq-{number}"))
    await s.settle(10)
    s.transport.writes.clear()
    for number in range(count):
        await s.apply(job(f"waits-{number}", 20, queue=f"lq-{number}"))


def test_the_status_of_many_busy_queues_is_written_slowly_and_comes_out_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pykueue.manager.queues.controller.BURST", 4)
    monkeypatch.setattr("pykueue.manager.queues.controller.RATE", 2.0)

    async def life(s: Stack) -> None:
        await make_queues_wait(s, 10)
        await s.settle(1)
        written = (
            s.transport.writes["PATCH localqueues/status"] + s.transport.writes["PATCH clusterqueues/status"]
        )
        assert 4 <= written <= 8
        await s.settle(20)
        for number in range(10):
            status = (await s.local_queue(f"lq-{number}"))["status"]
            assert status["pendingWorkloads"] == 1
        assert (await s.cluster_queue())["status"]["pendingWorkloads"] == 10

    story(life)


def test_the_status_of_all_queues_is_right_soon_after_workloads_stop_changing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pykueue.manager.queues.controller.BURST", 4)
    monkeypatch.setattr("pykueue.manager.queues.controller.RATE", 1.0)

    async def life(s: Stack) -> None:
        await make_queues_wait(s, 30)
        await s.settle(7)
        for number in range(30):
            assert (await s.local_queue(f"lq-{number}"))["status"]["pendingWorkloads"] == 1

    story(life)


def test_past_usage_is_published_and_survives_a_restart() -> None:
    async def life(s: Stack) -> None:
        await s.patch(
            CLUSTER_QUEUES,
            "cq",
            {"spec": {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}},
        )
        await s.apply(job("a", 6))
        await s.settle()
        await s.run_job("a")
        await s.settle(125)
        sharing = (await s.local_queue())["status"]["fairSharing"]["admissionFairSharingStatus"]
        published = parse(sharing["consumedResources"]["cpu"]).milli()
        assert 0 < published < 6000
        # Forecasts begin with what the engine was given.
        queue = next(each for each in objects_of(s.manager.engine) if isinstance(each, LocalQueue))
        past = queue.status.fair_sharing
        assert past is not None
        assert past.admission_fair_sharing_status is not None
        assert past.admission_fair_sharing_status.consumed_resources
        await s.stop_manager()
        await s.start_manager()
        await s.settle(5)
        view = s.manager.engine.local_queue("default", "lq")
        assert view is not None
        # It goes on from what was published, by one sample at most.
        assert published <= view.consumed["cpu"].milli() < 3 * published

    story(life, "admissionFairSharing: {usageHalfLifeTime: 10m, usageSamplingInterval: 1m}")


def test_weighted_shares_are_published_where_sharing_is_fair() -> None:
    async def life(s: Stack) -> None:
        await s.apply("{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: all}}")
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"cohortName": "all"}})
        await s.settle()
        assert (await s.cluster_queue())["status"]["fairSharing"] == {"weightedShare": 0}

    story(life, "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}")


def test_job_and_workload_get_an_event_when_their_queue_does_not_exist() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", queue="missing"))
        await s.settle(60)
        workload = await s.workload("a")
        expected = ("Misconfigured", "LocalQueue missing doesn't exist")
        for name in ("a", workload["metadata"]["name"]):
            assert list(await _warnings(s, name)) == [expected]
        await s.apply(LOCAL_QUEUE_WITHOUT_CLUSTER_QUEUE)
        await s.settle(60)
        assert (await _warnings(s, "a"))[-1] == ("Misconfigured", "ClusterQueue absent doesn't exist")

    story(life)


LOCAL_QUEUE_WITHOUT_CLUSTER_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: missing, namespace: default}
spec: {clusterQueue: absent}
"""


async def _warnings(s: Stack, name: str) -> list[tuple[str, str]]:
    """Reasons and messages of the warnings about an object, oldest first."""
    found = [e for e in (await s.client.list(EVENTS)).items if e["involvedObject"]["name"] == name]
    return [(e["reason"], e["message"]) for e in found if e["type"] == "Warning"]
