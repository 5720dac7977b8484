"""What each policy hook may change, and what it may not."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import World

from pykueue.engine import Options
from pykueue.engine.policies import Held, Policies
from pykueue.engine.workload import WorkloadInfo


def full(policies: Policies, fair: bool) -> World:
    """A queue that borrows, with three workloads, and another that wants its quota back."""
    made = World(Options(fair_sharing=fair), policies=policies)
    made.flavor()
    made.queue("a", {"cpu": "3"}, cohort="all", within="LowerPriority", reclaim="Any")
    made.queue("b", {"cpu": "3"}, cohort="all", within="LowerPriority", reclaim="Any")
    for name in ("a1", "a2", "a3"):
        made.running(name, "a", 2)
    return made


@pytest.mark.parametrize("fair", [False, True])
def test_protected_candidate_is_not_preempted(fair: bool) -> None:
    asked: list[tuple[str, str, str, float]] = []

    def protects(preemptor: WorkloadInfo, candidate: WorkloadInfo, reason: str, now: float) -> Held | None:
        asked.append((preemptor.key, candidate.key, reason, now))
        return Held("not this one") if candidate.key == "default/a1" else None

    made, free = full(Policies(may_preempt=protects), fair), full(Policies(), fair)
    for each in (made, free):
        each.workload("b1", "b", 2)
        each.cycle()
    assert [name for _, name, _ in free.preempted] == ["a1"]
    assert [name for _, name, _ in made.preempted] == ["a2"]
    assert asked[0] == ("default/b1", "default/a1", "InCohortReclamation", made.now - 1)


@pytest.mark.parametrize("fair", [False, True])
def test_workload_that_is_evicted_already_is_never_protected(fair: bool) -> None:
    for leaving, reason in ((False, "WaitingForQuota"), (True, "WaitingForPreemptedWorkloads")):
        made = full(Policies(may_preempt=lambda *_: Held("none")), fair)
        if leaving:
            made.status("a2", conditions=evicted(made, "a2"))
        made.workload("b1", "b", 2)
        made.cycle()
        assert (made.preempted, made.reasons["b1"]) == ([], reason)


def evicted(made: World, name: str) -> list[dict[str, Any]]:
    return [*made.workloads[name]["status"]["conditions"], made.condition("Evicted", True, "Preempted")]


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize("first", ["a1", "a2", "a3"])
def test_order_of_candidates_decides_between_equals(fair: bool, first: str) -> None:
    def order(preemptor: WorkloadInfo, candidate: WorkloadInfo, now: float) -> Any:
        return candidate.key != f"default/{first}"

    made = full(Policies(candidate_order=order), fair)
    made.workload("b1", "b", 2)
    made.cycle()
    assert [name for _, name, _ in made.preempted] == [first]


@pytest.mark.parametrize("fair", [False, True])
def test_order_of_entries_decides_before_priority(fair: bool) -> None:
    for first, winner in ((None, "x1"), ("default/y1", "y1")):
        hook = None if first is None else lambda info, queue, now, first=first: info.key != first
        made = World(Options(fair_sharing=fair), policies=Policies(entry_order=hook))
        made.flavor()
        made.cohort("all", quotas={"cpu": "2"})
        for name, priority in (("x", 5), ("y", 0)):
            made.queue(name, {"cpu": "0"}, cohort="all")
            made.workload(f"{name}1", name, 2, prio=priority)
        made.stable()
        assert made.reserved() == {winner}


def test_rewritten_assignment_is_decided_on() -> None:
    made = World(policies=Policies(rewrite=lambda *_: {(0, "cpu"): "spot"}))
    made.flavor("standard")
    made.flavor("spot")
    made.queue("q", {"standard": {"cpu": "4"}, "spot": {"cpu": "2"}})
    made.workload("small", "q", 1)
    made.workload("large", "q", 3)
    made.stable()
    assert made.flavors("small") == {"main": {"cpu": "spot"}}
    assert made.reserved() == {"small"}, "large does not fit in the flavor it is bound to"


def test_engine_without_policies_makes_no_context_for_them() -> None:
    made = World()
    assert made.engine._evaluator.context(made.now).evaluation is None
