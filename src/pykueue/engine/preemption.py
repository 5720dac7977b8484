"""Who has to go so that a workload can start: the classical search.

The search works on the live tree: it takes usage away, looks, and puts everything back before it returns.
Source of the rules: reference/kueue-semantics.md 8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cmp_to_key
from heapq import merge
from typing import Any

from pykueue.engine.cluster_queue import ClusterQueue
from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explanation import Search, Target
from pykueue.engine.local_queue import LocalQueue
from pykueue.engine.quota import Cell, add, available, remove
from pykueue.engine.tree import Cohort, Node
from pykueue.engine.workload import Record

#: Past usage of a LocalQueue, where LocalQueues compete (10.5).
UsageOf = Callable[[LocalQueue], float]

Chosen = list[tuple[Record, PreemptionReason]]


class Need:
    """What must be made free, and for whom."""

    __slots__ = ("needed", "priority", "queue", "record", "requests", "spared", "usage_of")

    def __init__(
        self,
        record: Record,
        queue: ClusterQueue,
        requests: Sequence[tuple[Cell, int]],
        needed: Iterable[int],
        usage_of: UsageOf | None,
        spared: Container[Record] = (),
    ) -> None:
        self.record = record
        self.queue = queue
        self.priority = record.priority
        #: All amounts that must fit, those that fit already included.
        self.requests = requests
        #: Pairs that lack room: only workloads that hold one of them are worth removing.
        self.needed = frozenset(needed)
        self.usage_of = usage_of
        #: Workloads that are no candidates: others of this cycle count on them, or this one replaces them.
        self.spared = spared

    def within_own_policy(self, other: Record) -> bool:
        """Whether withinClusterQueue allows to preempt this workload of the same queue (8.1)."""
        if other.priority < self.priority:
            return True
        return (
            self.queue.within == "LowerOrNewerEqualPriority"
            and other.priority == self.priority
            and self.record.timestamp < other.timestamp
        )

    def own_candidates(self, evicted: bool) -> Iterator[Any]:
        """Seats of workloads of the own queue that may go, in the order they would."""
        queue = self.queue
        if queue.within == "Never":
            return
        seats: Iterable[Any] = queue.seats if not evicted else sorted(r.seat for r in queue.evicted.values())
        if queue.fair_by_usage and self.usage_of is not None:
            usage = {
                local: self.usage_of(local) for local in {s[4].local for s in seats} if local is not None
            }
            seats = sorted(seats, key=lambda seat: -usage.get(seat[4].local, 0.0))
            usage_first = True
        else:
            usage_first = False
        for seat in seats:
            record: Record = seat[4]
            if record.priority > self.priority and not usage_first:
                return
            if (
                record.evicted == evicted
                and record not in self.spared
                and self.within_own_policy(record)
                and not self.needed.isdisjoint(record.holds)
            ):
                yield seat

    def other_candidates(self, queues: Sequence[ClusterQueue], evicted: bool) -> Iterator[Any]:
        """Seats of workloads of other queues that reclaimWithinCohort allows to preempt."""
        streams = [self._seats(queue, evicted) for queue in queues if not evicted or queue.evicted]
        if len(streams) == 1:
            return streams[0]
        if self.usage_of is not None and any(queue.fair_by_usage for queue in queues):
            return iter(sorted((seat for stream in streams for seat in stream), key=self._by_usage()))
        return merge(*streams)

    def _seats(self, queue: ClusterQueue, evicted: bool) -> Iterator[Any]:
        seats: Sequence[Any] = queue.seats if not evicted else sorted(r.seat for r in queue.evicted.values())
        if self.queue.reclaim == "LowerPriority":
            seats = seats[: bisect_left(seats, (self.priority,))]
        if queue.fair_by_usage and self.usage_of is not None:
            seats = sorted(seats, key=self._by_usage())
        needed, spared = self.needed, self.spared
        return (
            seat
            for seat in seats
            if seat[4].evicted == evicted and not needed.isdisjoint(seat[4].holds) and seat[4] not in spared
        )

    def _by_usage(self) -> Callable[[Any], Any]:
        """Order of candidates where LocalQueues of one ClusterQueue compete by usage: the heavier user
        goes first."""
        usage_of = self.usage_of
        assert usage_of is not None

        def compare(one: Any, other: Any) -> int:
            a, b = one[4], other[4]
            if a.queue is b.queue and a.queue.fair_by_usage and a.local is not b.local:
                used, other_used = usage_of(a.local), usage_of(b.local)
                if used != other_used:
                    return -1 if used > other_used else 1
            return -1 if one < other else 1

        return cmp_to_key(compare)

    def fits(self, borrowing: bool) -> bool:
        """Whether the requests fit now; without borrowing, also within the own nominal quota."""
        for cell, amount in self.requests:
            if amount > available(cell) or (not borrowing and cell.usage + amount > cell.subtree):
                return False
        return True


def within_nominal(node: Node, pairs: Iterable[int]) -> bool:
    """Whether a node uses no more than its own quota of every pair."""
    cells = node.cells
    for pair in pairs:
        cell = cells.get(pair)
        if cell is not None and cell.usage > cell.subtree:
            return False
    return True


def take_away(record: Record) -> None:
    """Removes a workload's usage from the tree, for the length of a search."""
    cells = record.queue.cells  # type: ignore[union-attr]
    for pair, amount in record.usage:
        remove(cells[pair], amount)


