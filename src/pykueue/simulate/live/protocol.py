"""What the manager sends to the process that makes forecasts, and its answer: one JSON document each."""

from __future__ import annotations

from typing import Any

import msgspec

from pykueue.api.objects import Object


class Ask(msgspec.Struct, kw_only=True):
    """The state of a cluster, and what is asked about it."""

    now: float
    """Seconds since 1970."""
    options: dict[str, Any]
    """Of the engine."""
    objects: list[Object]
    """Manifests of everything that decisions depend on, finished Workloads included."""
    submit: Object | None = None
    """A Workload that does not exist yet: only its start is asked for. None: all pending ones are."""
    futures: int
    """Futures at most."""
    seconds: float
    """Seconds of real time after which no further future is begun."""


class Start(msgspec.Struct, kw_only=True):
    """When a pending workload starts. Times are empty where it starts in too few futures."""

    earliest: str
    median: str
    latest: str
    started: int
    """Futures in which it started."""


class Starts(msgspec.Struct, kw_only=True):
    """When the pending workloads start."""

    now: str
    futures: int
    hours: float
    """How far the futures reach."""
    starts: dict[str, Start] = {}
    """By the key of the workload."""
    preempted: float = 0.0
    """Workloads that are preempted for the one that does not exist yet, on average."""
    known_run_times: int = 0
    arrivals_per_hour: float = 0.0
    scores: dict[str, tuple[int, int]] = {}
    """Of each LocalQueue `namespace/name`: past starts inside their interval, and all past starts."""
