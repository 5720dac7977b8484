"""A capacity beside quota that trees share: licences, a plain counter."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import START, World

from pykueue.api import kueue
from pykueue.engine import Admit, Options, Preempt, Requeue
from pykueue.engine.capacity import SharedCapacity
from pykueue.engine.explain.render import message
from pykueue.engine.places import Places
from pykueue.engine.undo_log import UndoLog
from pykueue.engine.workload import IN_FLIGHT, WorkloadInfo

LICENCES = "example.com/licences"


class Licences(SharedCapacity):
    """So many licences, which workloads request with an annotation."""

    name = "licences"

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0

    def request(self, workload: kueue.Workload) -> int | None:
        text = workload.metadata.annotations.get(LICENCES)
        return int(text) if text else None

    def fits(self, demand: int) -> bool:
        return self.used + demand <= self.total

    def reserve(self, demand: int) -> None:
        self.used += demand

    def release(self, demand: int) -> None:
        self.used -= demand

    def explain(self, demand: int) -> str:
        return f"insufficient licences: {demand} requested, {self.total - self.used} free"


@pytest.fixture
def licences() -> Licences:
    return Licences(2)


@pytest.fixture(params=[False, True], ids=["classical", "fair"])
def made(request: pytest.FixtureRequest, licences: Licences) -> World:
    """Two ClusterQueues in trees of their own, with quota for everything."""
    made = World(Options(fair_sharing=request.param), capacities=[licences])
    made.flavor()
    made.queue("a", {"cpu": "10"}, within="LowerPriority")
    made.queue("b", {"cpu": "10"}, cohort="other")
    return made


def licensed(made: World, name: str, queue: str, count: int = 1, **more: Any) -> None:
    made.workload(name, queue, 1, annotations={LICENCES: str(count)}, **more)


def test_workloads_of_two_trees_are_admitted_only_while_licences_are_free(
    made: World, licences: Licences
) -> None:
    for name, queue in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")):
        licensed(made, name, queue)
    made.workload("plain", "b", 1)
    made.stable()
    assert made.reserved() == {"a1", "b1", "plain"}
    assert licences.used == 2
    assert message(made.last["b2"]).endswith("insufficient licences: 1 requested, 0 free")


def test_trees_that_share_licences_are_cycled_together_in_the_order_of_priority(
    made: World, licences: Licences
) -> None:
    licences.total = 1
    licensed(made, "low", "a", prio=1)
    licensed(made, "high", "b", prio=2)
    if made.engine.options.fair_sharing:
        made.stable()
        assert len(made.reserved()) == 1
        return
    decisions = made.cycle()
    assert {decision.key: type(decision) for decision in decisions} == {
        "default/high": Admit,
        "default/low": Requeue,
    }


def test_a_finished_workload_wakes_the_other_tree(made: World, licences: Licences) -> None:
    licensed(made, "first", "a", 2)
    made.stable()
    licensed(made, "second", "b", 1)
    made.stable()
    assert made.where("second") == "inadmissible"
    made.finish("first")
    made.stable()
    assert made.reserved() == {"second"}
    assert licences.used == 1


def test_preemption_in_the_own_queue_frees_licences(made: World, licences: Licences) -> None:
    licensed(made, "low", "a", 2, prio=0)
    made.workload("unlicensed", "a", 1, prio=0)
    made.stable()
    assert made.reserved() == {"low", "unlicensed"}
    licensed(made, "high", "a", 1, prio=5)
    decisions = made.cycle()
    assert [decision.key for decision in decisions if isinstance(decision, Preempt)] == ["default/low"]
    assert licences.used == 2, "a search leaves the count as it was"
    made.release("low")
    made.stable()
    assert made.reserved() == {"high", "unlicensed"}
    assert licences.used == 1


def test_a_fork_leaves_the_count_of_licences_as_it_was(made: World, licences: Licences) -> None:
    licensed(made, "w", "a", 2)
    with made.engine.fork() as trial:
        trial.cycle(START + 10)
        assert licences.used == 2
    assert licences.used == 0
    assert made.where("w") == "active"


def test_a_workload_moves_only_as_the_transition_table_says() -> None:
    info = WorkloadInfo("default/w", "default")
    with pytest.raises(ValueError, match="workload default/w cannot move from out to in flight"):
        Places(UndoLog(), {}, {}).move(info, IN_FLIGHT)
