"""What one run of a simulation depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pykueue.api import kueue
from pykueue.engine import Options
from pykueue.engine.events import Event
from pykueue.simulate.scenario.jobs import Job
from pykueue.simulate.writes import Limit


def _no_time() -> float:
    return 0.0


@dataclass(slots=True)
class Outside:
    """How long what happens outside of decisions takes: draws of seconds."""

    pod_start: Callable[[], float] = _no_time
    checks: Callable[[], float] = _no_time
    eviction: Callable[[], float] | None = None
    """None: quota is released with the eviction, at once."""
    node_failure: Callable[[], float] = _no_time
    cycle: float = 0.0
    cycles: Sequence[float] = ()
    """When cycles began, as recorded, in seconds from the start."""
    limit: Limit | None = None
    """Of the manager's client."""


class ObjectChange(NamedTuple):
    """Objects other than Workloads that change at one time."""

    at: float
    """Seconds from the start."""
    events: list[Event]
    failed: frozenset[str] = frozenset()
    """Hosts that fail with it, as topology assignments name them."""
    drained: frozenset[str] = frozenset()
    """Hosts whose pods are evicted."""
    restored: frozenset[str] = frozenset()
    """Hosts that had failed or were drained, and are in use again."""


@dataclass(slots=True)
class Present:
    """A Workload that exists at the start, as it is."""

    workload: kueue.Workload
    job: Job
    """`at` is its creation, before the start; `run_time` that of the whole job."""
    started: float | None = None
    """When it was admitted, in seconds from the start; None where it is not."""


@dataclass(slots=True)
class Plan:
    """All that one run depends on."""

    options: Options
    objects: list[Event]
    """What is there at the start."""
    jobs: Iterator[Job]
    """In the order of their arrival."""
    start: float
    """Seconds since 1970."""
    present: list[Present] = field(default_factory=list)
    watched: frozenset[str] = frozenset()
    """Keys of workloads; the run ends when all of them have been admitted."""
    required: frozenset[str] = frozenset()
    """Those of them without which the run does not end before the horizon."""
    window: float = 0.0
    """Seconds after which the run does not go on for the other watched workloads."""
    changes: list[ObjectChange] = field(default_factory=list)
    """What is changed, in order."""
    outside: Outside = field(default_factory=Outside)
    horizon: float | None = None
    warm_up: float = 0.0
    interval: float = 3600.0
    """Seconds of an interval of series over time."""
    whole_seconds: bool = False
    """Times of conditions are as coarse as on an API server; else they are exact."""
    detail: bool = False
    """Tell workloads apart by size, and sample what queues are entitled to."""
    timeline: bool = False
    """Keep what happens to the first workloads, with the reasons."""
