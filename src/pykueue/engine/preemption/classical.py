"""The search for workloads to preempt without fair sharing.

The search works on the live tree: it releases what candidates reserve, asks the capacities whether all
demands fit, and reserves everything again before it returns.
Source of the rules: docs/reference/kueue-semantics.md 8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cmp_to_key
from heapq import merge
from typing import Any, NamedTuple

from pykueue.engine import capacity
from pykueue.engine.capacity import Demands
from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explanation import Search
from pykueue.engine.preemption.context import PreemptionContext, within_nominal
from pykueue.engine.queues.cluster_queue import Candidate, ClusterQueue
from pykueue.engine.queues.local_queue import LocalQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.tree import Cohort, Node
from pykueue.engine.quota.usage import FlavorUsage
from pykueue.engine.workload import WorkloadInfo

#: Past usage of a LocalQueue, where LocalQueues compete (10.5).
UsageOf = Callable[[LocalQueue], float]

Targets = list[tuple[WorkloadInfo, PreemptionReason]]


class PreemptionRequest:
    """What must be made free, and for whom."""

    __slots__ = (
        "_lacking_quota",
        "context",
        "demands",
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
        demands: Demands = (),
    ) -> None:
        self.info = info
        self.queue = queue
        self.priority = info.priority
        #: All amounts that must fit, those that fit already included.
        self.requests = requests
        #: What must fit of shared capacities.
        self.demands = demands
        #: Those of them that do not fit now.
        self.lacking = capacity.lacking(demands) if demands else ()
        self._lacking_quota = frozenset(needed)
        #: FlavorResources whose holders may be reclaimed from the cohort: those that lack quota; all of the
        #: request if a shared capacity is lacking (docs/reference/topology-aware-scheduling.md 12.3).
        self.needed = self._lacking_quota
        if self.lacking:
            self.needed = self.needed.union(each.flavor_resource for each, _ in requests)
        self.usage_of = usage_of
        #: Workloads that are no candidates, besides those that are gone for all searches of the context.
        self.excluded = excluded
        #: What other searches of this cycle found out already.
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

    def own_candidates(self, evicted: bool) -> Iterator[Candidate]:
        """Workloads of the own queue that may go, in the order they would."""
        queue = self.queue
        if queue.within == "Never":
            return
        queue_candidates: Iterable[Candidate] = queue.candidate_order
        if evicted:
            queue_candidates = sorted(info.candidate for info in queue.evicted.values() if info.candidate)
        if queue.fair_by_usage and self.usage_of is not None:
            usage = {
                local: self.usage_of(local)
                for local in {candidate.info.local for candidate in queue_candidates}
                if local is not None
            }
            queue_candidates = sorted(
                queue_candidates,
                key=lambda candidate: -usage.get(candidate.info.local, 0.0),  # type: ignore[arg-type]
            )
            usage_first = True
        else:
            usage_first = False
        gone = self.context.gone
        # From this priority on no workload of the queue may be preempted.
        bound = self.priority if queue.within == "LowerPriority" else self.priority + 1
        for candidate in queue_candidates:
            info = candidate.info
            if info.priority >= bound and not usage_first:
                return
            if (
                info.evicted == evicted
                and info not in gone
                and info not in self.excluded
                and self.within_own_policy(info)
                and self.frees(info)
            ):
                yield candidate

    def candidates_of(self, queue: ClusterQueue) -> list[Candidate]:
        """Workloads of another queue that reclaimWithinCohort allows to preempt, evicted ones first."""
        found = self.context.queue_candidates(queue, self.needed)
        if self.queue.reclaim == "LowerPriority":
            bound = self.priority
            found = [candidate for candidate in found if candidate.priority < bound]
        if self.excluded:
            excluded = self.excluded
            found = [candidate for candidate in found if candidate.info not in excluded]
        if self.lacking:
            found = [candidate for candidate in found if self.frees(candidate.info)]
        if queue.fair_by_usage and self.usage_of is not None:
            usage_of = self.usage_of
            found = sorted(
                found,
                key=lambda candidate: (
                    not candidate.info.evicted,
                    -usage_of(candidate.info.local) if candidate.info.local is not None else 0.0,
                ),
            )
        return found

    def frees(self, info: WorkloadInfo) -> bool:
        """Whether removing a workload frees anything that is lacking."""
        if not self._lacking_quota.isdisjoint(info.flavor_resources):
            return True
        return bool(self.lacking) and capacity.frees(info.shared, self.lacking)

    def fits(self, borrowing: bool) -> bool:
        """Whether the requests fit now; without borrowing, also within the own nominal quota."""
        fits = quota.fits(self.requests) if borrowing else quota.fits_without_borrowing(self.requests)
        return fits and (not self.demands or capacity.fits(self.demands))


def simulate_removal(info: WorkloadInfo) -> None:
    """Release what a workload reserves, for the length of a search."""
    quota.release(quota.reserved_by(info))
    if info.shared:
        capacity.release(info.shared)


def restore(info: WorkloadInfo) -> None:
    """The exact inverse of `simulate_removal`."""
    quota.reserve(quota.reserved_by(info))
    if info.shared:
        capacity.reserve(info.shared)


@contextmanager
def removed(targets: Targets) -> Iterator[None]:
    """Look at the capacity as it will be once these workloads are gone."""
    for info, _ in targets:
        simulate_removal(info)
    yield
    for info, _ in targets:
        restore(info)


class _Foreign(NamedTuple):
    """A candidate of another queue."""

    candidate: Candidate
    cohort: Cohort
    """The nearest one that it shares with the preemptor."""


class Considered(NamedTuple):
    """A candidate in the order of 8.4."""

    candidate: Candidate
    cohort: Cohort | None = None
    """The nearest one that it shares with the preemptor; None for one of the own queue."""
    hierarchical: bool = False
    """It is on the hierarchy list."""


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
        lacking = request.lacking
        bound = request.priority if request.queue.reclaim == "LowerPriority" else None
        for candidate in pool.evicted if evicted else pool.running:
            info = candidate.info
            if bound is not None and info.priority >= bound:
                return
            if (
                subtree_of[info.queue] is not below  # type: ignore[index]
                and info not in excluded
                and (not lacking or request.frees(info))
            ):
                yield _Foreign(candidate, cohort)

    def any(self, levels: list[tuple[Cohort, Node]]) -> bool:
        """Whether there is any candidate at these levels."""
        for cohort, below in levels:
            for evicted in (False, True):
                for _ in self._level(cohort, below, evicted):
                    return True
        return False

    def protected(self, queue: ClusterQueue, cohort: Cohort) -> bool:
        """Whether the queue, or a cohort between it and the common one, is back within its quota."""
        needed = self.request.needed
        node: Node | None = queue
        while node is not None and node is not cohort:
            if within_nominal(node, needed):
                return True
            node = node.parent
        return False


def _order_of(foreign: _Foreign) -> Candidate:
    return foreign.candidate


def _by_usage(usage_of: UsageOf) -> Callable[[_Foreign], Any]:
    """Order of candidates where LocalQueues of one ClusterQueue compete by usage: the heavier user goes
    first."""

    def compare(one: _Foreign, other: _Foreign) -> int:
        a, b = one.candidate.info, other.candidate.info
        if a.queue is b.queue and a.queue is not None and a.queue.fair_by_usage and a.local is not b.local:
            used = usage_of(a.local) if a.local is not None else 0.0
            other_used = usage_of(b.local) if b.local is not None else 0.0
            if used != other_used:
                return -1 if used > other_used else 1
        return -1 if one.candidate < other.candidate else 1

    return cmp_to_key(compare)


def _covers(requests: dict[FlavorUsage, int]) -> bool:
    for flavor_usage, amount in requests.items():
        if flavor_usage.subtree < flavor_usage.usage + amount:
            return False
    return True


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
    over_nominal = False
    for flavor_resource in request.needed:
        flavor_usage = queue.flavor_usages[flavor_resource]
        if flavor_usage.usage >= flavor_usage.subtree:
            over_nominal = True
    attempts: tuple[bool, ...] = (True, False)
    if not queue.borrow_within:
        if over_nominal:
            attempts = (True,)
        elif not field.any(field.hierarchy):
            attempts = (False, True) if field.any(field.priority) else (True,)
    elif not field.any(field.hierarchy) and not field.any(field.priority):
        attempts = (True,)
    # Made before anything is removed: other searches of this context use the same.
    from_priority = queue.borrow_within or False in attempts
    for cohort, _ in (*field.hierarchy, *field.priority) if from_priority else field.hierarchy:
        request.context.pool(cohort, request.needed)
    for borrowing in attempts:
        targets = _attempt(request, field, borrowing, report)
        if targets:
            return targets
    report.stopped = "Exhausted" if report.considered else "NoCandidates"
    return []


def _sequence(request: PreemptionRequest, field: _Field, borrowing: bool) -> Iterator[Considered]:
    """The candidates in the order of 8.4."""
    # A borrower may take from the priority list only what borrowWithinCohort allows.
    priority = field.priority if request.queue.borrow_within or not borrowing else []
    for evicted in (True, False):
        for candidate, cohort in field.candidates(field.hierarchy, evicted):
            yield Considered(candidate, cohort, True)
        for candidate, cohort in field.candidates(priority, evicted):
            yield Considered(candidate, cohort)
        for candidate in request.own_candidates(evicted):
            yield Considered(candidate)


def _group(considered: Considered) -> tuple[Any, ...]:
    """What decides the order of candidates before a policy does."""
    candidate, cohort, hierarchical = considered
    return candidate.info.evicted, cohort is None, hierarchical, candidate.priority


def _attempt(request: PreemptionRequest, field: _Field, borrowing: bool, report: Search) -> Targets:
    queue = request.queue
    threshold = queue.borrow_threshold
    removed: Targets = []
    considered = 0
    sequence: Iterable[Considered] = _sequence(request, field, borrowing)
    evaluation = request.context.evaluation
    if evaluation is not None:
        sequence = evaluation.ordered(request.info, sequence, _group)
    for candidate, cohort, hierarchical in sequence:
        info = candidate.info
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
        if evaluation is not None and not evaluation.allows(request.info, info, reason, report):
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
