"""What every part of the request path shares: store, registry, clock, random numbers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from pykueue.api.objects import Object
from pykueue.clock import Clock
from pykueue.embedded.objects.metadata import ObjectUids, time_text
from pykueue.embedded.store.memory import MemoryStore
from pykueue.embedded.store.table import Listener

from .call import User
from .endpoints import Registry

#: Seconds after writes were lost until the server's own ones are made again.
_REPAIR_DELAY = 1.0


class Core:
    """The server's shared parts."""

    def __init__(self, store: MemoryStore, registry: Registry, clock: Clock, rng: random.Random) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.rng = rng
        self.uids = ObjectUids(rng)
        self._repairs: list[Callable[[], None]] = []
        self._repair_timer: asyncio.TimerHandle | None = None
        store.on_lost(self._lost)

    def close(self) -> None:
        """Repair nothing any more."""
        if self._repair_timer is not None:
            self._repair_timer.cancel()
            self._repair_timer = None

    def now_text(self) -> str:
        """The current time in whole seconds, as objects carry it."""
        return time_text(int(self.clock.time()))

    def on_stored(self, table: str, listener: Listener) -> None:
        """Call `listener` with every settled write to a table."""
        self.store.table(table).listen(listener)

    def on_lost(self, repair: Callable[[], None]) -> None:
        """Call `repair` after writes were lost: it makes again what the server writes on its own account."""
        self._repairs.append(repair)

    def _lost(self) -> None:
        if self._repair_timer is None:
            self._repair_timer = self.clock.call_later(_REPAIR_DELAY, self._repair)

    def _repair(self) -> None:
        self._repair_timer = None
        for repair in self._repairs:
            repair()

    def find(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """An object in its stored form, or None, as the next writer sees it: for what ends in a write."""
        endpoint = self.registry.storage(group, plural)
        record = endpoint.table.get((namespace, name)) if endpoint is not None else None
        return record.object if record is not None else None

    def all(self, group: str, plural: str, namespace: str = "") -> Iterable[Object]:
        """Objects of a resource, of one namespace if given, as the next writer sees them."""
        endpoint = self.registry.storage(group, plural)
        if endpoint is None or not endpoint.table.count:
            return ()
        return (record.peek() for record in endpoint.table.records(namespace or None))

    def find_settled(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """A settled object in its stored form, or None: for what takes effect outside the store."""
        endpoint = self.registry.storage(group, plural)
        record = endpoint.table.get_settled((namespace, name)) if endpoint is not None else None
        return record.object if record is not None else None

    def all_settled(self, group: str, plural: str, namespace: str = "") -> Iterable[Object]:
        """Settled objects of a resource, of one namespace if given."""
        endpoint = self.registry.storage(group, plural)
        if endpoint is None:
            return ()
        return (record.peek() for record in endpoint.table.settled_records(namespace or None))


class HookContext:
    """What a kind's hooks may look at (`kinds.base.Context`)."""

    __slots__ = ("_core", "_now", "dry_run", "rng", "user")

    def __init__(self, core: Core, user: User, dry_run: bool) -> None:
        self._core = core
        self._now: float | None = None
        self.rng = core.rng
        self.user = user.name
        self.dry_run = dry_run

    @property
    def now(self) -> float:
        """The time, in seconds since 1970 (`kinds.base.Context`); the same for all of a request."""
        if self._now is None:
            self._now = self._core.clock.time()
        return self._now

    def lookup(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        """An object in its stored form, or None (`kinds.base.Context`)."""
        return self._core.find(group, plural, namespace, name)

    def objects(self, group: str, plural: str, namespace: str = "") -> Iterable[Object]:
        """All objects of a resource, of one namespace if given (`kinds.base.Context`)."""
        return self._core.all(group, plural, namespace)
