"""One cluster as the manager is connected to it: client, informers, and how it is written to."""

from __future__ import annotations

from typing import Any

from pykueue.api.resources import Resource
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer, InformerFactory
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.transport import Transport

from .writes import Writer


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
