"""The store itself: tables of records under one revision counter, their recent history, their subscribers.

A write changes the table at once, so that the next writer sees it; it is *settled* when it is as durable as
the store makes it, and only then seen by readers, passed to listeners, published to subscribers and answered
to the client. A write that cannot be made durable is lost: it is undone together with all later ones, so a
write may build on unsettled writes, and nothing else may. `MemoryStore` settles at once.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from pykueue.api.objects import Key, Object
from pykueue.embedded.store.records import Batch, Event, Record, Shelf

#: Events each table remembers for watchers that resume.
HISTORY = 10_240

log = logging.getLogger(__name__)

Subscriber = Callable[[Batch], None]
#: Called with the record after a settled write (None once removed) and the one before it (None when new).
Listener = Callable[[Record | None, Record | None], None]


class StoreError(Exception):
    """The store cannot be opened, or a write could not be made durable."""


class HistoryGoneError(Exception):
    """Events after the revision asked for are forgotten. `floor` is the oldest revision that would do."""

    def __init__(self, floor: int) -> None:
        super().__init__(f"history starts after revision {floor}")
        self.floor = floor


class Table:
    """All objects of one resource: as the next writer sees them, and as they are settled."""

    def __init__(self, name: str, floor: int, history: int = HISTORY) -> None:
        self.name = name
        self._namespaces: dict[str, dict[str, Record]] = {}
        self._order: dict[str, list[str]] = {}
        self._history: deque[Event] = deque(maxlen=history)
        self._subscribers: dict[int, Subscriber] = {}
        self._next_subscriber = 0
        self._listeners: list[Listener] = []
        #: The settled record (None: there is none) of every key with writes that are not settled yet.
        self._settled: dict[Key, Record | None] = {}
        #: Number of objects.
        self.count = 0
        self.begin(floor)

    def begin(self, floor: int) -> None:
        """Have no history up to a revision."""
        self._floor = floor
        #: The revision of the last settled change: lets caches see that they are stale.
        self.revision = floor

    def get(self, key: Key) -> Record | None:
        """The record as the next writer sees it: it may not be settled yet."""
        namespace = self._namespaces.get(key[0])
        return namespace.get(key[1]) if namespace is not None else None

    def get_settled(self, key: Key) -> Record | None:
        """The settled record."""
        return self._settled[key] if key in self._settled else self.get(key)

    def settled_records(self, namespace: str | None = None) -> list[Record]:
        """All settled records by namespace and name; of one namespace if given."""
        records, settled = self.records(namespace), self._settled
        if not settled:
            return records
        found = [one for one in records if one.key not in settled]
        for key, record in settled.items():
            if record is not None and namespace in (None, key[0]):
                found.append(record)
        return sorted(found, key=lambda one: one.key)

    def records(self, namespace: str | None = None) -> list[Record]:
        """All records by namespace and name, of one namespace if given, as the next writer sees them."""
        if namespace is not None:
            return self._sorted(namespace)
        if len(self._namespaces) == 1:
            return self._sorted(next(iter(self._namespaces)))
        return [record for name in sorted(self._namespaces) for record in self._sorted(name)]

    def _sorted(self, namespace: str) -> list[Record]:
        records = self._namespaces.get(namespace)
        if not records:
            return []
        order = self._order.get(namespace)
        if order is None:
            order = self._order[namespace] = sorted(records)
        return [records[name] for name in order]

    def __iter__(self) -> Iterator[Record]:
        """All records in no particular order."""
        for records in self._namespaces.values():
            yield from records.values()

    def set(self, record: Record) -> None:
        """Store without telling anyone: for loading and undoing."""
        namespace, name = record.key
        records = self._namespaces.setdefault(namespace, {})
        if name not in records:
            self.count += 1
            self._order.pop(namespace, None)
        records[name] = record

    def discard(self, key: Key) -> None:
        """Remove without telling anyone."""
        records = self._namespaces[key[0]]
        del records[key[1]]
        self._order.pop(key[0], None)
        if not records:
            del self._namespaces[key[0]]
        self.count -= 1

    def unsettle(self, event: Event) -> None:
        """Keep what is settled while a write is not."""
        self._settled.setdefault(event.record.key, event.previous)

    def settle(self, event: Event) -> None:
        """Show a write to readers and pass it to the listeners. Writes of a table settle in order."""
        key = event.record.key
        after = None if event.type == "DELETED" else event.record
        if self._settled and self.get(key) is not after:
            self._settled[key] = after
        else:
            self._settled.pop(key, None)
        self.revision = event.record.revision
        for listener in self._listeners:
            try:
                listener(after, event.previous)
            except Exception:  # the write is settled whatever follows from it
                log.exception("%s %s could not be followed", self.name, "/".join(key))

    def undo(self) -> None:
        """Take back all writes that are not settled."""
        for key, record in self._settled.items():
            if record is not None:
                self.set(record)
            elif self.get(key) is not None:
                self.discard(key)
        self._settled.clear()

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every settled write, in order, before anything later is settled."""
        self._listeners.append(listener)

    def publish(self, events: list[Event]) -> None:
        """Remember settled events and hand them to the subscribers."""
        history = self._history
        overflow = len(history) + len(events) - (history.maxlen or 0)
        if overflow > 0:
            dropped = (
                history[overflow - 1] if overflow <= len(history) else events[overflow - len(history) - 1]
            )
            self._floor = dropped.record.revision
        history.extend(events)
        if self._subscribers:
            batch = Batch(events)
            for subscriber in list(self._subscribers.values()):
                subscriber(batch)

    def forget(self, revision: int) -> None:
        """Forget events up to a revision, and with them the states they hold."""
        history = self._history
        while history and history[0].record.revision <= revision:
            self._floor = history.popleft().record.revision

    def since(self, revision: int) -> list[Event]:
        """Published events after a revision. Raises HistoryGoneError when some are forgotten."""
        if revision < self._floor:
            raise HistoryGoneError(self._floor)
        history = self._history
        if not history or history[-1].record.revision <= revision:
            return []
        events = list(history)
        return events[bisect_right(events, revision, key=lambda event: event.record.revision) :]

    @property
    def watchers(self) -> int:
        """The number of open subscriptions to changes."""
        return len(self._subscribers)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Be called with every published batch, in order; the result ends it."""
        number = self._next_subscriber
        self._next_subscriber += 1
        self._subscribers[number] = subscriber

        def unsubscribe() -> None:
            self._subscribers.pop(number, None)

        return unsubscribe


class MemoryStore:
    """Everything in memory, gone with the process."""

    def __init__(self, history: int = HISTORY) -> None:
        self._tables: dict[str, Table] = {}
        self._history_size = history
        self._pending: list[tuple[Table, Event]] = []
        self._shelf: Shelf | None = None
        self._on_lost: list[Callable[[], None]] = []
        self._on_published: list[Callable[[], None]] = []
        self.begin(1)

    def begin(self, revision: int) -> None:
        """Start from a revision, with no history before it."""
        #: The last revision given out. Never goes back.
        self.revision = revision
        #: The last revision that is settled: what readers see.
        self.settled_revision = revision
        #: The last revision that subscribers have.
        self.published_revision = revision
        for table in self._tables.values():
            table.begin(revision)

    async def open(self) -> None:
        """Make ready for use. Raises StoreError with what is wrong and what to do."""

    async def close(self) -> None:
        """Settle what is pending and release all resources."""
        self._publish()

    def table(self, name: str) -> Table:
        """The table of a resource, made when first asked for."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(name, self.published_revision, self._history_size)
        return table

    def tables(self) -> Iterable[Table]:
        """All tables, in the order of their creation."""
        return self._tables.values()

    def forget(self, revision: int) -> None:
        """Forget what happened up to a revision: watches cannot resume from before it."""
        for table in self._tables.values():
            table.forget(revision)

    def put(self, table: Table, key: Key, obj: Object) -> Record:
        """Store an object under the next revision.

        The object's own dict and its metadata must be the caller's: the resourceVersion is written into them.
        """
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        previous = table.get(key)
        record = self._record(table, key, obj)
        table.set(record)
        self._changed(table, Event("ADDED" if previous is None else "MODIFIED", record, previous))
        return record

    def remove(self, table: Table, key: Key) -> Record:
        """Remove an object; the result is its last state carrying the revision of the removal."""
        previous = table.get(key)
        assert previous is not None, key
        self.revision += 1
        last = previous.object
        last = {**last, "metadata": {**last["metadata"], "resourceVersion": str(self.revision)}}
        record = Record(key, self.revision, last)
        table.discard(key)
        self._changed(table, Event("DELETED", record, previous))
        return record

    def _record(self, table: Table, key: Key, obj: Object) -> Record:
        return Record(key, self.revision, obj)

    def _changed(self, table: Table, event: Event) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._publish)
        self._pending.append((table, event))
        self._settle(table, event)

    def _settle(self, table: Table, event: Event) -> None:
        self.settled_revision = event.record.revision
        table.settle(event)

    async def settled(self, revision: int) -> None:
        """Wait until a revision can no longer be lost. Raises StoreError when it was lost."""

    async def settle(self) -> None:
        """Wait until everything written so far is settled. Raises StoreError when some of it was lost."""

    def on_published(self, callback: Callable[[], None]) -> None:
        """Call back whenever changes are published."""
        self._on_published.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call back after writes were lost and undone."""
        self._on_lost.append(callback)

    async def prove(self) -> None:
        """Make sure that writes can be made durable now. Raises StoreError with what stands against it."""

    def _publish(self) -> None:
        pending, self._pending = self._pending, []
        self._deliver(pending)

    def _deliver(self, changes: list[tuple[Table, Event]]) -> None:
        if not changes:
            return
        self.published_revision = changes[-1][1].revision
        for published in self._on_published:
            published()
        if len(changes) == 1:
            table, event = changes[0]
            table.publish([event])
            return
        by_table: dict[Table, list[Event]] = {}
        for table, event in changes:
            by_table.setdefault(table, []).append(event)
        for table, events in by_table.items():
            table.publish(events)
