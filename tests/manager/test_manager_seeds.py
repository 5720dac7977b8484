"""What users have been told a queue does, row by row (reference/cluster-workloads.md 5)."""

from __future__ import annotations

import pytest
from manager_stack import Object, Stack, job, story

from pykueue.kube.errors import ApiError
from pykueue.kube.resources import LIMIT_RANGES, RUNTIME_CLASSES, WORKLOADS


def pods(**container: Object) -> Object:
    """A pod template with one container."""
    return {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", **container}]}}


def queue(name: str, quota: str, resource: str = "cpu", **spec: object) -> Object:
    """A ClusterQueue with one flavor, and below it a LocalQueue of the same name."""
    resources = [{"name": resource, "nominalQuota": quota}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": [resource],
                    "flavors": [{"name": "default-flavor", "resources": resources}],
                }
            ],
            **spec,
        },
    }


def local(name: str) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterQueue": name},
    }


async def usage(s: Stack, name: str) -> dict[str, str]:
    """What the admission of a job's Workload costs."""
    workload = await s.workload(name)
    found: dict[str, str] = workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]
    return found


def test_c4_the_queue_of_a_workload_changes_only_while_it_waits() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 11))
        await s.apply(job("b", 1))
        await s.settle()
        waiting, running = await s.workload("a"), await s.workload("b")
        for obj, allowed in ((waiting, True), (running, False)):
            change = s.patch(WORKLOADS, obj["metadata"]["name"], {"spec": {"queueName": "other"}})
            if allowed:
                await change
            else:
                with pytest.raises(ApiError):
                    await change

    story(life)


@pytest.mark.parametrize(
    ("template", "cpu"),
    [
        (pods(), "1"),
        (pods(resources={"limits": {"cpu": "2"}}), "1"),
        (pods(resources={"requests": {"cpu": "1"}}), "2"),
    ],
)
def test_c6_requests_are_completed_for_the_count_and_left_as_written(template: Object, cpu: str) -> None:
    async def life(s: Stack) -> None:
        await s.client.create(
            LIMIT_RANGES,
            {
                "apiVersion": "v1",
                "kind": "LimitRange",
                "metadata": {"name": "l", "namespace": "default"},
                "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "500m"}}]},
            },
        )
        await s.settle()
        await s.apply(job("a", 2, template=template))
        await s.settle()
        assert (await usage(s, "a"))["cpu"] == cpu
        stored = (await s.workload("a"))["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
        assert stored.get("resources", {}) == template["spec"]["containers"][0].get("resources", {})

    story(life)


def test_c6_a_limit_counts_as_the_request_where_none_is_written() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 2, template=pods(resources={"limits": {"cpu": "2"}})))
        await s.settle()
        assert (await usage(s, "a"))["cpu"] == "4"

    story(life)


def test_c6_the_overhead_of_the_runtime_class_is_counted() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(
            RUNTIME_CLASSES,
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": "boxed"},
                "handler": "boxed",
                "overhead": {"podFixed": {"cpu": "100m"}},
            },
        )
        await s.settle()
        template = pods(resources={"requests": {"cpu": "1"}})
        template["spec"]["runtimeClassName"] = "boxed"
        await s.apply(job("a", 2, template=template))
        await s.settle()
        assert (await usage(s, "a"))["cpu"] == "2200m"

    story(life)


def test_c7_a_request_outside_the_limit_range_is_not_admitted_and_says_so() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(
            LIMIT_RANGES,
            {
                "apiVersion": "v1",
                "kind": "LimitRange",
                "metadata": {"name": "l", "namespace": "default"},
                "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]},
            },
        )
        await s.settle()
        await s.apply(job("a", 1, cpu="3"))
        await s.settle()
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Misconfigured")
        assert "cpu" in await s.message("a")
        await s.client.delete(LIMIT_RANGES, "l", "default")
        await s.settle()
        assert not await s.suspended("a")

    story(life)


def test_c8_pods_is_a_quota_and_not_a_request() -> None:
    async def life(s: Stack) -> None:
        await s.apply(queue("few", "10", resource="pods"))
        await s.apply(local("few"))
        for name in ("a", "b"):
            await s.apply(job(name, 6, queue="few", template=pods()))
            await s.settle()
        assert not await s.suspended("a")
        assert await s.suspended("b")
        with pytest.raises(ApiError, match="pods"):
            await s.apply(
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta2",
                    "kind": "Workload",
                    "metadata": {"name": "w", "namespace": "default"},
                    "spec": {
                        "queueName": "few",
                        "podSets": [
                            {
                                "name": "main",
                                "count": 1,
                                "template": pods(resources={"requests": {"pods": "1"}}),
                            }
                        ],
                    },
                }
            )

    story(life)


