"""Fair shares of the nodes of a tree, and the order they give to workloads of one cycle.

Source of the rules: docs/reference/kueue-semantics.md 9.1 to 9.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, NamedTuple

from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.capacity import QuotaDemand
from pykueue.engine.quota.tree import Cohort, Node


class Share(NamedTuple):
    """Dominant resource share of a node. Shares compare as the rules say: no weight ranks above every
    weight."""

    unbounded: bool
    """It borrows and has weight zero."""
    value: float
    """Share in thousandths divided by the weight; undivided where the weight is zero."""
    borrowing: bool
    resource: str = ""
    """The resource that decides."""


NO_SHARE = Share(False, 0.0, False)


def share_of(node: Node) -> Share:
    """How much the node borrows of what it could, by its dominant resource."""
    parent = node.parent
    if parent is None:
        return NO_SHARE
    borrowed: dict[str, int] | None = None
    for flavor_usage in node.flavor_usages.values():
        over = flavor_usage.usage - flavor_usage.subtree
        if over > 0:
            if borrowed is None:
                borrowed = {}
            borrowed[flavor_usage.resource] = borrowed.get(flavor_usage.resource, 0) + over
    if borrowed is None:
        return NO_SHARE
    lendable = parent.lendable
    ratio, dominant = 0.0, ""
    for resource in sorted(borrowed):
        total = lendable.get(resource, 0)
        if total > 0:
            found = borrowed[resource] * 1000 / total
            if found > ratio or not dominant:
                ratio, dominant = found, resource
    if ratio == 0:
        return Share(False, 0.0, True, dominant)
    if node.weight == 0:
        return Share(True, ratio, True, dominant)
    return Share(False, ratio / node.weight, True, dominant)


class Contender:
    """One entry of a cycle."""

    __slots__ = ("demand", "first", "name", "queue", "rank", "value")

    def __init__(
        self,
        value: Any,
        name: str,
        queue: ClusterQueue,
        demand: QuotaDemand,
        rank: tuple[Any, ...],
        first: tuple[Any, ...],
    ) -> None:
        self.value = value
        #: Decides when all else is equal.
        self.name = name
        self.queue = queue
        #: What it demands of quota.
        self.demand = demand
        #: What decides between equal shares: priority and time.
        self.rank = rank
        #: What decides before shares do: preemptors and workloads that others were preempted for go first.
        self.first = first


class _Ranked(NamedTuple):
    """The best entry at or below a node, in the heap of its contest."""

    key: tuple[Any, ...]
    number: int
    """Keeps nodes from being compared."""
    node: Node
    best: Contender


class _Arena:
    """The contest at one cohort: the best entry of each child, ordered by the share the child would have."""

    __slots__ = ("heap", "number")

    def __init__(self) -> None:
        self.heap: list[_Ranked] = []
        self.number = 0


class Tournament:
    """Yields entries in fair order; usage may change between two calls of `next` (9.3).

    Trees that share a capacity are compared by the best entry of each: by the share its subtree would have.
    A contest below a cohort is only held again when usage below it changed, so one entry costs the height
    of the tree.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        prioritize_non_borrowing: bool,
        exchange: Callable[[ClusterQueue], None],
    ) -> None:
        """`exchange` puts the usage in force that a queue and the cohorts above it are compared by; called
        again, it puts back what was there."""
        self._non_borrowing = prioritize_non_borrowing
        self._exchange = exchange
        self._of_queue: dict[ClusterQueue, list[Contender]] = {}
        for contender in contenders:
            self._of_queue.setdefault(contender.queue, []).append(contender)
        self._arenas: dict[Cohort, _Arena] = {}
        roots: dict[Node, None] = {}
        members: dict[Cohort, dict[Node, None]] = {}
        for queue in sorted(self._of_queue, key=lambda queue: queue.name):
            node: Node = queue
            for cohort in queue.ancestors():
                members.setdefault(cohort, {})[node] = None
                node = cohort
            roots[node] = None
        self._members = members
        #: The best entry of each tree.
        self._trees: list[_Ranked] = []
        self._number = 0
        for root in roots:
            if isinstance(root, Cohort):
                self._fill(root)
            self._enter(root)
        self._last: ClusterQueue | None = None

    def _fill(self, cohort: Cohort) -> None:
        arena = self._arenas[cohort] = _Arena()
        for node in self._members[cohort]:
            if isinstance(node, Cohort):
                self._fill(node)
            entry = self._entry(arena, node)
            if entry is not None:
                arena.heap.append(entry)
        heapify(arena.heap)

    def _best(self, node: Node) -> Contender | None:
        if isinstance(node, Cohort):
            heap = self._arenas[node].heap
            return heap[0].best if heap else None
        waiting = self._of_queue.get(node)  # type: ignore[call-overload]
        return waiting[0] if waiting else None

    def _entry(self, arena: _Arena, node: Node) -> _Ranked | None:
        best = self._best(node)
        if best is None:
            return None
        self._exchange(best.queue)
        quota.reserve(best.demand)
        share = share_of(node)
        borrows = self._non_borrowing and _borrows(node, best.demand)
        quota.release(best.demand)
        self._exchange(best.queue)
        key = (
            best.first,
            borrows,
            share.unbounded,
            share.value,
            best.rank,
            not isinstance(node, Cohort),
            best.name,
        )
        arena.number += 1
        return _Ranked(key, arena.number, node, best)

    def next(self) -> Any:
        """The value of the entry that goes next, or None when all have gone."""
        if self._last is not None:
            self._refresh(self._last)
            self._enter(self._last.tree.root)
            self._last = None
        if not self._trees:
            return None
        best = heappop(self._trees).best
        self._of_queue[best.queue].remove(best)
        self._last = best.queue
        return best.value

    def _enter(self, root: Node) -> None:
        """Enters the best entry of a tree, if it has any left."""
        best = self._best(root)
        if best is None:
            return
        key = (best.first, False, False, 0.0, best.rank, True, best.name)
        if isinstance(root, Cohort):
            key = self._arenas[root].heap[0].key
        self._number += 1
        heappush(self._trees, _Ranked(key, self._number, root, best))

    def _refresh(self, queue: ClusterQueue) -> None:
        """Holds the contests above a queue again: its entry is gone and usage may have changed."""
        node: Node = queue
        for cohort in queue.ancestors():
            arena = self._arenas[cohort]
            # The queue's entry won every contest above it, so it is the first of each heap.
            entry = self._entry(arena, node)
            if entry is None:
                heappop(arena.heap)
            else:
                heapreplace(arena.heap, entry)
            node = cohort


def _borrows(node: Node, demand: QuotaDemand) -> bool:
    """Whether the node borrows any of what is demanded."""
    flavor_usages = node.flavor_usages
    for demanded, _ in demand:
        flavor_usage = flavor_usages.get(demanded.flavor_resource)
        if flavor_usage is not None and flavor_usage.usage > flavor_usage.subtree:
            return True
    return False
