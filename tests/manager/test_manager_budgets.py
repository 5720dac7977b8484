"""Budgets on a running manager: what is counted, refused, evicted and kept through restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from manager_stack import Stack, job, story

from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS, ledger_name
from pykueue.api.meta import parse_time
from pykueue.api.quantity import parse
from pykueue.api.resources import JOBS, WORKLOADS
from pykueue.api.yaml import load_documents
from pykueue.engine.budgets.rules import hours_text
from pykueue.kube.errors import ApiError

Object = dict[str, Any]
LIMITED = {"kueue.x-k8s.io/max-exec-time-seconds": "36000"}


def budget(name: str = "lab", hours: Any = 100, **spec: Any) -> Object:
    selector = spec.pop("selector", {"clusterQueue": "cq"})
    return {
        "apiVersion": BUDGETS.api_version,
        "kind": BUDGETS.kind,
        "metadata": {"name": name},
        "spec": {"selector": selector, "resources": [{"name": "cpu", "hours": str(hours)}], **spec},
    }


async def ledger(s: Stack, value: str = "", name: str = "lab") -> Object:
    return (await s.get(BUDGET_LEDGERS, ledger_name(name, value)))["spec"]


async def used(s: Stack, value: str = "") -> float:
    """CPU-seconds in the ledger."""
    return parse((await ledger(s, value)).get("used", {}).get("cpu", "0")).nanos / 1e9


async def ran(s: Stack, name: str) -> float:
    """Seconds from the admission to the end of a job's Workload, by its conditions."""
    found = {each["type"]: each for each in (await s.workload(name))["status"]["conditions"]}
    start = parse_time(found["Admitted"]["lastTransitionTime"])
    return parse_time(found["Finished"]["lastTransitionTime"]) - start


def test_every_second_from_admission_to_end_is_counted_once_also_over_a_restart() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget())
        await s.apply(job("first", 3))
        await s.settle(100)
        await s.stop_manager()
        await s.settle(200)
        await s.start_manager()
        await s.settle(100)
        await s.finish_job("first")
        await s.settle(10)
        assert await used(s) == 3 * await ran(s, "first") >= 3 * 400
        assert (await ledger(s)).get("running", []) == []
        status = (await s.get(BUDGETS, "lab"))["status"]
        (shown,) = status["ledgers"]
        assert {each["type"]: each["status"] for each in status["conditions"]} == {
            "Active": "True",
            "Exhausted": "False",
        }
        assert shown["resources"][0]["limit"] == "100"
        hours = 3 * await ran(s, "first") / 3600
        assert status["printed"] == {
            "resource": "cpu",
            "used": hours_text("cpu", hours),
            "reserved": "0.00 h",
            "left": hours_text("cpu", 100 - hours),
            "limit": "100.00 h",
            "percent": "0%",
        }

    story(life)


@pytest.mark.parametrize(
    ("resource", "hours", "text"),
    [
        ("cpu", 0.0, "0.00 h"),
        ("cpu", 0.0021, "0.002 h"),
        ("cpu", 123.4, "123.40 h"),
        ("memory", 3 * 2.0**30, "3.00 Gi·h"),
    ],
)
def test_hours_are_printed_with_a_decimal_point(resource: str, hours: float, text: str) -> None:
    assert hours_text(resource, hours) == text


def test_job_that_cannot_finish_within_the_budget_waits_for_what_an_early_end_returns() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget(hours=60, reservation="Declared"))
        await s.apply(job("first", 4, labels=LIMITED))
        await s.settle()
        await s.apply(job("second", 3, labels=LIMITED))
        await s.settle(60)
        assert await s.suspended("second")
        assert "insufficient cpu in Budget lab: 30 resource-hours requested" in await s.message("second")
        await s.finish_job("first")
        await s.settle(10)
        assert not await s.suspended("second")
        shown = (await s.get(BUDGETS, "lab"))["status"]["ledgers"][0]["resources"][0]
        left = sum(parse(shown[each]).nanos for each in ("used", "reserved", "remaining"))
        assert abs(left - parse("60").nanos) <= parse("2m").nanos

    story(life)


def test_exhausted_budget_evicts_after_the_grace_and_admits_again_in_the_next_window() -> None:
    async def life(s: Stack) -> None:
        evict = {"percent": 100, "action": "Evict", "grace": "10m"}
        # Tests begin at midnight UTC, an hour before midnight of this zone.
        window = {"calendar": "Daily", "timeZone": "Etc/GMT+1"}
        spec = {"thresholds": [{"percent": 50, "action": "Warn"}, evict], "window": window}
        await s.client.create(BUDGETS, budget(hours="500m", **spec))
        await s.apply(job("first", 1))
        await s.settle()
        await s.run_job("first")
        await s.settle(910)
        assert (await ledger(s))["action"] == "Warn"
        await s.settle(900)
        assert (await ledger(s))["action"] == "Evict"
        assert "Evicted" not in await s.conditions("first")
        await s.settle(600)
        assert (await s.conditions("first"))["Evicted"] == ("True", "BudgetExhausted")
        await s.stop_pods("first")
        await s.settle(10)
        assert await s.suspended("first")
        assert "Budget lab is exhausted" in await s.message("first")
        assert 1800 <= await used(s) <= 1800 + 600 + 120
        assert (await s.get(BUDGETS, "lab"))["status"]["conditions"][1]["status"] == "True"
        await s.settle(3600 - 2300)
        assert not await s.suspended("first")
        past = (await ledger(s))["past"]
        assert parse(past[0]["used"]["cpu"]).value() >= 1800

    story(life)


