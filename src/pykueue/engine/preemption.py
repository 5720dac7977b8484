"""Who has to go so that a workload can start: the classical search.

The search works on the live tree: it takes usage away, looks, and puts everything back before it returns.
Source of the rules: reference/kueue-semantics.md 8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cmp_to_key
from heapq import merge
from typing import Any

from pykueue.engine.cluster_queue import ClusterQueue
from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explanation import Search, Target
from pykueue.engine.fairness import Share
from pykueue.engine.local_queue import LocalQueue
from pykueue.engine.quota import Cell, add, available, remove
from pykueue.engine.tree import Cohort, Node, Tree
from pykueue.engine.workload import Record

#: Past usage of a LocalQueue, where LocalQueues compete (10.5).
UsageOf = Callable[[LocalQueue], float]

Chosen = list[tuple[Record, PreemptionReason]]


class Crowd:
    """Borrowers below a cohort, and what they run: candidates for everybody in the cohort (8.3)."""

    __slots__ = ("evicted", "running", "side")

    def __init__(self, side: dict[ClusterQueue, Node], needed: frozenset[int]) -> None:
        #: The child of the cohort that a queue is, or is below.
        self.side = side
        self.evicted: list[Any] = []
        self.running: list[Any] = []
        for queue in side:
            for seat in queue.seats:
                record: Record = seat[4]
                if not needed.isdisjoint(record.holds):
                    (self.evicted if record.evicted else self.running).append(seat)
        # Seats of one queue are in order already, which makes this sort a merge.
        self.evicted.sort()
        self.running.sort()


class Scene:
    """What the searches of one moment share: it holds only as long as no usage changes."""

    __slots__ = ("_crowds", "_over", "_seats", "richest", "shares")

    def __init__(self) -> None:
        #: Filled by the search under fair sharing: shares by node, and for each cohort its two richest
        #: children.
        self.shares: dict[Node, Share] = {}
        self.richest: dict[Cohort, list[tuple[Share, Node]]] = {}
        self._seats: dict[tuple[ClusterQueue, frozenset[int]], list[Any]] = {}
        self._crowds: dict[tuple[Cohort, frozenset[int]], Crowd] = {}
        self._over: dict[tuple[Tree, frozenset[int]], list[ClusterQueue]] = {}

    def crowd(self, cohort: Cohort, needed: frozenset[int]) -> Crowd:
        """The borrowers below a cohort."""
        key = (cohort, needed)
        found = self._crowds.get(key)
        if found is None:
            found = self._crowds[key] = Crowd(_borrowers(cohort, needed), needed)
        return found

    def seats(self, queue: ClusterQueue, needed: frozenset[int]) -> list[Any]:
        """Seats of workloads of a queue that hold one of the pairs, evicted ones first."""
        key = (queue, needed)
        found = self._seats.get(key)
        if found is None:
            found = self._seats[key] = [seat for seat in queue.seats if not needed.isdisjoint(seat[4].holds)]
            if queue.evicted:
                found.sort(key=lambda seat: not seat[4].evicted)
        return found

    def over_nominal(self, tree: Tree, needed: frozenset[int]) -> list[ClusterQueue]:
        """Active queues of a tree that use more than their quota of any of the pairs."""
        key = (tree, needed)
        found = self._over.get(key)
        if found is None:
            found = self._over[key] = [
                queue for queue in tree.queues if queue.is_active and not within_nominal(queue, needed)
            ]
        return found


def _borrowers(cohort: Cohort, needed: frozenset[int]) -> dict[ClusterQueue, Node]:
    """Active queues below a cohort that borrow, as do all cohorts between; with the child they are, or are
    below."""
    found: dict[ClusterQueue, Node] = {}
    for child in cohort.children.values():
        if not within_nominal(child, needed):
            for queue in _borrowers(child, needed):
                found[queue] = child
    for queue in cohort.queues.values():
        if queue.is_active and not within_nominal(queue, needed):
            found[queue] = queue
    return found


class Need:
    """What must be made free, and for whom."""

    __slots__ = ("needed", "priority", "queue", "record", "requests", "scene", "spared", "usage_of")

    def __init__(
        self,
        record: Record,
        queue: ClusterQueue,
        requests: Sequence[tuple[Cell, int]],
        needed: Iterable[int],
        usage_of: UsageOf | None,
        spared: Collection[Record] = (),
        scene: Scene | None = None,
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
        #: What other searches of this moment found out already.
        self.scene = scene if scene is not None else Scene()

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

    def candidates_of(self, queue: ClusterQueue) -> list[Any]:
        """Seats of workloads of another queue that reclaimWithinCohort allows to preempt, evicted ones
        first."""
        found = self.scene.seats(queue, self.needed)
        if self.queue.reclaim == "LowerPriority":
            bound = self.priority
            found = [seat for seat in found if seat[0] < bound]
        if self.spared:
            spared = self.spared
            found = [seat for seat in found if seat[4] not in spared]
        if queue.fair_by_usage and self.usage_of is not None:
            usage_of = self.usage_of
            found = sorted(
                found,
                key=lambda seat: (
                    not seat[4].evicted,
                    -usage_of(seat[4].local) if seat[4].local is not None else 0.0,
                ),
            )
        return found

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


#: A candidate of another queue: its seat, and the nearest cohort it shares with the preemptor.
_Foreign = tuple[Any, Cohort]


class _Field:
    """Where the workloads of other queues that may be reclaimed stand (8.3)."""

    __slots__ = ("hierarchy", "need", "priority")

    def __init__(self, need: Need) -> None:
        self.need = need
        #: (cohort, child the preemptor is below): cohorts outside a subtree whose own quota covers the
        #: requests.
        self.hierarchy: list[tuple[Cohort, Node]] = []
        #: The other cohorts above.
        self.priority: list[tuple[Cohort, Node]] = []
        queue = need.queue
        if queue.parent is None or queue.reclaim == "Never":
            return
        rest = dict(need.requests)
        advantage = _covers(rest)
        below: Node = queue
        for cohort in queue.ancestors():
            rest = _above(rest)
            (self.hierarchy if advantage else self.priority).append((cohort, below))
            advantage = advantage or _covers(rest)
            below = cohort

    def candidates(self, levels: list[tuple[Cohort, Node]], evicted: bool) -> Iterator[_Foreign]:
        """Workloads that reclaimWithinCohort allows to preempt, in the order they would go (8.4)."""
        if len(levels) == 1:
            found = self._level(*levels[0], evicted)
        elif not levels:
            return iter(())
        else:
            found = merge(*[self._level(cohort, below, evicted) for cohort, below in levels], key=_seat_of)
        usage_of = self.need.usage_of
        return iter(sorted(found, key=_by_usage(usage_of))) if usage_of is not None else found

    def _level(self, cohort: Cohort, below: Node, evicted: bool) -> Iterator[_Foreign]:
        need = self.need
        crowd = need.scene.crowd(cohort, need.needed)
        side, spared = crowd.side, need.spared
        bound = need.priority if need.queue.reclaim == "LowerPriority" else None
        for seat in crowd.evicted if evicted else crowd.running:
            if bound is not None and seat[0] >= bound:
                return
            record: Record = seat[4]
            if side[record.queue] is not below and record not in spared:  # type: ignore[index]
                yield seat, cohort

    def any(self, levels: list[tuple[Cohort, Node]]) -> bool:
        """Whether there is any candidate at these levels."""
        return any(
            True
            for cohort, below in levels
            for evicted in (False, True)
            for _ in self._level(cohort, below, evicted)
        )

    def protected(self, queue: ClusterQueue, cohort: Cohort) -> bool:
        """Whether the queue, or a cohort between it and the common one, is back within its quota."""
        needed = self.need.needed
        node: Node | None = queue
        while node is not None and node is not cohort:
            if within_nominal(node, needed):
                return True
            node = node.parent
        return False


def _seat_of(candidate: _Foreign) -> Any:
    return candidate[0]


def _by_usage(usage_of: UsageOf) -> Callable[[_Foreign], Any]:
    """Order of candidates where LocalQueues of one ClusterQueue compete by usage: the heavier user goes
    first."""

    def compare(one: _Foreign, other: _Foreign) -> int:
        a: Record = one[0][4]
        b: Record = other[0][4]
        if a.queue is b.queue and a.queue is not None and a.queue.fair_by_usage and a.local is not b.local:
            used = usage_of(a.local) if a.local is not None else 0.0
            other_used = usage_of(b.local) if b.local is not None else 0.0
            if used != other_used:
                return -1 if used > other_used else 1
        return -1 if one[0] < other[0] else 1

    return cmp_to_key(compare)


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
    over_nominal = any(cell.usage >= cell.subtree for cell in (queue.cells[pair] for pair in need.needed))
    attempts: tuple[bool, ...] = (True, False)
    if not queue.borrow_within:
        if over_nominal:
            attempts = (True,)
        elif not field.any(field.hierarchy):
            attempts = (False, True) if field.any(field.priority) else (True,)
    elif not field.any(field.hierarchy) and not field.any(field.priority):
        attempts = (True,)
    for borrowing in attempts:
        chosen = _attempt(need, field, borrowing, report)
        if chosen:
            report.chosen = tuple(Target(record.key, reason) for record, reason in chosen)
            report.stopped = "Fits"
            return chosen
    report.stopped = "Exhausted" if report.considered else "NoCandidates"
    return []


def _sequence(need: Need, field: _Field, borrowing: bool) -> Iterator[tuple[Any, Cohort | None, bool]]:
    """(seat, common cohort if it is of another queue, whether on the hierarchy list), in the order of 8.4."""
    # A borrower may take from the priority list only what borrowWithinCohort allows.
    priority = field.priority if need.queue.borrow_within or not borrowing else []
    for evicted in (True, False):
        for seat, cohort in field.candidates(field.hierarchy, evicted):
            yield seat, cohort, True
        for seat, cohort in field.candidates(priority, evicted):
            yield seat, cohort, False
        for seat in need.own_candidates(evicted):
            yield seat, None, False


def _attempt(need: Need, field: _Field, borrowing: bool, report: Search) -> Chosen:
    queue = need.queue
    threshold = queue.borrow_threshold
    removed: Chosen = []
    considered = 0
    for seat, cohort, hierarchical in _sequence(need, field, borrowing):
        record: Record = seat[4]
        considered += 1
        reason: PreemptionReason = "InClusterQueue"
        if cohort is not None:
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
            if field.protected(record.queue, cohort):
                continue
        take_away(record)
        removed.append((record, reason))
        if need.fits(borrowing):
            report.considered, report.removed = considered, len(removed)
            return fill_back(need, removed, borrowing)
    for record, _ in removed:
        put_back(record)
    report.considered, report.removed = considered, len(removed)
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
