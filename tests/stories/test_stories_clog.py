"""Clusters clogged by half-started jobs, and what helps (docs/reference/cluster-workloads.md 5.6).

A job of 64 workers, each on a node of its own, does nothing before all 64 run. There are 149 nodes.
"""

from __future__ import annotations

import pytest
from stories_world import Object, Story, condition, job, play, pool

from pykueue.api.resources import JOBS, PODS, WORKLOADS
from pykueue.kube.errors import ApiError
from queue_manifests import queues

SIZE, NODES = 64, 149
#: Room for one worker per node.
CLUSTER = [pool(count=NODES, cpu="2")]
NAMES = ("a", "b", "c")
#: Quota for far more than the nodes can hold.
LARGE = queues({"cpu": 1000})


def gang(name: str, size: int = SIZE, queue: str | None = None, run_time: str = "60s") -> Object:
    wait = {"waits-for-siblings": str(size)}
    return job(name, size, {"cpu": "1500m"}, queue=queue, run_time=run_time, simulation=wait)


async def submit(world: Story, *jobs: Object, apart: float = 0.005) -> None:
    for one in jobs:
        await world.create(one)
        await world.wait(apart)


async def run_each(world: Story, names: tuple[str, ...] = NAMES) -> list[int]:
    return [await world.running(f"{name}-") for name in names]


@pytest.mark.parametrize("queue", [None, "q"])
def test_f1_f4_three_jobs_submitted_together_deadlock(queue: str | None) -> None:
    """Without queues, and with a quota that the nodes cannot keep (F4)."""

    async def story(world: Story) -> None:
        await submit(world, *(gang(name, queue=queue) for name in NAMES), apart=0)
        await world.wait(600)
        held = await run_each(world)
        assert sum(held) == NODES
        assert max(held) == SIZE - 1, "all but one run, because the last batch of 64 is one pod"
        assert await world.in_phase("Pending") == 3 * SIZE - NODES
        await world.wait(2 * 3600)
        assert await run_each(world) == held
        assert not any([await world.ended(name) for name in NAMES])

    off = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
    play(story, off, nodes=CLUSTER, objects=LARGE)


def test_f1_jobs_a_tenth_of_a_second_apart_do_not_deadlock() -> None:
    async def story(world: Story) -> None:
        await submit(world, *(gang(name) for name in NAMES), apart=0.1)
        await world.wait(40)
        held = await run_each(world)
        assert (sum(held), held[0]) == (NODES, SIZE)
        await world.history.until_finished(*NAMES)

    play(story, nodes=CLUSTER)


def test_f2_two_of_them_fit() -> None:
    async def story(world: Story) -> None:
        await submit(world, gang("a"), gang("b"))
        await world.wait(40)
        assert await run_each(world, ("a", "b")) == [SIZE, SIZE]
        await world.history.until_finished("a", "b")

    play(story, nodes=CLUSTER)


def test_f3_small_jobs_get_through() -> None:
    async def story(world: Story) -> None:
        names = [f"s{number}" for number in range(20)]
        loose = [job(name, 14, {"cpu": "1500m"}, queue=None, run_time="30s-60s") for name in names]
        await submit(world, *loose)
        await world.history.until_finished(*names)
        assert {found.finished for found in world.history.jobs.values()} == {"Complete"}

    play(story, nodes=CLUSTER)


def test_f3_ten_small_gangs_all_run() -> None:
    async def story(world: Story) -> None:
        names = tuple(f"s{number}" for number in range(10))
        await submit(world, *(gang(name, 14) for name in names))
        await world.wait(45)
        assert await run_each(world, names) == [14] * 10
        await world.history.until_finished(*names)

    play(story, nodes=CLUSTER)


def test_f5_a_quota_that_the_nodes_can_keep_takes_two_at_a_time() -> None:
    async def story(world: Story) -> None:
        start = world.clock.time()
        await submit(world, *(gang(name, queue="q") for name in NAMES))
        await world.wait(40)
        assert await run_each(world) == [SIZE, SIZE, 0]
        assert await world.suspended("c")
        assert await world.pods("c-") == []
        await world.history.until_finished(*NAMES)
        assert 120 < world.clock.time() - start < 200

    limit = queues({"cpu": 1000, "pods": NODES})
    play(story, nodes=CLUSTER, objects=limit)


