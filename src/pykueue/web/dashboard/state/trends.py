"""Samples of the last hours, in memory: what each ClusterQueue had pending, admitted and reserved."""

from __future__ import annotations

from array import array
from typing import Final

from .board import Board
from .figures import figures, highest_fraction

#: Seconds between two samples, and their number: six hours.
PERIOD: Final = 15.0
SAMPLES_MAX: Final = 1440

SERIES: Final = ("pending", "admitted", "reserved")


class Trends:
    """Samples by ClusterQueue. One sample of one queue is 12 bytes."""

    def __init__(self) -> None:
        self.times: array[float] = array("d")
        self._series: dict[str, tuple[array[float], ...]] = {}

    async def run(self, board: Board) -> None:
        """Take samples until cancelled."""
        await board.ready.wait()
        while True:
            self.sample(board)
            await board.clock.sleep(PERIOD)

    def sample(self, board: Board) -> None:
        """Take one sample of every ClusterQueue. Those that are gone are dropped with their samples."""
        before = len(self.times)
        self.times.append(board.clock.time())
        queues = {each.name: each for each in figures(board).queues if each.kind == "ClusterQueue"}
        self._series = {name: one for name, one in self._series.items() if name in queues}
        for name, queue in queues.items():
            if name not in self._series:
                self._series[name] = tuple(array("f", bytes(4 * before)) for _ in SERIES)
            values = (queue.pending, queue.admitted, highest_fraction(queue) * 100)
            for one, value in zip(self._series[name], values, strict=True):
                one.append(value)
        if len(self.times) > SAMPLES_MAX:
            del self.times[0]
            for series in self._series.values():
                for one in series:
                    del one[0]

    def of(self, queue: str, series: str) -> list[float]:
        """The samples of one queue; none where it is not known."""
        found = self._series.get(queue)
        return list(found[SERIES.index(series)]) if found is not None else [0.0] * len(self.times)

    def total(self, series: str) -> list[float]:
        """The sum of all queues at each time."""
        index = SERIES.index(series)
        found = [0.0] * len(self.times)
        for one in self._series.values():
            for at, value in enumerate(one[index]):
                found[at] += value
        return found
