"""A cluster in virtual time that a test can crash and start again on what it stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client

#: Enough for what happens at once: creations, bindings, starts.
SOON = 5.0


class RestartableCluster:
    """Starts the cluster of `make_cluster`, stops it as a crash would, and starts it again."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.store = MemoryStore()
        self._running: asyncio.Task[None] | None = None

    def make_cluster(self) -> Cluster:
        """A cluster on `store` that has not been started."""
        raise NotImplementedError

    async def start(self) -> None:
        self.cluster = self.make_cluster()
        await self.cluster.start()
        self.client = Client(self.cluster.transport("tester"), clock=self.clock)
        self._running = asyncio.create_task(self.cluster.run())

    async def stop(self) -> None:
        """End it as a crash would, at any point of its work."""
        assert self._running is not None
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        await self.cluster.stop()

    async def restart(self) -> None:
        """Crash everything, and start it again on what was stored."""
        await self.stop()
        await self.start()

    async def wait(self, seconds: float = SOON) -> None:
        await self.clock.sleep(seconds)


C = TypeVar("C", bound=RestartableCluster)


def play_on(make: Callable[[Clock], C], story: Callable[[C], Awaitable[None]]) -> None:
    """Start a cluster in virtual time, run a story on it, and stop it."""

    async def main(clock: Clock) -> None:
        world = make(clock)
        await world.start()
        try:
            await story(world)
        finally:
            await world.stop()

    run_virtual(main)
