"""Requests that take time, where they would otherwise take none.

A server in the same process answers at once, and in virtual time at the very same instant. What depends on
requests taking a while, such as how the pods of several Jobs interleave, then comes out differently from a
real cluster.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from typing import Any

from pykueue.clock import Clock
from pykueue.kube.transport import Request, Transport, WatchEvent


class DelayedTransport:
    """Sends each request after a time between `least` and `most` seconds, chosen at random."""

    def __init__(
        self, transport: Transport, clock: Clock, rng: random.Random, least: float, most: float
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._least = least
        self._most = most

    async def call(self, request: Request) -> Any:
        await self._clock.sleep(self._rng.uniform(self._least, self._most))
        return await self._transport.call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self._transport.watch(request)

    async def close(self) -> None:
        await self._transport.close()
