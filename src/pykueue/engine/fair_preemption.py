"""Who has to go so that a workload can start, under fair sharing.

Source of the rules: reference/kueue-semantics.md 9.5.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pykueue.engine.cluster_queue import ClusterQueue
from pykueue.engine.explanation import Search, Target
from pykueue.engine.fairness import Share, share_of
from pykueue.engine.options import FairSharingStrategy
from pykueue.engine.preemption import Chosen, Need, fill_back, put_back, take_away
from pykueue.engine.quota import add, remove
from pykueue.engine.tree import Cohort, Node
from pykueue.engine.workload import Record


class _Picker:
    """Finds the queue with the highest share that still has candidates; shares are reckoned once and again
    after
    a change below."""

    def __init__(self, need: Need, candidates: dict[ClusterQueue, deque[Any]]) -> None:
        self.need = need
        self.candidates = candidates
        self._shares: dict[Node, Share] = {}
        self._own = {need.queue, *need.queue.ancestors()}
        #: Children worth looking at, by cohort.
        self._children: dict[Cohort, dict[Node, None]] = {}
        for queue in sorted(candidates, key=lambda queue: queue.name):
            node: Node = queue
            for cohort in queue.ancestors():
                self._children.setdefault(cohort, {})[node] = None
                node = cohort
        self._root: Node = need.queue.tree.root

    def share(self, node: Node) -> Share:
        found = self._shares.get(node)
        if found is None:
            found = self._shares[node] = share_of(node)
        return found

    def changed(self, queue: ClusterQueue) -> None:
        """Usage of the queue changed."""
        self._shares.pop(queue, None)
        for cohort in queue.ancestors():
            self._shares.pop(cohort, None)

    def drop(self, queue: ClusterQueue) -> None:
        """The queue is not looked at again."""
        self.candidates[queue] = deque()

    def pick(self) -> ClusterQueue | None:
        """The queue to take from next, or None."""
        if not isinstance(self._root, Cohort):
            queue = self.need.queue
            return queue if self.candidates.get(queue) else None
        while self._children.get(self._root):
            node: Node = self._root
            while isinstance(node, Cohort):
                best = self._highest(node)
                if best is None:
                    # Nothing left below: never looked at again.
                    self._children[node] = {}
                    if node.parent is not None:
                        self._children[node.parent].pop(node, None)
                    break
                node = best
            else:
                return node  # type: ignore[return-value]
        return None

    def _highest(self, cohort: Cohort) -> Node | None:
        best: Node | None = None
        best_key: Any = None
        gone = []
        for node in self._children.get(cohort, {}):
            share = self.share(node)
            seats = self.candidates[node] if isinstance(node, ClusterQueue) else None
            if (not share.borrowing and node not in self._own) or (seats is not None and not seats):
                gone.append(node)
                continue
            # Higher share first; of equals cohorts first, then the better candidate, then the name.
            rank = () if seats is None else _rank(seats[0], self.need)
            key = (not share.unbounded, -share.value, seats is not None, rank, node.name)
            if best is None or key < best_key:
                best, best_key = node, key
        for node in gone:
            self._children[cohort].pop(node, None)
        return best


def _rank(seat: Any, need: Need) -> tuple[Any, ...]:
    record: Record = seat[4]
    return (not record.evicted, record.queue is need.queue, seat[:4])


def _candidates(need: Need) -> dict[ClusterQueue, list[Any]]:
    """Seats that may go, by queue, each in order (evicted ones first)."""
    found: dict[ClusterQueue, list[Any]] = {}
    own = [seat for evicted in (True, False) for seat in need.own_candidates(evicted)]
    if own:
        found[need.queue] = own
    if need.queue.reclaim == "Never" or need.queue.parent is None:
        return found
    for queue in need.scene.over_nominal(need.queue.tree, need.needed):
        if queue is not need.queue:
            seats = need.candidates_of(queue)
            if seats:
                found[queue] = seats
    return found


def _sides(own: ClusterQueue, other: ClusterQueue) -> tuple[Node, Node]:
    """The two children, on either side, of the lowest cohort both queues are under."""
    mine: dict[Cohort, Node] = {}
    node: Node = own
    for cohort in own.ancestors():
        mine[cohort] = node
        node = cohort
    node = other
    for cohort in other.ancestors():
        if cohort in mine:
            return mine[cohort], node
        node = cohort
    raise AssertionError("both queues are in one tree")


def search(
    need: Need, report: Search, strategies: tuple[FairSharingStrategy, ...], preempt_within_nominal: bool
) -> Chosen:
    """The workloads to preempt, or nothing if that does not help. The tree is left as it was."""
    candidates = _candidates(need)
    report.considered = sum(map(len, candidates.values()))
    if not candidates:
        return []
    for cell, amount in need.requests:
        add(cell, amount)
    within = preempt_within_nominal and all(
        need.queue.cells[pair].usage <= need.queue.cells[pair].subtree for pair in need.needed
    )
    removed: Chosen = []
    retry: dict[ClusterQueue, list[Any]] = {}
    fits = _first_round(need, candidates, strategies[0], within, removed, retry)
    if not fits and len(strategies) > 1:
        fits = _second_round(need, retry, removed)
    for cell, amount in need.requests:
        remove(cell, amount)
    report.removed = len(removed)
    if not fits:
        for record, _ in removed:
            put_back(record)
        report.stopped = "Exhausted"
        return []
    chosen = fill_back(need, removed, borrowing=True)
    report.chosen = tuple(Target(record.key, reason) for record, reason in chosen)
    report.stopped = "Fits"
    return chosen


def _fits(need: Need) -> bool:
    for cell, amount in need.requests:
        remove(cell, amount)
    fits = need.fits(borrowing=True)
    for cell, amount in need.requests:
        add(cell, amount)
    return fits


def _target_share_without(record: Record, side: Node) -> Share:
    take_away(record)
    share = share_of(side)
    put_back(record)
    return share


def _first_round(
    need: Need,
    candidates: dict[ClusterQueue, list[Any]],
    strategy: FairSharingStrategy,
    within: bool,
    removed: Chosen,
    retry: dict[ClusterQueue, list[Any]],
) -> bool:
    own = need.queue
    picker = _Picker(need, {queue: deque(seats) for queue, seats in candidates.items()})
    while (queue := picker.pick()) is not None:
        seats = picker.candidates[queue]
        if queue is own or within:
            record: Record = seats.popleft()[4]
            take_away(record)
            removed.append((record, "InClusterQueue" if queue is own else "InCohortReclamation"))
        else:
            my_side, their_side = _sides(own, queue)
            mine = picker.share(my_side)
            theirs = picker.share(their_side)
            if mine.unbounded and not theirs.unbounded:
                retry.setdefault(queue, []).extend(seats)
                picker.drop(queue)
                continue
            taken: Record | None = None
            while seats and taken is None:
                seat = seats.popleft()
                if strategy == "LessThanOrEqualToFinalShare":
                    passes = mine[:2] <= _target_share_without(seat[4], their_side)[:2]
                else:
                    passes = mine[:2] < theirs[:2]
                if passes:
                    taken = seat[4]
                else:
                    retry.setdefault(queue, []).append(seat)
            if taken is None:
                continue
            take_away(taken)
            removed.append((taken, "InCohortFairSharing"))
        picker.changed(queue)
        if _fits(need):
            return True
    return False


def _second_round(need: Need, retry: dict[ClusterQueue, list[Any]], removed: Chosen) -> bool:
    own = need.queue
    picker = _Picker(need, {queue: deque(seats) for queue, seats in retry.items()})
    while (queue := picker.pick()) is not None:
        record: Record = picker.candidates[queue][0][4]
        picker.drop(queue)
        my_side, their_side = _sides(own, queue)
        if not picker.share(my_side)[:2] < picker.share(their_side)[:2]:
            continue
        take_away(record)
        removed.append((record, "InCohortFairSharing"))
        picker.changed(queue)
        if _fits(need):
            return True
    return False
