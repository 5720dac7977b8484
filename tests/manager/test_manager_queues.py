"""Queues as administrators change them: status, stops, quota, flavors and checks that come and go."""

from __future__ import annotations

import pytest
from manager_stack import Object, Stack, job, story

from pykueue.api.quantity import parse
from pykueue.kube.errors import ApiError
from pykueue.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)


def active(obj: Object) -> tuple[str, str]:
    """Status and reason of the condition Active."""
    return next((c["status"], c["reason"]) for c in obj["status"]["conditions"] if c["type"] == "Active")


async def quota(s: Stack, cpu: str, name: str = "cq") -> None:
    queue = await s.cluster_queue(name)
    groups = queue["spec"]["resourceGroups"]
    resource = {**groups[0]["flavors"][0]["resources"][0], "nominalQuota": cpu}
    flavor = {**groups[0]["flavors"][0], "resources": [resource]}
    await s.patch(CLUSTER_QUEUES, name, {"spec": {"resourceGroups": [{**groups[0], "flavors": [flavor]}]}})


def test_queues_say_whether_they_take_part_and_what_they_hold() -> None:
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


def test_lowering_quota_evicts_nobody_but_lets_nobody_in() -> None:
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


def test_what_is_in_use_stays_until_it_is_not() -> None:
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


def test_a_condition_says_which_spec_it_speaks_of_for_one_write() -> None:
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


def test_a_bare_workload_is_admitted_without_any_job() -> None:
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


def test_every_job_that_waits_is_told_why_even_one_nobody_looked_at() -> None:
    async def life(s: Stack) -> None:
        for number in range(20):
            await s.apply(job(f"j{number}", 6))
        await s.settle(10)
        reasons = [(await s.conditions(f"j{number}"))["QuotaReserved"] for number in range(20)]
        assert sorted(set(reasons)) == [("False", "WaitingForQuota"), ("True", "QuotaReserved")]
        assert reasons.count(("False", "WaitingForQuota")) == 19
        messages = {await s.message(f"j{number}") for number in range(20)}
        assert any("evaluation was skipped" in text for text in messages)

    story(life)


def test_jobs_behind_a_blocked_one_in_a_strict_queue_are_told_that_they_wait_for_their_turn() -> None:
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
