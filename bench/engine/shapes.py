"""The loads: two recorded for the reference implementation, and the ones that hurt."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from . import objects
from .harness import Arrival, Shape


def _stream(
    queue: str, kind: str, count: int, every: int, cpu: int, runs: int, priority: int
) -> Iterator[Arrival]:
    for number in range(count):
        yield Arrival(number * every, kind, f"{queue}-{kind}-{number}", queue, cpu, priority, runs)


def _cohorts(
    name: str,
    cohorts: int,
    queues: int,
    classes: list[tuple[str, int, int, int, int, int]],
    reclaim: str = "Never",
    within: str = "Never",
) -> Shape:
    setup: list[object] = [objects.flavor("default")]
    streams = []
    for cohort in range(cohorts):
        for number in range(queues):
            queue = f"cq-{cohort}-{number}"
            setup.append(
                objects.cluster_queue(
                    queue, {"default": (20, 100)}, f"cohort-{cohort}", reclaim=reclaim, within=within
                )
            )
            setup.append(objects.local_queue(queue, queue))
            streams += [_stream(queue, *each) for each in classes]
    return Shape(name, setup, merge(*streams, key=lambda arrival: arrival.at))


def baseline(scale: float = 1.0) -> Shape:
    """5 cohorts of 6 queues with 500 workloads each; preemption all the time."""
    return _cohorts(
        "baseline",
        5,
        6,
        [
            ("small", round(350 * scale), 100, 1, 200, 50),
            ("medium", round(100 * scale), 500, 5, 500, 100),
            ("large", round(50 * scale), 1200, 20, 1000, 200),
        ],
        reclaim="Any",
        within="LowerPriority",
    )


def large(scale: float = 1.0) -> Shape:
    """10 cohorts of 100 queues with 50 workloads each."""
    return _cohorts(
        "large",
        max(1, round(10 * scale)),
        100,
        [
            ("small", 35, 60, 1, 150, 50),
            ("medium", 11, 300, 5, 350, 100),
            ("large", 4, 700, 20, 700, 200),
        ],
    )
