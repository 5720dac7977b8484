"""One cluster as the manager is connected to it: client, informers, and how it is written to."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from pykueue.api.resources import Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer, InformerFactory
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.transport import Transport

from .writes import Writer


class Order(IntEnum):
    """When a handler of a watch cache is called, before or after the others of the same cache."""

    #: Metrics and logs: a change is counted before what follows from it.
    OBSERVE = -2
    #: The scheduler: what controllers then read of the engine takes the change into account.
    DECIDE = -1
    #: Controllers, which put keys into their queues: any order among them will do.
    RECONCILE = 0


class Connection:
    """Everything that belongs to one API server; a manager of several clusters has several."""

    def __init__(self, transport: Transport, clock: Clock, limiter: TokenBucket | None = None) -> None:
        self.client = Client(transport, limiter, clock=clock)
        self.writer = Writer(self.client)
        self._factory = InformerFactory(self.client, clock=clock)
        self._informers: list[Informer] = []

    def informer(self, resource: Resource, **selection: Any) -> Informer:
        """The shared cache of a resource; selections as `InformerFactory.informer` takes them."""
        found = self._factory.informer(resource, **selection)
        if found not in self._informers:
            self._informers.append(found)
        return found

    @property
    def resources(self) -> frozenset[Resource]:
        """What it has watch caches of."""
        return frozenset(informer.resource for informer in self._informers)

    @property
    def unserved(self) -> frozenset[Resource]:
        """Those of them that the cluster does not serve (yet), at least not in the version asked for."""
        return frozenset(informer.resource for informer in self._informers if not informer.is_served)

    async def run(self) -> None:
        """Keep the caches up to date until cancelled."""
        await self._factory.run()

    async def synced(self) -> None:
        """Wait until every cache has been filled once."""
        await self._factory.synced()

    @property
    def has_synced(self) -> bool:
        """Whether every cache has been filled once."""
        return all(informer.has_synced for informer in self._informers)
