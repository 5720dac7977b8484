"""Who has to go so that a workload can start, under fair sharing.

Source of the rules: reference/kueue-semantics.md 9.5.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heapreplace
from typing import Any

from pykueue.engine.cluster_queue import ClusterQueue
from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explanation import Search, Target
from pykueue.engine.fairness import Share, share_of
from pykueue.engine.options import FairSharingStrategy
from pykueue.engine.preemption import Chosen, Need, Scene, fill_back, put_back, take_away
from pykueue.engine.quota import add, remove
from pykueue.engine.tree import Cohort, Node
from pykueue.engine.workload import Record


class _Picker:
    """Finds the queue with the highest share that still has candidates (9.5, CQ picker).

    Each cohort has a heap of its children. Taking a candidate changes the shares on the path of its queue
    only, and that queue is the first of every heap on its path, so each pick costs the height of the tree.
    """

    def __init__(self, need: Need, candidates: dict[ClusterQueue, deque[Any]], moved: set[Node]) -> None:
        self.need = need
        self._candidates = candidates
        self._own: set[Node] = {need.queue, *need.queue.ancestors()}
        members: dict[Cohort, dict[Node, None]] = {}
        for queue in candidates:
            node: Node = queue
            for cohort in queue.ancestors():
                known = members.setdefault(cohort, {})
                if node in known:
                    break
                known[node] = None
                node = cohort
        self._members = members
        self._heaps: dict[Cohort, list[Any]] = {}
        self._number = 0
        #: Nodes whose usage is not that of the scene any more.
        self._moved: set[Node] = set(self._own) | moved
        self._root = need.queue.tree.root
        if isinstance(self._root, Cohort):
            self._fill(self._root)

    def _fill(self, cohort: Cohort) -> None:
        heap = self._heaps[cohort] = []
        for node in self._members.get(cohort, ()):
            if isinstance(node, Cohort):
                self._fill(node)
            entry = self._entry(node)
            if entry is not None:
                heap.append(entry)
        heapify(heap)

    def _entry(self, node: Node) -> Any:
        """Position of a child in the heap of its cohort; None if it is never looked at again."""
        if isinstance(node, ClusterQueue):
            seats = self._candidates.get(node)
            if not seats:
                return None
            rank = _rank(seats[0], self.need)
        else:
            if not self._heaps[node]:  # type: ignore[index]
                return None
            rank = ()
        share = self._share(node)
        if not share.borrowing and node not in self._own:
            return None
        # Higher share first; of equals cohorts first, then the better candidate, then the name.
        self._number += 1
        key = (not share.unbounded, -share.value, isinstance(node, ClusterQueue), rank, node.name)
        return (key, self._number, node)

    def _share(self, node: Node) -> Share:
        return share_of(node) if node in self._moved else _known_share(self.need.scene, node)

    def pick(self) -> ClusterQueue | None:
        """The queue to take from next, or None."""
        node: Node = self._root
        if isinstance(node, ClusterQueue):
            return node if self._candidates.get(node) else None
        while isinstance(node, Cohort):
            heap = self._heaps[node]
            if not heap:
                return None
            node = heap[0][2]
        assert isinstance(node, ClusterQueue)
        return node

    def candidates(self, queue: ClusterQueue) -> deque[Any]:
        """Seats of a picked queue, best first; call `refresh` after taking from them."""
        return self._candidates[queue]

    def give_up(self, queue: ClusterQueue, side: Node) -> list[Node]:
        """Looks no more at the side picked nor at any other child of its cohort, which are returned."""
        cohort = side.parent
        assert cohort is not None
        sides = [entry[2] for entry in self._heaps[cohort]]
        self._heaps[cohort] = []
        self.refresh(queue, uses_less=False, above=cohort)
        return sides

    def below(self, sides: list[Node]) -> list[ClusterQueue]:
        """Queues with candidates at or below these nodes, in the order of their names."""
        found: list[ClusterQueue] = []
        stack = list(sides)
        while stack:
            node = stack.pop()
            if isinstance(node, Cohort):
                stack.extend(self._members.get(node, ()))
            elif isinstance(node, ClusterQueue) and self._candidates.get(node):
                found.append(node)
        return sorted(found, key=lambda queue: queue.name)

    def refresh(self, queue: ClusterQueue, uses_less: bool, above: Cohort | None = None) -> None:
        """The picked queue has fewer candidates, and perhaps uses less; only heaps above `above` are
        affected."""
        if uses_less:
            self._moved.add(queue)
            self._moved.update(queue.ancestors())
        node: Node = queue if above is None else above
        for cohort in node.ancestors():
            heap = self._heaps[cohort]
            entry = self._entry(node)
            if entry is None:
                heappop(heap)
            else:
                heapreplace(heap, entry)
            node = cohort


def _known_share(scene: Scene, node: Node) -> Share:
    """Share of a node whose usage is that of the scene."""
    found = scene.shares.get(node)
    if found is None:
        found = scene.shares[node] = share_of(node)
    return found


def _somebody_richer(need: Need) -> bool:
    """Whether any other side has at least the share of the preemptor's own; else nobody can be preempted.

    Called with the request counted in the own queue, whose path is therefore not that of the scene.
    """
    scene = need.scene
    own = {need.queue, *need.queue.ancestors()}
    below: Node = need.queue
    for cohort in need.queue.ancestors():
        richest = scene.richest.get(cohort)
        if richest is None:
            shares: list[tuple[Share, Node]] = []
            for child in (*cohort.children.values(), *cohort.queues.values()):
                # Shares of the own path would count the request: they are left to the comparison below.
                share = share_of(child) if child in own else _known_share(scene, child)
                if share.borrowing:
                    shares.append((share, child))
            shares.sort(key=lambda item: item[0][:2], reverse=True)
            richest = scene.richest[cohort] = shares[:2]
        mine = share_of(below)[:2]
        if any(child is not below and share[:2] >= mine for share, child in richest):
            return True
        below = cohort
    return False


def _rank(seat: Any, need: Need) -> tuple[Any, ...]:
    record: Record = seat[4]
    return (not record.evicted, record.queue is need.queue, seat[:4])


def _candidates(need: Need, own: deque[Any]) -> dict[ClusterQueue, deque[Any]]:
    """Seats that may go, by queue, each in order (evicted ones first)."""
    found: dict[ClusterQueue, deque[Any]] = {}
    if own:
        found[need.queue] = own
    if need.queue.reclaim == "Never" or need.queue.parent is None:
        return found
    for queue in need.scene.over_nominal(need.queue.tree, need.needed):
        if queue is not need.queue:
            seats = need.candidates_of(queue)
            if seats:
                found[queue] = deque(seats)
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
    for cell, amount in need.requests:
        add(cell, amount)
    chosen = _search(need, report, strategies, preempt_within_nominal)
    for record, _ in chosen:
        put_back(record)
    for cell, amount in need.requests:
        remove(cell, amount)
    if not chosen:
        return []
    for record, _ in chosen:
        take_away(record)
    chosen = fill_back(need, chosen, borrowing=True)
    report.chosen = tuple(Target(record.key, reason) for record, reason in chosen)
    report.stopped = "Fits"
    return chosen


def _search(
    need: Need, report: Search, strategies: tuple[FairSharingStrategy, ...], preempt_within_nominal: bool
) -> Chosen:
    """Victims whose usage is taken away, the request being counted in; empty, and nothing taken, if it
    fails."""
    cells = need.queue.cells
    within = preempt_within_nominal and all(cells[pair].usage <= cells[pair].subtree for pair in need.needed)
    own = deque(seat for evicted in (True, False) for seat in need.own_candidates(evicted))
    if not own and not within and not _somebody_richer(need):
        return []
    candidates = _candidates(need, own)
    report.considered = sum(map(len, candidates.values()))
    if not candidates:
        return []
    removed: Chosen = []
    retry: dict[ClusterQueue, deque[Any]] = {}
    fits = _first_round(need, candidates, strategies[0], within, removed, retry)
    if not fits and len(strategies) > 1:
        fits = _second_round(need, retry, removed)
    report.removed = len(removed)
    if fits:
        return removed
    for record, _ in removed:
        put_back(record)
    report.stopped = "Exhausted"
    return []


def _fits(need: Need) -> bool:
    for cell, amount in need.requests:
        remove(cell, amount)
    fits = need.fits(borrowing=True)
    for cell, amount in need.requests:
        add(cell, amount)
    return fits


def _share_without(record: Record, side: Node) -> Share:
    take_away(record)
    share = share_of(side)
    put_back(record)
    return share


def _first_round(
    need: Need,
    candidates: dict[ClusterQueue, deque[Any]],
    strategy: FairSharingStrategy,
    within: bool,
    removed: Chosen,
    retry: dict[ClusterQueue, deque[Any]],
) -> bool:
    own = need.queue
    picker = _Picker(need, candidates, set())
    given_up: list[tuple[Node, list[Node]]] = []
    while (queue := picker.pick()) is not None:
        seats = picker.candidates(queue)
        taken: Record | None = None
        reason: PreemptionReason = "InCohortFairSharing"
        if queue is own or within:
            taken = seats.popleft()[4]
            reason = "InClusterQueue" if queue is own else "InCohortReclamation"
        else:
            my_side, their_side = _sides(own, queue)
            mine, theirs = share_of(my_side)[:2], share_of(their_side)[:2]
            if mine > theirs:
                # Nothing this side could give would make it fair, nor its siblings, which have no higher
                # share: the own side has the highest, and was not picked because nobody is left there.
                given_up.append((my_side, picker.give_up(queue, their_side)))
                continue
            while seats and taken is None:
                seat = seats.popleft()
                if strategy == "LessThanOrEqualToFinalShare":
                    passes = mine <= _share_without(seat[4], their_side)[:2]
                else:
                    passes = mine < theirs
                if passes:
                    taken = seat[4]
                else:
                    retry.setdefault(queue, deque()).append(seat)
        if taken is not None:
            take_away(taken)
            removed.append((taken, reason))
        picker.refresh(queue, taken is not None)
        if taken is not None and _fits(need):
            return True
    for my_side, sides in given_up:
        # The second round may lower the own share after all, if somebody on the own side is tried again.
        if any(node is my_side for queue in retry for node in queue.ancestors()):
            for queue in picker.below(sides):
                retry.setdefault(queue, deque()).extend(candidates[queue])
    return False


def _second_round(need: Need, retry: dict[ClusterQueue, deque[Any]], removed: Chosen) -> bool:
    own = need.queue
    moved: set[Node] = set()
    for record, _ in removed:
        if record.queue is not None:
            moved.add(record.queue)
            moved.update(record.queue.ancestors())
    picker = _Picker(need, retry, moved)
    while (queue := picker.pick()) is not None:
        seats = picker.candidates(queue)
        first: Record = seats[0][4]
        seats.clear()
        my_side, their_side = _sides(own, queue)
        passes = share_of(my_side)[:2] < share_of(their_side)[:2]
        if passes:
            take_away(first)
            removed.append((first, "InCohortFairSharing"))
        picker.refresh(queue, passes)
        if passes and _fits(need):
            return True
    return False
