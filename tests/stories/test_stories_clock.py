"""The wall clock of the whole cluster is set forward or back while everything runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from stories_world import Story, job, play, pool

from pykueue.api.resources import CRON_JOBS, JOBS, NODES, PODS, WORKLOADS
from pykueue.clock import JumpingClock
from pykueue.embedded.nodes.registration import is_ready
from queue_manifests import queues

MINUTE, HOUR = 60.0, 3600.0
READY = """
waitForPodsReady:
  timeout: 10m
  recoveryTimeout: 10m
  requeuingStrategy: {backoffBaseSeconds: 1800, backoffMaxSeconds: 3600}
"""


def jumping(
    story: Callable[[Story, JumpingClock], Awaitable[None]], configuration: str | None = None
) -> None:
    async def main(world: Story) -> None:
        assert isinstance(world.clock, JumpingClock)
        await story(world, world.clock)

    play(main, configuration, nodes=[pool(cpu="10")], objects=queues({"cpu": 20}), make_clock=JumpingClock)


def test_finished_job_is_deleted_within_a_minute_of_a_jump_past_its_ttl() -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        await world.create(job("short", run_time="5s", ttlSecondsAfterFinished=600))
        await world.wait(MINUTE)
        assert await world.ended("short") == "Complete"
        clock.offset += 65 * MINUTE
        await world.wait(MINUTE)
        assert await world.all(JOBS) == []

    jumping(story)


def test_finished_workload_is_deleted_within_a_minute_of_a_jump_past_its_retention() -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        await world.create(job("short", run_time="5s"))
        await world.wait(MINUTE)
        assert await world.find_workload("short") is not None
        clock.offset += 65 * MINUTE
        await world.wait(MINUTE)
        assert await world.all(WORKLOADS) == []

    jumping(story, "objectRetentionPolicies: {workloads: {afterFinished: 1h}}")


def test_cron_job_starts_its_job_within_a_minute_of_a_jump_past_its_time() -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        spec = job("hourly")["spec"]
        await world.create(
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": "hourly", "namespace": "default"},
                "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": spec}},
            }
        )
        await world.wait(MINUTE)
        assert await world.all(JOBS) == []
        clock.offset += 65 * MINUTE
        await world.wait(MINUTE)
        assert (await world.get(CRON_JOBS, "hourly"))["status"]["lastScheduleTime"] == "2026-01-01T01:00:00Z"
        assert len(await world.all(JOBS)) == 1

    jumping(story)


def test_job_fails_within_a_minute_of_a_jump_past_its_active_deadline() -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        await world.create(job("long", run_time="forever", activeDeadlineSeconds=600))
        await world.wait(MINUTE)
        clock.offset += 65 * MINUTE
        await world.wait(MINUTE)
        assert await world.ended("long") == "Failed"

    jumping(story)


def test_workload_is_deactivated_within_a_minute_of_a_jump_past_its_maximum_execution_time() -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        limit = {"kueue.x-k8s.io/max-exec-time-seconds": "600"}
        await world.create(job("long", run_time="forever", labels=limit))
        await world.wait(MINUTE)
        clock.offset += 65 * MINUTE
        await world.wait(MINUTE)
        assert await world.reason("long", "Evicted") == (
            "True",
            "DeactivatedDueToMaximumExecutionTimeExceeded",
        )

    jumping(story)


def test_pods_ready_timeout_and_requeue_at_count_within_a_minute_of_jumps_past_them() -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        await world.create(job("stuck", 2, {"cpu": 9}, run_time="forever"))
        await world.wait(MINUTE)
        assert await world.admitted("stuck")
        clock.offset += 15 * MINUTE
        await world.wait(MINUTE)
        assert await world.reason("stuck", "Evicted") == ("True", "PodsReadyTimeout")
        assert not await world.admitted("stuck")
        clock.offset += HOUR
        await world.wait(MINUTE)
        assert await world.admitted("stuck")

    jumping(story, READY)


def test_schedule_that_a_jump_back_takes_out_of_reach_waits_for_its_time_again() -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        await world.create(job("short", run_time="5s", ttlSecondsAfterFinished=600))
        await world.wait(MINUTE)
        clock.offset -= HOUR
        await world.wait(65 * MINUTE)
        assert len(await world.all(JOBS)) == 1
        await world.wait(10 * MINUTE)
        assert await world.all(JOBS) == []

    jumping(story)


@pytest.mark.parametrize("jump", [65 * MINUTE, -10 * MINUTE, -24 * HOUR], ids=["65m", "-10m", "-24h"])
def test_simulated_pods_run_as_long_as_they_would_when_the_wall_clock_jumps(jump: float) -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        start = clock.monotonic()
        gang = {"simulation": {"waits-for-siblings": "2"}}
        await world.create(job("long", run_time="20m"), job("gang", 2, run_time="30m", **gang))
        await world.wait(5 * MINUTE)
        clock.offset += jump
        await world.wait(10 * MINUTE)
        assert await world.running("long") == 1
        assert await world.running("gang") == 2
        for name, seconds in (("long", 20 * MINUTE), ("gang", 30 * MINUTE)):
            while await world.ended(name) != "Complete":
                await world.wait(1)
            assert seconds <= clock.monotonic() - start <= seconds + 30

    jumping(story)


@pytest.mark.parametrize("jump", [65 * MINUTE, -24 * HOUR], ids=["65m", "-24h"])
def test_grace_period_of_a_simulated_pod_keeps_its_length_when_the_wall_clock_jumps(jump: float) -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        stubborn = {"pod": {"terminationGracePeriodSeconds": 300}, "simulation": {"ignores-sigterm": "true"}}
        await world.create(job("stubborn", run_time="forever", **stubborn))
        await world.wait(MINUTE)
        await world.delete(JOBS, "stubborn")
        await world.wait(MINUTE)
        clock.offset += jump
        await world.wait(3.5 * MINUTE)
        assert len(await world.all(PODS)) == 1
        await world.wait(MINUTE)
        assert await world.all(PODS) == []

    jumping(story)


@pytest.mark.parametrize("jump", [65 * MINUTE, -24 * HOUR], ids=["65m", "-24h"])
def test_nodes_stay_ready_and_events_stay_when_the_wall_clock_jumps(jump: float) -> None:
    async def story(world: Story, clock: JumpingClock) -> None:
        await world.create(job("long", run_time="forever"))
        await world.wait(MINUTE)
        clock.offset += jump
        for _ in range(20):
            await world.wait(MINUTE)
            assert all(is_ready(node) for node in await world.all(NODES))
        assert await world.running("long") == 1
        assert await world.events("long", "SuccessfulCreate")
        await world.wait(45 * MINUTE)
        assert not await world.events("long", "SuccessfulCreate")

    jumping(story)
