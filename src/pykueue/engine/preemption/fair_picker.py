"""Which queue loses a workload next under fair sharing: the one with the highest share.

Source of the rules: docs/reference/kueue-semantics.md 9.5 (CQ picker).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, cast

from pykueue.engine.fair_sharing.shares import Share, share_of
from pykueue.engine.queues.cluster_queue import Candidate, ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.capacity import QuotaDemand
from pykueue.engine.quota.tree import Cohort, Node


class _Ranked(NamedTuple):
    """A child of a cohort in the order of the search."""

    key: tuple[Any, ...]
    """Unique among the children of the cohort."""
    node: Node


class Field:
    """The candidates of a tree by queue, and the children of each cohort in the order of their shares.

    It is the same for all searches of one context whose preemptors may preempt the same workloads: a search
    copies only what it takes.
    """

    __slots__ = ("_highest_left", "candidates", "children", "order", "total")

    def __init__(
        self,
        shares: dict[Node, Share],
        candidates: Mapping[ClusterQueue, Sequence[Candidate]],
        apart: Collection[Node] = (),
    ) -> None:
        """`shares` are those of the context, added as they are needed; `apart` are nodes whose usage is not
        that of the context, and that get no place in the order.
        """
        self.candidates = candidates
        #: Number of all candidates.
        self.total = sum(map(len, candidates.values()))
        #: Nodes with candidates at or below them, by the cohort right above.
        self.children: dict[Cohort, dict[Node, None]] = {}
        self._highest_left: dict[Cohort, list[tuple[tuple[bool, float], Node]]] = {}
        #: Those of them that borrow, the highest share first.
        self.order: dict[Cohort, list[_Ranked]] = {}
        for queue in candidates:
            node: Node = queue
            for cohort in queue.ancestors():
                known = self.children.setdefault(cohort, {})
                if node in known:
                    break
                known[node] = None
                node = cohort
        # The lower cohorts come first: a cohort counts only if any of its children does.
        for cohort in sorted(self.children, key=lambda cohort: cohort.height):
            ranked = [
                _ranked(node, known_share(shares, node), candidates)
                for node in self.children[cohort]
                if node not in apart and (isinstance(node, ClusterQueue) or self.order[cast(Cohort, node)])
            ]
            self.order[cohort] = sorted(each for each in ranked if each is not None)

    def highest_left(self, cohort: Cohort) -> list[tuple[tuple[bool, float], Node]]:
        """The two highest shares that children of a cohort keep after any one candidate is removed.

        To be called with the usage of the context. Candidates with equal usage are tried once.
        """
        found = self._highest_left.get(cohort)
        if found is None:
            highest = []
            for child in self.children.get(cohort, ()):
                left = [
                    share_without(usage, child)[:2]
                    for queue in self.below((child,))
                    for usage in {tuple(quota.reserved_by(each.info)) for each in self.candidates[queue]}
                ]
                highest.append((max(left), child))
            highest.sort(key=lambda item: item[0], reverse=True)
            found = self._highest_left[cohort] = highest[:2]
        return found

    def below(self, nodes: Iterable[Node]) -> list[ClusterQueue]:
        """Queues with candidates at or below these nodes."""
        found: list[ClusterQueue] = []
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if isinstance(node, Cohort):
                stack.extend(self.children.get(node, ()))
            elif isinstance(node, ClusterQueue):
                found.append(node)
        return found


class Picker:
    """Finds the queue with the highest share that still has candidates.

    Taking a candidate changes the shares on the path of its queue only. The nodes of such paths, and of the
    path of the preemptor, leave the order of the field for heaps of their own: a pick costs the height of the
    tree, and nothing costs the number of its queues.
    """

    def __init__(
        self,
        preemptor: ClusterQueue,
        field: Field,
        own: deque[Candidate],
        moved: Collection[Node] = (),
    ) -> None:
        """`own` are candidates of the preemptor's queue, in place of those of the field; `moved` are nodes
        whose usage is not that of the context."""
        self._field = field
        self._own: set[Node] = {preemptor, *preemptor.ancestors()}
        #: Candidates of the queues that were looked at; the others have those of the field.
        self._left: dict[ClusterQueue, deque[Candidate]] = {preemptor: own}
        self._preemptor = preemptor
        self._root = preemptor.tree.root
        #: Nodes that left the order of the field.
        self._out: set[Node] = self._own | set(moved)
        self._at: dict[Cohort, int] = {}
        self._heaps: dict[Cohort, list[_Ranked]] = {}
        self._given_up: set[Cohort] = set()
        for node in sorted(self._out, key=lambda node: node.height):
            self._enter(node)

    def _enter(self, node: Node) -> None:
        """Enters a node that left the order of the field into the heap of its cohort, if it counts."""
        if node.parent is None:
            return
        entry = self._entry(node)
        if entry is not None:
            heappush(self._heaps.setdefault(node.parent, []), entry)

    def _entry(self, node: Node) -> _Ranked | None:
        if isinstance(node, ClusterQueue):
            if not self.candidates(node):
                return None
        elif self._top(cast(Cohort, node)) is None:
            return None
        return _ranked(node, share_of(node), self._left, self._preemptor, node in self._own)

    def _top(self, cohort: Cohort) -> _Ranked | None:
        """The child of a cohort that is next."""
        if cohort in self._given_up:
            return None
        order, at = self._field.order.get(cohort, ()), self._at.get(cohort, 0)
        while at < len(order) and order[at].node in self._out:
            at += 1
        self._at[cohort] = at
        heap = self._heaps.get(cohort)
        if at == len(order):
            return heap[0] if heap else None
        return heap[0] if heap and heap[0] < order[at] else order[at]

    def pick(self) -> ClusterQueue | None:
        """The queue to take from next, or None."""
        node: Node = self._root
        if isinstance(node, ClusterQueue):
            return node if self.candidates(node) else None
        while isinstance(node, Cohort):
            top = self._top(node)
            if top is None:
                return None
            node = top.node
        assert isinstance(node, ClusterQueue)
        return node

    def candidates(self, queue: ClusterQueue) -> deque[Candidate]:
        """Candidates of a queue that are left, best first; call `refresh` after taking from a picked one."""
        found = self._left.get(queue)
        if found is None:
            found = self._left[queue] = deque(self._field.candidates.get(queue, ()))
        return found

    def give_up(self, cohort: Cohort) -> None:
        """Looks no more at what is below a cohort above the picked queue."""
        self._given_up.add(cohort)
        self._update(cohort, cohort.ancestors())

    def left_below(self, cohort: Cohort) -> list[ClusterQueue]:
        """Queues with candidates below a cohort that was given up, in the order of their names."""
        order = self._field.order.get(cohort, ())[self._at.get(cohort, 0) :]
        nodes = {each.node: None for each in order if each.node not in self._out}
        nodes.update({each.node: None for each in self._heaps.get(cohort, ())})
        found = self._field.below(nodes)
        return sorted((queue for queue in found if self.candidates(queue)), key=lambda queue: queue.name)

    def refresh(self, queue: ClusterQueue) -> None:
        """The picked queue has fewer candidates, and perhaps uses less."""
        self._update(queue, queue.ancestors())

    def _update(self, node: Node, cohorts: Iterable[Cohort]) -> None:
        for cohort in cohorts:
            # A picked node is the first of its cohort, and so are the cohorts above it.
            if node in self._out:
                heappop(self._heaps[cohort])
            else:
                self._out.add(node)
            self._enter(node)
            node = cohort


def share_without(usage: QuotaDemand, node: Node) -> Share:
    """Share of a node without that usage of a workload at or below it."""
    quota.release(usage)
    share = share_of(node)
    quota.reserve(usage)
    return share


def known_share(shares: dict[Node, Share], node: Node) -> Share:
    """Share of a node whose usage is that of the context whose shares these are."""
    found = shares.get(node)
    if found is None:
        found = shares[node] = share_of(node)
    return found


def _ranked(
    node: Node,
    share: Share,
    candidates: Mapping[ClusterQueue, Sequence[Candidate]],
    preemptor: ClusterQueue | None = None,
    own: bool = False,
) -> _Ranked | None:
    """The place of a child of a cohort; None if it is never looked at: it borrows nothing, and it is not
    `own`, on the path of the preemptor's queue."""
    if not share.borrowing and not own:
        return None
    rank: tuple[Any, ...] = ()
    if isinstance(node, ClusterQueue):
        first = candidates[node][0]
        rank = (not first.info.evicted, node is preemptor, first[:4])
    # Higher share first; of equals cohorts first, then the better candidate, then the name.
    return _Ranked((not share.unbounded, -share.value, isinstance(node, ClusterQueue), rank, node.name), node)
