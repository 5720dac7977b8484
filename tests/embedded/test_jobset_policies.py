"""Failing, restarting, and starting in order (docs/reference/cluster-workloads.md 2.7 and 2.8)."""

from __future__ import annotations

from typing import Any

import pytest
from jobset_world import PREFIX, World, replicated, tell

LATE = "60s"


def test_without_a_policy_the_first_failure_fails_the_set() -> None:
    async def story(world: World) -> None:
        await world.create(replicated("a", 2, run_time="10s", exit_code="1"), replicated("b"))
        await world.wait(30)
        status = await world.status()
        (failed,) = (one for one in status["conditions"] if one["type"] == "Failed")
        assert failed["reason"] == "FailedJobs"
        assert "first failed job: js-a-" in failed["message"]
        assert status["terminalState"] == "Failed"
        assert "js-b-0" not in await world.jobs()
        assert await world.running() == 0
        assert ("Warning", "FailedJobs", failed["message"]) in await world.events()

    tell(story)


def test_the_set_restarts_until_its_restarts_are_used_up() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("a", run_time="10s", exit_code="1"),
            replicated("b", 2),
            failurePolicy={"maxRestarts": 2},
        )
        await world.wait(20)
        status = await world.status()
        assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
        assert (await world.conditions())["RestartingJobSet"][1] in ("DefaultFailurePolicy", "JobsReady")
        await world.wait(200)
        status = await world.status()
        assert (status["restarts"], status["terminalState"]) == (2, "Failed")
        conditions = await world.conditions()
        assert conditions["Failed"] == ("True", "ReachedMaxRestarts")
        assert conditions["RestartingJobSet"] == ("False", "JobSetFailed")
        attempts = [reason for _, reason, _ in await world.events() if reason == "DefaultFailurePolicy"]
        assert len(attempts) == 2

    tell(story)


def test_restart_creates_all_jobs_again() -> None:
    async def story(world: World) -> None:
        # Attempt 0 fails after 10 s. The exit codes are per run of a pod, so each attempt starts over.
        await world.create(
            replicated("a", run_time="20s", exit_code="1"),
            replicated("b", 2),
            failurePolicy={"maxRestarts": 5},
        )
        await world.wait(10)
        before = {name: job["metadata"]["uid"] for name, job in (await world.jobs()).items()}
        await world.wait(30)
        jobs = await world.jobs()
        assert sorted(jobs) == sorted(before)
        assert all(job["metadata"]["uid"] != before[name] for name, job in jobs.items())
        assert {job["metadata"]["labels"][PREFIX + "restart-attempt"] for job in jobs.values()} == {"1"}
        assert (await world.conditions())["RestartingJobSet"] == ("False", "JobsReady")

    tell(story)


def test_blocking_recreate_waits_until_every_job_is_gone() -> None:
    def created(world_jobs: dict[str, Any]) -> list[str]:
        return [job["metadata"]["creationTimestamp"] for job in world_jobs.values()]

    async def story(world: World) -> None:
        slow = replicated("slow")
        slow["template"]["spec"]["template"]["metadata"]["annotations"]["sim.pykueue.io/stop-delay"] = "20s"
        await world.create(
            slow,
            replicated("a", run_time="10s", exit_code="1"),
            replicated("b"),
            failurePolicy={"maxRestarts": 1, "restartStrategy": "BlockingRecreate"},
        )
        await world.wait(25)
        assert (await world.status())["restarts"] == 1
        left = await world.jobs()
        assert "js-b-0" not in left, "b is gone and must wait for slow"
        assert left["js-slow-0"]["metadata"]["deletionTimestamp"]
        await world.wait(20)
        assert len(set(created(await world.jobs()))) == 1

    tell(story)


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        ({"action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}, "fails"),
        ({"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}, "restarts"),
        ({"action": "FailJobSet", "onJobFailureMessagePatterns": ["backoff limit$"]}, "fails"),
        ({"action": "FailJobSet", "onJobFailureMessagePatterns": ["^no such text"]}, "restarts"),
        ({"action": "FailJobSet", "onJobFailureMessagePatterns": ["(.+)+Q"]}, "restarts"),
        ({"action": "FailJobSet", "targetReplicatedJobs": ["a"]}, "fails"),
        ({"action": "FailJobSet", "targetReplicatedJobs": ["b"]}, "restarts"),
        ({"action": "RestartJobSet"}, "restarts"),
        ({"action": "RestartJobSetAndIgnoreMaxRestarts"}, "restarts without counting"),
    ],
)
def test_the_first_rule_that_matches_decides(rule: dict[str, Any], outcome: str) -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("a", run_time="10s", exit_code="1"),
            replicated("b"),
            failurePolicy={"maxRestarts": 1, "rules": [{"name": "mine", **rule}]},
        )
        await world.wait(20)
        status = await world.status()
        if outcome == "fails":
            assert status["terminalState"] == "Failed"
            assert (await world.conditions())["Failed"] == ("True", "FailJobSetFailurePolicyAction")
            return
        assert status["restarts"] == 1
        reasons = [reason for _, reason, _ in await world.events()]
        matched = rule["action"] != "FailJobSet"
        assert ("FailurePolicy_mine" if matched else "DefaultFailurePolicy") in reasons
        assert status["restartsCountTowardsMax"] == (0 if "without" in outcome else 1)
        await world.wait(40)
        if "without" in outcome:
            assert (await world.status())["restarts"] > 1
        else:
            assert (await world.conditions())["Failed"] == ("True", "ReachedMaxRestarts")

    tell(story)


def test_failure_comes_before_success() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("good", run_time="10s"),
            replicated("bad", run_time="10s", exit_code="1"),
            successPolicy={"operator": "All"},
        )
        await world.wait(30)
        assert (await world.status())["terminalState"] == "Failed"

    tell(story)


