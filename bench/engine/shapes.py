"""The loads: two recorded for the reference implementation, and the ones that hurt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import merge

from pykueue.api import kueue
from pykueue.engine import Options

from . import objects
from .harness import Arrival, Shape

#: Classes of the two recorded loads: name, number in each queue, milliseconds between two, CPUs, run time in
#: milliseconds, priority.
Class = tuple[str, int, int, int, int, int]
BASELINE: tuple[Class, ...] = (
    ("small", 350, 100, 1, 200, 50),
    ("medium", 100, 500, 5, 500, 100),
    ("large", 50, 1200, 20, 1000, 200),
)
LARGE: tuple[Class, ...] = (
    ("small", 35, 60, 1, 150, 50),
    ("medium", 11, 300, 5, 350, 100),
    ("large", 4, 700, 20, 700, 200),
)


def _stream(
    queue: str, kind: str, count: int, every: int, cpu: int, runs: int, priority: int
) -> Iterator[Arrival]:
    for number in range(count):
        yield Arrival(number * every, kind, f"{queue}-{kind}-{number}", queue, cpu, priority, runs)


def _cohorts(
    name: str,
    cohorts: int,
    queues: int,
    classes: Sequence[Class],
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


def slowed(shape: Shape, times: int) -> Shape:
    """The same load so many times as slowly: workloads come later and run longer."""
    arrivals = (replace(each, at=each.at * times, runs=each.runs * times) for each in shape.arrivals)
    return replace(shape, arrivals=arrivals)


def scaled(scale: float) -> list[Class]:
    """The classes of the baseline with a part of the workloads."""
    return [(name, round(count * scale), *rest) for name, count, *rest in BASELINE]  # type: ignore[misc]


def baseline(scale: float = 1.0) -> Shape:
    """5 cohorts of 6 queues with 500 workloads each; preemption all the time."""
    return _cohorts(
        "baseline",
        5,
        6,
        scaled(scale),
        reclaim="Any",
        within="LowerPriority",
    )


def fair(scale: float = 1.0) -> Shape:
    """The baseline under fair sharing."""
    shape = baseline(scale)
    shape.name = "fair"
    shape.options = Options(fair_sharing=True)
    return shape


def large(scale: float = 1.0, queues: int = 100) -> Shape:
    """10 cohorts of 100 queues, or so many, with 50 workloads each."""
    return _cohorts(
        "large",
        max(1, round(10 * scale)),
        queues,
        LARGE,
    )


def contended(queues: int) -> Shape:
    """The mix of the baseline under fair sharing, in one cohort of many queues: 50 workloads each."""
    shape = _cohorts(
        f"contended {queues}",
        1,
        queues,
        [
            ("small", 35, 100, 1, 200, 50),
            ("medium", 10, 500, 5, 500, 100),
            ("large", 5, 1200, 20, 1000, 200),
        ],
        reclaim="Any",
        within="LowerPriority",
    )
    shape.options = Options(fair_sharing=True)
    return shape


def backlogged(queues: int) -> Shape:
    """One cohort under fair sharing with 20 workloads pending in each of many queues; they end one by one."""

    def arrivals() -> Iterator[Arrival]:
        for number in range(20 * queues):
            cpu = 1 + number * 7 % 5
            runs = 1000 + number * 7919 % 9973
            yield Arrival(0, f"{cpu} cpu", f"w{number}", f"q{number % queues}", cpu, number % 3, runs)

    setup: list[object] = [objects.flavor("default")]
    for number in range(queues):
        queue = f"q{number}"
        nominal = 2 + 4 * (number % 3)
        setup.append(
            objects.cluster_queue(
                queue, {"default": (nominal, None)}, "all", reclaim="Any", within="LowerPriority"
            )
        )
        setup.append(objects.local_queue(queue, queue))
    return Shape(f"backlogged {queues}", setup, arrivals(), options=Options(fair_sharing=True))


def deep(pending: int) -> Shape:
    """One queue with room for 100 workloads and very many waiting; the first 2 000 virtual seconds of it."""

    def arrivals() -> Iterator[Arrival]:
        for number in range(pending):
            cpu = 1 + number % 7
            yield Arrival(0, f"{cpu} cpu", f"w{number}", "q", cpu, 0, 1000 + 10 * (number % 100))

    setup = [
        objects.flavor("default"),
        objects.cluster_queue("q", {"default": (400, None)}),
        objects.local_queue("q", "q"),
    ]
    return Shape(f"deep {pending}", setup, arrivals(), until=15_000)


def wide(queues: int) -> Shape:
    """A three-level tree: root, cohorts of 20 teams, queues; everybody borrows, priorities differ."""
    setup: list[object] = [objects.flavor("default"), objects.cohort("root")]
    streams = []
    teams = max(1, queues // 20)
    for team in range(teams):
        setup.append(objects.cohort(f"team-{team}", "root"))
    for number in range(queues):
        queue = f"q{number}"
        nominal = 4 if number % 4 else 16
        setup.append(
            objects.cluster_queue(
                queue,
                {"default": (nominal, None)},
                f"team-{number % teams}",
                reclaim="Any",
                within="LowerPriority",
            )
        )
        setup.append(objects.local_queue(queue, queue))
        streams.append(_stream(queue, "work", 10, 100 + number % 5 * 10, 2, 600, number % 5))
    return Shape(f"wide {queues}", setup, merge(*streams, key=lambda arrival: arrival.at))


def flavors(workloads: int) -> Shape:
    """One queue with 50 flavors, tried one after the other."""
    names = [f"flavor-{number:02d}" for number in range(50)]
    setup: list[object] = [objects.flavor(name) for name in names]
    setup.append(
        objects.cluster_queue(
            "q",
            dict.fromkeys(names, (8, None)),
            "all",
            fungibility=kueue.FlavorFungibility(when_can_borrow="TryNextFlavor"),
        )
    )
    setup.append(objects.local_queue("q", "q"))
    return Shape(f"flavors {workloads}", setup, _stream("q", "work", workloads, 10, 4, 900, 0))


def storm(admitted: int) -> Shape:
    """A queue full of running workloads, and a stream of more important ones that each need four of them."""

    def arrivals() -> Iterator[Arrival]:
        for number in range(admitted):
            yield Arrival(0, "running", f"r{number}", "q", 1, number % 100, 3_600_000)
        for number in range(500):
            yield Arrival(60_000 + number * 100, "urgent", f"u{number}", "q", 4, 1000, 3_600_000)

    setup = [
        objects.flavor("default"),
        objects.cluster_queue("q", {"default": (admitted, None)}, within="LowerPriority"),
        objects.local_queue("q", "q"),
    ]
    return Shape(f"storm {admitted}", setup, arrivals(), until=120_000)
