"""Random arrivals with exact run times under BackfillPolicies: what is reserved is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest
from engine_world import START, World

from pykueue.engine import Admit, Requeue

#: More with PYKUEUE_BACKFILL_SEEDS=1000.
SEEDS = range(int(os.environ.get("PYKUEUE_BACKFILL_SEEDS", "1")))
POLICIES: list[dict[str, Any]] = [{}, {"depth": 3}, {"strategy": "Conservative"}]


def policy(world: World, **spec: Any) -> None:
    world.apply(
        {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "BackfillPolicy",
            "metadata": {"name": "all", "uid": "all"},
            "spec": spec,
        }
    )


@dataclass
class Run:
    """What became of the workloads of one run; times in seconds from the start."""

    starts: dict[str, float] = field(default_factory=dict)
    promises: dict[str, float] = field(default_factory=dict)
    """The first reservation of each."""
    backfilled: int = 0


def play(seed: int, queues: int, flavors: int, spec: dict[str, Any] | None, strict: bool = False) -> Run:
    """Twenty workloads, each of which ends when its declared run time is over."""
    random = Random(seed)
    world = World()
    names = [f"f{number}" for number in range(flavors)]
    for name in names:
        world.flavor(name)
    own = "10" if queues == 1 else "0"
    if queues > 1:
        # All quota is the cohort's: no workload is entitled to go first.
        world.cohort("all", quotas={name: {"cpu": "10"} for name in names})
    for number in range(queues):
        cohort = "all" if queues > 1 else ""
        world.queue(f"q{number}", {name: {"cpu": own} for name in names}, cohort=cohort, strict=strict)
    if spec is not None:
        policy(world, **spec)
    coming = [
        (at, f"w{number:02d}", random.choice((1, 1, 2, 3, 5, 8, 10)), random.randrange(1, 60))
        for number, at in enumerate(sorted(random.randrange(120) for _ in range(20)))
    ]
    run, running, lengths = Run(), list[tuple[float, str]](), {}
    while coming or running:
        due = world.driver.next_timer()
        times = [due - START] if due is not None else []
        times += [coming[0][0]] if coming else []
        times += [running[0][0]] if running else []
        now = min(times)
        world.driver.advance(START + now)
        while running and running[0][0] <= now:
            world.finish(heappop(running)[1])
        while coming and coming[0][0] <= now:
            at, name, cpus, length = coming.pop(0)
            lengths[name] = length
            queue = f"q{random.randrange(queues)}"
            world.workload(name, queue, cpus, created=at, maximumExecutionTimeSeconds=length)
        while world.engine.has_heads():
            for decision in world.driver.cycle():
                name = decision.key.partition("/")[2]
                if isinstance(decision, Admit):
                    run.starts[name] = now
                    run.backfilled += decision.explanation.backfill is not None
                    heappush(running, (now + lengths[name], name))
                elif isinstance(decision, Requeue) and decision.explanation.shadow is not None:
                    run.promises.setdefault(name, decision.explanation.shadow.start - START)
            world.driver.carry_out()
            world.engine.check()
    assert len(run.starts) == 20, "each starts"
    return run


@pytest.mark.parametrize(("queues", "flavors"), [(1, 1), (3, 1), (1, 2), (3, 2)])
def test_no_workload_starts_later_than_it_was_promised_first(queues: int, flavors: int) -> None:
    backfilled = 0
    for seed in SEEDS:
        for spec in POLICIES:
            run = play(seed, queues, flavors, spec)
            late = {name: at for name, at in run.starts.items() if at > run.promises.get(name, at)}
            assert late == {}, (seed, spec)
            backfilled += run.backfilled
    assert backfilled, "some of them do start before others"


def test_with_reservations_for_all_none_starts_later_than_under_strict_fifo() -> None:
    for seed in SEEDS:
        conservative, strict = play(seed, 1, 1, {"strategy": "Conservative"}), play(seed, 1, 1, None, True)
        assert all(at <= strict.starts[name] for name, at in conservative.starts.items()), seed