def test_evicted_and_admitted_again_counts_both_runs() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget())
        await s.apply(job("first", 2))
        await s.settle()
        await s.run_job("first")
        await s.settle(100)
        name = (await s.workload("first"))["metadata"]["name"]
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        await s.stop_pods("first")
        await s.settle(50)
        past = (await s.workload("first"))["status"]["accumulatedPastExecutionTimeSeconds"]
        assert await used(s) == 2 * past
        await s.patch(WORKLOADS, name, {"spec": {"active": True}})
        await s.settle(100)
        await s.finish_job("first")
        await s.settle(5)
        assert await used(s) == 2 * (past + await ran(s, "first"))

    story(life)


def test_deleted_ledger_and_cleared_status_lose_no_second() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget())
        await s.apply(job("first", 1))
        await s.settle(100)
        before = await used(s)
        await s.client.delete(BUDGET_LEDGERS, ledger_name("lab", ""))
        await s.settle(5)
        assert await used(s) >= before > 0
        await s.patch(BUDGET_LEDGERS, ledger_name("lab", ""), {"spec": {"used": None, "total": None}})
        await s.client.patch(BUDGETS, "lab", None, {"status": None}, subresource="status")
        await s.settle(61)
        await s.finish_job("first")
        await s.settle(5)
        assert await used(s) == await ran(s, "first")
        assert (await s.get(BUDGETS, "lab"))["status"]["ledgers"]

    story(life)


def test_deleted_job_is_counted_until_its_end() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget())
        await s.apply(job("first", 1))
        await s.settle(100)
        name = (await s.workload("first"))["metadata"]["name"]
        await s.client.delete(JOBS, "first", "default")
        await s.client.delete(WORKLOADS, name, "default")
        await s.settle(100)
        assert await s.workloads() == []
        assert 98 <= await used(s) <= 102
        assert (await ledger(s)).get("running", []) == []

    story(life)


def test_change_of_a_workload_that_was_deleted_meanwhile_does_not_count_it_again() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget())
        await s.apply(job("first", 1))
        await s.settle(100)
        seen = await s.workload("first")
        await s.client.delete(JOBS, "first", "default")
        await s.client.delete(WORKLOADS, seen["metadata"]["name"], "default")
        await s.settle(100)
        # As when the removal of its finalizer had no answer and is sent again.
        guard = s.manager.connection.writer.guard
        assert guard is not None
        await guard(WORKLOADS, seen, {**seen, "metadata": {**seen["metadata"], "finalizers": []}})
        await s.settle(100)
        assert (await ledger(s)).get("running", []) == []
        assert 98 <= await used(s) <= 102

    story(life)


def test_workload_without_own_limit_is_evicted_after_the_default_maximum() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget(hours=5, reservation="Declared", defaultMaximum="5m"))
        await s.apply(job("first", 1))
        await s.settle(10)
        await s.run_job("first")
        await s.settle(300)
        assert (await s.conditions("first"))["Evicted"] == ("True", "BudgetExhausted")
        await s.stop_pods("first")
        await s.settle(100)
        assert "the workload has run for its maximum execution time" in await s.message("first")

    story(life)


def test_removed_budget_leaves_nothing_stuck() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget(hours=1, reservation="Declared"))
        await s.apply(job("first", 1, labels=LIMITED))
        await s.settle(10)
        assert await s.suspended("first")
        await s.client.delete(BUDGETS, "lab")
        await s.settle(10)
        assert not await s.suspended("first")
        await s.finish_job("first")
        await s.settle(10)
        assert "finalizers" not in (await s.workload("first"))["metadata"]

    story(life)


def test_every_value_of_a_label_of_jobs_has_a_ledger_and_keeps_it_while_the_job_runs() -> None:
    async def life(s: Stack) -> None:
        await s.client.create(BUDGETS, budget(selector={"label": "team"}))
        await s.settle()
        await s.apply([job("a", 1, labels={"team": "x"}), job("b", 1, labels={"team": "y"}), job("c", 1)])
        await s.settle(100)
        name = (await s.workload("a"))["metadata"]["name"]
        with pytest.raises(ApiError) as refused:
            await s.patch(WORKLOADS, name, {"metadata": {"labels": {"team": "y"}}})
        assert "must not change while Budget lab counts the workload by it" in refused.value.message
        for each in ("a", "b", "c"):
            await s.finish_job(each)
        await s.settle(5)
        assert [await used(s, value) for value in ("x", "y", "")] == [await ran(s, each) for each in "abc"]
        await s.settle(5)
        text = s.manager.metrics.text().decode()
        shown = [line for line in text.splitlines() if line.startswith("pykueue_budget_used_hours{")]
        assert len(shown) == 3
        assert 'budget="lab",resource="cpu",value="x"' in "".join(shown)

    story(life)


def test_example_holds_the_second_job_until_the_first_one_returns_its_hours() -> None:
    example = Path(__file__).parents[2] / "examples" / "budget"

    async def life(s: Stack) -> None:
        *objects, given = load_documents((example / "budget.yaml").read_text())
        await s.apply(objects)
        await s.client.create(BUDGETS, given)
        await s.settle()
        for name in ("survey", "analysis"):
            await s.apply((example / f"{name}.yaml").read_text())
            await s.settle()
        assert (await s.message("analysis")).endswith(
            "insufficient cpu in Budget team-lab: 40 resource-hours requested "
            "(maximum execution time 36000s), 20 left"
        )
        await s.finish_job("survey")
        await s.settle(5)
        assert not await s.suspended("analysis")

    story(life)
