"""The search for workloads to preempt under fair sharing.

Source of the rules: docs/reference/kueue-semantics.md 9.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explanation import Search
from pykueue.engine.fair_sharing.shares import Share, share_of
from pykueue.engine.options import FairSharingStrategy
from pykueue.engine.preemption.classical import (
    Considered,
    PreemptionContext,
    PreemptionRequest,
    Targets,
    fill_back,
    restore,
    simulate_removal,
)
from pykueue.engine.queues.cluster_queue import Candidate, ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.tree import Cohort, Node
from pykueue.engine.workload import WorkloadInfo


class _Ranked(NamedTuple):
    """A child in the heap of its cohort."""

    key: tuple[Any, ...]
    number: int
    """Keeps nodes from being compared."""
    node: Node


class _Picker:
    """Finds the queue with the highest share that still has candidates (9.5, CQ picker).

    Each cohort has a heap of its children. Taking a candidate changes the shares on the path of its queue
    only, and that queue is the first of every heap on its path, so each pick costs the height of the tree.
    """

    def __init__(
        self, request: PreemptionRequest, candidates: dict[ClusterQueue, deque[Candidate]], moved: set[Node]
    ) -> None:
        self.request = request
        self._candidates = candidates
        self._own: set[Node] = {request.queue, *request.queue.ancestors()}
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
        self._heaps: dict[Cohort, list[_Ranked]] = {}
        self._number = 0
        #: Nodes whose usage is not that of the context any more.
        self._moved: set[Node] = set(self._own) | moved
        self._root = request.queue.tree.root
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

    def _entry(self, node: Node) -> _Ranked | None:
        """Position of a child in the heap of its cohort; None if it is never looked at again."""
        if isinstance(node, ClusterQueue):
            queue_candidates = self._candidates.get(node)
            if not queue_candidates:
                return None
            rank = _rank(queue_candidates[0], self.request)
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
        return _Ranked(key, self._number, node)

    def _share(self, node: Node) -> Share:
        return share_of(node) if node in self._moved else _known_share(self.request.context, node)

    def pick(self) -> ClusterQueue | None:
        """The queue to take from next, or None."""
        node: Node = self._root
        if isinstance(node, ClusterQueue):
            return node if self._candidates.get(node) else None
        while isinstance(node, Cohort):
            heap = self._heaps[node]
            if not heap:
                return None
            node = heap[0].node
        assert isinstance(node, ClusterQueue)
        return node

    def candidates(self, queue: ClusterQueue) -> deque[Candidate]:
        """Candidates of a picked queue, best first; call `refresh` after taking from them."""
        return self._candidates[queue]

    def give_up(self, queue: ClusterQueue, subtree: Node) -> list[Node]:
        """Looks no more at the subtree picked nor at any other child of its cohort, which are returned."""
        cohort = subtree.parent
        assert cohort is not None
        subtrees = [entry.node for entry in self._heaps[cohort]]
        self._heaps[cohort] = []
        self.refresh(queue, uses_less=False, above=cohort)
        return subtrees

    def below(self, subtrees: list[Node]) -> list[ClusterQueue]:
        """Queues with candidates at or below these nodes, in the order of their names."""
        found: list[ClusterQueue] = []
        stack = list(subtrees)
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


def _known_share(context: PreemptionContext, node: Node) -> Share:
    """Share of a node whose usage is that of the context."""
    found = context.shares.get(node)
    if found is None:
        found = context.shares[node] = share_of(node)
    return found


@contextmanager
def _request_left_out(request: PreemptionRequest) -> Iterator[None]:
    """For what the context remembers: other searches use it too, and the request is counted in for one only.

    Counted in, it would make a queue within its quota a candidate for later entries of the cycle.
    """
    quota.release(request.requests)
    yield
    quota.reserve(request.requests)


def _highest_shares(request: PreemptionRequest, cohort: Cohort) -> list[tuple[Share, Node]]:
    """The two children of a cohort with the highest shares, of those that borrow."""
    context = request.context
    found = context.highest_shares.get(cohort)
    if found is None:
        shares: list[tuple[Share, Node]] = []
        with _request_left_out(request):
            for child in (*cohort.children.values(), *cohort.queues.values()):
                share = _known_share(context, child)
                if share.borrowing:
                    shares.append((share, child))
        shares.sort(key=lambda item: item[0][:2], reverse=True)
        found = context.highest_shares[cohort] = shares[:2]
    return found


def _any_higher_share(request: PreemptionRequest) -> bool:
    """Whether any other subtree has at least the share of the preemptor's own; else there are no targets.

    Called with the request counted in the own queue.
    """
    below: Node = request.queue
    for cohort in request.queue.ancestors():
        mine = share_of(below)[:2]
        if any(child is not below and share[:2] >= mine for share, child in _highest_shares(request, cohort)):
            return True
        below = cohort
    return False


def _rank(candidate: Candidate, request: PreemptionRequest) -> tuple[Any, ...]:
    info = candidate.info
    return (not info.evicted, info.queue is request.queue, candidate[:4])


def _candidates(request: PreemptionRequest, own: deque[Candidate]) -> dict[ClusterQueue, deque[Candidate]]:
    """Workloads that may go, by queue, each in order (evicted ones first)."""
    found: dict[ClusterQueue, deque[Candidate]] = {}
    if own:
        found[request.queue] = own
    if request.queue.reclaim == "Never" or request.queue.parent is None:
        return found
    with _request_left_out(request):
        over_nominal = request.context.over_nominal(request.queue.tree, request.needed)
    for queue in over_nominal:
        if queue is not request.queue:
            queue_candidates = request.candidates_of(queue)
            if queue_candidates:
                found[queue] = deque(queue_candidates)
    return found


def _group(considered: Considered) -> tuple[Any, ...]:
    """What decides the order of candidates before a policy does."""
    return considered.candidate.info.evicted, considered.candidate.priority


def _by_policy(
    request: PreemptionRequest,
    candidates: dict[ClusterQueue, deque[Candidate]],
    within: bool,
    report: Search,
) -> dict[ClusterQueue, deque[Candidate]]:
    """Those that policy hooks leave, in the order of the hooks."""
    evaluation, info = request.context.evaluation, request.info
    assert evaluation is not None
    found: dict[ClusterQueue, deque[Candidate]] = {}
    for queue, queue_candidates in candidates.items():
        reason: PreemptionReason = "InCohortReclamation" if within else "InCohortFairSharing"
        if queue is request.queue:
            reason = "InClusterQueue"
        allowed = (
            Considered(each)
            for each in queue_candidates
            if evaluation.allows(info, each.info, reason, report)
        )
        ordered = evaluation.ordered(info, allowed, _group)
        left = deque(each.candidate for each in ordered)
        if left:
            found[queue] = left
    return found


def _subtrees(own: ClusterQueue, other: ClusterQueue) -> tuple[Node, Node]:
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
    request: PreemptionRequest,
    report: Search,
    strategies: tuple[FairSharingStrategy, ...],
    preempt_within_nominal: bool,
) -> Targets:
    """The workloads to preempt, or nothing if that does not help. The tree is left as it was."""
    quota.reserve(request.requests)
    targets = _search(request, report, strategies, preempt_within_nominal)
    for info, _ in targets:
        restore(info)
    quota.release(request.requests)
    if not targets:
        return []
    for info, _ in targets:
        simulate_removal(info)
    return fill_back(request, targets, borrowing=True)


def _search(
    request: PreemptionRequest,
    report: Search,
    strategies: tuple[FairSharingStrategy, ...],
    preempt_within_nominal: bool,
) -> Targets:
    """Targets whose usage is removed, the request being counted in; empty, and nothing removed, if it
    fails."""
    flavor_usages = request.queue.flavor_usages
    within = preempt_within_nominal and all(
        flavor_usages[flavor_resource].usage <= flavor_usages[flavor_resource].subtree
        for flavor_resource in request.needed
    )
    own = deque(candidate for evicted in (True, False) for candidate in request.own_candidates(evicted))
    if not own and not within and not _any_higher_share(request):
        return []
    candidates = _candidates(request, own)
    if request.context.evaluation is not None:
        candidates = _by_policy(request, candidates, within, report)
    report.considered = sum(map(len, candidates.values()))
    if not candidates:
        return []
    removed: Targets = []
    retry: dict[ClusterQueue, deque[Candidate]] = {}
    fits = _first_strategy(request, candidates, strategies[0], within, removed, retry)
    if not fits and len(strategies) > 1:
        fits = _second_strategy(request, retry, removed)
    report.removed = len(removed)
    if fits:
        return removed
    for info, _ in removed:
        restore(info)
    report.stopped = "Exhausted"
    return []


def _fits(request: PreemptionRequest) -> bool:
    quota.release(request.requests)
    fits = request.fits(borrowing=True)
    quota.reserve(request.requests)
    return fits


def _share_without(info: WorkloadInfo, subtree: Node) -> Share:
    simulate_removal(info)
    share = share_of(subtree)
    restore(info)
    return share


def _first_strategy(
    request: PreemptionRequest,
    candidates: dict[ClusterQueue, deque[Candidate]],
    strategy: FairSharingStrategy,
    within: bool,
    removed: Targets,
    retry: dict[ClusterQueue, deque[Candidate]],
) -> bool:
    own = request.queue
    picker = _Picker(request, candidates, set())
    given_up: list[tuple[Node, list[Node]]] = []
    while (queue := picker.pick()) is not None:
        queue_candidates = picker.candidates(queue)
        target: WorkloadInfo | None = None
        reason: PreemptionReason = "InCohortFairSharing"
        if queue is own or within:
            target = queue_candidates.popleft().info
            reason = "InClusterQueue" if queue is own else "InCohortReclamation"
        else:
            own_subtree, other_subtree = _subtrees(own, queue)
            mine, theirs = share_of(own_subtree)[:2], share_of(other_subtree)[:2]
            if mine > theirs:
                # No target of this subtree would make it fair, nor of its siblings, which have no higher
                # share: the own subtree has the highest, and was not picked as it has no candidates left.
                given_up.append((own_subtree, picker.give_up(queue, other_subtree)))
                continue
            while queue_candidates and target is None:
                candidate = queue_candidates.popleft()
                if strategy == "LessThanOrEqualToFinalShare":
                    passes = mine <= _share_without(candidate.info, other_subtree)[:2]
                else:
                    passes = mine < theirs
                if passes:
                    target = candidate.info
                else:
                    retry.setdefault(queue, deque()).append(candidate)
        if target is not None:
            simulate_removal(target)
            removed.append((target, reason))
        picker.refresh(queue, target is not None)
        if target is not None and _fits(request):
            return True
    for own_subtree, subtrees in given_up:
        # The second round may lower the own share after all, if a candidate of the own subtree is tried
        # again.
        if any(node is own_subtree for queue in retry for node in queue.ancestors()):
            for queue in picker.below(subtrees):
                retry.setdefault(queue, deque()).extend(candidates[queue])
    return False


def _second_strategy(
    request: PreemptionRequest, retry: dict[ClusterQueue, deque[Candidate]], removed: Targets
) -> bool:
    own = request.queue
    moved: set[Node] = set()
    for info, _ in removed:
        if info.queue is not None:
            moved.add(info.queue)
            moved.update(info.queue.ancestors())
    picker = _Picker(request, retry, moved)
    while (queue := picker.pick()) is not None:
        queue_candidates = picker.candidates(queue)
        first = queue_candidates[0].info
        queue_candidates.clear()
        own_subtree, other_subtree = _subtrees(own, queue)
        passes = share_of(own_subtree)[:2] < share_of(other_subtree)[:2]
        if passes:
            simulate_removal(first)
            removed.append((first, "InCohortFairSharing"))
        picker.refresh(queue, passes)
        if passes and _fits(request):
            return True
    return False
