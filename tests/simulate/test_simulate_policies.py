"""Budgets and Reservations in scenarios and in questions about the future: ledgers in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from test_simulate_forecast import PAST, admitted, state, workload
from test_simulate_scenarios import job, of, once, queue, simulated

from pykueue.api import decode
from pykueue.api.budgets import ledger_name
from pykueue.engine import Preempt, Upsert
from pykueue.simulate.figures import figure
from pykueue.simulate.forecast import when
from pykueue.simulate.futures import State
from pykueue.simulate.journal import Journal
from pykueue.simulate.measures import BudgetKey
from pykueue.simulate.prepare import plan, prepare
from pykueue.simulate.runs import run
from pykueue.simulate.scenario.reading import load
from pykueue.simulate.simulation import Simulation
from pykueue.simulate.whatif import Question, whatif

OWN = "pykueue.io/v1alpha1"
EXAMPLE = Path(__file__).parents[2] / "examples" / "simulate" / "budgets.yaml"
LAB = BudgetKey("lab", "", "cpu")


def budget(hours: Any, **spec: Any) -> dict[str, Any]:
    """A Budget of CPU-hours for the queue `q`."""
    selector = spec.pop("selector", {"clusterQueue": "q"})
    return {
        "apiVersion": OWN,
        "kind": "Budget",
        "metadata": {"name": "lab", "uid": "lab"},
        "spec": {"selector": selector, "resources": [{"name": "cpu", "hours": str(hours)}], **spec},
    }


DAILY = {"window": {"calendar": "Daily"}}
EVICT = {"thresholds": [{"percent": 100, "action": "Evict", "grace": "10m"}]}


def test_use_is_counted_by_the_second_and_by_the_value_of_a_label(tmp_path: Path) -> None:
    jobs = once(job("a", "45m", labels={"team": "a"}), job("b", "90m", labels={"team": "b"}))
    lab = budget(100, selector={"label": "team"})
    found = simulated(tmp_path, jobs, objects=[*queue(cpu=2), lab])
    used = {key.value: use.used for key, use in found.budgets.items()}
    assert used == {"a": pytest.approx(0.75), "b": pytest.approx(1.5)}
    assert found.budgets[LAB._replace(value="b")].highest == pytest.approx(0.01)


def test_jobs_wait_for_the_next_window_once_the_budget_is_used(tmp_path: Path) -> None:
    jobs = once(job("first", "3h"), job("second", "1h"))
    found = simulated(tmp_path, jobs, objects=[*queue(), budget(2, **DAILY)])
    assert figure(found, "wait.max", of("second")) == 24 * 3600
    # What runs goes on beyond the limit of the window.
    use = found.budgets[LAB]
    assert (use.used, use.limit, use.highest) == (pytest.approx(4.0), 2.0, pytest.approx(1.5))
    assert use.actions == [(2 * 3600, "NoAdmission"), (24 * 3600, "")]


@pytest.mark.parametrize("eviction", [{}, {"eviction": {"fixed": "1m"}}])
def test_jobs_are_evicted_after_the_grace_and_go_on_in_the_next_window(
    tmp_path: Path, eviction: dict[str, Any]
) -> None:
    endless = job("first", "3h", checkpointEvery="1s")
    lab = budget(2, **DAILY, **EVICT)
    found = simulated(tmp_path, once(endless), objects=[*queue(), lab], latencies=eviction)
    over = 10 + (1 if eviction else 0)
    assert found.budgets[LAB].highest == pytest.approx((120 + over) / 120, abs=0.001)
    assert figure(found, "evictions") == 1
    assert found.makespan == pytest.approx(24 * 3600 + 3600 - 600, abs=2)


def test_what_is_set_aside_is_returned_at_an_early_end(tmp_path: Path) -> None:
    jobs = once(job("first", "30m", limit="2h"), job("second", "30m", limit="2h"))
    lab = budget(3, reservation="Declared")
    found = simulated(tmp_path, jobs, objects=[*queue(cpu=2), lab])
    # Two hours are set aside for the first; one that may need two more waits until it ends.
    assert figure(found, "wait.max", of("second")) == 1800
    assert found.budgets[LAB].used == pytest.approx(1.0)


def test_a_job_without_limit_runs_for_the_default_maximum_of_a_budget(tmp_path: Path) -> None:
    lab = budget(100, reservation="Declared", defaultMaximum="1h")
    found = simulated(tmp_path, once(job("first", "3h")), objects=[*queue(), lab])
    assert (found.unfinished, figure(found, "evictions")) == (1, 1)
    assert found.budgets[LAB].used == pytest.approx(1.0)


def test_a_job_that_would_run_into_a_reservation_waits_until_it_is_over(tmp_path: Path) -> None:
    reservation = {
        "apiVersion": OWN,
        "kind": "Reservation",
        "metadata": {"name": "night"},
        "spec": {
            "clusterQueue": "q",
            "purpose": "Maintenance",
            "flavors": [{"name": "default", "resources": [{"name": "cpu", "quantity": 1}]}],
            "start": "2026-01-05T01:00:00Z",
            "duration": "1h",
        },
    }
    jobs = once(job("long", "90m", limit="90m"), job("short", "30m", limit="30m"))
    found = simulated(tmp_path, jobs, objects=[*queue(), reservation], start="2026-01-05T00:00:00Z")
    assert figure(found, "wait.max", of("short")) == 0
    assert figure(found, "wait.max", of("long")) == 7200


@pytest.mark.parametrize(("variant", "highest"), [("evict", 1.04), ("declared", 1.0)])
def test_the_example_exceeds_its_budget_by_no_more_than_each_variant_allows(
    variant: str, highest: float
) -> None:
    prepared = prepare(load(EXAMPLE), EXAMPLE.parent)
    found = run(prepared, next(one for one in prepared.variants if one.name == variant), 1)
    shares = [use.highest for use in found.budgets.values()]
    assert len(shares) == 2
    assert 0.8 < max(shares) <= highest


# --- questions ----------------------------------------------------------------------------------------------


def with_budget(before: State, used: float, hours: float = 2) -> State:
    """The state with a Budget a day, of which so many CPU-hours are used."""
    ledger = {
        "apiVersion": OWN,
        "kind": "BudgetLedger",
        "metadata": {"name": ledger_name("lab", "")},
        "spec": {
            "budget": "lab",
            "completeSince": "2026-01-05T00:00:00Z",
            "windowStart": "2026-01-05T00:00:00Z",
            "windowEnd": "2026-01-06T00:00:00Z",
            "used": {"cpu": str(int(used * 3600))},
            "total": {"cpu": str(int(used * 3600))},
            "limit": {"cpu": str(int(hours * 3600))},
            "action": "NoAdmission" if used >= hours else "",
        },
    }
    objects = [Upsert(decode(each)) for each in (budget(hours, **DAILY), ledger)]
    return State(before.options, [*before.objects, *objects], before.workloads, before.now)


def test_a_workload_starts_when_the_next_window_of_its_budget_begins() -> None:
    asked = with_budget(state(*PAST, workload("next", 60)), used=2)
    answer = when(asked, "team/next", futures=3, arrivals=False)
    assert answer.earliest == answer.latest == "2026-01-06T00:00:00Z"


def test_running_workloads_use_the_budget_up_before_one_starts() -> None:
    present = [admitted("running", 3600), workload("next", 60)]
    longer = [with_limit(each) for each in present]
    # One hour was used and one is left, which the other workload needs for itself.
    answer = when(with_budget(state(*longer), used=1), "team/next", futures=3, arrivals=False)
    assert answer.earliest == "2026-01-06T00:00:00Z"


def with_limit(some: Any) -> Any:
    return replace(some, spec=replace(some.spec, maximum_execution_time_seconds=7 * 3600))


def test_more_hours_let_a_workload_start_now() -> None:
    before = state(*PAST, workload("next", 60))
    question = Question(target="team/next", futures=3, arrivals=False)
    answer = whatif(
        with_budget(before, used=2), with_budget(before, used=2, hours=3), ["three hours"], question
    )
    assert answer.before is not None
    assert answer.after is not None
    assert answer.before.median == "2026-01-06T00:00:00Z"
    assert answer.after.median == "2026-01-05T12:00:00Z"


def test_a_job_keeps_the_minimum_run_time_that_it_requests_up_to_what_the_policy_grants(
    tmp_path: Path,
) -> None:
    policy = {
        "apiVersion": OWN,
        "kind": "PreemptionPolicy",
        "metadata": {"name": "all"},
        "spec": {"maxRequestedDuration": "30m"},
    }
    urgent = once(job("urgent", "10m", priority=1), at="5m")
    for asked, waits in ((None, 0), ("20m", 15 * 60), ("2h", 25 * 60)):
        request = {} if asked is None else {"minAdmitDuration": asked}
        queues = queue(preemption={"withinClusterQueue": "LowerPriority"})
        found = simulated(
            tmp_path, once(job("long", "3h", **request)), urgent, objects=[*queues, policy], horizon="6h"
        )
        assert figure(found, "wait.max", of("urgent")) == waits


LOOP = EXAMPLE.with_name("preemption-loop.yaml")


def test_damped_loop_of_preemptions_is_bounded_and_its_ledger_has_each_of_them() -> None:
    prepared = prepare(load(LOOP), LOOP.parent)
    within: dict[str, list[float]] = {}
    for variant in prepared.variants:
        journal = _Preemptions()
        found = Simulation(plan(prepared, variant, 1), journal, variant.name, 1).run()
        assert sum(each.count for each in found.preemptions.values()) == len(journal.times)
        assert figure(found, "preemptions") == len(journal.times)
        within[variant.name] = journal.times
    assert len(within["damped"]) <= len(within["flapping"])
    # The first turn waits for the base of the cool-down, each further one for twice the time.
    first_hour = [at for at in within["damped"] if at <= within["damped"][0] + 3600]
    assert len(first_hour) <= len(within["flapping"]) // 2


class _Preemptions(Journal):
    def __init__(self) -> None:
        self.times: list[float] = []

    def preempted(self, at: float, decision: Preempt) -> None:
        self.times.append(at)
