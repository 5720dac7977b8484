"""The search for workloads to preempt under fair sharing.

Source of the rules: docs/reference/kueue-semantics.md 9.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explanation import Search
from pykueue.engine.fair_sharing.shares import Share, share_of
from pykueue.engine.options import FairSharingStrategy
from pykueue.engine.preemption.classical import (
    Considered,
    PreemptionRequest,
    Targets,
    fill_back,
    restore,
    simulate_removal,
)
from pykueue.engine.preemption.context import Ranking, is_over_nominal
from pykueue.engine.preemption.fair_picker import Field, Picker, known_share, share_without
from pykueue.engine.queues.cluster_queue import Candidate, ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.tree import Cohort, Node
from pykueue.engine.workload import WorkloadInfo


@contextmanager
def _request_left_out(request: PreemptionRequest) -> Iterator[None]:
    """For what the context remembers: other searches use it too, and the request is counted in for one only.

    Counted in, it would make a queue within its quota a candidate for later entries of the cycle.
    """
    quota.release(request.requests)
    yield
    quota.reserve(request.requests)


def _highest_shares(request: PreemptionRequest, cohort: Cohort) -> list[tuple[tuple[bool, float], int, Node]]:
    """The two children of a cohort with the highest shares, of those that borrow."""
    context = request.context
    ranking = context.richest.get(cohort)
    if ranking is None:
        ranking = context.richest[cohort] = Ranking((*cohort.children.values(), *cohort.queues.values()))
    with _request_left_out(request) if ranking.unknown else nullcontext():
        return ranking.highest(lambda child: _borrowed(known_share(context.shares, child)))


def _borrowed(share: Share) -> tuple[bool, float] | None:
    return share[:2] if share.borrowing else None


def _any_higher_share(request: PreemptionRequest) -> bool:
    """Whether any other subtree has at least the share of the preemptor's own; else there are no targets.

    Called with the request counted in the own queue.
    """
    below: Node = request.queue
    for cohort in request.queue.ancestors():
        mine = share_of(below)[:2]
        if any(child is not below and share >= mine for share, _, child in _highest_shares(request, cohort)):
            return True
        below = cohort
    return False


def _none_passes(
    request: PreemptionRequest, field: Field, strategies: tuple[FairSharingStrategy, ...]
) -> bool:
    """Whether no candidate of another queue passes any strategy, as far as shares at each level tell.

    Called with the request counted in the own queue. As long as nothing is removed, the shares of the own
    subtrees stay as they are. This answers most searches, and costs the height of the tree.
    """
    below: Node = request.queue
    for cohort in request.queue.ancestors():
        mine = share_of(below)[:2]
        if "LessThanInitialShare" in strategies:
            for share, _, child in _highest_shares(request, cohort):
                if child is not below and mine < share:
                    return False
        if "LessThanOrEqualToFinalShare" in strategies:
            with _request_left_out(request):
                highest_left = field.highest_left(cohort)
            if any(child is not below and mine <= left for left, _, child in highest_left):
                return False
        below = cohort
    return True


def _field(request: PreemptionRequest, within: bool, report: Search) -> Field:
    """The candidates of other queues. Called with the request counted in the own queue."""
    queue, context = request.queue, request.context
    if queue.reclaim == "Never" or queue.parent is None:
        return Field(context.shares, {})
    if request.excluded or request.lacking or context.evaluation is not None:
        candidates = _candidates(request)
        if context.evaluation is not None:
            reason: PreemptionReason = "InCohortReclamation" if within else "InCohortFairSharing"
            candidates = {
                other: left
                for other, each in candidates.items()
                if (left := _by_policy(request, each, reason, report))
            }
        return Field(context.shares, candidates, {queue, *queue.ancestors()})
    key = (queue.tree, request.needed, request.priority if queue.reclaim == "LowerPriority" else None)
    found: Field | None = context.fields.get(key)
    if found is None:
        candidates = _candidates(request)
        with _request_left_out(request):
            found = context.fields[key] = Field(context.shares, candidates)
    elif found.version < context.version:
        with _request_left_out(request):
            for each in context.changed_since(found.version):
                found.update(
                    each, request.candidates_of(each) if is_over_nominal(each, request.needed) else []
                )
    found.version = context.version
    return found


def _candidates(request: PreemptionRequest) -> dict[ClusterQueue, list[Candidate]]:
    """Workloads of queues over their quota that may go, by queue, each in order (evicted ones first).

    Those of the own queue, if it is over its quota, do not count for this request, but for others in its
    context.
    """
    with _request_left_out(request):
        over_nominal = request.context.over_nominal(request.queue.tree, request.needed)
    found = {queue: request.candidates_of(queue) for queue in over_nominal}
    return {queue: candidates for queue, candidates in found.items() if candidates}


def _group(considered: Considered) -> tuple[Any, ...]:
    """What decides the order of candidates before a policy does."""
    return considered.candidate.info.evicted, considered.candidate.priority


def _by_policy(
    request: PreemptionRequest, candidates: Iterable[Candidate], reason: PreemptionReason, report: Search
) -> list[Candidate]:
    """Candidates of one queue that policy hooks leave, in the order of the hooks."""
    evaluation, info = request.context.evaluation, request.info
    assert evaluation is not None
    allowed = (Considered(each) for each in candidates if evaluation.allows(info, each.info, reason, report))
    return [each.candidate for each in evaluation.ordered(info, allowed, _group)]


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
    own = [candidate for evicted in (True, False) for candidate in request.own_candidates(evicted)]
    if not own and not within and not _any_higher_share(request):
        return []
    if request.context.evaluation is not None:
        own = _by_policy(request, own, "InClusterQueue", report)
    field = _field(request, within, report)
    report.considered = field.total - len(field.candidates.get(request.queue, ())) + len(own)
    if not report.considered:
        return []
    if not own and not within and _none_passes(request, field, strategies):
        report.stopped = "Exhausted"
        return []
    with _request_left_out(request):
        for cohort in request.queue.ancestors():
            field.highest_left(cohort)
    removed: Targets = []
    retry: dict[ClusterQueue, list[Candidate]] = {}
    picker = Picker(request.queue, field, deque(own))
    fits = _first_strategy(request, picker, strategies[0], within, removed, retry)
    if not fits and len(strategies) > 1:
        fits = _second_strategy(request, picker.again(retry), removed)
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


def _first_strategy(
    request: PreemptionRequest,
    picker: Picker,
    strategy: FairSharingStrategy,
    within: bool,
    removed: Targets,
    retry: dict[ClusterQueue, list[Candidate]],
) -> bool:
    own = request.queue
    by_final_share = strategy == "LessThanOrEqualToFinalShare"
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
            cohort = other_subtree.parent
            assert cohort is not None
            if mine > theirs:
                # No target of this subtree would make it fair, nor of its siblings, which have no higher
                # share: the own subtree has the highest, and was not picked as it has no candidates left.
                picker.give_up(cohort)
                continue
            if by_final_share and picker.pass_over(cohort, mine):
                continue
            while queue_candidates and target is None:
                candidate = queue_candidates.popleft()
                if by_final_share:
                    usage = quota.reserved_by(candidate.info)
                    passes = mine <= share_without(usage, other_subtree)[:2]
                else:
                    passes = mine < theirs
                if passes:
                    target = candidate.info
                else:
                    retry.setdefault(queue, []).append(candidate)
        if target is not None:
            simulate_removal(target)
            removed.append((target, reason))
        picker.refresh(queue)
        if target is not None and _fits(request):
            return True
    return False


def _second_strategy(request: PreemptionRequest, picker: Picker, removed: Targets) -> bool:
    """Goes through the candidates that did not pass once more.

    Those of subtrees that were given up are among them. They pass only if the own share has become lower
    meanwhile, and it does only by a candidate of the own subtree.
    """
    own = request.queue
    while (queue := picker.pick()) is not None:
        queue_candidates = picker.candidates(queue)
        first = queue_candidates[0].info
        queue_candidates.clear()
        own_subtree, other_subtree = _subtrees(own, queue)
        mine, theirs = share_of(own_subtree)[:2], share_of(other_subtree)[:2]
        passes = mine < theirs
        if mine > theirs or (own_subtree is own and not passes):
            assert other_subtree.parent is not None
            picker.give_up(other_subtree.parent)  # nor does any sibling pass, which has no higher share
            continue
        if passes:
            simulate_removal(first)
            removed.append((first, "InCohortFairSharing"))
        picker.refresh(queue)
        if passes and _fits(request):
            return True
    return False
