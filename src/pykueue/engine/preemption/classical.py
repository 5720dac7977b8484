"""The search for workloads to preempt without fair sharing.

The search works on the live tree: it takes usage away, looks, and puts everything back before it returns.
Source of the rules: docs/reference/kueue-semantics.md 8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cmp_to_key
from heapq import merge
from typing import TYPE_CHECKING, Any

from pykueue.engine import capacity
from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explain.explanation import Search, Target
from pykueue.engine.fair_sharing.shares import Share
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.queues.local_queue import LocalQueue
from pykueue.engine.quota.tree import Cohort, Node, Tree
from pykueue.engine.quota.usage import FlavorUsage, add, available, remove
from pykueue.engine.workload import WorkloadInfo

if TYPE_CHECKING:
    from pykueue.engine.policies import EvaluationContext

#: Past usage of a LocalQueue, where LocalQueues compete (10.5).
UsageOf = Callable[[LocalQueue], float]

Targets = list[tuple[WorkloadInfo, PreemptionReason]]


class CandidatePool:
    """Borrowers below a cohort, and what they run: candidates for everybody in the cohort (8.3)."""

    __slots__ = ("evicted", "running", "subtree_of")

    def __init__(self, subtree_of: dict[ClusterQueue, Node], needed: frozenset[int]) -> None:
        #: The child of the cohort that a queue is, or is below.
        self.subtree_of = subtree_of
        self.evicted: list[Any] = []
        self.running: list[Any] = []
        for queue in subtree_of:
            for candidate in queue.candidate_order:
                info: WorkloadInfo = candidate[4]
                if not needed.isdisjoint(info.flavor_resources):
                    (self.evicted if info.evicted else self.running).append(candidate)
        # Seats of one queue are in order already, which makes this sort a merge.
        self.evicted.sort()
        self.running.sort()


class PreemptionContext:
    """What the searches of one moment share: it holds only as long as no usage changes."""

    __slots__ = ("_over", "_pools", "_queue_candidates", "evaluation", "highest_shares", "shares")

    def __init__(self, evaluation: EvaluationContext | None = None) -> None:
        #: Time and policy hooks; None where there are no hooks to ask.
        self.evaluation = evaluation
        #: Filled by the search under fair sharing: shares by node, and for each cohort its two richest
        #: children.
        self.shares: dict[Node, Share] = {}
        self.highest_shares: dict[Cohort, list[tuple[Share, Node]]] = {}
        self._queue_candidates: dict[tuple[ClusterQueue, frozenset[int]], list[Any]] = {}
        self._pools: dict[tuple[Cohort, frozenset[int]], CandidatePool] = {}
        self._over: dict[tuple[Tree, frozenset[int]], list[ClusterQueue]] = {}

    def pool(self, cohort: Cohort, needed: frozenset[int]) -> CandidatePool:
        """The borrowers below a cohort."""
        key = (cohort, needed)
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = CandidatePool(_borrowers(cohort, needed), needed)
        return found

    def queue_candidates(self, queue: ClusterQueue, needed: frozenset[int]) -> list[Any]:
        """Seats of workloads of a queue that hold one of the pairs, evicted ones first."""
        key = (queue, needed)
        found = self._queue_candidates.get(key)
        if found is None:
            found = self._queue_candidates[key] = [
                candidate
                for candidate in queue.candidate_order
                if not needed.isdisjoint(candidate[4].flavor_resources)
            ]
            if queue.evicted:
                found.sort(key=lambda candidate: not candidate[4].evicted)
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


class PreemptionRequest:
    """What must be made free, and for whom."""

    __slots__ = (
        "context",
        "excluded",
        "info",
        "lacking",
        "needed",
        "priority",
        "queue",
        "requests",
        "usage_of",
    )

    def __init__(
        self,
        info: WorkloadInfo,
        queue: ClusterQueue,
        requests: Sequence[tuple[FlavorUsage, int]],
        needed: Iterable[int],
        usage_of: UsageOf | None,
        excluded: Collection[WorkloadInfo] = (),
        context: PreemptionContext | None = None,
    ) -> None:
        self.info = info
        self.queue = queue
        self.priority = info.priority
        #: All amounts that must fit, those that fit already included.
        self.requests = requests
        #: Pairs that lack room: only workloads that hold one of them are worth removing.
        self.needed = frozenset(needed)
        self.usage_of = usage_of
        #: Names of shared capacities that lack room; their candidates are in the own queue.
        self.lacking: frozenset[str] = frozenset()
        if info.demands:
            self.lacking = frozenset([each.name for each, amount in info.demands if not each.fits(amount)])
        #: Workloads that are no candidates: others of this cycle count on them, or this one replaces them.
        self.excluded = excluded
        #: What other searches of this moment found out already.
        self.context = context if context is not None else PreemptionContext()

    def within_own_policy(self, other: WorkloadInfo) -> bool:
        """Whether withinClusterQueue allows to preempt this workload of the same queue (8.1)."""
        if other.priority < self.priority:
            return True
        return (
            self.queue.within == "LowerOrNewerEqualPriority"
            and other.priority == self.priority
            and self.info.timestamp < other.timestamp
        )

    def own_candidates(self, evicted: bool) -> Iterator[Any]:
        """Seats of workloads of the own queue that may go, in the order they would."""
        queue = self.queue
        if queue.within == "Never":
            return
        queue_candidates: Iterable[Any] = (
            queue.candidate_order if not evicted else sorted(r.candidate for r in queue.evicted.values())
        )
        if queue.fair_by_usage and self.usage_of is not None:
            usage = {
                local: self.usage_of(local)
                for local in {s[4].local for s in queue_candidates}
                if local is not None
            }
            queue_candidates = sorted(
                queue_candidates, key=lambda candidate: -usage.get(candidate[4].local, 0.0)
            )
            usage_first = True
        else:
            usage_first = False
        for candidate in queue_candidates:
            info: WorkloadInfo = candidate[4]
            if info.priority > self.priority and not usage_first:
                return
            if (
                info.evicted == evicted
                and info not in self.excluded
                and self.within_own_policy(info)
                and self.frees(info)
            ):
                yield candidate

    def candidates_of(self, queue: ClusterQueue) -> list[Any]:
        """Seats of workloads of another queue that reclaimWithinCohort allows to preempt, evicted ones
        first."""
        found = self.context.queue_candidates(queue, self.needed)
        if self.queue.reclaim == "LowerPriority":
            bound = self.priority
            found = [candidate for candidate in found if candidate[0] < bound]
        if self.excluded:
            excluded = self.excluded
            found = [candidate for candidate in found if candidate[4] not in excluded]
        if queue.fair_by_usage and self.usage_of is not None:
            usage_of = self.usage_of
            found = sorted(
                found,
                key=lambda candidate: (
                    not candidate[4].evicted,
                    -usage_of(candidate[4].local) if candidate[4].local is not None else 0.0,
                ),
            )
        return found

    def frees(self, info: WorkloadInfo) -> bool:
        """Whether removing a workload of the own queue frees anything that is missing."""
        if not self.needed.isdisjoint(info.flavor_resources):
            return True
        return bool(self.lacking) and any(shared.name in self.lacking for shared, _ in info.demands)

    def fits(self, borrowing: bool) -> bool:
        """Whether the requests fit now; without borrowing, also within the own nominal quota."""
        for flavor_usage, amount in self.requests:
            if amount > available(flavor_usage) or (
                not borrowing and flavor_usage.usage + amount > flavor_usage.subtree
            ):
                return False
        return not self.info.demands or capacity.fit(self.info.demands)


def within_nominal(node: Node, flavor_resources: Iterable[int]) -> bool:
    """Whether a node uses no more than its own quota of every pair."""
    flavor_usages = node.flavor_usages
    for flavor_resource in flavor_resources:
        flavor_usage = flavor_usages.get(flavor_resource)
        if flavor_usage is not None and flavor_usage.usage > flavor_usage.subtree:
            return False
    return True


def simulate_removal(info: WorkloadInfo) -> None:
    """Removes a workload's usage from the tree, for the length of a search."""
    flavor_usages = info.queue.flavor_usages  # type: ignore[union-attr]
    for flavor_resource, amount in info.usage:
        remove(flavor_usages[flavor_resource], amount)
    if info.demands:
        capacity.release(info.demands)


