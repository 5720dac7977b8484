"""Which queue loses a workload next under fair sharing: the one with the highest share.

Source of the rules: docs/reference/kueue-semantics.md 9.5 (CQ picker).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from pykueue.engine.fair_sharing.shares import Share, share_of
from pykueue.engine.preemption.context import Ranking
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

    __slots__ = ("_left", "_places", "_shares", "candidates", "children", "order", "total", "version")

    def __init__(
        self,
        shares: dict[Node, Share],
        candidates: dict[ClusterQueue, list[Candidate]],
        apart: Collection[Node] = (),
    ) -> None:
        """`shares` are those of the context, added as they are needed; `apart` are nodes whose usage is not
        that of the context, and that get no place in the order.
        """
        self._shares = shares
        self.candidates = candidates
        #: Of the context that it was brought up to date with.
        self.version = 0
        #: Number of all candidates.
        self.total = sum(map(len, candidates.values()))
        #: Nodes with candidates at or below them, by the cohort right above.
        self.children: dict[Cohort, dict[Node, None]] = {}
        #: For each cohort its children by the highest share that they keep without any one candidate.
        self._left: dict[Cohort, Ranking] = {}
        #: Those of the children that borrow, the highest share first, and each one's place.
        self.order: dict[Cohort, list[_Ranked]] = {}
        self._places: dict[Node, _Ranked] = {}
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
            places = [self._place(node) for node in self.children[cohort] if node not in apart]
            self.order[cohort] = sorted(each for each in places if each is not None)

    def _place(self, node: Node) -> _Ranked | None:
        """The place of a node with candidates, if it has one."""
        if not (isinstance(node, ClusterQueue) or self.order[cast(Cohort, node)]):
            return None
        found = _ranked(node, known_share(self._shares, node), self.candidates)
        if found is not None:
            self._places[node] = found
        return found

    def update(self, queue: ClusterQueue, candidates: list[Candidate]) -> None:
        """A queue has these candidates now, and perhaps another usage. To be called with the usage of the
        context."""
        self.total += len(candidates) - len(self.candidates.pop(queue, ()))
        if candidates:
            self.candidates[queue] = candidates
        node: Node = queue
        counts = bool(candidates)
        for cohort in queue.ancestors():
            children = self.children.setdefault(cohort, {})
            order = self.order.setdefault(cohort, [])
            left = self._left.get(cohort)
            place = self._places.pop(node, None)
            if place is not None:
                del order[bisect_left(order, place)]
            if counts:
                children[node] = None
                place = self._place(node)
                if place is not None:
                    insort(order, place)
                if left is not None:
                    left.forget(node)
            else:
                children.pop(node, None)
                if left is not None:
                    left.drop(node)
            counts = bool(children)
            node = cohort

    def highest_left(self, cohort: Cohort) -> list[tuple[tuple[bool, float], int, Node]]:
        """The two highest shares that children of a cohort keep after any one candidate is removed.

        To be called with the usage of the context. Candidates with equal usage are tried once.
        """
        ranking = self._left.get(cohort)
        if ranking is None:
            ranking = self._left[cohort] = Ranking(self.children.get(cohort, ()))
        return ranking.highest(self._most_left)

    def left(self, child: Node) -> tuple[bool, float]:
        """The highest share that a child of a cohort keeps, once `highest_left` was called."""
        assert child.parent is not None
        found: tuple[bool, float] = self._left[child.parent].value_of(child)
        return found

    def _most_left(self, child: Node) -> tuple[bool, float]:
        return max(
            share_without(usage, child)[:2]
            for queue in self.below((child,))
            for usage in {tuple(quota.reserved_by(each.info)) for each in self.candidates[queue]}
        )

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
        left: Mapping[ClusterQueue, Iterable[Candidate]] = MappingProxyType({}),
    ) -> None:
        """`own` are candidates of the preemptor's queue, and `left` of others, in place of the field's;
        `moved` are nodes whose usage or candidates are not those of the field."""
        self._field = field
        self._own: set[Node] = {preemptor, *preemptor.ancestors()}
        #: Candidates of the queues that were looked at; the others have those of the field.
        self._left = {queue: deque(candidates) for queue, candidates in left.items()}
        self._left[preemptor] = own
        self._preemptor = preemptor
        self._root = preemptor.tree.root
        #: Nodes that left the order of the field.
        self._out: set[Node] = self._own | set(moved)
        self._at: dict[Cohort, int] = {}
        self._heaps: dict[Cohort, list[_Ranked]] = {}
        self._given_up: set[Cohort] = set()
        for node in sorted(self._out, key=lambda node: node.height):
            self._enter(node)

    def again(self, retry: Mapping[ClusterQueue, list[Candidate]]) -> Picker:
        """A picker over what was left out, and of the queues that were looked at over `retry`."""
        left = {queue: retry.get(queue, ()) for queue in self._left if queue in self._out}
        return Picker(self._preemptor, self._field, deque(), self._out, left)

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

    def pass_over(self, cohort: Cohort, mine: tuple[bool, float]) -> bool:
        """Leaves out the children of a cohort above the picked queue that come next, have at least the share
        `mine`, and have less without any one of their candidates; whether there are any.

        `Field.highest_left` was called for the cohort.
        """
        field = self._field
        order, at, heap = field.order.get(cohort, ()), self._at.get(cohort, 0), self._heaps.get(cohort)
        # Those with such a share that come before the first of the others.
        end = bisect_right(order, (not mine[0], -mine[1]), at, key=_by_share)
        if heap:
            end = bisect_left(order, heap[0], at, end)
        if any(left >= mine and child not in self._own for left, _, child in field.highest_left(cohort)):
            end = next((i for i in range(at, end) if self._counts(order[i].node, mine)), end)
        if at == end:
            return False
        self._at[cohort] = end
        self._update(cohort, cohort.ancestors())
        return True

    def _counts(self, node: Node, mine: tuple[bool, float]) -> bool:
        """Whether a node of the order keeps at least the share `mine`."""
        return node not in self._out and self._field.left(node) >= mine

    def give_up(self, cohort: Cohort) -> None:
        """Looks no more at what is below a cohort above the picked queue."""
        self._given_up.add(cohort)
        self._update(cohort, cohort.ancestors())

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


def _by_share(ranked: _Ranked) -> Any:
    return ranked.key[:2]


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
