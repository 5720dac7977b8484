"""A way to the API server on which anything may go wrong, by chance but repeatably."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pykueue.clock import Clock
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request, Transport, WatchEvent


@dataclass
class Rates:
    """How often things go wrong: probabilities per request, per watch event, and seconds."""

    refused: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    watch_dropped: float = 0.0
    watch_expired: float = 0.0
    #: Longest time an event is late: caches are stale for that long.
    staleness: float = 0.0
    latency: float = 0.0


CALM = Rates()


class FaultyTransport:
    """Carries requests unless chance, or `crash_after`, has it otherwise.

    `wrote` is called after every write that reached the server. With `crash_after` writes left the transport
    hangs for ever right before or right after a write, and calls `crashed`.
    """

    def __init__(
        self,
        inner: Transport,
        clock: Clock,
        rng: random.Random,
        rates: Rates,
        wrote: Callable[[], None],
        crashed: Callable[[], None],
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self.rates = rates
        self._wrote = wrote
        self._crashed = crashed
        self.crash_after: int | None = None
        self.writes = 0
        self.calls = 0

    async def call(self, request: Request) -> Any:
        self.calls += 1
        rates, rng = self.rates, self._rng
        if rates.latency:
            await self._clock.sleep(rng.uniform(0, rates.latency))
        if rng.random() < rates.lost_before:
            raise rng.choice([ConnectionError("reset by peer"), TimeoutError("timed out")])
        if rng.random() < rates.refused:
            raise _refusal(rng, request)
        write = request.method != "GET"
        before = rng.random() < 0.5
        if write and before:
            await self._crash_point()
        answer = await self._inner.call(request)
        if write:
            self.writes += 1
            self._wrote()
            if not before:
                await self._crash_point()
        if rng.random() < rates.lost_after:
            raise rng.choice([ConnectionError("reset by peer"), TimeoutError("timed out")])
        return answer

    async def _crash_point(self) -> None:
        if self.crash_after is None:
            return
        if self.crash_after > 0:
            self.crash_after -= 1
            return
        self._crashed()
        await asyncio.get_running_loop().create_future()

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        rates, rng = self.rates, self._rng
        if rng.random() < rates.watch_expired:
            raise ApiError(410, "Expired", "too old resource version")
        async with aclosing(self._inner.watch(request)) as events:
            async for event in events:
                if rng.random() < rates.watch_dropped:
                    raise rng.choice([ConnectionError("reset by peer"), ApiError(410, "Expired", "too old")])
                if rates.staleness:
                    await self._clock.sleep(rng.uniform(0, rates.staleness))
                yield event

    async def close(self) -> None:
        await self._inner.close()


def _refusal(rng: random.Random, request: Request) -> ApiError:
    errors = [
        ApiError(500, "InternalError", "internal error"),
        ApiError(503, "ServiceUnavailable", "unavailable"),
        ApiError(429, "TooManyRequests", "too many requests", retry_after=1.0),
        ApiError(504, "Timeout", "the request timed out"),
    ]
    if request.method in ("PATCH", "PUT"):
        errors.append(ApiError(409, "Conflict", "the object has been modified"))
    return rng.choice(errors)
