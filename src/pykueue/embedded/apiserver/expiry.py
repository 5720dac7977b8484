"""Events are kept for an hour after their last change, then forgotten."""

from __future__ import annotations

import asyncio
from collections import deque

from pykueue.embedded.apiserver.core import Core
from pykueue.embedded.apiserver.registry import Endpoint
from pykueue.embedded.kinds.core import EVENT_TTL
from pykueue.embedded.store.records import Key, Record

_TABLE = "/events"


class EventExpiry:
    """Removes events when their time is up. One timer, for the event that is next."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: When, which event, and at which revision it was last changed: oldest change first.
        self._due: deque[tuple[float, Key, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        core.on_stored(_TABLE, self._on_stored)

    def load(self) -> None:
        """Give stored events their time from now on."""
        for record in sorted(self._core.store.table(_TABLE), key=lambda one: one.revision):
            self._add(record)

    def close(self) -> None:
        """Remove nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_stored(self, _: Endpoint, new: Record | None, old: Record | None) -> None:
        if new is not None:
            self._add(new)

    def _add(self, record: Record) -> None:
        self._due.append((self._core.clock.time() + EVENT_TTL, record.key, record.revision))
        if self._timer is None:
            self._timer = self._core.clock.call_later(EVENT_TTL, self._expire)

    def _expire(self) -> None:
        core, due = self._core, self._due
        self._timer = None
        table, now = core.store.table(_TABLE), core.clock.time()
        while due and due[0][0] <= now:
            _, key, revision = due.popleft()
            record = table.get(key)
            if record is not None and record.revision == revision:
                core.store.remove(table, key)
        if due:
            self._timer = core.clock.call_later(due[0][0] - now, self._expire)
