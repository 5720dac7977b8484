"""Time, and the only place that reads it.

Everything that waits or takes a time stamp does it through the running event loop or through a `Clock`. On a
real loop that is real time. On a `VirtualLoop` time stands still while code runs and jumps to the next timer
when nothing is left to do, so an hour of cluster life takes as long as its computation.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")

#: Where virtual time starts unless a test or a scenario says otherwise.
VIRTUAL_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Wall-clock time in the time of the running event loop.

    With `epoch` (seconds since 1970 at loop time 0) the wall clock follows the loop exactly, which is what
    virtual time needs. Without it the system clock is read.
    """

    def __init__(self, epoch: float | None = None) -> None:
        self._epoch = epoch

    def time(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        if self._epoch is None:
            return time.time()
        return self._epoch + asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """The same instant as an aware UTC datetime."""
        return datetime.fromtimestamp(self.time(), UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait; a negative or zero time still yields to other tasks once."""
        await asyncio.sleep(max(0.0, seconds))

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Call back after `seconds`, unless the returned handle is cancelled first."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds), callback, *args)


class StalledError(RuntimeError):
    """Virtual time has nothing to jump to: every task waits for something that can never happen."""


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that, instead of waiting for a timer, moves the loop's time to it."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise StalledError("every task is waiting and no timer is set: virtual time cannot move on")
        if timeout > 0:
            self.loop.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer when idle.

    It serves code that stays inside the process: sockets, threads and subprocesses would be outrun by time.
    """

    def __init__(self) -> None:
        self._virtual_time = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual_time

    def advance(self, seconds: float) -> None:
        """Move time forward; called by the selector when nothing is ready."""
        self._virtual_time += seconds


def run_virtual(main: Callable[[Clock], Coroutine[Any, Any, T]], start: datetime = VIRTUAL_EPOCH) -> T:
    """Run `main(clock)` to its end in virtual time that begins at `start`.

    Raises StalledError when nothing can ever happen again before `main` has ended.
    """
    clock = Clock(epoch=start.timestamp())
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(clock))
