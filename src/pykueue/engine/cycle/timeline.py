"""The capacity of a tree over time: what running workloads free and what reservations take.

Like the search for workloads to preempt, it works on the live tree: ends and starts are applied in order of
time, the capacities are asked what fits, and everything is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from heapq import merge
from typing import NamedTuple, TypeVar

from pykueue.engine import capacity
from pykueue.engine.capacity import Reservations
from pykueue.engine.cycle.evaluation import Evaluation
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.capacity import QuotaDemand
from pykueue.engine.run_times import ends_after
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
    declared: bool
    """The times follow from declared run times alone."""


class Step(NamedTuple):
    """A moment at which capacity changes; the changes are in effect."""

    time: float
    """In seconds since 1970."""
    taken: bool
    """Something was taken since the last step; else capacity was only freed."""
    declared: bool
    """All ends until now follow from declared run times."""


class _Change(NamedTuple):
    time: float
    key: str
    sign: int
    """1: taken, -1: freed."""
    demand: QuotaDemand
    placed: Reservations
    declared: bool

    def apply(self, sign: int) -> None:
        if sign > 0:
            quota.reserve(self.demand)
            capacity.reserve(self.placed)
        else:
            quota.release(self.demand)
            capacity.release(self.placed)


class Timeline:
    """The future of some trees, as far as it is known at a time."""

    def __init__(
        self, queues: Sequence[ClusterQueue], now: float, gone: Collection[WorkloadInfo] = frozenset()
    ) -> None:
        self._queues = queues
        self._now = now
        #: Workloads whose usage is taken off already.
        self._gone = gone

    def earliest(
        self,
        planned: Sequence[Reserved],
        length: float,
        choose: Callable[[], _T | None],
        holds: Callable[[_T], bool],
    ) -> tuple[float, _T, bool] | None:
        """When a workload of `length` seconds fits first beside what is planned, with what it would get.

        `choose` returns what it would get in a step, `holds` whether that is still available. The last value:
        the time follows from declared run times. None: it never fits.
        """
        last = max((each.start for each in planned), default=self._now)
        found: _T | None = None
        start, declared = self._now, True
        with closing(self._steps(planned)) as steps:
            for step in steps:
                if found is not None:
                    if step.time >= start + length or (not step.taken and step.time > last):
                        break
                    if not step.taken or holds(found):
                        continue
                found = choose()
                start, declared = step.time, step.declared
                if found is not None and start >= last:
                    break
        return None if found is None else (start, found, declared)

    def first_conflict(
        self, planned: Sequence[Reserved], length: float, holds: Callable[[], bool]
    ) -> float | None:
        """When what a workload would get now is needed for what is planned, while it runs; None: never."""
        last = max((each.start for each in planned), default=self._now)
        with closing(self._steps(planned)) as steps:
            for step in steps:
                if step.time >= self._now + length or step.time > last:
                    return None
                if step.taken and not holds():
                    return step.time
        return None

    def _steps(self, planned: Sequence[Reserved]) -> Generator[Step]:
        applied: list[_Change] = []
        time, taken, declared = self._now, False, True
        try:
            for change in merge(self._ends(), _planned(planned)):
                if change.time > time:
                    yield Step(time, taken, declared)
                    time, taken = change.time, False
                change.apply(change.sign)
                applied.append(change)
                taken = taken or change.sign > 0
                declared = declared and change.declared
            yield Step(time, taken, declared)
        finally:
            for change in reversed(applied):
                change.apply(-change.sign)

    def _ends(self) -> Iterator[_Change]:
        for at, key, info in merge(
            *(ends_after(queue, self._now) for queue in self._queues), key=lambda each: each[:2]
        ):
            if info not in self._gone:
                declared = info.obj.spec.maximum_execution_time_seconds is not None
                yield _Change(at, key, -1, quota.reserved_by(info), info.shared, declared)


def _planned(planned: Sequence[Reserved]) -> list[_Change]:
    changes = []
    for each in planned:
        for time, sign in ((each.start, 1), (each.end, -1)):
            changes.append(_Change(time, each.info.key, sign, each.demand, each.found.placed, each.declared))
    changes.sort(key=lambda change: change[:3])
    return changes
