"""The benchmark of the manager's CPU time by cause names what exists, and plays its load to the end."""

from __future__ import annotations

import pytest
from bench.causes.__main__ import CAUSES, measure
from bench.causes.meter import LOOP, SERVER, Meter
from bench.comparison.runner import generator
from bench.end_to_end.load import KINDS, SHAPES
from bench.engine import shapes

from pykueue.clock import run_virtual


def test_the_parts_of_the_manager_that_are_measured_exist() -> None:
    for parts in CAUSES.values():
        for owner, names in parts:
            assert set(names) <= owner.__dict__.keys(), owner


def test_the_time_of_the_manager_is_counted_apart_from_that_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meter = Meter()
    monkeypatch.setattr("asyncio.events.Handle._run", meter.measured_callback())
    requests = run_virtual(lambda clock: measure(clock, shapes.large(0.1, 1), meter))
    assert requests > 50
    assert {LOOP, SERVER} <= meter.seconds.keys()
    assert not meter.runs


@pytest.mark.parametrize("shape", SHAPES)
def test_the_load_can_create_what_its_shapes_set_up(shape: str) -> None:
    assert {type(each).__name__ for each in SHAPES[shape](0.01).setup} <= KINDS.keys()


@pytest.mark.parametrize(
    ("shape", "queues", "workloads"), [("baseline", 30, 15_000), ("large", 1000, 50_000)]
)
def test_kueues_load_runner_is_given_the_loads_of_the_benchmark(
    shape: str, queues: int, workloads: int
) -> None:
    found = generator(shape, 1.0)["cohorts"]
    sets = [(cohort["count"] * each["count"], each) for cohort in found for each in cohort["queuesSets"]]
    assert sum(count for count, _ in sets) == queues
    total = sum(count * one["count"] for count, each in sets for one in each["workloadsSets"])
    assert total == workloads == len(list(SHAPES[shape](1.0).arrivals))


def test_a_load_can_be_played_slower() -> None:
    arrivals, slowed = list(shapes.large(0.1).arrivals), list(shapes.slowed(shapes.large(0.1), 3).arrivals)
    assert [(3 * each.at, 3 * each.runs) for each in arrivals] == [(each.at, each.runs) for each in slowed]
    sets, slowed_sets = (
        generator("large", 0.1, slower)["cohorts"][0]["queuesSets"][0]["workloadsSets"] for slower in (1, 3)
    )
    for one, other in zip(sets, slowed_sets, strict=True):
        assert other["creationIntervalMs"] == 3 * one["creationIntervalMs"]
        assert other["workloads"][0]["runtimeMs"] == 3 * one["workloads"][0]["runtimeMs"]
