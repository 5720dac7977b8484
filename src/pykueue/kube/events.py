"""Events: what happened to an object, for people to read with `kubectl describe` and `kubectl get events`.

No caller waits for their writes, which may fail: `event` only notes what happened, `run` writes
in the background, one request at a time. Floods are tamed as clients of Kubernetes do it
(docs/reference/cluster-workloads.md, 4.7): the same event again raises a count; from the tenth similar one
(same reason, other text) within ten minutes they become one "(combined from similar events)"; and each object
has a burst of 25 writes, then one per 5 minutes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import EVENTS
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError

NORMAL = "Normal"
WARNING = "Warning"

#: Writes per object that are allowed at once, and the seconds after which one more is.
SPAM_BURST = 25
SPAM_REFILL = 300.0
#: The number of different texts for one reason within the seconds that follow, from which on they are
#: combined.
SIMILAR_LIMIT = 10
SIMILAR_WINDOW = 600.0
COMBINED_PREFIX = "(combined from similar events): "
#: Objects with events that are remembered, and events of one object; beyond that the oldest are forgotten.
REMEMBERED = 4096
EVENTS_REMEMBERED = 64
#: Writes that may wait; beyond that events are dropped.
WAITING_LIMIT = 1000
#: Largest note an API server takes, in characters.
NOTE_LIMIT = 1024

log = logging.getLogger(__name__)


class _Seen:
    """One event of an object: type, reason and text, and the Event object that stands for it."""

    __slots__ = ("at", "count", "is_similar", "note", "reason", "stamp", "type")

    def __init__(self, type: str, reason: str, note: int | None, now: float) -> None:
        self.type = type
        self.reason = reason
        #: What its text hashes to, which is much shorter; None for the combined event.
        self.note = note
        #: When it was noted last.
        self.at = now
        #: Whether it counts among those of its reason that come too often.
        self.is_similar = False
        #: What the name of the Event object ends with; 0: none was written.
        self.stamp = 0
        self.count = 0


class _Subject:
    """What is known of the events of one object."""

    __slots__ = ("at", "seen", "tokens")

    def __init__(self, now: float) -> None:
        #: What is left of its write allowance, and as of when.
        self.tokens = float(SPAM_BURST)
        self.at = now
        #: A few at most: they are searched from end to end.
        self.seen: list[_Seen] = []

    def may_write(self, now: float) -> bool:
        """Take one write of its allowance."""
        self.tokens = min(float(SPAM_BURST), self.tokens + (now - self.at) / SPAM_REFILL)
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def find(self, type: str, reason: str, note: int | None, now: float) -> _Seen:
        """The event of that text, from now on known."""
        for one in self.seen:
            if one.note == note and one.reason == reason and one.type == type:
                one.at = now
                return one
        if len(self.seen) >= EVENTS_REMEMBERED:
            del self.seen[0]
        one = _Seen(type, reason, note, now)
        self.seen.append(one)
        return one

    def is_flood(self, type: str, reason: str, note: int, now: float) -> bool:
        """Note a text; whether there were so many of the same reason that they are combined."""
        similar = [one for one in self.seen if one.reason == reason and one.type == type]
        if similar and now - max([one.at for one in similar]) > SIMILAR_WINDOW:
            for one in similar:
                one.is_similar = False
        several = sum([one.is_similar for one in similar])
        if several >= SIMILAR_LIMIT:
            similar[-1].at = now
            return True
        found = self.find(type, reason, note, now)
        several += not found.is_similar
        found.is_similar = True
        return several >= SIMILAR_LIMIT


class _Pending(NamedTuple):
    seen: _Seen
    regarding: Object
    note: str
    at: float


class EventRecorder:
    """Notes events of one component, and writes them when `run` runs.

    To have the writes counted by a controller's request limit, give it the controller's own client.
    """

    def __init__(
        self, client: Client, clock: Clock, component: str, rng: random.Random | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._component = component
        self._rng = rng
        #: By uid, or kind, namespace and name: the objects with events, the one with the newest last.
        self._subjects: OrderedDict[str | tuple[str, str, str], _Subject] = OrderedDict()
        self._waiting: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self._last_stamp = 0
        #: Events that were not written: flood, full queue, or refused.
        self.dropped = 0

    def event(self, obj: Object, type: str, reason: str, note: str | Callable[[], str]) -> None:
        """Something happened to `obj` (any object with apiVersion, kind and metadata).

        `type` is Normal or Warning, `reason` one CamelCase word, `note` a sentence, or a function that makes
        it: while WAITING_LIMIT events are not written yet, all others are dropped, and it is not called.
        """
        if len(self._waiting) >= WAITING_LIMIT:
            self.dropped += 1
            return
        if callable(note):
            note = note()
        now = self._clock.monotonic()
        note = note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 3] + "..."
        text = hash(note)
        subject = self._subject(obj, now)
        is_flood = subject.is_flood(type, reason, text, now)
        if not subject.may_write(now):
            self.dropped += 1
            return
        if is_flood:
            note = (COMBINED_PREFIX + note)[:NOTE_LIMIT]
        seen = subject.find(type, reason, None if is_flood else text, now)
        self._waiting.append(_Pending(seen, reference(obj), note, self._clock.time()))
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            while self._waiting:
                await self._write_or_drop(self._waiting.popleft())
            self._wake.clear()
            await self._wake.wait()

    def _subject(self, obj: Object, now: float) -> _Subject:
        metadata = obj["metadata"]
        key = metadata.get("uid") or (obj["kind"], metadata.get("namespace", ""), metadata["name"])
        found = self._subjects.get(key)
        if found is not None:
            self._subjects.move_to_end(key)
            return found
        if len(self._subjects) >= REMEMBERED:
            self._subjects.popitem(last=False)
        found = self._subjects[key] = _Subject(now)
        return found

    async def _write_or_drop(self, pending: _Pending) -> None:
        try:
            await self._write(pending)
        except (ApiError, ConnectionError, TimeoutError) as error:
            self.dropped += 1
            log.debug("event %s of %s not written: %s", pending.seen.reason, pending.regarding["name"], error)

    async def _write(self, pending: _Pending) -> None:
        seen, regarding = pending.seen, pending.regarding
        namespace = regarding.get("namespace") or "default"
        if seen.stamp:
            change: Object = {
                "count": seen.count + 1,
                "lastTimestamp": format_time(pending.at),
                "message": pending.note,
            }
            try:
                name = _name(regarding, seen.stamp)
                await self._client.patch(EVENTS, name, namespace, change, given=True)
            except ApiError as error:
                if not error.not_found:
                    raise
            else:
                seen.count += 1
                return
        stamp = self._stamp(pending.at)
        name = _name(regarding, stamp)
        await self._client.create(EVENTS, self._new(pending, namespace, name), given=True)
        seen.stamp, seen.count = stamp, 1

    def _new(self, pending: _Pending, namespace: str, name: str) -> Object:
        stamp = format_time(pending.at)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": pending.regarding,
            "reason": pending.seen.reason,
            "message": pending.note,
            "type": pending.seen.type,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }

    def _stamp(self, at: float) -> int:
        """Nanoseconds as other clients name events by them, so that a list by name is one by time.

        Only the microseconds are the clock's: what is below tells recorders apart that write at one time.
        """
        below = self._random().randrange(1000)
        self._last_stamp = max(round(at * 1e6) * 1000 + below, self._last_stamp + 1)
        return self._last_stamp

    def _random(self) -> random.Random:
        if self._rng is None:
            # Two recorders of one component are started at different times, or are given generators.
            self._rng = random.Random(f"{self._component} {self._clock.time()!r}")
        return self._rng


def reference(obj: Object) -> Object:
    """The ObjectReference of an object."""
    metadata = obj["metadata"]
    found: Object = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": metadata["name"]}
    for field_ in ("namespace", "uid", "resourceVersion"):
        if metadata.get(field_):
            found[field_] = metadata[field_]
    return found


def _name(regarding: Object, stamp: int) -> str:
    """The name of an Event object."""
    return f"{regarding['name']}.{stamp:016x}"
