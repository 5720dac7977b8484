"""What is kept for a time: Events for an hour after their last change, the history of changes for minutes."""

from __future__ import annotations

import asyncio
from collections import deque

from pykueue.api.objects import Key
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.kinds.core import EVENT_TTL
from pykueue.embedded.store.records import Record

_TABLE = "/events"
#: Seconds for which watches can resume from a change, at least; at most twice as long.
HISTORY_AGE = 300.0


class EventExpiry:
    """Removes events when their time is up. One timer, for the event that is next."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: When (monotonic), which event, and at which revision it was last changed: oldest change first.
        self._due: deque[tuple[float, Key, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        core.on_stored(_TABLE, self._on_stored)
        core.on_lost(self._retry)

    def load(self) -> None:
        """Give stored events their time from now on."""
        for record in sorted(self._core.store.table(_TABLE), key=lambda one: one.revision):
            self._add(record)

    def close(self) -> None:
        """Remove nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_stored(self, new: Record | None, old: Record | None) -> None:
        if new is not None:
            self._add(new)

    def _retry(self) -> None:
        """Remove again what expired and is still there: its removal was lost."""
        waiting = {(key, revision) for _, key, revision in self._due}
        for record in self._core.store.table(_TABLE):
            if (record.key, record.revision) not in waiting:
                self._due.appendleft((0.0, record.key, record.revision))
        self._expire()

    def _add(self, record: Record) -> None:
        self._due.append((self._core.clock.monotonic() + EVENT_TTL, record.key, record.revision))
        if self._timer is None:
            self._timer = self._core.clock.call_later(EVENT_TTL, self._expire)

    def _expire(self) -> None:
        core, due = self._core, self._due
        self.close()
        table, now = core.store.table(_TABLE), core.clock.monotonic()
        while due and due[0][0] <= now:
            _, key, revision = due.popleft()
            record = table.get(key)
            if record is not None and record.revision == revision:
                core.store.remove(table, key)
        if due:
            self._timer = core.clock.call_later(due[0][0] - now, self._expire)


class HistoryExpiry:
    """Forgets changes that no watch is going to resume from. Its timer runs only while there are some."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: The last change when the timer was set: what may be forgotten when it is up.
        self._mark = 0
        self._timer: asyncio.TimerHandle | None = None
        core.store.on_published(self.changed)

    def changed(self) -> None:
        """Something was changed."""
        if self._timer is None:
            self._mark = self._core.store.published_revision
            self._timer = self._core.clock.call_later(HISTORY_AGE, self._forget)

    def close(self) -> None:
        """Forget nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget(self) -> None:
        self._timer = None
        store, mark = self._core.store, self._mark
        store.forget(mark)
        if store.published_revision > mark:
            self.changed()
