"""Runs whose users also edit statuses, annotations and finalizers by hand, and what they have found."""

from __future__ import annotations

import os
from typing import Any

import pytest
from manager_stack import Stack, job, story

from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from pykueue.kube.transport import Request
from pykueue.simulate.faults import play

#: A tenth of the runs without edits.
RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 10
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
BATCH = 50
#: Lines of the trace that a failure shows.
SHOWN = 120
#: Runs that have failed.
FOUND = (
    100092,
    100223,
    100563,
    101118,
    101745,
    102322,
    102368,
    102496,
    102583,
    102619,
    102797,
    104003,
    105182,
    106323,
    107473,
    110368,
    110384,
)


@pytest.mark.parametrize("first", range(FIRST, FIRST + RUNS, BATCH))
def test_whatever_is_edited_nothing_is_stuck_or_given_twice(first: int) -> None:
    for seed in range(first, min(first + BATCH, FIRST + RUNS)):
        report = play(seed, edits=True)
        assert not report.violations, report.text(SHOWN)


@pytest.mark.parametrize("seed", FOUND)
def test_run_with_edits_that_has_failed_passes(seed: int) -> None:
    report = play(seed, edits=True)
    assert not report.violations, report.text(SHOWN)


def test_real_pods_keep_their_quota_whatever_is_edited() -> None:
    for seed in range(FIRST, FIRST + max(1, RUNS // 20)):
        report = play(seed, pods=True, edits=True)
        assert not report.violations, report.text(SHOWN)


async def set_condition(s: Stack, job: str, kind: str, status: str) -> None:
    """Add a condition by hand to the Workload of a job."""
    workload = await s.workload(job)
    condition = {
        "type": kind,
        "status": status,
        "reason": "ByHand",
        "message": "",
        "lastTransitionTime": s.now(),
    }
    conditions = [*workload["status"]["conditions"], condition]
    name = workload["metadata"]["name"]
    await s.patch(WORKLOADS, name, {"status": {"conditions": conditions}}, "status")


def test_workload_queues_again_when_requeued_is_denied_for_a_reason_that_nothing_lifts() -> None:
    async def life(s: Stack) -> None:
        await s.patch(LOCAL_QUEUES, "lq", {"spec": {"stopPolicy": "Hold"}})
        await s.apply(job("a"))
        await s.settle()
        await set_condition(s, "a", "Requeued", "False")
        await s.patch(LOCAL_QUEUES, "lq", {"spec": {"stopPolicy": "None"}})
        await s.settle()
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")

    story(life)


def test_job_evicted_by_hand_runs_again() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a"))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        await set_condition(s, "a", "Evicted", "True")
        await s.settle()
        assert await s.suspended("a")
        await s.stop_pods("a")
        await s.settle()
        assert not await s.suspended("a")
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")

    story(life)


def test_finalizer_of_a_workload_marked_as_finished_right_before_its_job_ends_is_removed() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a"))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        inner = s.transport.inner.call

        async def slow(request: Request) -> Any:
            """The job is read again late, when it has ended."""
            if request.method == "GET" and request.path.endswith("/jobs/a"):
                await s.clock.sleep(1)
            return await inner(request)

        s.transport.inner.call = slow  # type: ignore[method-assign]
        await set_condition(s, "a", "Finished", "True")
        await s.settle(0.1)
        await s.finish_job("a")
        await s.settle(60)
        assert "finalizers" not in (await s.workload("a"))["metadata"]

    story(life)


def test_deleted_queue_goes_when_the_job_of_a_removed_workload_ends() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a"))
        await s.settle()
        await s.run_job("a")
        await s.delete(CLUSTER_QUEUES, "cq")
        await s.settle()
        name = (await s.workload("a"))["metadata"]["name"]
        await s.patch(WORKLOADS, name, {"metadata": {"finalizers": None}})
        await s.delete(WORKLOADS, name)
        await s.finish_job("a")
        await s.settle(60)
        assert not (await s.client.list(CLUSTER_QUEUES)).items

    story(life)


def test_workload_that_waits_and_is_marked_as_finished_still_runs() -> None:
    async def life(s: Stack) -> None:
        await s.patch(LOCAL_QUEUES, "lq", {"spec": {"stopPolicy": "Hold"}})
        await s.apply(job("a"))
        await s.settle()
        await set_condition(s, "a", "Finished", "True")
        await s.settle()
        await s.patch(LOCAL_QUEUES, "lq", {"spec": {"stopPolicy": "None"}})
        await s.settle()
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")
        assert not await s.suspended("a")

    story(life)
