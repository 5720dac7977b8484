"""The store itself: tables of records under one revision counter, their recent history, their subscribers.

A write changes the table at once, so that the next writer sees it; it is *settled* when it is as durable as
the store makes it, and only then published to subscribers and answered to the client. `MemoryStore` settles
at once. Readers that must not see what could still be lost wait with `settled(revision)` before they answer.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from pykueue.embedded.store.records import Batch, Event, Key, Object, Record, Shelf

#: Events each table remembers for watchers that resume.
HISTORY = 10_240

Subscriber = Callable[[Batch], None]


class StoreError(Exception):
    """The store cannot be opened, or a write could not be made durable."""


class HistoryGoneError(Exception):
    """Events after the revision asked for are forgotten. `floor` is the oldest revision that would do."""

    def __init__(self, floor: int) -> None:
        super().__init__(f"history starts after revision {floor}")
        self.floor = floor


class Table:
    """All objects of one resource."""

    def __init__(self, name: str, floor: int, history: int = HISTORY) -> None:
        self.name = name
        self._namespaces: dict[str, dict[str, Record]] = {}
        self._order: dict[str, list[str]] = {}
        self._history: deque[Event] = deque(maxlen=history)
        self._floor = floor
        self._subscribers: dict[int, Subscriber] = {}
        self._next_subscriber = 0
        #: Number of objects.
        self.count = 0
        #: The revision of the last change: lets caches see that they are stale.
        self.revision = floor

    def get(self, key: Key) -> Record | None:
        namespace = self._namespaces.get(key[0])
        return namespace.get(key[1]) if namespace is not None else None

    def records(self, namespace: str | None = None) -> list[Record]:
        """All records by namespace and name; of one namespace if given."""
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
        """How many are told of changes."""
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
        #: The last revision given out. Never goes back.
        self.revision = 1
        #: The last revision that is settled and published.
        self.settled_revision = 1

    async def open(self) -> None:
        """Make ready for use. Raises StoreError with what is wrong and what to do."""

    async def close(self) -> None:
        """Settle what is pending and let go of everything."""
        self._publish()

    def table(self, name: str) -> Table:
        """The table of a resource, made when first asked for."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(name, self.settled_revision, self._history_size)
        return table

    def tables(self) -> Iterable[Table]:
        return self._tables.values()

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
        table.revision = self.revision
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._publish)
        self._pending.append((table, event))

    async def settled(self, revision: int) -> None:
        """Wait until a revision can no longer be lost. Raises StoreError when it was lost."""

    async def prove(self) -> None:
        """Make sure that writes can be made durable now. Raises StoreError with what stands against it."""

    def _publish(self) -> None:
        pending, self._pending = self._pending, []
        self._deliver(pending)

    def _deliver(self, changes: list[tuple[Table, Event]]) -> None:
        if not changes:
            return
        self.settled_revision = changes[-1][1].record.revision
        if len(changes) == 1:
            table, event = changes[0]
            table.publish([event])
            return
        by_table: dict[Table, list[Event]] = {}
        for table, event in changes:
            by_table.setdefault(table, []).append(event)
        for table, events in by_table.items():
            table.publish(events)
