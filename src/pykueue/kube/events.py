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
from collections import deque
from collections.abc import Callable
from itertools import islice
from sys import intern
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import EVENTS
from pykueue.api.times import format_time
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.remembered_events import Subject

NORMAL = "Normal"
WARNING = "Warning"

COMBINED_PREFIX = "(combined from similar events): "
#: Objects with events that are remembered; beyond that some of those longest without one are forgotten.
REMEMBERED = 4096
FORGOTTEN_TOGETHER = 32
#: Writes that may wait; beyond that events are dropped.
WAITING_LIMIT = 1000
#: Largest note an API server takes, in characters.
NOTE_LIMIT = 1024

#: What an object is remembered by: its uid, or kind, namespace and name.
_SubjectKey = str | tuple[str, str, str]

log = logging.getLogger(__name__)


class _Pending(NamedTuple):
    #: The object, and what its event is known by there.
    key: _SubjectKey
    type: str
    reason: str
    text: int | None
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
        #: The objects with events, packed, the one with the newest last.
        self._subjects: dict[_SubjectKey, bytes] = {}
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
        text: int | None = hash(note)
        key = _subject_key(obj)
        subject = self._subject(key) or Subject(now)
        if subject.is_flood(type, reason, hash(note), now):
            note, text = (COMBINED_PREFIX + note)[:NOTE_LIMIT], None
        if subject.may_write(now):
            subject.note(type, reason, text, now)
            self._waiting.append(_Pending(key, type, reason, text, reference(obj), note, self._clock.time()))
            self._wake.set()
        else:
            self.dropped += 1
        self._remember(key, subject)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            while self._waiting:
                await self._write_or_drop(self._waiting.popleft())
            self._wake.clear()
            await self._wake.wait()

    def _subject(self, key: _SubjectKey) -> Subject | None:
        packed = self._subjects.get(key)
        return None if packed is None else Subject.of(packed)

    def _remember(self, key: _SubjectKey, subject: Subject) -> None:
        subjects = self._subjects
        if subjects.pop(key, None) is None and len(subjects) >= REMEMBERED:
            # Several at once: each look for the first passes by those that were taken out before it.
            for oldest in list(islice(subjects, FORGOTTEN_TOGETHER)):
                del subjects[oldest]
        subjects[key] = subject.packed()

    def _written(self, pending: _Pending, stamp: int, count: int) -> None:
        """Remember the Event object that stands for an event."""
        subject = self._subject(pending.key)
        seen = None if subject is None else subject.find(pending.type, pending.reason, pending.text)
        if subject is not None and seen is not None:
            seen.stamp, seen.count = stamp, count
            self._subjects[pending.key] = subject.packed()

    async def _write_or_drop(self, pending: _Pending) -> None:
        try:
            await self._write(pending)
        except (ApiError, ConnectionError, TimeoutError) as error:
            self.dropped += 1
            log.debug("event %s of %s not written: %s", pending.reason, pending.regarding["name"], error)

    async def _write(self, pending: _Pending) -> None:
        regarding = pending.regarding
        namespace = regarding.get("namespace") or "default"
        subject = self._subject(pending.key)
        seen = None if subject is None else subject.find(pending.type, pending.reason, pending.text)
        if seen is not None and seen.stamp:
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
                self._written(pending, seen.stamp, seen.count + 1)
                return
        stamp = self._stamp(pending.at)
        name = _name(regarding, stamp)
        await self._client.create(EVENTS, self._new(pending, namespace, name), given=True)
        self._written(pending, stamp, 1)

    def _new(self, pending: _Pending, namespace: str, name: str) -> Object:
        stamp = format_time(pending.at)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": pending.regarding,
            "reason": pending.reason,
            "message": pending.note,
            "type": pending.type,
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


def _subject_key(obj: Object) -> _SubjectKey:
    metadata = obj["metadata"]
    return metadata.get("uid") or (obj["kind"], metadata.get("namespace", ""), metadata["name"])


def reference(obj: Object) -> Object:
    """The ObjectReference of an object."""
    metadata = obj["metadata"]
    found: Object = {
        "apiVersion": intern(obj["apiVersion"]),
        "kind": intern(obj["kind"]),
        "name": metadata["name"],
    }
    for field_ in ("namespace", "uid", "resourceVersion"):
        if metadata.get(field_):
            found[field_] = metadata[field_]
    return found


def _name(regarding: Object, stamp: int) -> str:
    """The name of an Event object."""
    return f"{regarding['name']}.{stamp:016x}"
