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

An unreachable node does not report, while its programs continue. A crash ends them: they are found dead
when the node is back. A node that is not ready says so itself. Draws depend on the node's seed and its uid
alone, so that they come out the same after a restart. Times are seconds since 1970.
"""

from __future__ import annotations

import random
from math import inf
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.times import parse_time
from pykueue.embedded.nodes.annotations import (
    DOMAIN,
    DURATION,
    SEED,
    SPAN,
    TRUTH,
    BehaviourError,
    Value,
    Vocabulary,
)
from pykueue.embedded.nodes.durations import Span

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
    #: Since when; None for a failure that an annotation requests.
    since: float | None
    #: When the node is to be taken back; infinite if never.
    reclaim_at: float
    #: When this changes next by itself; infinite if never.
    until: float


def _way(text: str) -> str:
    if text not in (UNREACHABLE, CRASH, NOT_READY):
        raise BehaviourError(f"{text!r} is none of {UNREACHABLE}, {CRASH} and {NOT_READY}")
    return text


def _mean(text: str) -> float:
    seconds: float = DURATION.read(text)
    if not seconds:
        raise BehaviourError(f"{text!r} must be greater than 0")
    return seconds


_WAY = Value(_way, str)
_MEAN = Value(_mean, DURATION.write)
_VOCABULARY = Vocabulary(
    Outages,
    {
        "fail": _WAY,
        "fail_every": _MEAN,
        "fail_for": SPAN,
        "fail_as": _WAY,
        "reclaim": TRUTH,
        "reclaim_every": _MEAN,
        "reclaim_notice": DURATION,
        "replace_after": SPAN,
    },
)
read, read_fields, as_annotations = _VOCABULARY.read, _VOCABULARY.read_fields, _VOCABULARY.as_annotations


def health(node: Object, outages: Outages, now: float) -> Health:
    """How the node is at a time after its creation."""
    metadata = node["metadata"]
    created = parse_time(metadata["creationTimestamp"])
    seed = f"{(metadata.get('annotations') or {}).get(SEED) or ''}/{metadata['uid']}"
    reclaim_at = inf
    if outages.reclaim:
        reclaim_at = now
    elif outages.reclaim_every is not None:
        reclaim_at = created + _wait(random.Random(f"{seed}/reclaim"), outages.reclaim_every)
    if outages.fail is not None:
        return Health(outages.fail, None, reclaim_at, inf)
    if outages.fail_every is None:
        return Health("", None, reclaim_at, inf)
    rng = random.Random(f"{seed}/failures")
    end = created
    while True:
        start = end + _wait(rng, outages.fail_every)
        if start > now:
            return Health("", None, reclaim_at, start)
        end = start + (outages.fail_for or FAIL_FOR).draw(rng)
        if end > now:
            return Health(outages.fail_as or UNREACHABLE, start, reclaim_at, end)


def _wait(rng: random.Random, mean: float) -> float:
    """Time until something that is as likely at any time."""
    return inf if mean == inf else rng.expovariate(1 / mean)


def notice_given(node: Object) -> float | None:
    """When notice was given that the node is taken back, None if it was not."""
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint.get("key") == RECLAIMED:
            return parse_time(taint["timeAdded"]) if taint.get("timeAdded") else None
    return None
