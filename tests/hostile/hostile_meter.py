"""What a request costs the server's loop: CPU time of every callback, and what is ordinary for its size."""

from __future__ import annotations

import asyncio
import gc
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

#: A request may cost this many times what an ordinary create of its size costs.
TIMES_ORDINARY = 20
#: Seconds of CPU that one callback of the loop may take where an ordinary create takes so many seconds; where
#: it takes more, as on a slow machine or one that others keep busy, in proportion.
LONGEST_PIECE, ORDINARY_CREATE = 0.1, 0.0002


class Cost(NamedTuple):
    """CPU seconds: of all callbacks of the loop together, and of the longest of them."""

    total: float
    longest: float

    def least(self, other: Cost) -> Cost:
        """What is certain to be no noise of two measurements of the same work."""
        return Cost(min(self.total, other.total), min(self.longest, other.longest))


class Meter:
    """Measures callbacks of the running loop, between `start` and `stop` only."""

    def __init__(self) -> None:
        self._measuring = self._own = False
        self._total = self._longest = 0.0

    def start(self) -> None:
        self._total = self._longest = 0.0
        self._measuring = True

    def stop(self) -> Cost:
        self._measuring = False
        return Cost(self._total, self._longest)

    def leave_out(self) -> None:
        """The callback that runs now is the test's, not the server's."""
        self._own = True

    def add(self, seconds: float) -> None:
        """A callback has run."""
        if self._own:
            self._own = False
        elif self._measuring:
            self._total += seconds
            self._longest = max(self._longest, seconds)


@contextmanager
def metered_loop() -> Iterator[Meter]:
    """A meter of every callback of asyncio's loops in this block.

    Pauses for garbage collection are kept out: they depend on what else the process has allocated.
    """
    meter = Meter()
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> Any:
        before = time.thread_time()
        try:
            return run(handle)
        finally:
            meter.add(time.thread_time() - before)

    collecting = gc.isenabled()
    gc.disable()
    asyncio.Handle._run = measured  # type: ignore[method-assign]
    try:
        yield meter
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        if collecting:
            gc.enable()


class Ordinary:
    """What an ordinary create costs, by its size in bytes: measured at some sizes, straight lines between."""

    def __init__(self, measured: dict[int, float]) -> None:
        self._sizes = sorted(measured)
        self._costs = [measured[size] for size in self._sizes]

    def cost(self, size: int) -> float:
        """CPU seconds."""
        at = bisect_left(self._sizes, size)
        if at == 0:
            return self._costs[0]
        if at == len(self._sizes):
            return self._costs[-1] * size / self._sizes[-1]
        low, high = self._sizes[at - 1 : at + 1]
        share = (size - low) / (high - low)
        return self._costs[at - 1] * (1 - share) + self._costs[at] * share

    def longest(self) -> float:
        """CPU seconds for one callback."""
        return LONGEST_PIECE * max(1.0, self._costs[0] / ORDINARY_CREATE)

    def allowed(self, size: int, requests: int, shown: int) -> float:
        """CPU seconds for requests of a size together, whose answers show so many objects."""
        one = self._costs[0]
        return TIMES_ORDINARY * max(self.cost(size), one * requests) + one * shown
