"""Events: what happened to an object, for people to read with `kubectl describe` and `kubectl get events`.

No caller waits for their writes, which may fail: `event` only notes what happened, `run` writes
in the background, one request at a time. Floods are tamed as clients of Kubernetes do it
(docs/reference/cluster-workloads.md, 4.7): the same event again raises a count; from the tenth similar one
(same
reason, other text) within ten minutes they become one "(combined from similar events)"; and each object has a
burst of 25 writes, then one per 5 minutes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
#: Objects and events remembered, and writes that may wait; beyond that the oldest are forgotten or dropped.
REMEMBERED = 4096
WAITING_LIMIT = 1000
#: Largest note an API server takes, in characters.
NOTE_LIMIT = 1024

log = logging.getLogger(__name__)


class _Spam:
    """What is left of an object's write allowance."""

    __slots__ = ("at", "tokens")

    def __init__(self, now: float) -> None:
        self.tokens = float(SPAM_BURST)
        self.at = now

    def allow(self, now: float) -> bool:
        self.tokens = min(float(SPAM_BURST), self.tokens + (now - self.at) / SPAM_REFILL)
        self.at = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


@dataclass(slots=True)
class _Similar:
    """The different texts seen for one reason on one object."""

    at: float
    notes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Written:
    """The Event object that stands for one (object, type, reason, text)."""

    name: str
    count: int
    first: float


class _Key(NamedTuple):
    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    #: The text, or "" for the combined event.
    note: str


class _Pending(NamedTuple):
    key: _Key
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
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._written: OrderedDict[_Key, _Written] = OrderedDict()
        self._spam: OrderedDict[tuple[str, ...], _Spam] = OrderedDict()
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
        regarding = reference(obj)
        owner = (
            regarding["kind"],
            regarding.get("namespace", ""),
            regarding["name"],
            regarding.get("uid", ""),
        )
        note = note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 3] + "..."
        text = note
        if self._is_flood((*owner, type, reason), note, now):
            note, text = (COMBINED_PREFIX + note)[:NOTE_LIMIT], ""
        spam = _remember(self._spam, owner, lambda: _Spam(now))
        if not spam.allow(now):
            self.dropped += 1
            return
        self._waiting.append(_Pending(_Key(*owner, type, reason, text), regarding, note, self._clock.time()))
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            while self._waiting:
                await self._write_or_drop(self._waiting.popleft())
            self._wake.clear()
            await self._wake.wait()

    def _is_flood(self, reason: tuple[str, ...], note: str, now: float) -> bool:
        similar = _remember(self._similar, reason, lambda: _Similar(now))
        if now - similar.at > SIMILAR_WINDOW:
            similar.notes.clear()
        similar.at = now
        if len(similar.notes) < SIMILAR_LIMIT:
            similar.notes.add(note)
        return len(similar.notes) >= SIMILAR_LIMIT

    async def _write_or_drop(self, pending: _Pending) -> None:
        try:
            await self._write(pending)
        except (ApiError, ConnectionError, TimeoutError) as error:
            self.dropped += 1
            log.debug("event %s of %s not written: %s", pending.key.reason, pending.key.name, error)

    async def _write(self, pending: _Pending) -> None:
        namespace = pending.key.namespace or "default"
        written = self._written.get(pending.key)
        if written is not None:
            change: Object = {
                "count": written.count + 1,
                "lastTimestamp": format_time(pending.at),
                "message": pending.note,
            }
            try:
                await self._client.patch(EVENTS, written.name, namespace, change)
            except ApiError as error:
                if not error.not_found:
                    raise
            else:
                written.count += 1
                self._written.move_to_end(pending.key)
                return
        name = f"{pending.key.name}.{self._stamp(pending.at):016x}"
        await self._client.create(EVENTS, self._new(pending, namespace, name), given=True)
        self._written[pending.key] = _Written(name, 1, pending.at)
        self._written.move_to_end(pending.key)
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)

    def _new(self, pending: _Pending, namespace: str, name: str) -> Object:
        stamp = format_time(pending.at)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": pending.regarding,
            "reason": pending.key.reason,
            "message": pending.note,
            "type": pending.key.type,
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


def _remember(store: OrderedDict[Any, Any], key: Any, make: Any) -> Any:
    found = store.get(key)
    if found is None:
        found = store[key] = make()
        if len(store) > REMEMBERED:
            store.popitem(last=False)
    else:
        store.move_to_end(key)
    return found
