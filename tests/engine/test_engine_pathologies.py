"""Situations that could repeat forever or starve a workload: each has a bound."""

from __future__ import annotations

import pytest
from engine_world import World

from pykueue.engine import Options, Preempt
from pykueue.engine.dump import dump, load
from pykueue.engine.explain import render


def world(**options: object) -> World:
    made = World(Options(**options))  # type: ignore[arg-type]
    made.flavor()
    return made


def play(made: World, steps: int, leave_after: int = 1) -> list[str]:
    """Cycles in which victims need `leave_after` cycles to go; returns whom was preempted, in order."""
    leaving: list[tuple[int, str]] = []
    gone: list[str] = []
    for step in range(steps):
        for decision in made.cycle():
            if isinstance(decision, Preempt):
                name = decision.key.partition("/")[2]
                gone.append(name)
                leaving.append((step + leave_after, name))
        for due, name in list(leaving):
            if due <= step + 1:
                leaving.remove((due, name))
                made.release(name)
    return gone


def test_two_equal_tenants_do_not_take_turns_preempting() -> None:
    made = world()
    for name in "ab":
        made.queue(name, {"cpu": "4"}, cohort="all", reclaim="Any", within="LowerOrNewerEqualPriority")
        for number in range(3):
            made.workload(f"{name}{number}", name, 4)
    gone = play(made, 40)
    assert gone == []
    assert made.reserved() == {"a0", "b0"}


def test_a_tenant_that_borrowed_gives_back_once() -> None:
    made = world()
    for name in "ab":
        made.queue(name, {"cpu": "4"}, cohort="all", reclaim="Any", within="LowerPriority")
    for number in range(4):
        made.workload(f"a{number}", "a", 2)
    play(made, 6)
    for number in range(4):
        made.workload(f"b{number}", "b", 2)
    gone = play(made, 40)
    assert len(gone) == 2
    assert len(made.reserved()) == 4


def test_a_fair_pair_at_equal_share_comes_to_rest() -> None:
    for order in (("a", "b"), ("b", "a")):
        made = world(fair_sharing=True)
        for name in "ab":
            made.queue(name, {"cpu": "0"}, cohort="all", reclaim="Any", within="LowerPriority")
        made.queue("pool", {"cpu": "9"}, cohort="all")
        for number in range(9):
            for name in order:
                made.workload(f"{name}{number}", name, 1)
        gone = play(made, 120)
        assert len(gone) <= 1
        shares = sorted(len([name for name in made.reserved() if name.startswith(letter)]) for letter in "ab")
        assert shares == [4, 5]


def test_a_fair_latecomer_takes_its_half_and_no_more() -> None:
    made = world(fair_sharing=True)
    for name in "ab":
        made.queue(name, {"cpu": "0"}, cohort="all", reclaim="Any", within="LowerPriority")
    made.queue("pool", {"cpu": "10"}, cohort="all")
    for number in range(10):
        made.workload(f"a{number}", "a", 1)
    play(made, 12)
    for number in range(10):
        made.workload(f"b{number}", "b", 1)
    gone = play(made, 120)
    assert len(gone) == 5
    assert {name[0] for name in gone} == {"a"}


def test_large_workloads_of_equal_share_do_not_preempt_each_other_forever() -> None:
    made = world(fair_sharing=True)
    for name in "ab":
        made.queue(name, {"cpu": "0"}, cohort="all", reclaim="Any", within="LowerPriority")
    made.queue("pool", {"cpu": "5"}, cohort="all")
    for name in "ab":
        for number in range(3):
            made.workload(f"{name}{number}", name, 4)
    assert len(play(made, 60)) <= 2


def test_victims_that_leave_at_different_times_are_waited_for() -> None:
    made = world()
    made.queue("q", {"cpu": "8"}, within="LowerPriority")
    for number in range(8):
        made.workload(f"low{number}", "q", 1)
    play(made, 10)
    made.workload("high", "q", 8, prio=9)
    victims = [d.key.partition("/")[2] for d in made.cycle() if isinstance(d, Preempt)]
    assert len(victims) == 8
    for name in victims:
        made.release(name)
        again = [d for d in made.cycle() if isinstance(d, Preempt)]
        assert again == []
    assert "high" in made.reserved()
    assert len(made.preempted) == 8


def test_quota_that_a_preemption_frees_goes_to_the_preemptor() -> None:
    made = world()
    made.queue("a", {"cpu": "4"}, cohort="all", reclaim="Any", within="LowerPriority")
    made.queue("b", {"cpu": "0"}, cohort="all")
    for number in range(4):
        made.workload(f"b{number}", "b", 1)
    play(made, 6)
    made.workload("own", "a", 4)
    made.cycle()
    for number in range(4):
        made.workload(f"more{number}", "b", 1, prio=100)
        made.release(f"b{number}")
        made.cycle()
    assert made.reserved() == {"own"}


