"""Plays a run in virtual time; errors that are logged and tasks that never rest are violations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from pykueue.clock import VirtualLoop

from .trace import Trace

#: How often the time may be read before it has to move on.
SPIN = 300_000


class Playable(Protocol):
    """A run that notes in its trace what happens and what is violated."""

    trace: Trace

    async def play(self) -> None:
        """The run from its start to its end."""


R = TypeVar("R", bound=Playable)


class _Loop(VirtualLoop):
    """Virtual time that reports when it stands still because a task never stops working."""

    looked = 0

    def __init__(self) -> None:
        super().__init__()
        self.on_spin: Callable[[], None] = lambda: None

    def time(self) -> float:
        self.looked += 1
        if self.looked > SPIN:
            self.looked = 0
            self.on_spin()
        return super().time()

    def advance(self, seconds: float) -> None:
        self.looked = 0
        super().advance(seconds)


class _LoggedErrors(logging.Handler):
    """Makes a violation of everything logged as an error: injected faults must not cause any."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(logging.ERROR)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._trace.violate(f"logged by {record.name}: {record.getMessage()} {error!r}")


def play_to_end(make: Callable[[], R]) -> tuple[R, float]:
    """The run that `make` returns, after it has ended, and the virtual seconds that it lasted."""

    async def main() -> R:
        run = make()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        loop.on_spin = lambda: run.trace.violate("a task works without end while time stands still")
        handler = _LoggedErrors(run.trace)
        logger = logging.getLogger("pykueue")
        logger.addHandler(handler)
        propagate, logger.propagate = logger.propagate, False
        try:
            await run.play()
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagate
        return run

    with asyncio.Runner(loop_factory=_Loop) as runner:
        run = runner.run(main())
        return run, runner.get_loop().time()
