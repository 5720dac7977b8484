"""How long the scheduler rests between cycles that take time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from manager_stack import Stack, job, story

from pykueue.clock import VirtualLoop
from pykueue.engine import Engine
from pykueue.engine.decisions import Decision, Requeue

#: Seconds that each cycle takes.
TOOK = 0.02

pytestmark = pytest.mark.interpreted


@pytest.fixture
def cycles(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, bool]]:
    """When each cycle began, and whether it only found that workloads still wait."""
    begun: list[tuple[float, bool]] = []
    cycle: Callable[[Engine, float], list[Decision]] = Engine.cycle

    def slow(engine: Engine, now: float) -> list[Decision]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        at = loop.time()
        loop.advance(TOOK)
        decisions = cycle(engine, now)
        begun.append((at, bool(decisions) and all(isinstance(one, Requeue) for one in decisions)))
        return decisions

    monkeypatch.setattr(Engine, "cycle", slow)
    return begun


def test_workloads_of_one_queue_that_fit_are_admitted_without_rest(cycles: list[tuple[float, bool]]) -> None:
    async def life(s: Stack) -> None:
        for number in range(20):
            await s.apply(job(f"fits-{number}", cpu="100m"))
        await s.settle(20 * 2.5 * TOOK)
        assert s.transport.writes["PATCH workloads/status"] >= 20

    story(life)


def test_cycles_in_which_nothing_fits_leave_a_tenth_of_a_second_to_others(
    cycles: list[tuple[float, bool]],
) -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("runs", 10))
        await s.settle(5)
        cycles.clear()
        for number in range(8):
            await s.apply(job(f"waits-{number}", 1 + number))
        await s.settle(5)

    story(life)
    gaps = [after[0] - before[0] for before, after in pairwise(cycles) if before[1]]
    assert len(gaps) >= 3
    assert min(gaps) >= TOOK + 0.1
