"""When scheduling cycles begin in virtual time.

They begin at once where something can be decided, unless a cycle takes time: then what happens meanwhile is
decided on together. A recording knows when they began: a scheduler that was busy, or had to wait for a
processor, began later than it could have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

#: Seconds that are waited for a recorded cycle: where other things are decided than were recorded, cycles are
#: needed at times without one.
WAIT_MAX: Final = 1.0


class Pace:
    """The times at which cycles begin, in seconds from the start."""

    def __init__(self, seconds: float, recorded: Sequence[float] = ()) -> None:
        """`seconds` is how long a cycle takes; it does not count where it is `recorded` when they began."""
        self._seconds = seconds
        self._recorded = recorded
        #: Number of recorded cycles that are over.
        self._over = 0
        self._next = 0.0

    def next(self, now: float) -> float:
        """When a cycle can begin that is wanted now."""
        if not self._recorded:
            return max(now, self._next)
        self._over = bisect_left(self._recorded, now, lo=self._over)
        if self._over == len(self._recorded):
            return now
        found = self._recorded[self._over]
        return found if found <= now + WAIT_MAX else now

    def begin(self, now: float) -> None:
        """A cycle begins now."""
        self._next = now + self._seconds
        if self._over < len(self._recorded) and self._recorded[self._over] == now:
            self._over += 1

    def busy_until(self, end: float) -> None:
        """The cycle that has begun goes on until then."""
        self._next = max(self._next, end)