def test_dependents_wait_until_what_they_depend_on_is_ready() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("server", 2, ready_delay="20s"),
            replicated("workers", 1, 2, depends_on=[{"name": "server", "status": "Ready"}]),
        )
        await world.wait(15)
        assert sorted(await world.jobs()) == ["js-server-0", "js-server-1"]
        await world.wait(15)
        assert await world.running("js-workers-0") == 2

    tell(story)


def test_dependents_wait_until_what_they_depend_on_is_complete() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("prepare", 2, run_time="20s"),
            replicated("train", depends_on=[{"name": "prepare", "status": "Complete"}], run_time="10s"),
        )
        await world.wait(15)
        assert sorted(await world.jobs()) == ["js-prepare-0", "js-prepare-1"]
        await world.wait(15)
        assert await world.running("js-train-0") == 1
        await world.wait(20)
        assert (await world.status())["terminalState"] == "Completed"

    tell(story)


def test_in_order_each_starts_when_the_one_before_is_ready() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("first", ready_delay="10s"),
            replicated("second", 2, ready_delay="10s"),
            replicated("third"),
            startupPolicy={"startupPolicyOrder": "InOrder"},
        )
        await world.wait(8)
        assert sorted(await world.jobs()) == ["js-first-0"]
        assert (await world.conditions())["StartupPolicyInProgress"][0] == "True"
        await world.wait(11)
        assert sorted(await world.jobs()) == ["js-first-0", "js-second-0", "js-second-1"]
        await world.wait(20)
        assert len(await world.jobs()) == 4
        conditions = await world.conditions()
        assert conditions["StartupPolicyCompleted"] == ("True", "InOrderStartupPolicyCompleted")
        assert conditions["StartupPolicyInProgress"][0] == "False"

    tell(story)


@pytest.mark.parametrize("how", ["InOrder", "dependsOn"])
def test_resuming_starts_the_order_again(how: str) -> None:
    async def story(world: World) -> None:
        in_order = how == "InOrder"
        depends = None if in_order else [{"name": "first", "status": "Ready"}]
        order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}} if in_order else {}
        await world.create(
            replicated("first", ready_delay="20s"), replicated("second", depends_on=depends), **order
        )
        await world.wait(40)
        assert await world.running() == 2
        await world.suspend()
        await world.wait(60)
        assert await world.pods() == []
        await world.suspend(False)
        await world.wait(10)
        assert await world.running("js-first-0") == 1
        assert (await world.jobs())["js-second-0"]["spec"]["suspend"] is True
        await world.wait(30)
        assert await world.running("js-second-0") == 1

    tell(story)


def test_created_suspended_in_order_all_jobs_are_there_and_start_one_by_one() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("first", ready_delay="20s"),
            replicated("second"),
            startupPolicy={"startupPolicyOrder": "InOrder"},
            suspend=True,
        )
        await world.wait()
        assert len(await world.jobs()) == 2
        await world.suspend(False)
        await world.wait(10)
        assert [pod["metadata"]["labels"]["app"] for pod in await world.pods()] == ["first"]
        await world.wait(30)
        assert await world.running() == 2

    tell(story)


def test_a_crash_while_failing_counts_one_restart() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("a", run_time="10s", exit_code="1"),
            replicated("b", 3),
            failurePolicy={"maxRestarts": 9},
        )
        await world.wait(9)
        for pause in (1.0, 0.6, 0.3, 0.2, 0.1, 0.05, 0.3, 1.0):
            await world.wait(pause)
            await world.restart()
        await world.wait(6)
        status = await world.status()
        assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
        assert len(await world.jobs()) == 4

    tell(story)


def test_suspending_while_restarting_says_so() -> None:
    async def story(world: World) -> None:
        await world.create(
            replicated("a", run_time="10s", exit_code="1"),
            replicated("b", ready_delay=LATE),
            failurePolicy={"maxRestarts": 9},
        )
        await world.wait(16)
        assert (await world.conditions())["RestartingJobSet"] == ("True", "DefaultFailurePolicy")
        await world.suspend()
        await world.wait(5)
        conditions = await world.conditions()
        assert conditions["RestartingJobSet"] == ("False", "JobSetSuspended")
        assert conditions["Suspended"] == ("True", "SuspendedJobs")

    tell(story)
