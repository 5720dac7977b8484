"""The log of Kueue's manager: which changes its caches had when a cycle began, and what the cycle considered.

Lines are JSON objects, as the manager writes them at the verbosity of its installation (`--zap-log-level=2`).
Other lines are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, get_args

import orjson

from pykueue.api.times import parse_time
from pykueue.engine.decisions import RequeueReason

#: Kinds of which the manager logs each change, with the field that has the object.
LOGGED: Final = {
    "Workload": "workload",
    "ClusterQueue": "clusterQueue",
    "LocalQueue": "localQueue",
    "ResourceFlavor": "resourceFlavor",
}
_CHANGES: Final = {
    **{f"{kind} {what} event": kind for kind in LOGGED for what in ("create", "update", "delete")},
    "Queue update event": "LocalQueue",
}
#: The lines that are read: most others are not even decoded.
_MESSAGE: Final = re.compile(
    '"msg":\\s*"(?:Obtained heads|Snapshot taken|Scheduling cycle complete|Attempting to |Moved workloads|'
    "Workload (?:assumed|skipped|re-queued|couldn't)|" + "|".join(map(re.escape, _CHANGES)) + ")"
)
_FRACTION: Final = re.compile(r"\.\d+(?=Z|[+-])")
_REASONS: Final[frozenset[str]] = frozenset(get_args(RequeueReason))


@dataclass(frozen=True, slots=True)
class Seen:
    """A change of an object is in the manager's caches from now on."""

    time: float
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Flushed:
    """The inadmissible workloads of a root cohort, or of a ClusterQueue without cohort, are active."""

    time: float
    cohort: str = ""
    cluster_queue: str = ""


@dataclass(slots=True)
class Considered:
    """What a cycle did with a workload."""

    key: str
    """`namespace/name`."""
    assumed: bool = False
    """It has quota: the admission is written."""
    skipped: bool = False
    """It had quota already."""
    requeued: RequeueReason | None = None
    """Why it went back to its queue."""
    inadmissible: bool | None = None
    """Whether it is inadmissible there; None in logs that do not show it."""


@dataclass(slots=True)
class Cycle:
    """A cycle that ended."""

    number: int
    began: float
    """When the heads of the queues were taken: seconds since 1970 by the manager's clock."""
    time: float
    """When the snapshot was taken."""
    ended: float = inf
    """When all but admissions was written."""
    workloads: dict[str, Considered] = field(default_factory=dict)
    """In the order in which they were processed, by key."""


Entry = Seen | Flushed | Cycle


class ManagerLog:
    """Reads a log line by line."""

    def __init__(self) -> None:
        self._cycle: Cycle | None = None
        #: Whether this log shows which workloads are inadmissible.
        self._shows_places = False
        self.lines = 0
        """Lines that were understood."""

    @property
    def complete_until(self) -> float:
        """A cycle that began then, in seconds since 1970, has not ended."""
        return inf if self._cycle is None else self._cycle.began

    def read(self, line: str) -> Entry | None:
        """What a line completes. A cycle is complete when it ends.

        Threads of the manager write lines in another order than that of their times.
        """
        if not _MESSAGE.search(line):
            return None
        try:
            entry = orjson.loads(line)
            time = _time(str(entry["ts"]))
        except (ValueError, KeyError, TypeError):
            return None
        self.lines += 1
        message = str(entry.get("msg", ""))
        if "schedulingCycle" in entry:
            return self._in_cycle(entry, message, time)
        return _outside(entry, message, time)

    def _in_cycle(self, entry: dict[str, Any], message: str, time: float) -> Cycle | None:
        number = int(entry["schedulingCycle"])
        if message == "Obtained heads":
            self._cycle = Cycle(number, time, time)
            return None
        cycle = self._cycle
        if cycle is None or cycle.number != number:
            return None  # the end of an admission of an earlier cycle
        if message == "Snapshot taken":
            cycle.time = time - float(entry.get("duration") or 0.0)
        if message == "Scheduling cycle complete":
            self._cycle = None
            cycle.ended = time
            for each in cycle.workloads.values() if self._shows_places else ():
                each.inadmissible = bool(each.inadmissible)
            return cycle
        key = _key(entry.get("workload"))
        if key is None:
            return None
        if message.startswith("Workload couldn't be admitted"):
            self._shows_places = True
            cycle.workloads.setdefault(key, Considered(key)).inadmissible = True
            return None
        found = cycle.workloads.setdefault(key, Considered(key))
        if message == "Workload assumed in the cache":
            found.assumed = True
        elif message.startswith("Workload skipped from admission"):
            found.skipped = True
        elif message == "Workload re-queued":
            found.requeued = _requeue_reason(str(entry.get("requeueReason") or "Generic"))
        return None


def _outside(entry: dict[str, Any], message: str, time: float) -> Seen | Flushed | None:
    """What happened besides cycles."""
    kind = _CHANGES.get(message)
    if kind is not None:
        found = entry.get(LOGGED[kind])
        if not isinstance(found, dict) or not found.get("name"):
            return None
        return Seen(time, kind, str(found.get("namespace") or ""), str(found["name"]))
    if message == "Attempting to move workloads":
        return Flushed(time, cohort=str(entry.get("rootCohort") or ""))
    if message == "Moved workloads":
        return Flushed(time, cluster_queue=str(entry.get("clusterqueue") or ""))
    return None


def _requeue_reason(text: str) -> RequeueReason:
    if text == "PreemptionFailed":
        return "FailedAfterNomination"  # it is active at once as well
    return text if text in _REASONS else "Generic"  # type: ignore[return-value]


def _key(found: Any) -> str | None:
    if isinstance(found, str) and "/" in found:
        return found
    if not isinstance(found, dict) or not found.get("name"):
        return None
    return f"{found.get('namespace') or ''}/{found['name']}"


def _time(text: str) -> float:
    """A time with a fraction of a second, in seconds since 1970."""
    match = _FRACTION.search(text)
    if match is None:
        return parse_time(text)
    return parse_time(_FRACTION.sub("", text)) + float(match.group())