def test_f6_ready_wait_with_blocking_never_deadlocks() -> None:
    async def story(world: Story) -> None:
        await submit(world, *(gang(name, queue="q") for name in NAMES))
        history = world.history
        await history.until(lambda: len(history.pods_of("c")) == SIZE)
        await world.wait(5)
        assert await run_each(world) == [SIZE, SIZE, NODES - 2 * SIZE]
        await history.until_finished(*NAMES)
        for first, second in (("a", "b"), ("b", "c")):
            whole, next_began = history.all_ready(first, SIZE), history.first_pod(second)
            assert whole is not None
            assert next_began is not None
            assert whole < next_began

    play(story, "waitForPodsReady: {timeout: 10m, blockAdmission: true}", nodes=CLUSTER, objects=LARGE)


def test_f7_timeout_ends_the_deadlock_and_backoff_limit_ends_the_retries() -> None:
    async def story(world: Story) -> None:
        await submit(world, *(gang(name, queue="q") for name in NAMES))
        await world.wait(290)
        assert sum(await run_each(world)) == NODES
        await world.wait(15)
        for name in NAMES:
            assert await world.reason(name, "Evicted") == ("True", "PodsReadyTimeout")
        await world.wait(30)
        assert await world.pods() == []
        await world.wait(3600)
        for name in NAMES:
            spec = (await world.workload(name))["spec"]
            assert await world.ended(name) == "Complete" or spec["active"] is False
        assert await world.running() == 0

    limit = "waitForPodsReady: {timeout: 5m, requeuingStrategy: {backoffLimitCount: 2}}"
    play(story, limit, nodes=CLUSTER, objects=LARGE)


def test_f13_elastic_job_starts_with_the_free_capacity() -> None:
    async def story(world: Story) -> None:
        said = {
            "kueue.x-k8s.io/job-min-parallelism": "48",
            "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
        }
        await world.create(job("elastic", SIZE, run_time="forever", annotations=said))
        await world.wait(20)
        spec = (await world.get(JOBS, "elastic"))["spec"]
        assert (spec["parallelism"], spec["completions"]) == (50, 50)
        (assigned,) = (await world.workload("elastic"))["status"]["admission"]["podSetAssignments"]
        assert assigned["count"] == 50
        assert await world.running() == 50
        name = (await world.workload("elastic"))["metadata"]["name"]
        await world.patch(WORKLOADS, name, {"spec": {"active": False}})
        await world.wait(40)
        spec = (await world.get(JOBS, "elastic"))["spec"]
        assert (spec["parallelism"], spec["completions"]) == (SIZE, SIZE)

    play(story, nodes=CLUSTER, objects=queues({"cpu": 50}))


def test_f14_a_program_that_needs_more_than_it_gets_runs_without_progress() -> None:
    async def story(world: Story) -> None:
        wait = {"waits-for-siblings": str(SIZE)}
        await world.create(job("hung", 48, simulation=wait))
        await world.wait(3 * 3600)
        assert await world.running() == 48
        assert await world.reason("hung", "PodsReady") == ("True", "Started")
        assert not await world.ended("hung")

    play(story, nodes=CLUSTER, objects=LARGE)


def test_f15_a_jobs_success_policy_takes_the_followers_away() -> None:
    async def story(world: Story) -> None:
        leader = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
        await world.create(
            job("led", 4, run_time="forever", simulation={"exit-code": "0"}, successPolicy=leader)
        )
        await world.wait(10)
        assert await world.running() == 4
        await world.patch(PODS, await _pod(world, "led-0-"), {"status": {"phase": "Succeeded"}}, "status")
        await world.wait(45)
        assert await world.ended("led") == "Complete"
        assert await world.running() == 0
        assert await world.used("q") == "0"

    play(story, nodes=CLUSTER, objects=LARGE)


async def _pod(world: Story, prefix: str) -> str:
    (pod,) = await world.pods(prefix)
    return str(pod["metadata"]["name"])


@pytest.mark.parametrize("ttl", [0, None])
def test_f16_jobs_cleaned_up_as_they_end_leave_nothing(ttl: int | None) -> None:
    async def story(world: Story) -> None:
        names = [f"s{number}" for number in range(6)]
        clean = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
        for name in names:
            await world.create(job(name, 14, queue=None, run_time="5s-15s", **clean))
        await world.wait(120)
        left = await world.all(PODS)
        assert all(pod["status"]["phase"] == "Succeeded" for pod in left)
        assert len(left) == (6 * 14 if ttl is None else 0)
        assert len(await world.all(JOBS)) == (6 if ttl is None else 0)

    play(story, nodes=CLUSTER)


