"""Waiting for ready pods: what times out, comes back and gives up (docs/reference/cluster-workloads.md 5.2).

Rows W5 to W7e and W13 to W18, and the numbers of rows 77, 78 and 84 of docs/reference/kueue-semantics.md 15.
"""

from __future__ import annotations

import re

import pytest
from stories_world import EXAMPLE, Object, Story, job, play, pool

from pykueue.api.resources import JOBS, NODES, PODS, WORKLOADS
from pykueue.api.times import parse_time
from pykueue.simulate.submit import read
from queue_manifests import local_queue, queues

WORKERS, FIT = 20, 26
#: One node of 10 cpu, and a quota that promises twice as much.
TEN = [pool(cpu="10")]
TWENTY = queues({"cpu": 20})


def waiting(*lines: str) -> str:
    return "\n".join(["waitForPodsReady:", *(f"  {line}" for line in lines)])


def stuck(name: str = "stuck") -> Object:
    """Two pods that need a node each, where there is one."""
    return job(name, 2, {"cpu": 9}, run_time="forever")


def example(name: str) -> Object:
    return next(obj for obj in read(EXAMPLE / f"{name}.yaml") if obj["kind"] == "Job")


async def requeued(world: Story, name: str, before: str = "") -> tuple[str, int, float]:
    """Wait for the next eviction: requeueAt, the count, and the seconds between eviction and requeueAt."""

    async def evicted() -> bool:
        status = (await world.find_workload(name) or {}).get("status", {})
        return status.get("requeueState", {}).get("requeueAt", before) != before

    await world.until(evicted, 4 * 3600)
    state = (await world.workload(name))["status"]["requeueState"]
    at = parse_time((await world.condition(name, "Evicted"))["lastTransitionTime"])
    return state["requeueAt"], state["count"], parse_time(state["requeueAt"]) - at


def test_w5_a_job_of_the_template_becomes_a_workload() -> None:
    async def story(world: Story) -> None:
        service, *_ = read(EXAMPLE / "job1.yaml")
        await world.create(service)
        created = await world.client.create(JOBS, example("job1"))
        assert created["spec"]["suspend"] is True
        await world.wait(1)
        workload = await world.workload("job1")
        assert re.fullmatch(r"job-job1-[0-9a-f]{5}", workload["metadata"]["name"])
        assert workload["spec"]["queueName"] == "user-queue"
        (pod_set,) = workload["spec"]["podSets"]
        assert (pod_set["name"], pod_set["count"]) == ("main", WORKERS)

    play(story, objects=[(EXAMPLE / "queues.yaml").read_text()])


def test_w6_the_quick_job_names_its_queue_by_annotation() -> None:
    async def story(world: Story) -> None:
        quick = example("quick-job")
        del quick["metadata"]["labels"]
        quick["metadata"]["annotations"] = {"kueue.x-k8s.io/queue-name": "user-queue"}
        quick["spec"]["suspend"] = True
        await world.create(quick)
        await world.history.until_finished("quick-job")
        assert (await world.get(JOBS, "quick-job"))["status"]["succeeded"] == 50
        assert await world.reason("quick-job", "Finished") == ("True", "Succeeded")

    play(story, objects=[(EXAMPLE / "queues.yaml").read_text()])


def test_w7e_without_a_busy_controller_the_first_job_is_whole_and_the_second_follows() -> None:
    async def story(world: Story) -> None:
        await world.submitter.create_at([(0.0, [example("job1")]), (1.0, [example("job2")])])
        history = world.history
        await history.until(lambda: sum(pod.is_ready for pod in history.pods_of("job1")) == WORKERS)
        await history.until(lambda: len(history.pods_of("job2")) == WORKERS)
        await history.until(lambda: sum(pod.is_ready for pod in history.pods_of("job2")) == FIT - WORKERS)
        assert [pod.phase for pod in history.pods_of("job2")].count("Pending") == 2 * WORKERS - FIT
        await history.until_finished("job1", "job2")
        whole = history.all_ready("job2", WORKERS)
        assert whole is not None
        assert {job.finished for job in history.jobs.values()} == {"Complete"}
        assert not any(job.failed for job in history.jobs.values())

    play(story, objects=[(EXAMPLE / "queues.yaml").read_text()])


