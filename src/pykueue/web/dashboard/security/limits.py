"""Rate limits: token buckets by client, and one for all."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from pykueue.clock import Clock

#: Clients whose buckets are kept; those that were full longest are dropped.
CLIENTS_MAX: Final = 10_000


class RateLimit:
    """At most `rate` requests per second of a client, and bursts of `burst`; `overall` times that for all."""

    def __init__(self, clock: Clock, rate: float, burst: float, overall: float = 10.0) -> None:
        self._clock = clock
        self._rate, self._burst, self._overall = rate, burst, overall
        self._buckets: dict[Hashable, tuple[float, float]] = {}
        self._all: tuple[float, float] | None = None

    def take(self, client: Hashable) -> bool:
        """Whether one more request of a client is within the limits; counts it if so."""
        now = self._clock.monotonic()
        mine = self._filled(self._buckets.get(client), now, 1.0)
        everyone = self._filled(self._all, now, self._overall)
        if mine < 1.0 or everyone < 1.0:
            return False
        self._buckets.pop(client, None)
        if len(self._buckets) >= CLIENTS_MAX:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[client] = (now, mine - 1.0)
        self._all = (now, everyone - 1.0)
        return True

    def _filled(self, bucket: tuple[float, float] | None, now: float, factor: float) -> float:
        burst = self._burst * factor
        if bucket is None:
            return burst
        at, level = bucket
        return min(burst, level + (now - at) * self._rate * factor)