def test_a_blocked_strict_queue_keeps_back_only_its_own_quota() -> None:
    """What its head waits for is kept for it (5.7): up to its quota, not the whole cohort."""
    made = world()
    made.queue("strict", {"cpu": "4"}, cohort="all", strict=True)
    made.queue("other", {"cpu": "8"}, cohort="all")
    made.running("r", "strict", 2)
    made.running("o", "other", 7)
    made.workload("blocked", "strict", 4, prio=100)
    for number in range(10):
        made.workload(f"w{number}", "other", 1)
    made.stable()
    assert made.where("blocked") == "active"
    # 12 in all, 9 run, 2 are kept for the head.
    assert made.reserved() == {"r", "o", "w0"}
    made.finish("r")
    made.stable()
    assert "blocked" in made.reserved()


def test_a_strict_head_that_can_never_fit_keeps_back_nothing() -> None:
    made = world()
    made.queue("strict", {"cpu": "4"}, cohort="all", strict=True)
    made.queue("other", {"cpu": "8"}, cohort="all")
    made.workload("impossible", "strict", 40, prio=100)
    for number in range(12):
        made.workload(f"w{number}", "other", 1)
    made.stable()
    assert len(made.reserved()) == 12


def test_a_queue_of_hopeless_workloads_comes_to_rest() -> None:
    made = world()
    made.queue("q", {"cpu": "1"}, cohort="all", reclaim="Any", within="LowerPriority", borrow="LowerPriority")
    for number in range(20):
        made.workload(f"w{number}", "q", 2 + number, prio=number)
    made.stable()
    assert made.cycles <= 21
    assert not made.engine.has_heads()


def test_a_flavor_taken_from_a_queue_while_it_is_being_tried() -> None:
    made = world()
    for name in ("g", "h", "m"):
        made.flavor(name)
    memory = {"m": {"memory": "1"}}
    made.queue("q", [{name: {"cpu": "4"} for name in ("f", "g", "h")}, memory])
    pods = {"x": {"requests": {"cpu": 1}}, "y": {"requests": {"memory": 5}}}
    made.workload("w", "q", pods=pods)
    made.cycle()
    made.cycle()
    made.apply(made.queue_manifest("q", [{"f": {"cpu": "4"}}, memory]))
    made.stable()
    assert made.where("w") == "inadmissible"


def test_a_victim_does_not_take_its_place_back_before_the_one_it_made_room_for() -> None:
    """Shares put the victim first, nominal quota the preemptor; the reference then never ends."""
    made = world(fair_sharing=True)
    made.cohort("root", quotas={"cpu": "4"})
    made.cohort("A", parent="root")
    made.cohort("B", parent="root")
    made.queue("a", {"cpu": "2"}, cohort="A", reclaim="LowerPriority")
    made.queue("a2", {"cpu": "0"}, cohort="A")
    made.queue("b", {"cpu": "0"}, cohort="B")
    made.running("hog", "a2", 4, prio=9)
    made.workload("victim", "b", 2)
    made.cycle()
    made.workload("owed", "a", 1, prio=5)
    gone = play(made, 30)
    assert gone == ["victim"]
    assert made.reserved() == {"hog", "owed"}


def test_pod_sets_that_hide_each_others_flavors_come_to_rest_and_go_on_when_there_is_room() -> None:
    """x fits f1 and y fits f1, but not both; f2 is full. Each try of one hides the other's flavor."""
    made = World(Options())
    for name in ("f1", "f2"):
        made.flavor(name)
    made.queue("q", {"f1": {"cpu": "4"}, "f2": {"cpu": "4"}})
    for name in ("first", "second"):
        made.workload(name, "q", 4)
    made.stable()
    made.finish("first")
    made.workload("w", "q", pods={"x": 2, "y": 3})
    made.stable()
    assert made.where("w") == "active"
    made.finish("second")
    made.stable()
    assert made.reserved() == {"w"}


@pytest.mark.parametrize("strict", [False, True])
def test_pod_sets_that_hide_each_others_flavors_are_admitted_when_the_first_flavor_has_room(
    strict: bool,
) -> None:
    """Only f1 gets room again, and the tries before it ended where x had to leave f1 to y."""
    made = World(Options())
    for name in ("f1", "f2"):
        made.flavor(name)
    made.queue("q", {"f1": {"cpu": "4"}, "f2": {"cpu": "4"}}, strict=strict)
    made.workload("small", "q", 2)
    made.workload("large", "q", 4)
    made.stable()
    made.workload("w", "q", pods={"x": 2, "y": 2})
    made.stable()
    assert made.reserved() == {"small", "large"}
    made.finish("small")
    made.stable()
    assert made.reserved() == {"large", "w"}


def test_a_fork_does_not_move_the_search_for_flavors() -> None:
    """What a fork changed and took back is no change: the next cycle goes on where the last one ended."""
    found = []
    for forks in (False, True):
        made = World(Options())
        for name in ("f1", "f2", "f3"):
            made.flavor(name)
        made.queue("q", {name: {"cpu": "4"} for name in ("f1", "f2", "f3")})
        made.workload("a", "q", 3)
        made.workload("b", "q", 3)
        made.stable()
        made.workload("w", "q", pods={"x": 2, "y": 2, "z": 2})
        scans = []
        for _ in range(6):
            if forks:
                with made.engine.fork() as trial:
                    trial.flush()
                    trial.cycle(made.now)
            made.cycle()
            scans.append(dump(made.engine))
        found.append(scans)
    assert found[0] == found[1]