def test_c11_indexed_pods_that_ended_give_back_their_share() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 3, completionMode="Indexed"))
        await s.settle()
        await s.run_job("a")
        await s.job_status("a", active=2, ready=2, succeeded=1, completedIndexes="0")
        await s.settle()
        queue_now = await s.cluster_queue()
        assert queue_now["status"]["flavorsUsage"][0]["resources"][0]["total"] == "2"

    story(life)


def test_b9a_sixty_thirty_ten_with_reclaim() -> None:
    async def life(s: Stack) -> None:
        gpu = "nvidia.com/gpu"
        reclaim = {"preemption": {"reclaimWithinCohort": "Any"}, "cohortName": "all"}
        await s.apply(queue("research", "6", gpu, cohortName="all"))
        await s.apply(queue("prod", "3", gpu, **reclaim))
        await s.apply(queue("demo", "1", gpu, **reclaim))
        for name in ("research", "prod", "demo"):
            await s.apply(local(name))
        template = pods(resources={"requests": {gpu: "1"}, "limits": {gpu: "1"}})
        for number in range(10):
            await s.apply(job(f"r{number}", queue="research", template=template))
            await s.settle(1.1)
        research = [f"r{number}" for number in range(10)]
        for name in research:
            assert not await s.suspended(name)
            await s.run_job(name)
        (flavor,) = (await s.cluster_queue("research"))["status"]["flavorsUsage"]
        assert flavor["resources"] == [{"name": gpu, "total": "10", "borrowed": "4"}]

        for number in range(3):
            await s.apply(job(f"p{number}", queue="prod", template=template))
            await s.settle()
            await stop_evicted(s, research)
        for number in range(3):
            assert not await s.suspended(f"p{number}")
        await s.apply(job("d", queue="demo", template=template))
        await s.settle()
        await stop_evicted(s, research)
        assert not await s.suspended("d")
        evicted = [name for name in research if await s.suspended(name)]
        assert len(evicted) == 4
        for name in evicted:
            assert (await s.conditions(name))["Preempted"] == ("True", "InCohortReclamation")

    story(life)


async def stop_evicted(s: Stack, names: list[str]) -> None:
    """The pods of evicted jobs go."""
    for name in names:
        obj = await s.job(name)
        if obj["spec"]["suspend"] and (obj.get("status") or {}).get("active"):
            await s.stop_pods(name)
    await s.settle()


def test_b12_two_jobs_for_one_place_follow_each_other_within_a_second() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 10))
        await s.settle()
        await s.apply(job("b", 10))
        await s.settle()
        assert "10" in await s.message("b")
        await s.finish_job("a")
        await s.settle(1)
        assert not await s.suspended("b")

    story(life)


@pytest.mark.parametrize(("timestamp", "first"), [("Eviction", "other"), ("Creation", "slow")])
def test_w14_where_an_evicted_job_queues_again(timestamp: str, first: str) -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("slow", 10))
        await s.settle()
        await s.run_job("slow", ready=0)
        await s.settle(10)
        await s.apply(job("hog", 10))
        await s.settle(5)
        await s.apply(job("other", 10))
        await s.settle(10)
        await s.stop_pods("slow")
        await s.settle()
        assert not await s.suspended("hog")
        await s.run_job("hog")
        await s.settle(5)
        await s.finish_job("hog")
        await s.settle()
        last = {"slow": "other", "other": "slow"}[first]
        assert not await s.suspended(first)
        assert await s.suspended(last)

    story(
        life,
        f"""
        waitForPodsReady:
          timeout: 20s
          requeuingStrategy: {{timestamp: {timestamp}, backoffBaseSeconds: 1}}
        """,
    )


def test_w17_with_blocking_the_second_waits_although_there_is_room() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 4))
        await s.settle()
        await s.apply(job("b", 4))
        await s.settle(30)
        assert await s.suspended("b")
        await s.run_job("a")
        await s.settle(1)
        assert not await s.suspended("b")

    story(life, "waitForPodsReady: {timeout: 10m, blockAdmission: true}")
