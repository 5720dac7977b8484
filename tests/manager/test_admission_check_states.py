"""The states of admission checks row by row (docs/reference/admission-checks.md 5).

What each leads to, before and after admission, and what an eviction leaves of it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from checks_world import answer, change_queue, set_up
from manager_stack import Object, Stack, job, story

from pykueue.api.resources import WORKLOADS

REFERENCE = Path(__file__).parents[2] / "docs/reference/admission-checks.md"
DAY = 24 * 3600.0
RETRY: Object = {"state": "Retry", "requeueAfterSeconds": 60}
#: What a check says that has been answered.
READY: Object = {"state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"x": "y"}}]}


def first_column(heading: str) -> list[str]:
    """The first column of the table of a section of the reference."""
    section = REFERENCE.read_text().partition(heading)[2].partition("\n#")[0]
    return re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:]


def checked(test: Callable[[Stack], Awaitable[None]]) -> None:
    """Run a test with a job `a` that has quota and waits for the checks `a` and `b`."""

    async def life(s: Stack) -> None:
        await set_up(s, a=[], b=[])
        await s.apply(job("a"))
        await s.settle()
        await test(s)

    story(life, queues=[])


async def check(s: Stack, name: str = "a") -> Object:
    checks = (await s.workload("a"))["status"]["admissionChecks"]
    return next(one for one in checks if one["name"] == name)


async def active(s: Stack, wanted: bool) -> None:
    name = (await s.workload("a"))["metadata"]["name"]
    await s.patch(WORKLOADS, name, {"spec": {"active": wanted}})
    await s.settle()


async def pending(s: Stack) -> None:
    """Wait, without a timeout."""
    await s.settle(DAY)
    found = await s.conditions("a")
    assert found["QuotaReserved"][0] == "True"
    assert found["Admitted"][0] == "False"
    assert "Evicted" not in found


async def ready(s: Stack) -> None:
    """When all are Ready: admit."""
    await answer(s, "a", a="Ready")
    assert await s.suspended("a")
    await answer(s, "a", b="Ready")
    assert (await s.conditions("a"))["Admitted"][0] == "True"
    assert not await s.suspended("a")


async def retry(s: Stack) -> None:
    """Release quota, back off, start again."""
    await answer(s, "a", a={**RETRY, "message": "no capacity"}, b="Ready")
    found = await s.conditions("a")
    assert found["Evicted"] == ("True", "AdmissionCheck")
    assert "no capacity" in await s.message("a", "Evicted")
    assert found["QuotaReserved"][0] == "False"
    assert found["Requeued"] == ("False", "AdmissionCheck")
    await s.settle(60)
    found = await s.conditions("a")
    assert found["Requeued"] == ("True", "BackoffFinished")
    assert found["QuotaReserved"][0] == "True"
    assert ((await check(s))["state"], (await check(s, "b"))["state"]) == ("Pending", "Pending")
    await ready(s)


async def rejected(s: Stack) -> None:
    """Deactivate the Workload."""
    await answer(s, "a", a="Rejected")
    workload = await s.workload("a")
    assert workload["spec"]["active"] is False
    assert "requeueState" not in workload["status"]
    found = await s.conditions("a")
    assert found["QuotaReserved"][0] == "False"
    assert (found["Evicted"][0], found["Evicted"][1].startswith("Deactivated")) == ("True", True)
    assert "AdmissionCheckRejected" in await s.events(workload["metadata"]["name"])
    await s.settle(DAY)
    assert (await s.conditions("a"))["QuotaReserved"][0] == "False"


STATES = {"Pending": pending, "Ready": ready, "Retry": retry, "Rejected": rejected}


def test_every_state_of_the_reference_has_a_test() -> None:
    assert first_column("\n## 5. States and reactions") == list(STATES)


@pytest.mark.parametrize("state", STATES)
def test_state_of_a_workload_with_quota(state: str) -> None:
    checked(STATES[state])


@pytest.mark.parametrize(
    ("state", "evicted"),
    [("Pending", False), ("Ready", False), ("Retry", True), ("Rejected", True)],
)
def test_state_of_an_admitted_workload(state: str, evicted: bool) -> None:
    async def test(s: Stack) -> None:
        await answer(s, "a", a="Ready", b="Ready")
        await s.run_job("a")
        await answer(s, "a", a=state)
        found = await s.conditions("a")
        assert await s.suspended("a") is evicted
        assert ("Evicted" in found) is evicted
        # Quota is released when its pods have stopped.
        assert found["QuotaReserved"][0] == "True"
        if evicted:
            await s.stop_pods("a")
            await s.settle()
            assert (await check(s))["state"] == "Pending"

    checked(test)


@pytest.mark.parametrize("state", ["Retry", "Rejected"])
def test_state_of_a_workload_that_is_being_evicted_is_not_acted_on(state: str) -> None:
    async def test(s: Stack) -> None:
        await answer(s, "a", a="Ready", b="Ready")
        await s.run_job("a")
        await change_queue(s, stopPolicy="HoldAndDrain")
        assert (await s.conditions("a"))["Evicted"] == ("True", "ClusterQueueStopped")
        await answer(s, "a", a=state)
        workload = await s.workload("a")
        assert workload["spec"].get("active", True) is True
        assert (await s.conditions("a"))["Evicted"] == ("True", "ClusterQueueStopped")
        await s.stop_pods("a")
        await change_queue(s, stopPolicy="None")
        assert (await s.conditions("a"))["QuotaReserved"][0] == "True"
        assert (await check(s))["state"] == "Pending"

    checked(test)


#: What is left of a check after an eviction, by what it was: its state, its retries, and part of its message.
RESETS: dict[str, dict[str, tuple[Object, Object]]] = {
    "Pending": {"Pending": ({"state": "Pending", "message": "asked"}, {"retryCount": 1, "message": "asked"})},
    "Ready, Rejected": {
        "Ready": (READY, {"message": "Previously: Ready"}),
        "Rejected": ({"state": "Rejected"}, {"message": "Previously: Rejected"}),
    },
    "Retry": {"Retry": (RETRY, {"retryCount": 2, "requeueAfterSeconds": 60, "message": "Previously: Retry"})},
}


def test_every_reset_of_the_reference_has_a_test() -> None:
    assert first_column("\n### 5.3 Reset at any eviction") == list(RESETS)


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(*row, id=name) for rows in RESETS.values() for name, row in rows.items()],
)
def test_check_after_an_eviction(before: Object, after: Object) -> None:
    async def test(s: Stack) -> None:
        await answer(s, "a", a="Retry")  # one retry before
        assert (await check(s))["retryCount"] == 1
        await answer(s, "a", a=before)
        await active(s, False)
        found = await check(s)
        assert found["state"] == "Pending"
        assert after["message"] in found["message"]
        assert found.get("retryCount") == after.get("retryCount")
        assert found.get("requeueAfterSeconds") == after.get("requeueAfterSeconds")
        assert "podSetUpdates" not in found

    checked(test)
