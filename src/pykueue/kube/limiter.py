"""Client-side request limits, first come first served."""

from __future__ import annotations

import asyncio
from typing import Protocol

from pykueue.clock import Clock


class Limiter(Protocol):
    """Something a request waits for before it is sent."""

    async def acquire(self) -> None:
        """Wait until a request may be sent."""


class TokenBucket:
    """`burst` requests at once, `qps` requests per second in the long run, in the order they were asked for.

    A caller takes its token at once and then waits until the token is due, so callers never overtake each
    other.
    """

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps must be above 0 and burst at least 1, not {qps} and {burst}")
        self._clock = clock
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at: float | None = None

    async def acquire(self) -> None:
        """Wait for a token. A caller that is cancelled while it waits gives its token back."""
        self._fill()
        self._tokens -= 1.0
        if self._tokens >= 0.0:
            return
        try:
            await self._clock.sleep(-self._tokens / self._qps)
        except asyncio.CancelledError:
            self.give_back()
            raise

    def give_back(self) -> None:
        """Return a token that was not needed."""
        self._tokens = min(self._burst, self._tokens + 1.0)

    def _fill(self) -> None:
        now = self._clock.monotonic()
        if self._filled_at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
