"""Writing events to watchers: at once when it is quiet, several together when they come quickly.

To encrypt and send a piece costs several times what an event in a larger piece costs. So events that come
after a pause leave at once, and those that follow soon leave together, in rounds: between two rounds is a
pause of two milliseconds, or as long as the last round took, so that half of the time is left for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

#: Seconds between two rounds, at least and at most.
_REST, _LONGEST_REST = 0.002, 0.02
#: Bytes that a watcher may fall behind before its connection is closed.
BACKLOG = 16 * 1024 * 1024


class Output(Protocol):
    """Where a watcher is written to: a transport, or something like it."""

    def write(self, data: bytes) -> None:
        """Write bytes, now or when the client takes them; nothing once it is gone."""

    def get_write_buffer_size(self) -> int:
        """Bytes that wait until the client takes them."""


class Rounds:
    """When the watchers of a server are written to."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: Those something waits for.
        self._due: list[Delivery] = []
        self.resting = False
        self._busy = False
        self._began = 0.0

    def begin(self) -> None:
        """Something is written now: what comes after this step of the loop waits for the next round."""
        if not self._busy:
            self._busy = True
            self._began = self._loop.time()
            self._loop.call_soon(self._rest)

    def wait(self, delivery: Delivery) -> None:
        """Write to this one in the next round."""
        self._due.append(delivery)

    def _rest(self) -> None:
        self._busy = False
        self.resting = True
        took = self._loop.time() - self._began
        self._loop.call_later(min(max(took, _REST), _LONGEST_REST), self._round)

    def _round(self) -> None:
        if not self._due:
            self.resting = False
            return
        self.begin()
        due, self._due = self._due, []
        for delivery in due:
            delivery.flush()


class Delivery:
    """What one watcher is sent. `behind` is called when it takes too little of it."""

    def __init__(self, output: Output, rounds: Rounds, behind: Callable[[], None]) -> None:
        self._output = output
        self._rounds = rounds
        self._behind = behind
        self._waiting: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Have bytes written after those before them, now or soon."""
        if not self._rounds.resting:
            self._rounds.begin()
            self._write(data)
            return
        if not self._waiting:
            self._rounds.wait(self)
        self._waiting.append(data)

    def flush(self) -> None:
        """Write what waits: before anything is written otherwise."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def close(self) -> None:
        """Write nothing more."""
        self._waiting.clear()

    def _write(self, data: bytes) -> None:
        self._output.write(data)
        if self._output.get_write_buffer_size() > BACKLOG:
            self._behind()
