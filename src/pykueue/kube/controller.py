"""Level-triggered control loops: a key says what to look at, never what happened to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from pykueue.clock import Clock
from pykueue.kube.errors import ApiError
from pykueue.kube.tracing import reconciling
from pykueue.kube.workqueue import WorkQueue

K = TypeVar("K", bound=Hashable)

#: Keys that a worker takes in a row, should none of them have to wait for anything: other tasks come next.
TURN = 4

log = logging.getLogger(__name__)


class Controller(Generic[K]):
    """Runs `reconcile(key)` for every key of its queue, with `workers` of them at a time.

    `reconcile` returns the seconds after which it wants to look again, or None. When it raises, the key is
    tried again with growing delay; nothing it raises stops the controller. `wait_for` is awaited before the
    first key is taken, usually the `synced` of the informers it reads.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        clock: Clock | None = None,
        queue: WorkQueue[K] | None = None,
        workers: int = 1,
        wait_for: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        self.name = name
        self.queue: WorkQueue[K] = queue if queue is not None else WorkQueue(clock or Clock())
        self._reconcile = reconcile
        self._workers = workers
        self._wait_for = tuple(wait_for)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            for ready in self._wait_for:
                await ready()
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            self.queue.close()

    async def _work(self) -> None:
        while True:
            for _ in range(TURN):
                key = await self.queue.get()
                try:
                    await self._once(key)
                finally:
                    self.queue.done(key)
            await asyncio.sleep(0)

    async def _once(self, key: K) -> None:
        reconciling(self.name, key)
        try:
            again = await self._reconcile(key)
        except (ApiError, ConnectionError, TimeoutError) as error:
            log.info("%s: %s: %s; trying again", self.name, key, error)
            self.queue.add_rate_limited(key)
        except Exception:
            log.exception("%s: %s: unexpected error; trying again", self.name, key)
            self.queue.add_rate_limited(key)
        else:
            self.queue.forget(key)
            if again is not None:
                self.queue.add_after(key, again)
