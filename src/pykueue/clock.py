"""Time, and the only place that reads it, with `system_time`.

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

from pykueue import system_time

T = TypeVar("T")

#: Where virtual time starts unless a test or a scenario says otherwise.
VIRTUAL_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


#: Seconds within which a jump of the wall clock is noticed.
JUMP_CHECK = 10.0
#: Seconds by which the wall clock may drift from the monotonic clock before that counts as a jump.
DRIFT = 1.0


class Clock:
    """Wall-clock time, and the monotonic time of the running event loop.

    With `epoch` (seconds since 1970 at loop time 0) the wall clock follows the loop exactly, which is what
    virtual time needs. Without it the system clock is read, which administrators and NTP set forward and
    back, and which moves on while a suspended machine's monotonic clock stands still.

    Durations are measured with `monotonic` and waited for with `sleep` and `call_later`. Times that objects
    store are wall-clock times: to wait for one, use `recheck_later` or `sleep_until`.
    """

    def __init__(self, epoch: float | None = None) -> None:
        self._epoch = epoch
        self._can_jump = epoch is None
        self._rechecks: set[Recheck] = set()
        #: The next check for a jump; it runs while there are rechecks.
        self._check: asyncio.TimerHandle | None = None
        self._jumps: Jumps | None = None

    def time(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        if self._epoch is None:
            return system_time.seconds()
        return self._epoch + asyncio.get_running_loop().time()

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; only differences mean something."""
        if self._epoch is None:
            return time.monotonic()
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        """The wall-clock time as an aware UTC datetime."""
        return datetime.fromtimestamp(self.time(), UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait; a negative or zero time still yields to other tasks once."""
        await asyncio.sleep(max(0.0, seconds))

    async def sleep_until(self, when: float) -> None:
        """Wait until the wall clock shows `when` (seconds since 1970), also when it is set meanwhile."""
        while (left := when - self.time()) > 0:
            over = asyncio.Event()
            recheck = self.recheck_later(left, over.set)
            try:
                await over.wait()
            finally:
                recheck.cancel()

    def call_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Call back after `seconds`, unless the returned handle is cancelled first."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds), callback, *args)

    def recheck_later(self, seconds: float, callback: Callable[..., object], *args: Any) -> Recheck:
        """Call back once: after `seconds`, or within JUMP_CHECK seconds of a jump of the wall clock.

        For callers that computed `seconds` from the wall clock and compute it again when called.
        """
        recheck = Recheck(self, seconds, callback, args)
        if self._can_jump:
            self._rechecks.add(recheck)
            if self._check is None:
                self._jumps = Jumps(self)
                self._check = self.call_later(JUMP_CHECK, self._check_jump)
        return recheck

    def _check_jump(self) -> None:
        assert self._jumps is not None
        self._check = self.call_later(JUMP_CHECK, self._check_jump)
        if self._jumps.seconds():
            for recheck in sorted(self._rechecks, key=Recheck.when):
                recheck.call()

    def _forget(self, recheck: Recheck) -> None:
        self._rechecks.discard(recheck)
        if not self._rechecks and self._check is not None:
            self._check.cancel()
            self._check = None


class Jumps:
    """Measures how far a wall clock jumps, by its distance from the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.time() - clock.monotonic()

    def seconds(self) -> float:
        """Seconds by which the wall clock has jumped since the last call; negative when it was set back."""
        offset = self._clock.time() - self._clock.monotonic()
        seconds = offset - self._offset
        if abs(seconds) <= DRIFT:
            return 0.0
        self._offset = offset
        return seconds


class Recheck:
    """The handle of `Clock.recheck_later`."""

    def __init__(
        self, clock: Clock, seconds: float, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._clock = clock
        self._callback = callback
        self._args = args
        # uvloop's handles have no time for delays of less than a millisecond.
        self._when = asyncio.get_running_loop().time() + seconds
        self._timer = clock.call_later(seconds, self.call)

    def when(self) -> float:
        """The loop time at which the callback is due when the wall clock does not jump."""
        return self._when

    def cancel(self) -> None:
        """Never call back."""
        self._timer.cancel()
        self._clock._forget(self)

    def call(self) -> None:
        """Call back now instead of later; nothing once it was called or cancelled."""
        if self._timer.cancelled():
            return
        self.cancel()
        self._callback(*self._args)


class JumpingClock(Clock):
    """A wall clock of virtual time that jumps by what is added to `offset`; its monotonic clock does not."""

    offset = 0.0

    def __init__(self, epoch: float | None = None) -> None:
        super().__init__(epoch)
        self._can_jump = True

    def time(self) -> float:
        """Seconds since 1970 on the wall clock that jumps."""
        return super().time() + self.offset


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
        """Virtual seconds since the loop was created."""
        return self._virtual_time

    def advance(self, seconds: float) -> None:
        """Move time forward; called by the selector when nothing is ready."""
        self._virtual_time += seconds


class _LoopClock(Clock):
    """The clock of one virtual loop, which is not looked up each time: clocks are read for every request."""

    def __init__(self, loop: VirtualLoop, epoch: float) -> None:
        super().__init__(epoch)
        self._start = epoch
        self._loop = loop

    def time(self) -> float:
        return self._start + self._loop._virtual_time

    def monotonic(self) -> float:
        return self._loop._virtual_time


def run_virtual(main: Callable[[Clock], Coroutine[Any, Any, T]], start: datetime = VIRTUAL_EPOCH) -> T:
    """Run `main(clock)` to its end in virtual time that begins at `start`.

    Raises StalledError when nothing can ever happen again before `main` has ended.
    """
    loop = VirtualLoop()
    clock = _LoopClock(loop, start.timestamp())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(clock))
