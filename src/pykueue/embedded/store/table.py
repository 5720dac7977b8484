"""A table of a store: records, their recent history, their subscribers."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator

from pykueue.api.objects import Key
from pykueue.embedded.store.records import Batch, Event, Record

#: Events each table remembers for watchers that resume.
HISTORY = 10_240

log = logging.getLogger(__name__)

Subscriber = Callable[[Batch], None]
#: Called with the record after a settled write (None once removed) and the one before it (None when new).
Listener = Callable[[Record | None, Record | None], None]


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
