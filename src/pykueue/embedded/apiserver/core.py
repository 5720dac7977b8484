"""What every part of the request path shares: store, registry, time, chance, admission."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from pykueue.clock import Clock
from pykueue.embedded.apiserver.admission import Admission
from pykueue.embedded.apiserver.call import User
from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.metadata import time_text
from pykueue.embedded.apiserver.registry import Endpoint, Registry
from pykueue.embedded.store.memory import MemoryStore
from pykueue.embedded.store.records import Record

#: Called after a write of a table was stored: endpoint of the stored version, the new record (None once
#: removed), the one before (None when new).
Stored = Callable[[Endpoint, Record | None, Record | None], None]


class Core:
    """The server's shared parts."""

    def __init__(self, store: MemoryStore, registry: Registry, clock: Clock, rng: random.Random) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.rng = rng
        self.admission = Admission(self)
        self._listeners: dict[str, list[Stored]] = {}

    def now_text(self) -> str:
        """The current time in whole seconds, as objects carry it."""
        return time_text(int(self.clock.time()))

    def on_stored(self, table: str, listener: Stored) -> None:
        """Call `listener` in the same step as every write to a table."""
        self._listeners.setdefault(table, []).append(listener)

    def stored(self, endpoint: Endpoint, new: Record | None, old: Record | None) -> None:
        """Tell the listeners of a table about a write."""
        for listener in self._listeners.get(endpoint.table.name, ()):
            listener(endpoint, new, old)

    def find(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """A stored object in its stored form, or None."""
        endpoint = self.registry.storage(group, plural)
        record = endpoint.table.get((namespace, name)) if endpoint is not None else None
        return record.object if record is not None else None

    def all(self, group: str, plural: str, namespace: str = "") -> Iterable[Object]:
        """Stored objects of a resource, of one namespace if given."""
        endpoint = self.registry.storage(group, plural)
        if endpoint is None:
            return ()
        return (record.peek() for record in endpoint.table.records(namespace or None))


class HookContext:
    """What a kind's hooks may look at (`kinds.base.Context`)."""

    __slots__ = ("_core", "dry_run", "now", "rng", "user")

    def __init__(self, core: Core, user: User, dry_run: bool) -> None:
        self._core = core
        self.now = core.clock.time()
        self.rng = core.rng
        self.user = user.name
        self.dry_run = dry_run

    def lookup(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        return self._core.find(group, plural, namespace, name)

    def objects(self, group: str, plural: str, namespace: str = "") -> Iterable[Object]:
        return self._core.all(group, plural, namespace)
