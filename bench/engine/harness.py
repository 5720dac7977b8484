"""Runs an engine event by event in virtual time and counts what it does."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from pykueue.api import kueue
from pykueue.api.core import Node
from pykueue.engine import Admit, Decision, Options, Preempt, Removed, Upsert
from pykueue.engine.driver import Driver

from . import objects


@dataclass(slots=True)
class Arrival:
    """A workload to come."""

    at: int
    """Virtual milliseconds from the start."""
    kind: str
    name: str
    queue: str
    cpu: float
    """Of one pod."""
    priority: int
    runs: int
    """Milliseconds it runs once admitted."""
    pods: int = 1
    request: kueue.PodSetTopologyRequest | None = None


@dataclass(slots=True)
class Shape:
    """A load: what is set up, and what arrives in the order it does."""

    name: str
    setup: list[Any]
    arrivals: Iterable[Arrival]
    options: Options = field(default_factory=Options)
    until: int | None = None
    """Virtual milliseconds after which the run ends."""
    node_events: Iterable[Node] = ()
    """What happens to nodes in the end, one by one."""


@dataclass(slots=True)
class Result:
    """What a run showed."""

    shape: str
    workloads: int = 0
    admissions: int = 0
    preemptions: int = 0
    cycles: int = 0
    decisions: int = 0
    virtual: float = 0.0
    """Virtual makespan in seconds."""
    wall: float = 0.0
    cpu: float = 0.0
    peak: float = 0.0
    """Peak of the whole process in MB (maximum resident set)."""
    waits: dict[str, float] = field(default_factory=dict)
    """Mean seconds from creation to the last admission, by class."""
    slowest_cycle: float = 0.0
    """Wall seconds."""
    cycle_seconds: float = 0.0
    """CPU seconds spent in cycles."""
    node_event_seconds: float = 0.0
    """CPU seconds of one event of a node, on average; 0 if there was none."""


def run(shape: Shape, decided: Callable[[float, list[Decision]], None] | None = None) -> Result:
    """Runs a shape to its end; `decided` gets the decisions of each cycle, with its time."""
    driver = Driver(shape.options, objects.START)
    engine = driver.engine
    result = Result(shape.name)
    driver.apply(*map(Upsert, (objects.namespace(), *shape.setup)))
    arrivals: Iterator[Arrival] = iter(shape.arrivals)
    coming = next(arrivals, None)
    finishes: list[tuple[int, int, str]] = []
    #: (how long it runs, class, creation)
    live: dict[str, tuple[int, str, int]] = {}
    runs: dict[str, int] = {}
    last_admission: dict[str, tuple[str, float]] = {}
    number = 0
    gc.collect()
    started, started_cpu = time.perf_counter(), time.process_time()
    while coming is not None or finishes:
        due = [coming.at] if coming is not None else []
        if finishes:
            due.append(finishes[0][0])
        now = min(due)
        if shape.until is not None and now > shape.until:
            break
        driver.advance(objects.START + now / 1000)
        while finishes and finishes[0][0] <= now:
            _, run_number, name = heappop(finishes)
            if runs.get(name) == run_number:
                del live[name], runs[name]
                driver.apply(Removed("Workload", objects.NAMESPACE, name))
                result.virtual = now / 1000
        while coming is not None and coming.at <= now:
            obj = objects.workload(
                coming.name,
                coming.queue,
                coming.cpu,
                coming.priority,
                objects.START + coming.at / 1000,
                coming.pods,
                coming.request,
            )
            live[coming.name] = (coming.runs, coming.kind, coming.at)
            driver.apply(Upsert(obj))
            result.workloads += 1
            coming = next(arrivals, None)
        while engine.has_heads():
            result.cycles += 1
            before, before_cpu = time.perf_counter(), time.process_time()
            decisions = driver.cycle()
            result.slowest_cycle = max(result.slowest_cycle, time.perf_counter() - before)
            result.cycle_seconds += time.process_time() - before_cpu
            result.decisions += len(decisions)
            if decided is not None:
                decided(driver.now, decisions)
            for decision in decisions:
                if isinstance(decision, Admit):
                    name = decision.key.partition("/")[2]
                    length, kind, created = live[name]
                    number += 1
                    runs[name] = number
                    heappush(finishes, (now + length, number, name))
                    result.admissions += 1
                    last_admission[name] = (kind, (now - created) / 1000)
                elif isinstance(decision, Preempt):
                    name = decision.key.partition("/")[2]
                    runs.pop(name)
                    result.preemptions += 1
            driver.carry_out()
    result.wall = time.perf_counter() - started
    result.cpu = time.process_time() - started_cpu
    events = [Upsert(node) for node in shape.node_events]
    before_cpu = time.process_time()
    for event in events:
        driver.apply(event)
    if events:
        result.node_event_seconds = (time.process_time() - before_cpu) / len(events)
    result.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sums: dict[str, list[float]] = {}
    for kind, wait in last_admission.values():
        sums.setdefault(kind, []).append(wait)
    result.waits = {kind: sum(waits) / len(waits) for kind, waits in sorted(sums.items())}
    engine.check()
    return result
