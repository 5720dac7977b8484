"""When nodes fail and when they are taken back: read from their annotations, or drawn.

Each annotation is of a Node and in the domain `sim.pykueue.io/`:

| annotation | value | meaning |
|---|---|---|
| fail | `unreachable`, `crash`, `not-ready` | the node fails in this way while the annotation is there |
| fail-every | `30d` | the mean time from one failure of the node to the next |
| fail-for | `10m`, `5m-1h` | how long these failures last |
| fail-as | as `fail` | in which way; without it `unreachable` |
| reclaim | `true` | the node is taken back: its pods are ended and it goes |
| reclaim-every | `2h` | the mean time until a node is taken back |
| reclaim-notice | `30s` | how long it is known before |
| replace-after | `1m`, `1m-3m` | how long a node of a pool stays away when it has gone |

A node that is unreachable is not heard of, while its programs go on. A crash ends them: they are found dead
when the node is back. A node that is not ready says so itself. Draws depend on the node's seed and its uid
alone, so that they come out the same after a restart. Times are seconds since 1970.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from pykueue.api.times import parse_time
from pykueue.embedded.nodes.behaviour import DOMAIN, SEED, BehaviourError
from pykueue.embedded.nodes.durations import Span, format_duration, format_span, parse_duration, parse_span

Object = dict[str, Any]

UNREACHABLE, CRASH, NOT_READY = "unreachable", "crash", "not-ready"
#: Taint of a node that is being taken back; when it was added is when notice was given.
RECLAIMED = DOMAIN + "reclaimed"
FAIL_FOR = Span(600.0, 600.0)
NOTICE = 30.0


class Outages(NamedTuple):
    """What was said, by annotation; None where nothing was."""

    fail: str | None = None
    fail_every: float | None = None
    fail_for: Span | None = None
    fail_as: str | None = None
    reclaim: bool | None = None
    reclaim_every: float | None = None
    reclaim_notice: float | None = None
    replace_after: Span | None = None


class Health(NamedTuple):
    """How a node is, and until when."""

    #: UNREACHABLE, CRASH, NOT_READY or "".
    failure: str
    #: Since when; None for a failure that somebody ordered.
    since: float | None
    #: When the node is to be taken back; infinite if never.
    reclaim_at: float
    #: When this changes next by itself; infinite if never.
    until: float


def _way(text: str) -> str:
    if text not in (UNREACHABLE, CRASH, NOT_READY):
        raise BehaviourError(f"{text!r} is none of {UNREACHABLE}, {CRASH} and {NOT_READY}")
    return text


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise BehaviourError(f"{text!r} is neither true nor false")
    return text == "true"


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BehaviourError(str(error)) from None


def _mean(text: str) -> float:
    seconds = _duration(text)
    if not seconds:
        raise BehaviourError(f"{text!r} is not longer than no time at all")
    return seconds


def _span(text: str) -> Span:
    try:
        return parse_span(text)
    except ValueError as error:
        raise BehaviourError(str(error)) from None


_READERS: dict[str, Any] = {
    "fail": _way,
    "fail_every": _mean,
    "fail_for": _span,
    "fail_as": _way,
    "reclaim": _truth,
    "reclaim_every": _mean,
    "reclaim_notice": _duration,
    "replace_after": _span,
}
_KEYS = {DOMAIN + field.replace("_", "-"): field for field in _READERS}


def read(annotations: Mapping[str, str]) -> tuple[Outages, list[str]]:
    """What the annotations say, and what is wrong with those that were left out for it."""
    said: dict[str, Any] = {}
    wrong: list[str] = []
    for key, field in _KEYS.items():
        if key in annotations:
            try:
                said[field] = _READERS[field](annotations[key])
            except BehaviourError as error:
                wrong.append(f"annotation {key}: {error}")
    return Outages(**said), wrong


def read_fields(texts: Mapping[str, str]) -> Outages:
    """As `read`, but by field name. Raises BehaviourError naming the field as a file spells it."""
    said: dict[str, Any] = {}
    for field, text in texts.items():
        try:
            said[field] = _READERS[field](text)
        except BehaviourError as error:
            first, *more = field.split("_")
            raise BehaviourError(f"{first}{''.join(map(str.capitalize, more))}: {error}") from None
    return Outages(**said)


def as_annotations(outages: Outages) -> dict[str, str]:
    """The annotations that say this."""
    found: dict[str, str] = {}
    for key, field in _KEYS.items():
        match getattr(outages, field):
            case None:
                continue
            case bool() as value:
                found[key] = "true" if value else "false"
            case str() as value:
                found[key] = value
            case Span() as value:
                found[key] = format_span(value)
            case value:
                found[key] = format_duration(value)
    return found


def health(node: Object, said: Outages, now: float) -> Health:
    """How the node is at a time after its creation."""
    metadata = node["metadata"]
    created = parse_time(metadata["creationTimestamp"])
    seed = f"{(metadata.get('annotations') or {}).get(SEED) or ''}/{metadata['uid']}"
    reclaim_at = inf
    if said.reclaim:
        reclaim_at = now
    elif said.reclaim_every is not None:
        reclaim_at = created + _wait(random.Random(f"{seed}/reclaim"), said.reclaim_every)
    if said.fail is not None:
        return Health(said.fail, None, reclaim_at, inf)
    if said.fail_every is None:
        return Health("", None, reclaim_at, inf)
    rng = random.Random(f"{seed}/failures")
    end = created
    while True:
        start = end + _wait(rng, said.fail_every)
        if start > now:
            return Health("", None, reclaim_at, start)
        end = start + (said.fail_for or FAIL_FOR).draw(rng)
        if end > now:
            return Health(said.fail_as or UNREACHABLE, start, reclaim_at, end)


def _wait(rng: random.Random, mean: float) -> float:
    """Time until something that is as likely at any time."""
    return inf if mean == inf else rng.expovariate(1 / mean)


def notice_given(node: Object) -> float | None:
    """When notice was given that the node is taken back, None if it was not."""
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("key") == RECLAIMED:
            return parse_time(taint["timeAdded"]) if taint.get("timeAdded") else None
    return None