def restore(info: WorkloadInfo) -> None:
    """The exact inverse of `simulate_removal`."""
    flavor_usages = info.queue.flavor_usages  # type: ignore[union-attr]
    for flavor_resource, amount in info.usage:
        add(flavor_usages[flavor_resource], amount)
    if info.demands:
        capacity.reserve(info.demands)


#: A candidate of another queue: its seat, and the nearest cohort it shares with the preemptor.
_Foreign = tuple[Any, Cohort]


class _Field:
    """Where the workloads of other queues that may be reclaimed stand (8.3)."""

    __slots__ = ("hierarchy", "priority", "request")

    def __init__(self, request: PreemptionRequest) -> None:
        self.request = request
        #: (cohort, child the preemptor is below): cohorts outside a subtree whose own quota covers the
        #: requests.
        self.hierarchy: list[tuple[Cohort, Node]] = []
        #: The other cohorts above.
        self.priority: list[tuple[Cohort, Node]] = []
        queue = request.queue
        if queue.parent is None or queue.reclaim == "Never":
            return
        rest = dict(request.requests)
        advantage = _covers(rest)
        below: Node = queue
        for cohort in queue.ancestors():
            rest = _above(rest)
            (self.hierarchy if advantage else self.priority).append((cohort, below))
            # Made before anything is taken away: other searches of the scene use the same.
            request.context.pool(cohort, request.needed)
            advantage = advantage or _covers(rest)
            below = cohort

    def candidates(self, levels: list[tuple[Cohort, Node]], evicted: bool) -> Iterator[_Foreign]:
        """Workloads that reclaimWithinCohort allows to preempt, in the order they would go (8.4)."""
        if len(levels) == 1:
            found = self._level(*levels[0], evicted)
        elif not levels:
            return iter(())
        else:
            found = merge(*[self._level(cohort, below, evicted) for cohort, below in levels], key=_order_of)
        usage_of = self.request.usage_of
        return iter(sorted(found, key=_by_usage(usage_of))) if usage_of is not None else found

    def _level(self, cohort: Cohort, below: Node, evicted: bool) -> Iterator[_Foreign]:
        request = self.request
        pool = request.context.pool(cohort, request.needed)
        subtree_of, excluded = pool.subtree_of, request.excluded
        bound = request.priority if request.queue.reclaim == "LowerPriority" else None
        for candidate in pool.evicted if evicted else pool.running:
            if bound is not None and candidate[0] >= bound:
                return
            info: WorkloadInfo = candidate[4]
            if subtree_of[info.queue] is not below and info not in excluded:  # type: ignore[index]
                yield candidate, cohort

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
        needed = self.request.needed
        node: Node | None = queue
        while node is not None and node is not cohort:
            if within_nominal(node, needed):
                return True
            node = node.parent
        return False