def test_who_shrinks_to_reclaim_does_not_take_turns_with_whom_it_reclaims_from() -> None:
    """Whole, both borrow and the older comes first; shrunk, the younger only takes back what is its own."""
    made = world()
    made.queue("lender", {"cpu": "2"}, cohort="all", reclaim="Any")
    made.queue("borrower", {"cpu": "2"}, cohort="all")
    made.workload("older", "borrower", 1, count=4)
    made.cycle()
    made.workload("younger", "lender", 1, count=4, min_count=2)
    assert play(made, 40) == ["older", "older"]
    assert made.reserved() == {"younger"}


def test_who_shrinks_to_take_its_quota_back_does_not_borrow_what_it_took_back() -> None:
    """Whole, the lender's workload borrows and can be preempted for it; shrunk, it cannot.

    The reference admits it whole each time, and the two preempt each other without end.
    """
    made = world()
    made.queue("lender", {"cpu": "4"}, cohort="all", reclaim="Any")
    made.queue("borrower", {"cpu": "6"}, cohort="all", reclaim="Any", borrow="LowerPriority")
    made.running("small", "lender", 1, prio=100)
    made.running("own", "borrower", 5, prio=1000)
    made.workload("large", "lender", 1, count=4, min_count=1, prio=100)
    made.cycle()
    assert "large" in made.reserved()
    made.workload("urgent", "borrower", 3, prio=1000)
    assert play(made, 60) == ["large", "urgent"]
    assert made.reserved() == {"small", "own", "large"}
    view = made.engine.cluster_queue("lender")
    assert view is not None
    assert [(str(one.total), str(one.borrowed)) for one in view.usage] == [("4", "0")]


def test_quota_of_a_victim_is_kept_for_its_preemptor_until_the_other_victims_have_stopped() -> None:
    """`small` and `other` take the quota back in turn while two victims stop."""
    made = world()
    made.queue("own", {"cpu": "6"}, cohort="all", within="LowerPriority", reclaim="Any")
    made.queue("borrower", {"cpu": "6"}, cohort="all")
    made.running("urgent", "own", 2, prio=100)
    for name in ("stopping1", "stopping2"):
        made.running(name, "own", 1, evicted=True)
    made.running("rest", "borrower", 5)
    made.running("other", "borrower", 2)
    made.workload("small", "own", 2)
    made.workload("large", "own", 4, prio=10)
    gone = play(made, 60)
    assert len(gone) <= 4
    assert not made.engine.has_heads()
    for name in ("stopping1", "stopping2"):
        made.release(name)
    assert play(made, 20) == []
    assert {"urgent", "large"} <= made.reserved()


def by_turns() -> World:
    """By its share `large` preempts both, and by its nominal quota `small` preempts `large`."""
    made = world(fair_sharing=True)
    made.queue("nominal", {"cpu": "5"}, cohort="all", reclaim="Any")
    made.queue("weighty", {"cpu": "3"}, cohort="all", strict=True, reclaim="Any", weight=3)
    for name in ("first", "second"):
        made.running(name, "nominal", 3)
    made.workload("large", "weighty", 4)
    made.workload("small", "nominal", 2)
    return made


def test_fair_share_and_nominal_quota_do_not_preempt_in_turn_forever() -> None:
    made = by_turns()
    assert len(play(made, 100)) <= 20
    assert not made.engine.has_heads()
    before = made.reserved()
    assert play(made, 20) == []
    made.workload("unrelated", "nominal", 1, prio=-1)
    assert play(made, 20) == []
    assert made.reserved() == before
    assert {name: text for name, text in waiting(made).items() if "several times" in text}


def test_workload_that_preempted_too_often_may_do_so_again_when_another_finishes() -> None:
    made = by_turns()
    play(made, 100)
    assert "large" not in made.reserved()
    made.finish("small")
    assert len(play(made, 100)) == 1
    assert "large" in made.reserved()


def test_dump_remembers_how_often_a_workload_preempted() -> None:
    made = by_turns()
    play(made, 100)
    document = dump(made.engine)
    made.driver.engine = load(document)
    assert dump(made.engine) == document
    made.workload("unrelated", "nominal", 1, prio=-1)
    assert play(made, 20) == []


def test_priority_nominal_quota_and_shares_do_not_preempt_in_a_circle_forever() -> None:
    made = world(fair_sharing=True)
    made.queue("lender", {"cpu": "1"}, cohort="all")
    made.queue("light", {"cpu": "2"}, cohort="all", within="LowerPriority", reclaim="Any", weight=0)
    made.queue("other", {"cpu": "1"}, cohort="all", reclaim="Any")
    made.workload("nominal", "light", 1)
    made.workload("share", "other", 4)
    made.workload("priority", "light", 4, prio=3)
    assert len(play(made, 150)) <= 15
    assert not made.engine.has_heads()


def waiting(made: World) -> dict[str, str]:
    """The last message of each workload that has no quota, by name."""
    return {name: render.message(made.last[name]) for name in made.workloads if name not in made.reserved()}