def test_w13_job_that_is_never_ready_is_requeued_with_backoff_and_deactivated() -> None:
    async def story(world: Story) -> None:
        await world.create(stuck())
        seen = ""
        for count, delay in enumerate((60, 120, 240, 480, 960), start=1):
            await world.until(lambda: world.admitted("stuck"))
            admitted_at = parse_time((await world.condition("stuck", "Admitted"))["lastTransitionTime"])
            await world.wait(30)
            assert await world.running() == 1
            seen, counted, seconds = await requeued(world, "stuck", seen)
            assert counted == count
            assert delay <= seconds <= delay * 1.001 + 1
            evicted = await world.condition("stuck", "Evicted")
            assert (evicted["status"], evicted["reason"]) == ("True", "PodsReadyTimeout")
            assert evicted["message"].startswith("Exceeded the PodsReady timeout")
            assert 600 <= parse_time(evicted["lastTransitionTime"]) - admitted_at <= 602
            await world.wait(40)
            assert await world.suspended("stuck")
            assert await world.pods() == []
            assert await world.used("q") == "0"
        await world.until(lambda: world.admitted("stuck"))
        await world.wait(650)
        workload = await world.workload("stuck")
        assert workload["spec"]["active"] is False
        why = ("True", "DeactivatedDueToRequeuingLimitExceeded")
        assert await world.reason("stuck", "Evicted") == why
        await world.wait(4 * 3600)
        assert await world.suspended("stuck")
        assert await world.pods() == []
        assert "Deactivated" in (await world.reason("stuck"))[1]

    limit = waiting("timeout: 10m", "requeuingStrategy: {backoffLimitCount: 5}")
    play(story, limit, nodes=TEN, objects=TWENTY)


def test_w13_without_a_limit_the_delay_stops_growing_at_an_hour() -> None:
    async def story(world: Story) -> None:
        await world.create(stuck())
        delays, seen = [], ""
        for _ in range(9):
            seen, _, seconds = await requeued(world, "stuck", seen)
            delays.append(round(seconds, -1))
        assert delays == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
        assert (await world.workload("stuck"))["spec"].get("active", True) is True

    play(story, waiting("timeout: 1m"), nodes=TEN, objects=TWENTY)


def test_77_first_backoff_may_exceed_the_maximum() -> None:
    async def story(world: Story) -> None:
        await world.create(stuck())
        first, _, seconds = await requeued(world, "stuck")
        assert round(seconds, -1) == 7200
        _, _, seconds = await requeued(world, "stuck", first)
        assert round(seconds, -1) == 3600

    strategy = "requeuingStrategy: {backoffBaseSeconds: 7200, backoffMaxSeconds: 3600}"
    play(story, waiting("timeout: 1m", strategy), nodes=TEN, objects=TWENTY)


def test_78_backoff_limit_count_0_deactivates_at_the_first_timeout() -> None:
    async def story(world: Story) -> None:
        await world.create(stuck())
        await world.wait(70)
        assert (await world.workload("stuck"))["spec"]["active"] is False
        assert (await world.reason("stuck", "Evicted"))[1] == "DeactivatedDueToRequeuingLimitExceeded"

    strategy = "requeuingStrategy: {backoffLimitCount: 0}"
    play(story, waiting("timeout: 1m", strategy), nodes=TEN, objects=TWENTY)


def test_83_user_may_reactivate_a_workload_after_the_limit() -> None:
    async def story(world: Story) -> None:
        await world.create(stuck())
        await world.wait(70)
        workload = await world.workload("stuck")
        assert workload["spec"]["active"] is False
        await world.wait(60)
        await world.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": True}})
        await world.wait(5)
        assert await world.admitted("stuck")
        assert "requeueState" not in (await world.workload("stuck"))["status"]
        assert await world.reason("stuck", "Requeued") in (("", ""), ("True", "Reactivated"))

    strategy = "requeuingStrategy: {backoffLimitCount: 0}"
    play(story, waiting("timeout: 1m", strategy), nodes=TEN, objects=TWENTY)


@pytest.mark.parametrize(("timestamp", "first"), [("Eviction", "other"), ("Creation", "slow")])
def test_w14_where_an_evicted_job_queues_again(timestamp: str, first: str) -> None:
    async def story(world: Story) -> None:
        await world.create(stuck("slow"))
        await world.wait(10)
        await world.create(job("hog", 2, {"cpu": 5}, run_time="60s", labels={"class": "hog"}))
        await world.wait(5)
        await world.create(job("other", 2, {"cpu": 5}, run_time="forever"))
        await world.until(lambda: world.admitted("hog"))
        assert await world.reason("slow", "Evicted") == ("True", "PodsReadyTimeout")
        await world.history.until_finished("hog")
        await world.wait(3)
        last = {"slow": "other", "other": "slow"}[first]
        assert await world.admitted(first)
        assert not await world.admitted(last)

    strategy = f"requeuingStrategy: {{timestamp: {timestamp}, backoffBaseSeconds: 1}}"
    play(story, waiting("timeout: 20s", strategy), nodes=TEN, objects=queues({"cpu": 18}))


def test_w15_readiness_follows_the_probe() -> None:
    async def story(world: Story) -> None:
        probe = {"container": {"readinessProbe": {"httpGet": {"path": "/", "port": 8080}}}}
        await world.create(job("a", 4, run_time="60s", simulation={"ready-delay": "20s"}, pod=probe))
        await world.create(job("b", 4))
        await world.until(lambda: _all_run(world, "a-", 4))
        assert await world.reason("a", "PodsReady") == ("False", "WaitForStart")
        await world.wait(15)
        assert await world.reason("a", "PodsReady") == ("False", "WaitForStart")
        assert await world.suspended("b")
        assert await world.reason("b") == ("False", "WaitingForPodsReady")
        await world.until(lambda: _ready(world, "a"), 10)
        assert all(pod.is_ready for pod in world.history.pods_of("a"))
        await world.wait(1)
        assert not await world.suspended("b")

    play(story, waiting("timeout: 10m", "blockAdmission: true"), nodes=TEN, objects=TWENTY)


