"""Elastic jobs: they grow and shrink while they run, with quota for every pod that is not gated."""

from __future__ import annotations

from typing import Any

import pytest
from stories_world import Object, Story, holds, job, play, pool

from pykueue.api.resources import JOBS, PODS, WORKLOADS
from queue_manifests import priority, queues

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
GATE = {"name": "kueue.x-k8s.io/elastic-job"}
SLICE = "kueue.x-k8s.io/workload-slice-name"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
NODES = [pool(count=2)]


def elastic(name: str, pods: int, **more: Any) -> Object:
    return job(name, pods, annotations=ELASTIC, run_time=more.pop("run_time", "forever"), **more)


async def resize(world: Story, name: str, pods: int) -> None:
    await world.patch(JOBS, name, {"spec": {"parallelism": pods, "completions": pods}})


async def slices(world: Story, name: str) -> list[Object]:
    """The unfinished Workloads of a job, oldest first."""
    mine = [
        one
        for one in await world.all(WORKLOADS)
        if one["metadata"]["ownerReferences"][0]["name"] == name and not holds(one, "Finished")
    ]
    return sorted(
        mine,
        key=lambda one: (one["metadata"]["creationTimestamp"], REPLACES in one["metadata"]["annotations"]),
    )


async def finished(world: Story) -> list[str]:
    """Reasons of the finished Workloads."""
    return sorted(
        one["reason"]
        for workload in await world.all(WORKLOADS)
        for one in workload["status"]["conditions"]
        if one["type"] == "Finished"
    )


async def gated(world: Story) -> int:
    return sum(GATE in pod["spec"].get("schedulingGates", ()) for pod in await world.pods())


def size(workload: Object) -> int:
    return int(workload["spec"]["podSets"][0]["count"])


def test_job_grows_by_a_slice_that_takes_over() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 3))
        await world.wait(10)
        assert (await world.running(), await gated(world)) == (3, 0)
        (first,) = await slices(world, "a")
        name = first["metadata"]["name"]
        assert first["metadata"]["annotations"] == {**ELASTIC, SLICE: name}
        await resize(world, "a", 5)
        await world.wait(10)
        (second,) = await slices(world, "a")
        assert (size(second), await finished(world)) == (5, ["WorkloadSliceReplaced"])
        annotations = second["metadata"]["annotations"]
        assert (annotations[SLICE], annotations[REPLACES]) == (name, f"default/{name}")
        assert (await world.running(), await gated(world), await world.used("q")) == (5, 0, "5")
        assert {pod["metadata"]["annotations"][SLICE] for pod in await world.pods()} == {name}
        assert not await world.events("a", "Stopped")
        assert all(not pod["status"].get("restarts") for pod in await world.pods())

    play(story, nodes=NODES, objects=queues({"cpu": 10}))


def test_pods_that_there_is_no_quota_for_stay_gated() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 3), job("b", 4, run_time="60s"))
        await world.wait(10)
        await resize(world, "a", 6)
        await world.wait(10)
        first, second = await slices(world, "a")
        assert (size(first), size(second)) == (3, 6)
        assert holds(first, "Admitted")
        assert not holds(second, "QuotaReserved")
        (waits,) = (one for one in second["status"]["conditions"] if one["type"] == "QuotaReserved")
        assert waits["message"].endswith("2 more needed")  # 3 more pods, and 1 cpu is free
        assert (await world.running("a"), await gated(world), await world.used("q")) == (3, 3, "7")
        await world.wait(60)  # b ends
        assert (await world.running("a"), await gated(world), await world.used("q")) == (6, 0, "6")

    play(story, nodes=NODES, objects=queues({"cpu": 8}))


def test_job_shrinks_in_place_and_returns_quota() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 6), job("b", 4, run_time="forever"))
        await world.wait(10)
        (first,) = await slices(world, "a")
        assert await world.suspended("b")
        await resize(world, "a", 2)
        await world.wait(45)
        (now,) = await slices(world, "a")
        assert now["metadata"]["uid"] == first["metadata"]["uid"]
        assert (size(now), await world.running("a"), await world.running("b")) == (2, 2, 4)
        assert await world.used("q") == "6"
        assert not await finished(world)

    play(story, nodes=NODES, objects=queues({"cpu": 8}))


def test_growth_that_is_taken_back_leaves_no_slice() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 3))
        await world.wait(10)
        for pods in (20, 30, 3):
            await resize(world, "a", pods)
            await world.wait(5)
        (only,) = await slices(world, "a")
        assert (size(only), await finished(world)) == (3, ["OutOfSync"])
        assert (await world.running(), len(await world.pods())) == (3, 3)
        await resize(world, "a", 4)
        await world.wait(5)
        assert (await world.running(), await world.used("q")) == (4, "4")

    play(story, nodes=NODES, objects=queues({"cpu": 8}))


def test_slices_have_the_pod_template_of_the_user() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 1))
        await world.wait(5)
        first = (await slices(world, "a"))[0]["spec"]["podSets"][0]["template"]
        await resize(world, "a", 2)
        await world.wait(5)
        (second,) = await slices(world, "a")
        assert second["spec"]["podSets"][0]["template"] == first
        await world.patch(WORKLOADS, second["metadata"]["name"], {"spec": {"active": False}})
        await world.wait(45)
        template = (await world.get(JOBS, "a"))["spec"]["template"]
        assert "schedulingGates" not in template["spec"]
        assert SLICE not in template["metadata"]["annotations"]

    play(story, nodes=NODES, objects=queues({"cpu": 10}))


