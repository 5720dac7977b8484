"""An engine that follows another manager: it takes over what did not fit, and decides on forks."""

from __future__ import annotations

import pytest
from engine_world import World

from pykueue.engine import Admit
from pykueue.engine.errors import EngineError


def world() -> World:
    """Two queues of 4 cpu: one with a workload that does not fit before one that does."""
    made = World()
    made.flavor()
    for name in ("q", "other"):
        made.queue(name, {"f": {"cpu": 4}})
    made.workload("large", "q", 9, prio=5)
    made.workload("small", "q", 1)
    made.workload("elsewhere", "other", 1)
    return made


def test_what_does_not_fit_becomes_inadmissible_and_nothing_is_admitted() -> None:
    made = world()
    engine = made.engine
    assert [each.key for each in engine.requeue_unfit(made.now)] == ["default/large"]
    engine.check()
    assert engine.in_line("q") == (["default/small"], ["default/large"])
    assert engine.in_line("other") == (["default/elsewhere"], [])
    assert engine.requeue_unfit(made.now) == []


def test_fork_decides_about_one_tree_and_with_given_inadmissible_workloads() -> None:
    made = world()
    engine = made.engine
    engine.requeue_unfit(made.now)
    for flush, unfit, expected in (
        (False, (), ["default/small"]),
        (True, (), ["default/large"]),
        (False, ("default/small",), []),
    ):
        with engine.fork() as fork:
            fork.focus(["q"], flush, unfit)
            decisions = fork.cycle(made.now)
            assert [each.key for each in decisions] == expected
            assert all(isinstance(each, Admit) for each in decisions) or flush
        engine.check()
    with pytest.raises(EngineError, match="no fork is open"):
        engine.focus(["q"])