async def _all_run(world: Story, prefix: str, count: int) -> bool:
    return await world.running(prefix) == count


async def _recovers(world: Story, name: str) -> bool:
    return await world.reason(name, "PodsReady") == ("False", "WaitForRecovery")


async def _ready(world: Story, name: str) -> bool:
    return (await world.reason(name, "PodsReady"))[0] == "True"


def test_w16_a_pod_lost_and_regained_is_recovery() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 3, run_time="forever"))
        await world.until(lambda: _ready(world, "a"))
        assert await world.reason("a", "PodsReady") == ("True", "Started")
        await world.delete(PODS, (await world.pods("a-"))[0]["metadata"]["name"])
        await world.until(lambda: _recovers(world, "a"), 5)
        await world.until(lambda: _ready(world, "a"), 30)
        assert await world.reason("a", "PodsReady") == ("True", "Recovered")

    play(story, waiting("timeout: 10m", "recoveryTimeout: 1m"), nodes=TEN, objects=TWENTY)


def test_w16_job_whose_pod_is_not_ready_again_in_time_is_evicted() -> None:
    async def story(world: Story) -> None:
        await world.create(job("a", 3, run_time="forever"))
        await world.until(lambda: _ready(world, "a"))
        await world.patch(NODES, "node-0", {"spec": {"unschedulable": True}})
        await world.delete(PODS, (await world.pods("a-"))[0]["metadata"]["name"])
        await world.wait(55)
        assert await world.reason("a", "PodsReady") == ("False", "WaitForRecovery")
        assert await world.admitted("a")
        await world.wait(10)
        assert await world.reason("a", "Evicted") == ("True", "PodsReadyTimeout")
        await world.wait(35)
        assert await world.pods() == []

    play(story, waiting("timeout: 10m", "recoveryTimeout: 1m"), nodes=TEN, objects=TWENTY)


def test_w17_with_blocking_the_second_job_is_pending_although_both_fit() -> None:
    async def story(world: Story) -> None:
        for name in ("a", "b"):
            await world.create(job(name, 4, run_time="60s", simulation={"ready-delay": "20s"}))
        await world.wait(15)
        assert await world.running("a-") == 4
        assert await world.suspended("b")
        assert await world.pods("b-") == []
        await world.until(lambda: _ready(world, "a"), 15)
        await world.wait(1)
        assert not await world.suspended("b")

    play(story, waiting("timeout: 10m", "blockAdmission: true"), nodes=[pool(cpu="20")], objects=TWENTY)


def test_w18_without_blocking_two_equal_jobs_time_out_together_and_may_deadlock_again() -> None:
    async def story(world: Story) -> None:
        names = ("quick-job", "job1", "job2")
        times = zip((0.0, 0.5, 1.0), [[example(name)] for name in names], strict=True)
        await world.submitter.create_at(times)
        await world.wait(58)
        assert await world.admitted("job1")
        assert await world.admitted("job2")
        await world.wait(5)
        delays = []
        for name in ("job1", "job2"):
            assert await world.reason(name, "Evicted") == ("True", "PodsReadyTimeout")
            delays.append((await requeued(world, name))[2])
        assert all(60 <= delay <= 62 for delay in delays)
        await world.wait(4 * 60 + 2 * 60)
        ends = [await world.ended(name) for name in ("job1", "job2")]
        active = [(await world.workload(name))["spec"].get("active", True) for name in ("job1", "job2")]
        for end, still in zip(ends, active, strict=True):
            assert end == "Complete" or not still
        assert await world.running() == 0
        assert await world.used("cluster-queue", "memory") == "0"

    limit = waiting("timeout: 1m", "requeuingStrategy: {backoffLimitCount: 1}")
    play(story, limit, objects=[(EXAMPLE / "queues.yaml").read_text()])


def test_84_workload_that_is_never_ready_blocks_admission_until_its_timeout() -> None:
    async def story(world: Story) -> None:
        await world.create(stuck())
        await world.wait(5)
        await world.create(job("small", queue="other"))
        await world.wait(285)
        assert await world.reason("small") == ("False", "WaitingForPodsReady")
        await world.wait(15)
        assert not await world.suspended("small")

    other = [obj for obj in queues({"cpu": 20}, "other") if obj["kind"] == "ClusterQueue"]
    play(
        story,
        waiting("timeout: 5m", "blockAdmission: true"),
        nodes=TEN,
        objects=[*TWENTY, *other, local_queue("other")],
    )
