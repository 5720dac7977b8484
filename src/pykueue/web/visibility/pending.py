"""Pending workloads as objects of the visibility API, and as the table that `kubectl get` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pykueue.api.ages import duration_text
from pykueue.api.meta import parse_time
from pykueue.api.objects import Object

if TYPE_CHECKING:
    from pykueue.simulate.live.protocol import Starts

_COLUMNS: Final = (
    # name, type, priority (1: with -o wide only), description
    ("Name", "string", 0, "Name of the Workload."),
    ("LocalQueue", "string", 0, "The LocalQueue it was submitted to."),
    ("Position", "integer", 0, "Position in the LocalQueue, from 0."),
    ("Earliest", "string", 0, "Time until it starts: 10th percentile of the simulated futures."),
    ("Median", "string", 1, "Time until it starts: median of the simulated futures."),
    ("Latest", "string", 0, "Time until it starts: 90th percentile of the simulated futures."),
    ("Score", "string", 0, "Past starts of the LocalQueue inside their interval, of all that were forecast."),
    ("ClusterQueue", "string", 1, "The ClusterQueue of the LocalQueue."),
    ("Priority", "integer", 1, "The workload's spec.priority."),
    ("Age", "string", 0, "Time since the creation of the Workload."),
)
_TIMES: Final = ("earliest", "median", "latest")


def pending_workload(api_version: str, cluster_queue: str, item: Object, starts: Starts | None) -> Object:
    """A pending workload by its item in a summary of its ClusterQueue."""
    found = {"kind": "PendingWorkload", "apiVersion": api_version, **item, "clusterQueueName": cluster_queue}
    metadata = item["metadata"]
    start = None if starts is None else starts.starts.get(f"{metadata['namespace']}/{metadata['name']}")
    if starts is not None and start is not None:
        from pykueue.simulate.scores import SCORED  # known only with forecasts

        found["start"] = {
            **{name: getattr(start, name) for name in _TIMES if getattr(start, name)},
            "forecastTime": starts.now,
            "futures": starts.futures,
            "started": start.started,
            "hours": starts.hours,
        }
        inside, all = starts.scores.get(f"{metadata['namespace']}/{item['localQueueName']}", (0, 0))
        if all >= SCORED:
            found["start"]["score"] = {"inside": inside, "starts": all}
    return found


def table(items: Sequence[Object], now: float) -> Object:
    """The table of pending workloads; `now` in seconds since 1970."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            {"name": name, "type": kind, "format": "", "priority": priority, "description": description}
            for name, kind, priority, description in _COLUMNS
        ],
        "rows": [{"cells": _cells(item, now), "object": _partial(item)} for item in items],
    }


def _cells(item: Object, now: float) -> list[Any]:
    metadata, start = item["metadata"], item.get("start")
    earliest, median, latest = (_until(start, name, now) for name in _TIMES)
    created = metadata.get("creationTimestamp")
    return [
        metadata["name"],
        item["localQueueName"],
        item["positionInLocalQueue"],
        earliest,
        median,
        latest,
        _score(start),
        item["clusterQueueName"],
        item["priority"],
        duration_text(now - parse_time(created)) if created else "<unknown>",
    ]


def _score(start: Object | None) -> str:
    """Past starts inside their interval, of how many; few say nothing."""
    score = (start or {}).get("score")
    return f"{score['inside']}/{score['starts']}" if score else "<none>"


def _until(start: Object | None, name: str, now: float) -> str:
    """Time until a workload starts; times beyond the forecast are as long as that at least."""
    if start is None:
        return "<unknown>"
    if name not in start:
        return f">{start['hours']:.0f}h"
    return duration_text(max(0.0, parse_time(start[name]) - now))


def _partial(item: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": item["metadata"],
    }
