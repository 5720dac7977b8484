"""Budgets as a capacity of the engine: what is refused, what is set aside, and what is returned."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import START, World

from pykueue.api.meta import format_time
from pykueue.engine import Admit, Options, Preempt, Removed, Requeue
from pykueue.engine.dump import dump, load
from pykueue.engine.explain.render import message

API = "pykueue.io/v1alpha1"


@pytest.fixture(params=[False, True], ids=["classical", "fair"])
def made(request: pytest.FixtureRequest) -> World:
    """Two ClusterQueues with quota for everything, one of them in the cohort lab."""
    made = World(Options(fair_sharing=request.param))
    made.flavor("f")
    made.flavor("spot")
    quotas = {"f": {"cpu": "100"}, "spot": {"cpu": "100"}}
    made.queue("a", quotas, within="LowerPriority")
    made.queue("b", quotas, cohort="lab")
    return made


def budget(made: World, name: str = "lab", hours: Any = 100, selector: Any = None, **spec: Any) -> None:
    weights = spec.pop("weights", {})
    resource = {
        "name": "cpu",
        "hours": str(hours),
        "flavorWeights": [{"name": flavor, "weight": weight} for flavor, weight in weights.items()],
    }
    given = {
        "selector": selector or {"clusterQueue": "a"},
        "resources": [resource],
        "reservation": "Declared",
    }
    made.apply({"apiVersion": API, "kind": "Budget", "metadata": {"name": name}, "spec": {**given, **spec}})


def ledger(made: World, name: str = "lab", value: str = "", **spec: Any) -> None:
    spec = {"budget": name, "value": value, "completeSince": format_time(START), **spec}
    made.apply(
        {
            "apiVersion": API,
            "kind": "BudgetLedger",
            "metadata": {"name": f"{name}-{value or 'x'}"},
            "spec": spec,
        }
    )


def job(made: World, name: str, queue: str, cpus: int, hours: float | None = None, **more: Any) -> None:
    """A workload that declares to run so many hours at most."""
    if hours is not None:
        more["maximumExecutionTimeSeconds"] = int(hours * 3600)
    made.workload(name, queue, cpus, **more)


def test_job_that_cannot_finish_within_the_budget_is_refused_with_the_reason(made: World) -> None:
    budget(made, hours=100)
    job(made, "first", "a", 4, 20)
    job(made, "second", "a", 4, 10)
    made.stable()
    assert made.reserved() == {"first"}
    assert message(made.last["second"]) == (
        "insufficient cpu in Budget lab: 40 resource-hours requested (maximum execution time 36000s), 20 left"
    )
    job(made, "third", "a", 2, 10)
    made.stable()
    assert made.reserved() == {"first", "third"}


def test_workloads_of_one_cycle_do_not_exceed_the_budget_together(made: World) -> None:
    budget(made, hours=10, selector={"namespace": "default"})
    for name, queue in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")):
        job(made, name, queue, 4, 1)
    made.stable()
    assert len(made.reserved()) == 2


def test_what_a_workload_did_not_use_is_returned_when_it_ends(made: World) -> None:
    budget(made, hours=10)
    job(made, "first", "a", 1, 8)
    made.stable()
    job(made, "second", "a", 1, 5)
    made.stable()
    assert made.where("second") == "inadmissible"
    uid = made.workloads["first"]["metadata"]["uid"]
    running = {
        "uid": uid,
        "workload": "default/first",
        "since": format_time(START),
        "through": format_time(START + 3600),
        "rates": {"cpu": "1"},
        "seconds": 3600,
        "reservedSeconds": 8 * 3600,
    }
    limit = {"cpu": str(10 * 3600)}
    ledger(made, limit=limit, used={"cpu": "3600"}, running=[running])
    made.finish("first")
    made.stable()
    assert made.where("second") == "inadmissible", "until the ledger says how much the first one used"
    ledger(made, limit=limit, used={"cpu": "5400"})
    made.stable()
    assert made.reserved() == {"second"}


def test_without_declared_limit_the_default_counts_and_without_that_it_is_refused(made: World) -> None:
    budget(made, hours=10)
    job(made, "w", "a", 1)
    made.stable()
    assert "a maximum execution time must be declared" in message(made.last["w"])
    budget(made, hours=10, defaultMaximum="11h")
    made.stable()
    assert "11 resource-hours requested" in message(made.last["w"])
    budget(made, hours=10, defaultMaximum="10h")
    made.stable()
    assert made.reserved() == {"w"}


def test_free_flavor_is_not_limited_and_half_weight_counts_half(made: World) -> None:
    budget(made, hours=10, weights={"f": "500m"})
    job(made, "half", "a", 20, 1)
    made.stable()
    assert made.reserved() == {"half"}
    budget(made, hours=1, weights={"f": "0"})
    job(made, "free", "a", 50, 100)
    made.stable()
    assert made.reserved() == {"half", "free"}


def test_strict_queue_goes_on_behind_a_head_without_budget(made: World) -> None:
    made.queue("strict", {"f": {"cpu": "100"}}, strict=True)
    budget(made, hours=10, selector={"clusterQueue": "strict"})
    job(made, "long", "strict", 1, 11, prio=5)
    job(made, "short", "strict", 1, 1)
    made.stable()
    assert made.reserved() == {"short"}
    assert made.last["long"].reason == "Waiting"


def test_no_workload_is_preempted_for_a_budget(made: World) -> None:
    budget(made, hours=10)
    job(made, "low", "a", 1, 10)
    made.stable()
    job(made, "high", "a", 1, 1, prio=5)
    assert not [each for each in made.cycle() if isinstance(each, Preempt)]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"clusterQueue": "a"}, {"b1", "b2"}),
        ({"cohort": "lab"}, {"a1", "a2"}),
        ({"localQueue": {"namespace": "default", "name": "b"}}, {"a1", "a2"}),
        ({"namespace": "default"}, set()),
        ({"namespace": "other"}, {"a1", "a2", "b1", "b2"}),
        ({"label": "team"}, set()),
    ],
)
def test_budget_limits_the_workloads_of_its_selector_alone(
    made: World, selector: Any, expected: set[str]
) -> None:
    budget(made, hours=1, selector=selector)
    for name, queue in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        job(made, name, queue, 1, 2)
    made.stable()
    assert made.reserved() == expected


def test_cohort_above_that_a_queue_joins_later_limits_it_too(made: World) -> None:
    budget(made, hours=1, selector={"cohort": "root"})
    made.cohort("lab", "root")
    job(made, "w", "b", 1, 2)
    made.stable()
    assert made.reserved() == set()
    made.cohort("lab", "elsewhere")
    made.stable()
    assert made.reserved() == {"w"}


def test_every_value_of_a_label_has_the_whole_budget(made: World) -> None:
    budget(made, hours=2, selector={"label": "team"})
    for name, labels in (("x1", {"team": "x"}), ("x2", {"team": "x"}), ("y1", {"team": "y"}), ("none", {})):
        job(made, name, "a", 1, 2)
        manifest = made.workloads[name]
        made.apply({**manifest, "metadata": {**manifest["metadata"], "labels": labels}})
    made.stable()
    assert made.reserved() == {"x1", "y1", "none"}
    assert "in Budget lab (x)" in message(made.last["x2"])


def test_all_budgets_must_allow_and_the_one_that_does_not_is_named(made: World) -> None:
    budget(made, "wide", hours=100, selector={"namespace": "default"})
    budget(made, "narrow", hours=5)
    job(made, "w", "a", 1, 6)
    made.stable()
    assert "in Budget narrow" in message(made.last["w"])
    made.driver.apply(Removed("Budget", "", "narrow"))
    made.stable()
    assert made.reserved() == {"w"}
    job(made, "x", "a", 1, 100)
    made.stable()
    assert made.where("x") == "inadmissible"
    made.driver.apply(Removed("Budget", "", "wide"))
    made.stable()
    assert made.reserved() == {"w", "x"}
    made.engine.check()


@pytest.mark.parametrize("action", ["NoAdmission", "Evict"])
def test_thresholds_in_force_stop_admission_and_borrowing(made: World, action: str) -> None:
    budget(made, hours=10, reservation="None")
    ledger(made, action=action, used={"cpu": "36000"}, limit={"cpu": "36000"})
    job(made, "w", "a", 1)
    made.stable()
    assert message(made.last["w"]) == ("Budget lab is exhausted: 10 of 10 resource-hours of cpu used")
    ledger(made, limit={"cpu": "72000"}, used={"cpu": "36000"})
    made.stable()
    assert made.reserved() == {"w"}


def test_no_borrowing_admits_within_nominal_quota_only(made: World) -> None:
    made.queue("c", {"f": {"cpu": "2"}}, cohort="lab")
    budget(made, reservation="None", selector={"clusterQueue": "c"})
    ledger(made, action="NoBorrowing")
    job(made, "borrows", "c", 3)
    job(made, "fits", "c", 2)
    made.stable()
    assert made.reserved() == {"fits"}
    assert "Budget lab allows no borrowing" in message(made.last["borrows"])
    assert isinstance(made.last["borrows"], Requeue)


def test_workload_whose_last_run_is_not_in_the_ledger_is_admitted_once_it_is(made: World) -> None:
    budget(made, reservation="None")
    job(made, "w", "a", 1)
    uid = made.workloads["w"]["metadata"]["uid"]
    run = {"uid": uid, "workload": "default/w", "since": format_time(START), "through": format_time(START)}
    ledger(made, running=[{**run, "rates": {"cpu": "1"}}])
    made.stable()
    assert "does not show yet what the workload used before its eviction" in message(made.last["w"])
    ledger(made)
    made.stable()
    assert made.reserved() == {"w"}


def test_workload_is_considered_again_when_another_one_begins_in_the_write_that_ends_its_run(
    made: World,
) -> None:
    budget(made, reservation="None")
    job(made, "w", "a", 1)
    run = {
        "uid": made.workloads["w"]["metadata"]["uid"],
        "workload": "default/w",
        "since": format_time(START),
        "through": format_time(START),
        "rates": {"cpu": "1"},
    }
    ledger(made, running=[run])
    made.stable()
    assert made.where("w") == "inadmissible"
    ledger(made, running=[{**run, "uid": "another"}])
    made.stable()
    assert made.reserved() == {"w"}


def test_workload_whose_own_maximum_is_over_does_not_wait_for_the_budget(made: World) -> None:
    budget(made, defaultMaximum="2h")
    past = {"accumulatedPastExecutionTimeSeconds": 7200}
    job(made, "own", "a", 1, 2, status=past)
    job(made, "default", "a", 1, status=past)
    made.stable()
    assert made.reserved() == {"own"}
    assert "has run for its maximum execution time" in message(made.last["default"])


def test_fork_with_a_larger_budget_leaves_everything_as_it_was(made: World) -> None:
    budget(made, hours=1)
    job(made, "w", "a", 1, 2)
    made.stable()
    before = dump(made.engine)
    with made.engine.fork():
        budget(made, hours=2)
        ledger(made, limit={"cpu": "7200"})
        assert [type(each) for each in made.engine.cycle(START + 100)] == [Admit]
    made.engine.check()
    assert dump(made.engine) == before


def test_dump_of_an_engine_with_budgets_is_the_same_after_a_round_trip(made: World) -> None:
    budget(made, hours=10)
    ledger(made, used={"cpu": "3600"}, limit={"cpu": "36000"})
    job(made, "runs", "a", 1, 5)
    job(made, "waits", "a", 1, 6)
    made.stable()
    document = dump(made.engine)
    loaded = load(document)
    loaded.check()
    assert dump(loaded) == document
    assert made.reserved() == {"runs"}


def test_smaller_size_that_fits_the_budget_is_admitted(made: World) -> None:
    budget(made, hours=6)
    job(made, "w", "a", 1, 1, count=8, min_count=2)
    made.stable()
    admission = made.workloads["w"]["status"]["admission"]
    assert [pods["count"] for pods in admission["podSetAssignments"]] == [6]