def test_f16_a_hung_job_holds_its_nodes_until_it_is_deleted() -> None:
    async def story(world: Story) -> None:
        await world.create(job("hung", 100, {"cpu": "1500m"}, queue=None, run_time="forever"))
        await world.wait(30)
        await world.create(gang("next"))
        await world.wait(600)
        assert (await run_each(world, ("hung", "next"))) == [100, 49]
        await world.delete(JOBS, "hung")
        await world.wait(45)
        assert await world.running("next-") == SIZE
        await world.history.until_finished("next")

    play(story, nodes=CLUSTER)


def test_f17_a_deadline_ends_a_job_which_is_made_again_under_another_name() -> None:
    async def story(world: Story) -> None:
        await world.create(job("run-1", 4, run_time="forever", activeDeadlineSeconds=300))
        await world.wait(290)
        assert await world.running("run-1-") == 4
        await world.wait(50)
        assert await world.ended("run-1") == "Failed"
        assert condition(await world.get(JOBS, "run-1"), "Failed")["reason"] == "DeadlineExceeded"
        assert await world.running() == 0
        assert await world.reason("run-1", "Finished") == ("True", "Failed")
        await world.create(job("run-2", 4, run_time="60s", activeDeadlineSeconds=300))
        await world.history.until_finished("run-2")
        assert await world.ended("run-2") == "Complete"

    play(story, nodes=CLUSTER, objects=LARGE)


def test_f17_the_queue_has_a_deadline_of_its_own() -> None:
    async def story(world: Story) -> None:
        limit = {"kueue.x-k8s.io/max-exec-time-seconds": "300"}
        await world.create(job("long", 4, run_time="forever", labels=limit))
        await world.wait(290)
        assert await world.running() == 4
        await world.wait(50)
        why = ("True", "DeactivatedDueToMaximumExecutionTimeExceeded")
        assert await world.reason("long", "Evicted") == why
        assert await world.pods() == []
        assert await world.suspended("long")

    play(story, nodes=CLUSTER, objects=LARGE)


def test_f18_pods_that_avoid_each_other_need_a_node_each_whatever_the_quota() -> None:
    async def story(world: Story) -> None:
        apart = {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"app": "flux"}},
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        }
        template = {"labels": {"app": "flux"}, "affinity": apart}
        await world.create(job("a", 8, run_time="forever", pod=template))
        await world.wait(30)
        assert await world.admitted("a")
        assert (await world.running(), await world.in_phase("Pending")) == (4, 4)
        waiting = next(pod for pod in await world.pods() if pod["status"]["phase"] == "Pending")
        (told, *_) = await world.events(waiting["metadata"]["name"], "FailedScheduling")
        assert "4 node(s) didn't match pod anti-affinity rules" in told

    play(story, nodes=[pool(count=4, cpu="2")], objects=queues({"cpu": 8}))


def test_f19_workers_try_in_place_until_their_leader_is_up() -> None:
    async def story(world: Story) -> None:
        retries = {"exit-code": "1,1,1,0"}
        again = {"restartPolicy": "OnFailure"}
        await world.create(job("w", 4, run_time="5s", simulation=retries, pod=again, backoffLimit=100))
        await world.wait(30)
        pods = {pod["metadata"]["name"] for pod in await world.pods()}
        await world.history.until_finished("w")
        found = await world.pods()
        assert {pod["metadata"]["name"] for pod in found} == pods
        assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in found} == {3}
        status = (await world.get(JOBS, "w"))["status"]
        assert (status["succeeded"], status.get("failed", 0)) == (4, 0)

    play(story, nodes=CLUSTER, objects=LARGE)


def test_f20_queued_job_is_suspended_on_creation() -> None:
    async def story(world: Story) -> None:
        seen: list[bool] = []
        for number in range(5):
            created = await world.client.create(JOBS, job(f"j{number}", 4))
            seen.append(created["spec"]["suspend"])
        assert seen == [True] * 5
        await world.wait(20)
        for workload in await world.all(WORKLOADS):
            owner = workload["metadata"]["ownerReferences"][0]["name"]
            first = world.history.first_pod(owner)
            assert first is None or await world.reason(owner, "QuotaReserved") == ("True", "QuotaReserved")
        started = [name for name in world.history.jobs if world.history.first_pod(name) is not None]
        assert 0 < len(started) < 5
        with pytest.raises(ApiError):
            await world.create(job("j0", 4))

    play(story, nodes=CLUSTER, objects=queues({"cpu": 8}))
