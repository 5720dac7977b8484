"""Teams that share GPUs: gangs, quotas beside quotas, the quiz (docs/reference/cluster-workloads.md 5.7 and
5.8).

Rows B6a to B13, H1 and H2.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from stories_world import GPU, Object, Story, job, play, pool

from pykueue.api.resources import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    RESOURCE_QUOTAS,
)
from queue_manifests import cluster_queue, flavor, local_queue, priority, queues

EIGHT = [pool(gpu="8")]
#: A worker that does nothing before all workers of its job run.
GANG = {"waits-for-siblings": "8"}


def gpus(name: str, count: int, run_time: str = "30s", **options: object) -> Object:
    return job(name, count, {GPU: 1}, run_time=run_time, **options)  # type: ignore[arg-type]


def shares(quotas: dict[str, str], limits: dict[str, dict[str, str]] | None = None) -> list[Object]:
    """Three ClusterQueues of one cohort; the last two take back what is theirs."""
    made = [flavor()]
    for name, quota in quotas.items():
        reclaims = {} if name == "research" else {"preemption": {"reclaimWithinCohort": "Any"}}
        more = (limits or {}).get(name)
        made.append(cluster_queue(name, {GPU: quota}, more, cohortName="all", **reclaims))
        made.append(local_queue(name))
    return made


async def submit(world: Story, queue: str, count: int) -> list[str]:
    """One-GPU jobs for good, one after the other; their names."""
    names = [f"{queue}-{number}" for number in range(count)]
    for name in names:
        await world.create(gpus(name, 1, "forever", queue=queue))
        await world.wait(1.1)
    await world.wait(40)
    return names


async def run_of(world: Story, names: Iterable[str]) -> int:
    return sum([await world.running(f"{name}-") for name in names])


def test_b6a_resource_quota_below_the_nominal_quota_stops_admitted_pods() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("eight", 8, "forever"))
        await world.wait(30)
        assert await world.admitted("eight")
        assert await world.running() == 4
        (refused, *_) = await world.events("eight", "FailedCreate")
        for told in ("exceeded quota: gpu-quota", f"requests.{GPU}=1", f"requests.{GPU}=4"):
            assert told in refused
        assert (await world.reason("eight", "PodsReady"))[0] == "False"
        quota = await world.get(RESOURCE_QUOTAS, "gpu-quota")
        assert quota["status"]["used"] == {f"requests.{GPU}": "4"}
        await world.create(job("plain", 2, queue=None, run_time="20s"))
        await world.wait(10)
        assert await world.running("plain-") == 2
        await world.wait(5 * 60)
        assert await world.reason("eight", "Evicted") == ("True", "PodsReadyTimeout")
        assert await world.running("eight-") == 0

    fence = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu-quota", "namespace": "default"},
        "spec": {"hard": {f"requests.{GPU}": "4"}},
    }
    play(story, "waitForPodsReady: {timeout: 5m}", nodes=EIGHT, objects=[*queues({GPU: 8}), fence])


def test_b7_two_gangs_submitted_together_deadlock() -> None:
    async def story(world: Story) -> None:
        first, second = (gpus(name, 8, queue=None, simulation=GANG) for name in ("first", "second"))
        await world.create(first, second)
        await world.wait(3600)
        held = await world.running("first-"), await world.running("second-")
        assert sum(held) == 8
        assert max(held) < 8
        assert not await world.ended("first")
        assert not await world.ended("second")

    play(story, nodes=EIGHT)


def test_b7_two_gangs_submitted_apart_do_not_deadlock() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("first", 8, queue=None, simulation=GANG))
        await world.wait(1)
        await world.create(gpus("second", 8, queue=None, simulation=GANG))
        await world.wait(10)
        assert (await world.running("first-"), await world.running("second-")) == (8, 0)
        await world.history.until_finished("first", "second")

    play(story, nodes=EIGHT)


def test_b7a_with_a_queue_one_follows_the_other() -> None:
    async def story(world: Story) -> None:
        await world.create(*(gpus(name, 8, simulation=GANG) for name in ("first", "second")))
        await world.wait(10)
        assert await world.running("first-") == 8
        assert await world.pods("second-") == []
        await world.history.until_finished("first")
        await world.wait(10)
        assert await world.running("second-") == 8
        await world.history.until_finished("second")

    play(story, nodes=EIGHT, objects=queues({GPU: 8}))


def test_b8_three_gpus_for_four_workers() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("four", 4, "forever", queue=None))
        await world.wait(20)
        assert await world.running() == 3
        (waiting,) = [pod for pod in await world.pods() if pod["status"]["phase"] == "Pending"]
        told = await world.events(waiting["metadata"]["name"], "FailedScheduling")
        assert f"1 Insufficient {GPU}" in told[0]

    play(story, nodes=[pool(gpu="3")])


def test_b8_with_a_quota_of_three_no_gpu_is_held_and_other_jobs_run() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("four", 4))
        await world.wait(2)
        await world.create(gpus("three", 3))
        await world.wait(20)
        assert await world.pods("four-") == []
        assert await world.running("three-") == 3

    play(story, nodes=[pool(gpu="3")], objects=queues({GPU: 3}))


def test_b8_quota_above_capacity_ends_in_an_eviction() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("four", 4, "forever"))
        await world.wait(60)
        assert await world.running() == 3
        await world.wait(65)
        assert await world.reason("four", "Evicted") == ("True", "PodsReadyTimeout")
        await world.wait(30)
        assert await world.pods() == []

    play(story, "waitForPodsReady: {timeout: 2m}", nodes=[pool(gpu="3")], objects=queues({GPU: 4}))


def test_b9_fractional_gpu_quota_is_rounded_up_beyond_the_capacity() -> None:
    async def story(world: Story) -> None:
        for name, count in (("research", 5), ("prod", 3), ("demo", 1)):
            names = await submit(world, name, count)
            assert all([await world.admitted(one) for one in names])
        assert await world.running() == 8
        assert await world.in_phase("Pending") == 1

    limits = {name: {"borrowingLimit": "0"} for name in ("research", "prod", "demo")}
    objects = shares({"research": "4800m", "prod": "2400m", "demo": "800m"}, limits)
    play(story, nodes=EIGHT, objects=objects)


@pytest.mark.parametrize(
    ("total", "shared"),
    # Of eight, demo's share would be 0.8: less than one GPU, and no GPU is preempted to make it more.
    [(10, {"research": 6, "prod": 3, "demo": 1}), (8, {"research": 6, "prod": 2, "demo": 0})],
)
def test_b9_a_pool_shared_by_weight(total: int, shared: dict[str, int]) -> None:
    async def story(world: Story) -> None:
        mine = {"research": await submit(world, "research", 10)}
        assert await run_of(world, mine["research"]) == total
        for name in ("prod", "demo"):
            mine[name] = await submit(world, name, 10)
        await world.wait(120)
        got = {name: await run_of(world, names) for name, names in mine.items()}
        assert got == shared

    objects: list[Object] = [
        flavor(),
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": "all"},
            "spec": {
                "resourceGroups": [
                    {
                        "coveredResources": [GPU],
                        "flavors": [
                            {
                                "name": "default-flavor",
                                "resources": [{"name": GPU, "nominalQuota": str(total)}],
                            }
                        ],
                    }
                ]
            },
        },
    ]
    for name, weight in (("research", 60), ("prod", 30), ("demo", 10)):
        fair = {"fairSharing": {"weight": weight}, "preemption": {"reclaimWithinCohort": "Any"}}
        objects += [cluster_queue(name, {GPU: 0}, cohortName="all", **fair), local_queue(name)]
    sharing = "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}"
    play(story, sharing, nodes=[pool(gpu=str(total))], objects=objects)


def test_b9a_unused_quota_is_lent_and_reclaimed() -> None:
    async def story(world: Story) -> None:
        research = await submit(world, "research", 10)
        assert await run_of(world, research) == 10
        (line,) = (await world.cluster_queue("research"))["flavorsUsage"]
        assert line["resources"] == [{"name": GPU, "total": "10", "borrowed": "4"}]
        prod = await submit(world, "prod", 3)
        assert await run_of(world, prod) == 3
        assert await run_of(world, research) == 7
        demo = await submit(world, "demo", 1)
        got = [await run_of(world, names) for names in (research, prod, demo)]
        assert got == [6, 3, 1]
        stopped = [name for name in research if await world.suspended(name)]
        assert len(stopped) == 4
        for name in stopped:
            assert await world.reason(name, "Evicted") == ("True", "Preempted")
            assert await world.reason(name, "Preempted") == ("True", "InCohortReclamation")

    play(story, nodes=[pool(gpu="10")], objects=shares({"research": "6", "prod": "3", "demo": "1"}))


@pytest.mark.parametrize(
    ("queue", "limit", "most"),
    [
        ("research", {"research": {"borrowingLimit": "2"}}, 8),
        ("prod", {"prod": {"borrowingLimit": "0"}}, 3),
        ("research", {"prod": {"lendingLimit": "0"}}, 7),
    ],
)
def test_b9a_limits_on_borrowing_and_lending(queue: str, limit: dict[str, dict[str, str]], most: int) -> None:
    async def story(world: Story) -> None:
        assert await run_of(world, await submit(world, queue, 10)) == most

    play(story, nodes=[pool(gpu="10")], objects=shares({"research": "6", "prod": "3", "demo": "1"}, limit))


def test_b10_exhausted_quota_shows_in_every_status() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("holder", 3, "forever"))
        await world.wait()
        await world.create(gpus("waiting", 2))
        await world.wait()
        workload = (await world.workload("waiting"))["metadata"]["name"]
        assert any("insufficient unused quota" in told for told in await world.events(workload))
        await world.wait(2 * 3600)
        reserved = await world.condition("waiting", "QuotaReserved")
        assert reserved["status"] == "False"
        for told in ("insufficient unused quota", GPU, "default-flavor", "1 more needed"):
            assert told in reserved["message"]
        queue = await world.cluster_queue("q")
        assert queue["pendingWorkloads"] == 1
        assert queue["flavorsReservation"] == queue["flavorsUsage"]
        assert queue["flavorsUsage"][0]["resources"] == [{"name": GPU, "total": "3", "borrowed": "0"}]
        local = await world.local_queue("q")
        assert (local["pendingWorkloads"], local["admittedWorkloads"]) == (1, 1)
        assert local["flavorsUsage"][0]["resources"] == [{"name": GPU, "total": "3"}]
        parked = {"cluster_queue": "q", "status": "inadmissible"}
        assert world.metric("kueue_pending_workloads", **parked) == 1
        assert world.metric("kueue_admitted_active_workloads", cluster_queue="q") == 1

    play(story, nodes=EIGHT, objects=queues({GPU: 4}))


def test_b10_queue_without_its_flavor_is_inactive_with_the_reason() -> None:
    async def story(world: Story) -> None:
        async def active() -> tuple[str, str]:
            (found,) = [
                one for one in (await world.cluster_queue("q"))["conditions"] if one["type"] == "Active"
            ]
            return found["status"], found["reason"]

        await world.create(gpus("waiting", 1))
        await world.wait()
        assert await active() == ("False", "FlavorNotFound")
        reserved = await world.condition("waiting", "QuotaReserved")
        assert reserved["status"] == "False"
        assert "q" in reserved["message"]
        await world.create(flavor())
        await world.wait(10)
        assert await active() == ("True", "Ready")
        assert await world.running() == 1

        await world.patch(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "Hold"}})
        await world.create(gpus("later", 1))
        await world.wait()
        assert await active() == ("False", "Stopped")
        assert (await world.reason("later"))[0] == "False"
        assert world.metric("kueue_cluster_queue_status", cluster_queue="q", status="pending") == 1

    objects = [obj for obj in queues({GPU: 4}) if obj["kind"] != "ResourceFlavor"]
    play(story, nodes=EIGHT, objects=objects)


def test_b10_a_queue_that_does_not_exist_is_named() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("lost", 1, queue="nowhere"))
        await world.wait()
        reserved = await world.condition("lost", "QuotaReserved")
        assert reserved["status"] == "False"
        assert "nowhere" in reserved["message"]

    play(story, nodes=EIGHT, objects=queues({GPU: 4}))


def test_b11_job_above_the_total_quota_stays_pending() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("four", 4))
        await world.wait(3600)
        reserved = await world.condition("four", "QuotaReserved")
        assert "maximum capacity (2)" in reserved["message"]
        assert await world.pods() == []
        await world.patch(JOBS, "four", {"spec": {"parallelism": 2}})
        await world.wait(10)
        assert await world.running() == 2

    play(story, nodes=EIGHT, objects=queues({GPU: 2}))


def test_b12_two_gangs_of_two_for_two_gpus() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("first", 2))
        await world.wait(1)
        await world.create(gpus("second", 2))
        await world.wait(15)
        assert (await world.running("first-"), await world.running("second-")) == (2, 0)
        message = (await world.condition("second", "QuotaReserved"))["message"]
        assert "insufficient unused quota" in message
        assert "2 more needed" in message
        await world.history.until_finished("first")
        await world.wait(1)
        assert not await world.suspended("second")
        await world.history.until_finished("second")

    play(story, nodes=EIGHT, objects=queues({GPU: 2}))


def test_b13_higher_priority_preempts_and_the_lower_is_admitted_again_later() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("low", 4, "60s"))
        await world.wait(10)
        await world.create(gpus("high", 2, "30s", labels={"kueue.x-k8s.io/priority-class": "high"}))
        await world.wait(5)
        assert await world.reason("low", "Evicted") == ("True", "Preempted")
        assert await world.reason("low", "Preempted") == ("True", "InClusterQueue")
        await world.history.until_finished("high", "low")
        assert {found.finished for found in world.history.jobs.values()} == {"Complete"}

    preempting = cluster_queue("q", {GPU: 4}, preemption={"withinClusterQueue": "LowerPriority"})
    objects = [flavor(), preempting, local_queue("q"), priority("high", 100)]
    play(story, nodes=EIGHT, objects=objects)


def test_h2_a_stopped_queue_keeps_or_drains_and_goes_on_when_resumed() -> None:
    async def story(world: Story) -> None:
        await world.create(gpus("running", 2, "forever"))
        await world.wait()
        for resource in (CLUSTER_QUEUES, LOCAL_QUEUES):
            await world.patch(resource, "q", {"spec": {"stopPolicy": "Hold"}})
            await world.create(gpus(f"late-{resource.plural}", 1, "forever"))
            await world.wait(20)
            assert await world.running("running-") == 2
            assert await world.suspended(f"late-{resource.plural}")
            await world.patch(resource, "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
            await world.wait(40)
            assert await world.pods() == []
            await world.patch(resource, "q", {"spec": {"stopPolicy": "None"}})
            await world.wait(10)
            assert await world.running("running-") == 2
            assert await world.running(f"late-{resource.plural}-") == 1

    play(story, nodes=EIGHT, objects=queues({GPU: 8}))


def test_h1_team_uses_its_divisions_quota_first_and_borrowed_quota_is_reclaimed() -> None:
    async def story(world: Story) -> None:
        first = await submit(world, "a1", 6)
        assert await run_of(world, first) == 6
        more = [gpus(f"a1-more-{number}", 1, "forever", queue="a1") for number in range(6)]
        await world.create(*more)
        await world.wait(20)
        assert await world.running("a1-") == 10
        mine = await submit(world, "a2", 3)
        assert await run_of(world, mine) == 3
        assert await world.running("a1-") == 7
        theirs = await submit(world, "b1", 4)
        assert await run_of(world, theirs) == 4
        assert await run_of(world, mine) == 3
        assert await world.running("a1-") == 3

    def cohort(name: str, parent: str = "") -> Object:
        spec = {"parentName": parent} if parent else {}
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": name},
            "spec": spec,
        }

    objects = [flavor(), cohort("root"), cohort("a", "root"), cohort("b", "root")]
    reclaim = {"preemption": {"reclaimWithinCohort": "Any"}}
    for name, parent, quota in (("a1", "a", 3), ("a2", "a", 3), ("b1", "b", 4)):
        objects += [cluster_queue(name, {GPU: quota}, cohortName=parent, **reclaim), local_queue(name)]
    play(story, nodes=[pool(gpu="10")], objects=objects)