def _order_of(candidate: _Foreign) -> Any:
    return candidate[0]


def _by_usage(usage_of: UsageOf) -> Callable[[_Foreign], Any]:
    """Order of candidates where LocalQueues of one ClusterQueue compete by usage: the heavier user goes
    first."""

    def compare(one: _Foreign, other: _Foreign) -> int:
        a: WorkloadInfo = one[0][4]
        b: WorkloadInfo = other[0][4]
        if a.queue is b.queue and a.queue is not None and a.queue.fair_by_usage and a.local is not b.local:
            used = usage_of(a.local) if a.local is not None else 0.0
            other_used = usage_of(b.local) if b.local is not None else 0.0
            if used != other_used:
                return -1 if used > other_used else 1
        return -1 if one[0] < other[0] else 1

    return cmp_to_key(compare)


def _covers(requests: dict[FlavorUsage, int]) -> bool:
    return all(
        flavor_usage.subtree >= flavor_usage.usage + amount for flavor_usage, amount in requests.items()
    )


def _above(requests: dict[FlavorUsage, int]) -> dict[FlavorUsage, int]:
    """What the parents must provide."""
    return {
        flavor_usage.parent: max(0, amount - max(0, flavor_usage.local - flavor_usage.usage))
        for flavor_usage, amount in requests.items()
        if flavor_usage.parent is not None
    }


