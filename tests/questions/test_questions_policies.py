"""Changes of Budgets, of Reservations and of declared run times that `why` proposes, each verified."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import START, World
from test_questions_why import ask, changes, edits

from pykueue.api.budgets import ledger_name
from pykueue.api.meta import format_time

OWN = "pykueue.io/v1alpha1"
HOUR = 3600


def world(**budget: Any) -> World:
    """A queue of ten CPUs with a Budget of 100 CPU-hours."""
    made = World()
    made.flavor()
    made.queue("q", {"f": {"cpu": 10}})
    selector = budget.pop("selector", {"clusterQueue": "q"})
    spec = {"selector": selector, "resources": [{"name": "cpu", "hours": "100"}], **budget}
    made.apply({"apiVersion": OWN, "kind": "Budget", "metadata": {"name": "lab", "uid": "lab"}, "spec": spec})
    return made


def used(made: World, hours: float, action: str = "", value: str = "") -> None:
    made.apply(
        {
            "apiVersion": OWN,
            "kind": "BudgetLedger",
            "metadata": {"name": ledger_name("lab", value)},
            "spec": {
                "budget": "lab",
                "value": value,
                "completeSince": format_time(START - HOUR),
                "used": {"cpu": str(int(hours * HOUR))},
                "total": {"cpu": str(int(hours * HOUR))},
                "limit": {"cpu": str(100 * HOUR)},
                "action": action,
            },
        }
    )


def test_what_is_set_aside_is_proposed_as_hours_credit_or_a_shorter_limit() -> None:
    made = world(reservation="Declared")
    used(made, 80.5)
    made.workload("w", "q", 4, maximumExecutionTimeSeconds=5 * HOUR)
    made.cycle()
    answer = ask(made, "w")
    assert "insufficient cpu in Budget lab: 20 resource-hours requested" in answer.message
    (hours,) = changes(answer, "BudgetHours")
    assert edits(hours) == [("lab", "hours", "100", "100500m")]
    assert hours.text == "add 0.5 hours of cpu of Budget lab (from 100 to 100.5)"
    (credit,) = changes(answer, "BudgetCredit")
    assert credit.text == "grant a credit of 0.5 hours of cpu in Budget lab"
    (shorter,) = changes(answer, "MaximumExecutionTime")
    # 19.5 hours are left for four CPUs.
    assert edits(shorter) == [("w", "maximumExecutionTimeSeconds", "18000", "17550")]
    assert all(each.smallest for each in (hours, credit, shorter))


@pytest.mark.parametrize(
    ("thresholds", "action", "hours"),
    [
        ([], "NoAdmission", "20001m"),
        ([{"percent": 60, "action": "NoAdmission"}], "NoAdmission", "100001m"),
        ([{"percent": 80, "action": "Evict", "grace": "1h"}], "Evict", "50001m"),
    ],
)
def test_a_budget_that_is_closed_opens_with_the_hours_that_its_threshold_leaves(
    thresholds: list[dict[str, Any]], action: str, hours: str
) -> None:
    made = world(thresholds=thresholds)
    used(made, 120, action)
    made.workload("w", "q", 4)
    made.cycle()
    answer = ask(made, "w")
    assert "Budget lab is exhausted" in answer.message
    (change,) = changes(answer, "BudgetHours")
    ((_, _, _, after),) = edits(change)
    assert after == f"{100000 + int(hours[:-1])}m"
    assert not changes(answer, "MaximumExecutionTime")


def test_a_credit_is_for_the_value_of_the_label_that_the_workload_has() -> None:
    made = world(selector={"label": "team"})
    used(made, 120, "NoAdmission", value="vision")
    for name, team in (("w", "vision"), ("other", "speech")):
        made.workload(name, "q", 4)
        manifest = made.workloads[name]
        manifest["metadata"]["labels"] = {"team": team}
        made.put(manifest)
    made.stable()
    (credit,) = changes(ask(made, "w"), "BudgetCredit")
    assert credit.text == "grant a credit of 20.001 hours of cpu in Budget lab to vision"
    assert made.reserved() == {"other"}


def test_a_reservation_is_left_by_a_shorter_run_or_made_smaller() -> None:
    made = World()
    made.flavor()
    made.queue("q", {"f": {"cpu": 10}})
    made.apply(
        {
            "apiVersion": OWN,
            "kind": "Reservation",
            "metadata": {"name": "night", "uid": "night"},
            "spec": {
                "clusterQueue": "q",
                "purpose": "Maintenance",
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "quantity": 8}]}],
                "start": format_time(START + 2 * HOUR),
                "duration": "1h",
            },
        }
    )
    made.workload("w", "q", 4, maximumExecutionTimeSeconds=3 * HOUR)
    made.cycle()
    answer = ask(made, "w")
    assert "Would use quota of Reservation night" in answer.message
    (shorter,) = changes(answer, "MaximumExecutionTime")
    ((_, _, before, after),) = edits(shorter)
    left = START + 2 * HOUR - made.now
    assert before == str(3 * HOUR)
    assert left - 2 <= int(after) <= left
    (smaller,) = changes(answer, "Reservation")
    assert edits(smaller) == [("night", "quantity", "8", "6")]
    assert smaller.text == "lower what Reservation night keeps free by 2 cpu of flavor f (from 8 to 6)"
