"""A queue of keys that need work.

A key is in it at most once, and never handed out while a worker still works on it: a key added meanwhile
comes back when that work is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pykueue.api.backoff import exponential_delay
from pykueue.clock import Clock, Recheck

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """First in, first out; `base` and `cap` (seconds) are the back-off of `add_rate_limited`."""

    def __init__(self, clock: Clock, *, base: float = 0.005, cap: float = 60.0) -> None:
        self._clock = clock
        self._base = base
        self._cap = cap
        self._queue: deque[K] = deque()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        #: When a key is due, in monotonic seconds, and the timer that adds it.
        self._timers: dict[K, tuple[float, asyncio.TimerHandle | Recheck]] = {}
        self._getters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, key: K) -> None:
        """Ask for work on `key` now."""
        self._cancel_timer(key)
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._append(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for work on `key` in `seconds`, or when the wall clock jumps; the earliest request counts."""
        if seconds <= 0:
            self.add(key)
        else:
            self._schedule(key, seconds, self._clock.recheck_later)

    def add_at(self, key: K, due: float) -> None:
        """Ask for work on `key` at a monotonic time, in seconds, or when the wall clock jumps.

        The earliest request counts.
        """
        known = self._timers.get(key)
        if key in self._dirty or (known is not None and known[0] <= due):
            return
        self.add_after(key, due - self._clock.monotonic())

    def add_rate_limited(self, key: K) -> None:
        """Ask for work on `key` after a delay that doubles with every call until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = exponential_delay(self._base, self._cap, failures)
        self._schedule(key, seconds, self._clock.call_later)

    def failures(self, key: K) -> int:
        """How often `add_rate_limited` was called since the last `forget`."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """The work succeeded: the next back-off starts from the beginning."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key; give it back with `done` when the work is over, however it ended."""
        while not self._queue:
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake()
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise
        key = self._queue.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The work on `key` is over."""
        self._working.discard(key)
        if key in self._dirty:
            self._append(key)

    def close(self) -> None:
        """Drop everything that waits; timers would otherwise outlive their owner."""
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._queue.clear()
        self._dirty.clear()

    def _append(self, key: K) -> None:
        self._queue.append(key)
        self._wake()

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _schedule(
        self, key: K, seconds: float, call_later: Callable[..., asyncio.TimerHandle | Recheck]
    ) -> None:
        """Add `key` in `seconds`, unless it is due earlier."""
        due = self._clock.monotonic() + seconds
        known = self._timers.get(key)
        if known is not None:
            if known[0] <= due:
                return
            known[1].cancel()
        self._timers[key] = due, call_later(seconds, self._due, key)

    def _due(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _cancel_timer(self, key: K) -> None:
        known = self._timers.pop(key, None)
        if known is not None:
            known[1].cancel()