def search(request: PreemptionRequest, report: Search) -> Targets:
    """The workloads to preempt, or nothing if that does not help. The tree is left as it was."""
    queue = request.queue
    field = _Field(request)
    over_nominal = any(
        flavor_usage.usage >= flavor_usage.subtree
        for flavor_usage in (queue.flavor_usages[flavor_resource] for flavor_resource in request.needed)
    )
    attempts: tuple[bool, ...] = (True, False)
    if not queue.borrow_within:
        if over_nominal:
            attempts = (True,)
        elif not field.any(field.hierarchy):
            attempts = (False, True) if field.any(field.priority) else (True,)
    elif not field.any(field.hierarchy) and not field.any(field.priority):
        attempts = (True,)
    for borrowing in attempts:
        targets = _attempt(request, field, borrowing, report)
        if targets:
            report.targets = tuple(Target(info.key, reason) for info, reason in targets)
            report.stopped = "Fits"
            return targets
    report.stopped = "Exhausted" if report.considered else "NoCandidates"
    return []


def _sequence(
    request: PreemptionRequest, field: _Field, borrowing: bool
) -> Iterator[tuple[Any, Cohort | None, bool]]:
    """(seat, common cohort if it is of another queue, whether on the hierarchy list), in the order of 8.4."""
    # A borrower may take from the priority list only what borrowWithinCohort allows.
    priority = field.priority if request.queue.borrow_within or not borrowing else []
    for evicted in (True, False):
        for candidate, cohort in field.candidates(field.hierarchy, evicted):
            yield candidate, cohort, True
        for candidate, cohort in field.candidates(priority, evicted):
            yield candidate, cohort, False
        for candidate in request.own_candidates(evicted):
            yield candidate, None, False


def _group(candidate: tuple[Any, Cohort | None, bool]) -> tuple[Any, ...]:
    """What decides the order of candidates before a policy does."""
    (priority, *_, info), cohort, hierarchical = candidate
    return info.evicted, cohort is None, hierarchical, priority


def _attempt(request: PreemptionRequest, field: _Field, borrowing: bool, report: Search) -> Targets:
    queue = request.queue
    threshold = queue.borrow_threshold
    removed: Targets = []
    considered = 0
    sequence: Iterable[tuple[Any, Cohort | None, bool]] = _sequence(request, field, borrowing)
    evaluation = request.context.evaluation
    if evaluation is not None:
        sequence = evaluation.ordered(request.info, sequence, _group)
    for candidate, cohort, hierarchical in sequence:
        info: WorkloadInfo = candidate[4]
        considered += 1
        reason: PreemptionReason = "InClusterQueue"
        if cohort is not None:
            reason = "InCohortReclamation"
            if not hierarchical:
                while_borrowing = (
                    queue.borrow_within
                    and info.priority < request.priority
                    and (threshold is None or info.priority <= threshold)
                )
                if while_borrowing:
                    reason = "InCohortReclaimWhileBorrowing"
                elif borrowing:
                    continue
            assert info.queue is not None
            if field.protected(info.queue, cohort):
                continue
        if evaluation is not None and not evaluation.allows(request.info, info, reason):
            continue
        simulate_removal(info)
        removed.append((info, reason))
        if request.fits(borrowing):
            report.considered, report.removed = considered, len(removed)
            return fill_back(request, removed, borrowing)
    for info, _ in removed:
        restore(info)
    report.considered, report.removed = considered, len(removed)
    return []


def fill_back(request: PreemptionRequest, removed: Targets, borrowing: bool) -> Targets:
    """Drops targets that turn out not to be needed, and puts all usage back (8.7)."""
    at = len(removed) - 2
    while at >= 0:
        info = removed[at][0]
        restore(info)
        if request.fits(borrowing):
            removed[at] = removed[-1]
            removed.pop()
        else:
            simulate_removal(info)
        at -= 1
    for info, _ in removed:
        restore(info)
    return removed
