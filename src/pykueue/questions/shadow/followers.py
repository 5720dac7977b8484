"""Two ways to follow a manager: by the changes of objects alone, and with its log beside them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Protocol

from pykueue.engine import Engine, Options
from pykueue.questions.shadow.changes import Change, ChangeQueue
from pykueue.questions.shadow.comparison import Comparison
from pykueue.questions.shadow.cycles import CycleComparison, OnDecision
from pykueue.questions.shadow.decisions import observed
from pykueue.questions.shadow.manager_log import ManagerLog

_CHUNK = 1 << 20


class Follower(Protocol):
    """Compares the decisions among changes."""

    @property
    def engine(self) -> Engine:
        """It has the state of the cluster."""

    @property
    def late(self) -> int:
        """Changes that arrived too late to be compared in order."""

    @property
    def cycles(self) -> int:
        """Cycles of the manager that its log shows."""

    def begin(self, changes: Iterable[Change], now: float) -> None:
        """The objects at the start, at `now` (seconds since 1970)."""

    def add(self, change: Change) -> None:
        """A watch delivered a change."""

    def work(self, before: float) -> Iterator[None]:
        """Compare what was delivered before a time, in seconds since 1970, in steps."""

    def waiting(self) -> bool:
        """Whether changes were delivered that are not compared yet."""


class ChangeFollower:
    """By the changes of objects alone."""

    def __init__(self, options: Options, window: float, on_decision: OnDecision) -> None:
        self._comparison = Comparison(Engine(options), window)
        self._queue = ChangeQueue()
        self._on_decision = on_decision
        self.cycles = 0

    @property
    def engine(self) -> Engine:
        """It has the state of the cluster."""
        return self._comparison.engine

    @property
    def late(self) -> int:
        """Changes that arrived after one with a higher version was compared."""
        return self._queue.late

    def begin(self, changes: Iterable[Change], now: float) -> None:
        """The objects at the start."""
        for change in changes:
            self._comparison.apply(change)

    def add(self, change: Change) -> None:
        """A watch delivered a change."""
        self._queue.add(change)

    def waiting(self) -> bool:
        """Whether changes were delivered that are not compared yet."""
        return bool(len(self._queue))

    def work(self, before: float) -> Iterator[None]:
        """Compare the changes that were delivered before a time, in the order of their versions."""
        for change in self._queue.settled(before):
            decision = observed(change)
            if decision is not None:
                difference = self._comparison.compare(decision, self._queue.following())
                self._on_decision(decision, difference)
            self._comparison.apply(change)
            yield


class LogFollower:
    """With the log of the manager, which shows the snapshots and heads of its cycles."""

    def __init__(self, options: Options, log: LogFile, on_decision: OnDecision) -> None:
        self._comparison = CycleComparison(Engine(replace(options, flush_delay=inf)), on_decision)
        self._file = log
        self._log = ManagerLog()
        self._began = 0.0

    @property
    def engine(self) -> Engine:
        """It has the state of the cluster."""
        return self._comparison.engine

    @property
    def late(self) -> int:
        """Changes that were delivered after what the manager had made of them was compared."""
        return self._comparison.late

    @property
    def cycles(self) -> int:
        """Cycles of the manager that were compared."""
        return self._comparison.cycles

    def begin(self, changes: Iterable[Change], now: float) -> None:
        """The objects at the start; what the log says of the time before has no part."""
        self._began = now
        self._comparison.begin(changes, now)

    def add(self, change: Change) -> None:
        """A watch delivered a change."""
        self._comparison.add(change)

    def waiting(self) -> bool:
        """Whether changes were delivered that the manager does not have yet."""
        return self._comparison.waiting()

    def work(self, before: float) -> Iterator[None]:
        """Compare the cycles that ended, and began before a time."""
        for line in self._file.lines():
            entry = self._log.read(line)
            if entry is not None and entry.time >= self._began:
                self._comparison.read(entry)
        yield from self._comparison.work(min(before, self._log.complete_until))


class LogFile:
    """Lines that are appended to a file, or arrive on standard input."""

    def __init__(self, path: str) -> None:
        """`path`: `-` is standard input. Raises OSError for a file that cannot be read."""
        self._fd = 0 if path == "-" else os.open(Path(path), os.O_RDONLY)
        os.set_blocking(self._fd, False)
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """The complete lines since the last call."""
        while True:
            try:
                chunk = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                return
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")

    def close(self) -> None:
        """Close the file."""
        if self._fd:
            os.close(self._fd)
