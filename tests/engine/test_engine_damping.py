"""PreemptionPolicies: protection after the start, order by lost work, cool-downs, limits per hour."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from engine_world import START, World

from pykueue.api.meta import format_time
from pykueue.engine import Options, Preempt
from pykueue.engine.dump import dump, engine_state, load
from pykueue.engine.events import Removed
from pykueue.engine.explain.render import message

CHECKPOINT = "pykueue.io/checkpointed-at"
ASKED = "pykueue.io/min-admit-duration"


def policy(world: World, name: str = "all", **spec: Any) -> None:
    world.apply(
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "PreemptionPolicy",
            "metadata": {"name": name, "uid": name},
            "spec": spec,
        }
    )


def text_of(world: World, name: str) -> str:
    return message(world.last[name])


def settle(world: World, at: float) -> None:
    """Cycles at a time until nothing more happens."""
    world.now = at
    world.engine.tick(at)
    world.stable()


def full(fair: bool = False, **more: Any) -> World:
    """Queue a borrows all of queue b, by three workloads admitted one second after another."""
    made = World(Options(fair_sharing=fair))
    made.flavor()
    made.queue("a", {"cpu": "3"}, cohort="left", within="LowerPriority", reclaim="Any")
    made.queue("b", {"cpu": "3"}, cohort="left", within="LowerPriority", reclaim="Any")
    for number, name in enumerate(("a1", "a2", "a3")):
        made.running(name, "a", 2, reserved=number, **more)
    return made


def test_workload_is_protected_until_its_minimum_run_time_is_over() -> None:
    for fair in (False, True):
        made = full(fair)
        policy(made, minAdmitDuration={"reclaimWithinCohort": "10m"})
        made.workload("b1", "b", 2)
        made.stable(1_000)
        assert made.preempted == []
        assert made.reasons["b1"] == "WaitingForQuota"
        text = f"minimum run time of PreemptionPolicy all, until {format_time(START + 600)}"
        assert text in text_of(made, "b1")
        assert made.engine.next_wake(made.now) == START + 600, "when the first of them may be preempted"
        settle(made, START + 600)
        assert [name for _, name, _ in made.preempted] == ["a1"], "the only one whose time is over"


@pytest.mark.parametrize("scope", [{"clusterQueues": ["a"]}, {"cohort": "left"}, {}])
def test_policy_of_the_queue_comes_before_that_of_its_cohort_and_that_before_the_one_for_all(
    scope: dict[str, Any],
) -> None:
    made = full()
    policy(made, "zz", minAdmitDuration={"reclaimWithinCohort": "1h"})
    if scope:
        policy(made, "narrow", **scope, minAdmitDuration={"reclaimWithinCohort": "0s"})
    made.workload("b1", "b", 2)
    made.stable()
    assert bool(made.preempted) == bool(scope)


def test_priority_class_and_annotation_change_the_protection() -> None:
    made = full()
    policy(
        made,
        minAdmitDuration={"reclaimWithinCohort": "1h"},
        priorityClasses=[{"name": "spot", "minAdmitDuration": {"reclaimWithinCohort": "0s"}}],
        maxRequestedDuration="2h",
    )
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "spot"}
    made.change("a2", priorityClassRef=reference)
    made.workload("b1", "b", 2)
    made.stable()
    assert [name for _, name, _ in made.preempted] == ["a2"]

    made = full()
    policy(made, maxRequestedDuration="2h")
    for name, asked in (("a1", "24h"), ("a2", "three hours"), ("a3", "1h")):
        manifest = made.workloads[name]
        made.put({**manifest, "metadata": {**manifest["metadata"], "annotations": {ASKED: asked}}})
    made.workload("b1", "b", 2)
    made.stable()
    assert [name for _, name, _ in made.preempted] == ["a2"], "what is no duration asks for nothing"
    made.workload("b2", "b", 1)
    made.stable()
    assert made.engine.next_wake(made.now) == START + 2 + 3600
    settle(made, START + 2 + 3600)
    assert [name for _, name, _ in made.preempted] == ["a2", "a3"]


def test_workload_in_evaluation_by_a_check_is_not_protected_as_it_did_nothing_yet() -> None:
    made = full(admitted=False)
    policy(made, minAdmitDuration={"reclaimWithinCohort": "1h"})
    made.workload("b1", "b", 2)
    made.stable()
    assert len(made.preempted) == 1


@pytest.mark.parametrize("fair", [False, True])
def test_candidate_that_loses_least_work_goes_first(fair: bool) -> None:
    made = full(fair)
    made.now = START + 1000
    manifest = made.workloads["a2"]
    saved = {CHECKPOINT: format_time(START + 990)}
    made.put({**manifest, "metadata": {**manifest["metadata"], "annotations": saved}})
    policy(made, clusterQueues=["b"], candidateOrder="LeastLostWork")
    made.workload("b1", "b", 2)
    made.cycle()
    assert [name for _, name, _ in made.preempted] == ["a2"]
    decision = made.last["a2"]
    assert isinstance(decision, Preempt)
    assert decision.lost_resource_seconds == {"cpu": 20}


def take_turns(made: World, until: float) -> list[tuple[float, str]]:
    """Each workload that is preempted comes back with a higher priority; when which was preempted."""
    found: list[tuple[float, str]] = []
    while made.now < until:
        made.engine.tick(made.now)
        made.stable(1_000)
        for _, name, _ in made.preempted:
            found.append((made.now - START, name))
            made.change(name, priority=made.workloads[name]["spec"]["priority"] + 2)
        made.preempted.clear()
        wake = made.engine.next_wake(made.now)
        made.now = min(until, max(made.now + 10, wake if wake is not None else until))
    return found


def test_two_queues_that_preempt_each_other_in_turn_wait_twice_as_long_each_time() -> None:
    made = World()
    made.flavor()
    made.cohort("left", quotas={"cpu": "2"})
    for name in "ab":
        made.queue(
            name,
            {"cpu": "0"},
            cohort="left",
            preemption={
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "LowerPriority",
                "borrowWithinCohort": {"policy": "LowerPriority"},
            },
        )
    policy(made, coolDown={"base": "1m", "max": "1h", "window": "24h"})
    made.running("a1", "a", 2, prio=0)
    made.workload("b1", "b", 2, prio=1)
    found = take_turns(made, START + 24 * 3600)
    gaps = [round(after - before) for (before, _), (after, _) in pairwise(found)]
    assert [name for _, name in found][:4] == ["a1", "b1", "a1", "b1"]
    assert gaps[:6] == [60, 120, 240, 480, 960, 1920]
    assert set(gaps[6:]) == {3600}


def test_limit_per_hour_holds_the_next_preemption_until_one_is_an_hour_ago() -> None:
    made = full()
    policy(made, clusterQueues=["b"], maxPreemptionsPerHour=1)
    made.workload("b1", "b", 1)
    made.stable()
    assert len(made.preempted) == 1
    first = made.now
    made.workload("b2", "b", 2)
    made.stable()
    assert len(made.preempted) == 1
    assert "limit of preemptions per hour of PreemptionPolicy all" in text_of(made, "b2")
    settle(made, first + 3600)
    assert len(made.preempted) == 2


def test_past_preemptions_are_read_from_conditions_after_a_restart() -> None:
    made = full()
    condition = {
        **made.condition("Preempted", False, "QuotaReserved", 100),
        "message": "Previously: Preempted to accommodate a workload (UID: x, JobUID: y) due to reclamation "
        "within the cohort; preemptor path: /left/a; preemptee path: /left/b",
    }
    made.workload("b1", "b", 2, status={"conditions": [condition]})
    policy(made, coolDown={"base": "10m"})
    settle(made, START + 200)
    assert made.preempted == [], "b was preempted for a and takes its turn after the cool-down"
    assert made.engine.next_wake(made.now) == START + 100 + 600
    settle(made, START + 700)
    assert len(made.preempted) == 1


def test_strict_queue_is_considered_again_when_the_protection_ends() -> None:
    made = World()
    made.flavor()
    made.queue("a", {"cpu": "3"}, strict=True, within="LowerPriority")
    made.running("old", "a", 2, reserved=0)
    policy(made, minAdmitDuration={"withinClusterQueue": "5m"})
    made.workload("new", "a", 2, prio=1)
    made.stable()
    settle(made, START + 300)
    assert [name for _, name, _ in made.preempted] == ["old"]


def test_removed_policy_leaves_nothing_waiting() -> None:
    made = full()
    policy(made, minAdmitDuration={"reclaimWithinCohort": "10h"}, coolDown={}, maxPreemptionsPerHour=1)
    made.workload("b1", "b", 2)
    made.stable()
    assert made.preempted == []
    made.driver.apply(Removed("PreemptionPolicy", "", "all"))
    made.stable()
    assert len(made.preempted) == 1


def test_dump_has_what_policies_know_of_the_past() -> None:
    made = full()
    policy(made, coolDown={"base": "10m"}, maxPreemptionsPerHour=1)
    made.workload("b1", "b", 2)
    made.stable()
    made.workload("b2", "b", 1, prio=1)
    made.stable()
    assert len(made.preempted) == 1
    again = load(dump(made.engine))
    assert engine_state(again) == engine_state(made.engine)
    assert again.next_timer() == made.engine.next_timer() is not None


def test_fork_leaves_policies_and_their_memory_as_they_were() -> None:
    made = full()
    policy(made, minAdmitDuration={"reclaimWithinCohort": "10h"}, coolDown={}, maxPreemptionsPerHour=5)
    made.workload("b1", "b", 2)
    made.stable()
    damping = made.engine._state.damping
    before = (dict(damping._turns), dict(damping._issued), dict(damping._specs), made.engine.next_timer())
    with made.engine.fork() as fork:
        fork.apply(Removed("PreemptionPolicy", "", "all"))
        assert any(isinstance(each, Preempt) for each in fork.cycle(made.now))
    assert before == (
        damping._turns,
        damping._issued,
        damping._specs,
        made.engine.next_timer(),
    )
    made.stable()
    assert made.preempted == []