def put_back(record: Record) -> None:
    cells = record.queue.cells  # type: ignore[union-attr]
    for pair, amount in record.usage:
        add(cells[pair], amount)


class _Field:
    """Queues whose workloads may be reclaimed, and from which ancestor on (8.3)."""

    __slots__ = ("ancestor", "hierarchy", "need", "priority")

    def __init__(self, need: Need) -> None:
        self.need = need
        #: Nearest cohort a queue shares with the preemptor.
        self.ancestor: dict[ClusterQueue, Cohort] = {}
        #: Queues outside a subtree whose own quota covers the requests.
        self.hierarchy: list[ClusterQueue] = []
        #: The other ones.
        self.priority: list[ClusterQueue] = []
        queue = need.queue
        if queue.parent is None or queue.reclaim == "Never":
            return
        rest = dict(need.requests)
        advantage = _covers(rest)
        rest = _above(rest)
        below: Node = queue
        for cohort in queue.ancestors():
            found = self.hierarchy if advantage else self.priority
            for other in self._borrowers(cohort, below):
                self.ancestor[other] = cohort
                found.append(other)
            advantage = advantage or _covers(rest)
            rest = _above(rest)
            below = cohort

    def _borrowers(self, cohort: Cohort, skip: Node) -> Iterator[ClusterQueue]:
        needed = self.need.needed
        for child in cohort.children.values():
            if child is not skip and not within_nominal(child, needed):
                yield from self._borrowers(child, skip)
        for queue in cohort.queues.values():
            if queue is not skip and not within_nominal(queue, needed) and queue.is_active:
                yield queue

    def protected(self, queue: ClusterQueue) -> bool:
        """Whether the queue, or a cohort between it and the common one, is back within its quota."""
        needed = self.need.needed
        stop = self.ancestor[queue]
        node: Node | None = queue
        while node is not None and node is not stop:
            if within_nominal(node, needed):
                return True
            node = node.parent
        return False


def _covers(requests: dict[Cell, int]) -> bool:
    return all(cell.subtree >= cell.usage + amount for cell, amount in requests.items())


def _above(requests: dict[Cell, int]) -> dict[Cell, int]:
    """What the parents must provide."""
    return {
        cell.parent: max(0, amount - max(0, cell.local - cell.usage))
        for cell, amount in requests.items()
        if cell.parent is not None
    }


def search(need: Need, report: Search) -> Chosen:
    """The workloads to preempt, or nothing if that does not help. The tree is left as it was."""
    queue = need.queue
    field = _Field(need)
    policy = queue.borrow_within
    others = any(True for _ in need.other_candidates(field.hierarchy, False)) or any(
        True for _ in need.other_candidates(field.hierarchy, True)
    )
    hierarchical = others
    if not others:
        others = any(True for _ in need.other_candidates(field.priority, False)) or any(
            True for _ in need.other_candidates(field.priority, True)
        )
    over_nominal = any(cell.usage >= cell.subtree for cell in (queue.cells[pair] for pair in need.needed))
    if not others or (not policy and over_nominal):
        attempts: tuple[bool, ...] = (True,)
    elif not policy and not hierarchical:
        attempts = (False, True)
    else:
        attempts = (True, False)
    for borrowing in attempts:
        chosen = _attempt(need, field, borrowing, report)
        if chosen:
            report.chosen = tuple(Target(record.key, reason) for record, reason in chosen)
            report.stopped = "Fits"
            return chosen
    report.stopped = "Exhausted" if report.considered else "NoCandidates"
    return []


def _sequence(need: Need, field: _Field) -> Iterator[tuple[Any, bool, bool]]:
    """(seat, of another queue, on the hierarchy list), in the order of 8.4."""
    for evicted in (True, False):
        for seat in need.other_candidates(field.hierarchy, evicted):
            yield seat, True, True
        for seat in need.other_candidates(field.priority, evicted):
            yield seat, True, False
        for seat in need.own_candidates(evicted):
            yield seat, False, False


def _attempt(need: Need, field: _Field, borrowing: bool, report: Search) -> Chosen:
    queue = need.queue
    threshold = queue.borrow_threshold
    removed: Chosen = []
    report.considered = 0
    for seat, foreign, hierarchical in _sequence(need, field):
        record: Record = seat[4]
        report.considered += 1
        reason: PreemptionReason = "InClusterQueue"
        if foreign:
            reason = "InCohortReclamation"
            if not hierarchical:
                while_borrowing = (
                    queue.borrow_within
                    and record.priority < need.priority
                    and (threshold is None or record.priority <= threshold)
                )
                if while_borrowing:
                    reason = "InCohortReclaimWhileBorrowing"
                elif borrowing:
                    continue
            assert record.queue is not None
            if field.protected(record.queue):
                continue
        take_away(record)
        removed.append((record, reason))
        if need.fits(borrowing):
            report.removed = len(removed)
            return fill_back(need, removed, borrowing)
    for record, _ in removed:
        put_back(record)
    report.removed = len(removed)
    return []


def fill_back(need: Need, removed: Chosen, borrowing: bool) -> Chosen:
    """Drops targets that turn out not to be needed, and puts all usage back (8.7)."""
    at = len(removed) - 2
    while at >= 0:
        record = removed[at][0]
        put_back(record)
        if need.fits(borrowing):
            removed[at] = removed[-1]
            removed.pop()
        else:
            take_away(record)
        at -= 1
    for record, _ in removed:
        put_back(record)
    return removed
