"""The story of a Workload where no manager recorded its decisions: what its status and its events retain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pykueue.api import kueue
from pykueue.api.meta import format_time, parse_time
from pykueue.api.objects import Object

#: Seconds within which an event and a condition with the same reason show the same change.
_SAME: Final = 2.0


def story_from_objects(workload: kueue.Workload, events: Iterable[Object]) -> dict[str, Any]:
    """The story as data, in the form that the manager serves, with `coveredFrom` and `notes`.

    `events` are those of the Workload (v1). Times have seconds: what happened within one second is in the
    order creation, events, conditions.
    """
    created = parse_time(workload.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
    pods = ", ".join(f"pod set {each.name}: {each.count} pods" for each in workload.spec.pod_sets)
    queue = workload.spec.queue_name or "unset"
    entries = [
        _entry(created, f"created in LocalQueue {queue} (priority {workload.spec.priority or 0}; {pods})")
    ]
    told: list[tuple[str, float]] = []
    for event in events:
        first, last, count = _times(event)
        if first is None or last is None:
            continue
        reason, message = str(event.get("reason", "")), str(event.get("message", ""))
        told += [(reason, first), (reason, last)]
        entries.append(_entry(first, f"{reason}: {message}", count, last))
    earliest = min((at for _, at in told), default=None)
    for condition in workload.status.conditions:
        if not condition.last_transition_time:
            continue
        at = parse_time(condition.last_transition_time)
        if any(reason == condition.reason and abs(at - when) <= _SAME for reason, when in told):
            continue
        why = ": ".join(filter(None, (condition.reason, condition.message)))
        entries.append(_entry(at, f"condition {condition.type} is {condition.status} ({why})"))
    note = "from the status and the events of the Workload: of each condition only the last change is known"
    if earliest is None:
        note += "; the cluster retains no event of it"
    elif earliest - created > _SAME:
        note += f"; the oldest event that the cluster retains is of {format_time(earliest)}"
    return {
        "workload": workload.metadata.key,
        "dropped": 0,
        "entries": sorted(entries, key=lambda entry: str(entry["time"])),
        "coveredFrom": format_time(created if earliest is None else min(created, earliest)),
        "notes": [note],
    }


def _entry(at: float, text: str, count: int = 1, last: float | None = None) -> dict[str, Any]:
    last_time = format_time(at if last is None else last)
    return {"time": format_time(at), "cycle": None, "text": text, "count": count, "lastTime": last_time}


def _times(event: Object) -> tuple[float | None, float | None, int]:
    """When an event occurred first and last, in seconds since 1970, and how often."""
    series = event.get("series") or {}
    first = event.get("firstTimestamp") or event.get("eventTime")
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or first
    count = int(series.get("count") or event.get("count") or 1)
    return (
        parse_time(first).__floor__() if first else None,
        parse_time(last).__floor__() if last else None,
        count,
    )
