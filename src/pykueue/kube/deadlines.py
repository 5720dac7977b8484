"""Many deadlines with one timer."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Protocol


class Waiting(Protocol):
    """Something that is not waited for longer than until `deadline`, in seconds of the loop's time."""

    deadline: float

    def expire(self) -> None:
        """The deadline has passed; it may be put off."""


class Deadlines:
    """Calls `expire` of each of those added whose deadline passes; a deadline may be put off meanwhile.

    The timer is set when the first is added, and again only when it runs out: most of what is waited for
    comes long before its deadline, and then costs an entry of a set instead of a timer of the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[Waiting] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = inf

    def add(self, one: Waiting) -> None:
        """Watch the deadline of `one` until it expires or is removed."""
        self._waiting.add(one)
        if one.deadline < self._looks_at:
            self._look_at(one.deadline)

    def remove(self, one: Waiting) -> None:
        """It is not waited for any more."""
        self._waiting.discard(one)

    def close(self) -> None:
        """Watch none any more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._looks_at = None, inf

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = when
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer, self._looks_at = None, inf
        now = self._loop.time()
        for one in [each for each in self._waiting if each.deadline <= now]:
            self._waiting.discard(one)
            one.expire()
            if one.deadline > now:
                self._waiting.add(one)
        if self._waiting:
            first = min(each.deadline for each in self._waiting)
            if first < self._looks_at:
                self._look_at(first)
