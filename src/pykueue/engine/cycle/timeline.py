"""The capacity of a tree over time: what running workloads free and what reservations take.

Like the search for workloads to preempt, it works on the live tree: ends and starts are applied in order of
time, the capacities are asked what fits, and everything is taken back.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from heapq import merge
from typing import NamedTuple, TypeVar

from pykueue.engine import capacity
from pykueue.engine.capacity import Reservations
from pykueue.engine.cycle.evaluation import Evaluation
from pykueue.engine.explanation import DECLARED
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.capacity import QuotaDemand
from pykueue.engine.quota.usage import FlavorUsage
from pykueue.engine.run_times import certainty_of_end, ends_after
from pykueue.engine.windows import PlannedWindow
from pykueue.engine.workload import WorkloadInfo

_T = TypeVar("_T")


class Reserved(NamedTuple):
    """Capacity that is reserved for a pending workload from a time on."""

    info: WorkloadInfo
    queue: ClusterQueue
    start: float
    """In seconds since 1970."""
    end: float
    demand: QuotaDemand
    found: Evaluation
    certainty: int
    """Percentage of the ends that the times follow from that are kept: 100 if all are declared."""


class Step(NamedTuple):
    """A moment at which capacity changes; the changes are in effect."""

    time: float
    """In seconds since 1970."""
    taken: bool
    """Something was taken since the last step; else capacity was only freed."""
    certainty: int
    """Of the ends until now, the lowest."""


class _Change(NamedTuple):
    time: float
    key: str
    sign: int
    """1: taken, -1: freed."""
    demand: QuotaDemand
    placed: Reservations
    certainty: int
    window: PlannedWindow | None = None
    """The window that begins or ends; what it keeps free follows from what is used then."""


class Timeline:
    """The future of some trees, as far as it is known at a time, with what is planned in it."""

    def __init__(
        self,
        queues: Sequence[ClusterQueue],
        now: float,
        planned: Iterable[Reserved] = (),
        gone: Collection[WorkloadInfo] = frozenset(),
    ) -> None:
        self._now = now
        #: Workloads whose usage is taken off already.
        self._gone = gone
        self._planned: list[_Change] = []
        #: When the last of what is planned begins.
        self._last = now
        #: Ends of running workloads: those that were looked at, and the others.
        self._ends: list[_Change] = []
        self._source = self._changes(queues)
        self._windows: list[_Change] = []
        self._windows_end = now
        for each in planned:
            self.plan(each)

    def plan(self, reserved: Reserved) -> None:
        """Add a reservation."""
        self._last = max(self._last, reserved.start)
        for time, sign in ((reserved.start, 1), (reserved.end, -1)):
            change = _Change(
                time, reserved.info.key, sign, reserved.demand, reserved.found.placed, reserved.certainty
            )
            insort(self._planned, change, key=_order)

    def set_windows(self, windows: Sequence[PlannedWindow]) -> None:
        """Set the windows to keep free, in place of those before."""
        changes = [
            _Change(time, window.name, sign, (), (), DECLARED, window)
            for window in windows
            for time, sign in ((window.start, 1), (window.end, -1))
        ]
        self._windows = sorted(changes, key=_order)
        self._windows_end = max((window.end for window in windows), default=self._now)

    def earliest(
        self, length: float, choose: Callable[[], _T | None], holds: Callable[[_T], bool]
    ) -> tuple[float, _T, int] | None:
        """When a workload of `length` seconds fits first beside what is planned, with what it would get.

        `choose` returns what it would get in a step, `holds` whether that is still available. The last value:
        how certain the ends are that the time follows from. None: it never fits.
        """
        last = max(self._last, self._windows_end)
        found: _T | None = None
        start, certainty = self._now, DECLARED
        with closing(self._steps()) as steps:
            for step in steps:
                if found is not None:
                    if step.time >= start + length or (not step.taken and step.time > last):
                        break
                    if not step.taken or holds(found):
                        continue
                found = choose()
                start, certainty = step.time, step.certainty
                if found is not None and start >= last:
                    break
        return None if found is None else (start, found, certainty)

    def first_conflict(self, length: float, holds: Callable[[], bool]) -> float | None:
        """When what a workload would get now is needed for what is planned, while it runs; None: never."""
        with closing(self._steps()) as steps:
            for step in steps:
                if step.time >= self._now + length or step.time > max(self._last, self._windows_end):
                    return None
                if step.taken and not holds():
                    return step.time
        return None

    def _steps(self) -> Generator[Step]:
        applied: list[_Change] = []
        time, taken, certainty = self._now, False, DECLARED
        ends, planned = self._ends, self._planned
        if self._windows:
            planned = sorted([*planned, *self._windows], key=_order)
        active: dict[PlannedWindow, None] = {}
        kept: list[tuple[FlavorUsage, int]] = []
        at_end = at_planned = 0
        try:
            while True:
                if at_end == len(ends):
                    following = next(self._source, None)
                    if following is not None:
                        ends.append(following)
                change = ends[at_end] if at_end < len(ends) else None
                if at_planned < len(planned) and (
                    change is None or _order(planned[at_planned]) < _order(change)
                ):
                    change = planned[at_planned]
                    at_planned += 1
                elif change is None:
                    break
                else:
                    at_end += 1
                if change.time > time:
                    _keep(active, kept)
                    yield Step(time, taken or bool(kept), certainty)
                    time, taken = change.time, False
                    quota.release(kept)
                    kept.clear()
                if change.window is not None:
                    if change.sign > 0:
                        active[change.window] = None
                    else:
                        active.pop(change.window, None)
                    continue
                applied.append(change)
                if change.sign > 0:
                    taken = True
                    quota.reserve(change.demand)
                    if change.placed:
                        capacity.reserve(change.placed)
                else:
                    quota.release(change.demand)
                    if change.placed:
                        capacity.release(change.placed)
                certainty = min(certainty, change.certainty)
            _keep(active, kept)
            yield Step(time, taken or bool(kept), certainty)
        finally:
            quota.release(kept)
            for change in reversed(applied):
                if change.sign > 0:
                    quota.release(change.demand)
                    capacity.release(change.placed)
                else:
                    quota.reserve(change.demand)
                    capacity.reserve(change.placed)

    def _changes(self, queues: Sequence[ClusterQueue]) -> Iterator[_Change]:
        ends = [ends_after(queue, self._now) for queue in queues if queue.reservations]
        for at, key, info in ends[0] if len(ends) == 1 else merge(*ends, key=lambda each: each[:2]):
            if info not in self._gone:
                certainty = certainty_of_end(info, self._now)
                yield _Change(at, key, -1, quota.reserved_by(info), info.shared, certainty)


def _order(change: _Change) -> tuple[float, str, int]:
    return change.time, change.key, change.sign


def _keep(active: Iterable[PlannedWindow], kept: list[tuple[FlavorUsage, int]]) -> None:
    """Count as used what windows still keep free, given what is used."""
    for window in active:
        demand = window.demand()
        quota.reserve(demand)
        kept += demand
