"""An engine that follows another manager, which tells what became of the heads of its cycles."""

from __future__ import annotations

from engine_world import World

from pykueue.engine import Admit, Decision, Preempt, Requeue


def keys(decisions: list[Decision]) -> dict[str, str]:
    """What is decided about each workload, in words."""
    return {
        each.key.removeprefix("default/"): "admit" if isinstance(each, Admit) else each.requeue
        for each in decisions
        if isinstance(each, Admit | Requeue)
    }


def world(**queue: object) -> World:
    made = World()
    made.flavor()
    made.queue("q", {"f": {"cpu": 4}}, **queue)
    return made


def test_given_heads_are_decided_about_and_nothing_takes_effect() -> None:
    made = world()
    made.workload("first", "q", 2, prio=5)
    made.workload("second", "q", 3)
    following = made.engine.following
    assert following.head_of("q") == "default/first"
    assert keys(following.decide(["default/second"], made.now)) == {"second": "admit"}
    made.engine.check()
    assert made.engine.in_line("q") == (["default/first", "default/second"], [])
    assert following.decide(["default/gone"], made.now) == []
    assert following.head_of("none") == ""


def test_workload_is_where_the_other_manager_returned_it_to() -> None:
    made = world()
    for name in ("a", "b"):
        made.workload(name, "q", 9)
    made.workload("small", "q", 1)
    following = made.engine.following
    following.note_requeued("default/a", "NoFit", False)
    assert following.head_of("q") == "default/a"
    following.note_requeued("default/a", "NoFit", True)
    assert made.engine.in_line("q")[1] == ["default/a", "default/b"]  # b is alike
    assert following.head_of("q") == "default/small"
    following.note_flushed(cluster_queue="q")
    assert made.engine.in_line("q")[1] == []


def test_workloads_of_a_tree_are_active_again_and_no_others() -> None:
    made = World()
    made.flavor()
    made.cohort("below", parent="root")
    for name, cohort in (("q", "below"), ("alone", "")):
        made.queue(name, {"f": {"cpu": 4}}, cohort=cohort)
        made.workload(f"{name}-w", name, 9)
        made.engine.following.note_requeued(f"default/{name}-w", "NoFit", True)
    made.engine.following.note_flushed(cohort="root")
    assert [made.engine.in_line(name)[0] for name in ("q", "alone")] == [["default/q-w"], []]


def test_preemptor_of_the_other_manager_is_first_while_it_is_in_line() -> None:
    made = world(within="LowerPriority")
    made.workload("high", "q", 4, prio=5)
    made.workload("higher", "q", 4, prio=9)
    following = made.engine.following
    assert following.head_of("q") == "default/higher"
    assert following.head_of("q", "default/high") == "default/high"
    following.note_requeued("default/high", "PreemptionNoCandidates", True)
    assert following.head_of("q", "default/high") == "default/higher"
    following.note_flushed(cluster_queue="q")
    assert following.head_of("q", "default/high") == "default/high"
    assert following.head_of("q", "default/gone") == "default/higher"


def test_order_of_equals_is_that_of_the_heads_on_request() -> None:
    made = World()
    made.flavor()
    made.queue("lender", {"f": {"cpu": 4}}, cohort="c")
    for name in ("a", "b"):
        made.queue(name, {"f": {"cpu": 0}}, cohort="c")
        made.workload(name, name, 4, created=10)
    heads = ["default/b", "default/a"]
    decide = made.engine.following.decide
    assert keys(decide(heads, made.now))["a"] == "admit"
    assert keys(decide(heads, made.now, in_order=True))["b"] == "admit"


def test_search_for_flavors_goes_on_where_the_remembered_cycle_ended() -> None:
    made = World()
    for flavor in ("f", "g"):
        made.flavor(flavor)
    made.queue("q", {"f": {"cpu": 4}, "g": {"cpu": 4}}, within="LowerPriority", cohort="c")
    made.queue("other", {"f": {"cpu": 0}, "g": {"cpu": 0}}, cohort="c")
    made.workload("w", "q", 4)
    made.workload("first", "other", 4, prio=5)
    following = made.engine.following
    heads = ["default/first", "default/w"]
    following.begin_cycle(made.now)
    # Both are nominated for f, which one of them gets.
    decided = keys(following.decide(heads, made.now))
    assert sorted(decided.values()) == ["FailedAfterNomination", "admit"]
    (loser,) = [name for name, what in decided.items() if what != "admit"]
    following.remember()
    (found,) = [
        each for each in following.decide([f"default/{loser}"], made.now) if not isinstance(each, Preempt)
    ]
    assert isinstance(found, Admit)
    assert dict(found.admission.pod_set_assignments[0].flavors) == {"cpu": "g"}
