"""The store itself: tables of records under one revision counter.

A write changes the table at once, so that the next writer sees it; it is *settled* when it is as durable as
the store makes it, and only then seen by readers, passed to listeners, published to subscribers and answered
to the client. A write that cannot be made durable is lost: it is undone together with all later ones, so a
write may build on unsettled writes, and nothing else may. `MemoryStore` settles at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from pykueue.api.objects import Key, Object
from pykueue.embedded.store.records import Event, Record, Shelf
from pykueue.embedded.store.table import HISTORY, Table


class StoreError(Exception):
    """The store cannot be opened, or a write could not be made durable."""


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