def test_pending_job_changes_its_size_in_place() -> None:
    async def story(world: Story) -> None:
        await world.create(job("b", 8, run_time="forever"), elastic("a", 3))
        await world.wait(5)
        (first,) = await slices(world, "a")
        await resize(world, "a", 5)
        await world.wait(5)
        (now,) = await slices(world, "a")
        assert (now["metadata"]["uid"], size(now)) == (first["metadata"]["uid"], 5)

    play(story, nodes=NODES, objects=queues({"cpu": 8}))


def test_chain_of_slices_ends_with_the_job() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 1, run_time="60s"))
        await world.wait(5)
        (first,) = await slices(world, "a")
        for pods in (2, 3, 4):
            await resize(world, "a", pods)
            await world.wait(5)
        (last,) = await slices(world, "a")
        assert last["metadata"]["annotations"][SLICE] == first["metadata"]["name"]
        await world.wait(120)
        assert await world.ended("a") == "Complete"
        assert await finished(world) == ["Succeeded", *["WorkloadSliceReplaced"] * 3]
        assert await world.used("q") == "0"

    play(story, nodes=NODES, objects=queues({"cpu": 8}))


def test_many_changes_of_size_leave_a_short_history() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 1))
        await world.wait(5)
        for pods in range(2, 18):
            await resize(world, "a", pods)
            await world.wait(3)
        assert await finished(world) == ["WorkloadSliceReplaced"] * 10
        assert (await world.running(), await world.used("q")) == (17, "17")

    play(story, nodes=NODES, objects=queues({"cpu": 20}))


def test_preempted_job_forgets_its_growth_and_queues_with_all_of_it() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 4))
        await world.wait(5)
        await resize(world, "a", 7)
        await world.wait(5)
        assert len(await slices(world, "a")) == 2
        await world.create(
            priority("high", 100),
            job("b", 4, run_time="60s", labels={"kueue.x-k8s.io/priority-class": "high"}),
        )
        await world.wait(45)
        (only,) = await slices(world, "a")
        assert (size(only), holds(only, "QuotaReserved")) == (7, False)
        assert (await world.running("a"), await world.running("b")) == (0, 4)
        await world.wait(60)
        assert await world.suspended("a")  # 7 of 6
        await resize(world, "a", 6)
        await world.wait(10)
        assert (await world.running("a"), await world.used("q")) == (6, "6")

    within = {"withinClusterQueue": "LowerPriority"}
    play(story, nodes=NODES, objects=queues({"cpu": 6}, preemption=within))


def test_growth_preempts_lower_priority_and_not_its_own_slice() -> None:
    async def story(world: Story) -> None:
        await world.create(priority("high", 100), job("b", 4, run_time="forever"))
        await world.create(elastic("a", 2, labels={"kueue.x-k8s.io/priority-class": "high"}))
        await world.wait(10)
        await resize(world, "a", 5)
        await world.wait(45)
        assert (await world.running("a"), await world.running("b"), await world.used("q")) == (5, 0, "5")
        assert not await world.events("a", "Stopped")

    within = {"withinClusterQueue": "LowerPriority"}
    play(story, nodes=NODES, objects=queues({"cpu": 6}, preemption=within))


def test_pods_that_are_not_ready_for_lack_of_quota_do_not_evict_the_job() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 3))
        await world.wait(10)
        await resize(world, "a", 9)
        await world.wait(600)
        first, _ = await slices(world, "a")
        assert holds(first, "PodsReady")
        assert await world.running("a") == 3

    play(
        story,
        "waitForPodsReady: {timeout: 60s, recoveryTimeout: 60s}",
        nodes=NODES,
        objects=queues({"cpu": 8}),
    )


def test_slice_is_as_old_as_its_chain_for_the_maximum_execution_time() -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 1, labels={"kueue.x-k8s.io/max-exec-time-seconds": "100"}))
        for pods in (2, 3, 4):
            await world.wait(30)
            await resize(world, "a", pods)
        await world.wait(20)
        assert await world.suspended("a")
        (last,) = await slices(world, "a")
        assert last["spec"]["active"] is False

    play(story, nodes=NODES, objects=queues({"cpu": 8}))


@pytest.mark.parametrize("gate", [True, False])
def test_gate_decides_whether_a_job_is_elastic(gate: bool) -> None:
    async def story(world: Story) -> None:
        await world.create(elastic("a", 3))
        await world.wait(10)
        await resize(world, "a", 4)
        await world.wait(60)
        assert (await world.running(), await world.used("q")) == (4, "4")
        assert bool(await world.events("a", "Stopped")) is not gate
        pods = await world.all(PODS)
        assert all((SLICE in pod["metadata"]["annotations"]) is gate for pod in pods)

    text = f"featureGates: {{ElasticJobsViaWorkloadSlices: {str(gate).lower()}}}"
    play(story, text, nodes=NODES, objects=queues({"cpu": 8}))
