"""Evaluating one workload: its flavors, which workloads it would preempt, and how small it could be.

Looks at the live tree and leaves it as it was. Source of the rules: docs/reference/kueue-semantics.md 5.3.1
and 7.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from pykueue.api import kueue
from pykueue.api.kueue.names import (
    ELASTIC_JOB_ANNOTATION,
    MULTIKUEUE_CONTROLLER,
    PROVISIONING_CONTROLLER,
)
from pykueue.engine import capacity
from pykueue.engine.capacity import Demands, Reservations
from pykueue.engine.explanation import Search, Target
from pykueue.engine.flavors.assignment import (
    FIT,
    NO_CANDIDATES,
    NO_FIT,
    NO_TERMS,
    PREEMPT,
    REASONS,
    RECLAIM,
    WAITING,
    Assignment,
    Chooser,
    Credit,
    Pinned,
    Terms,
)
from pykueue.engine.flavors.plan import Plan, TopologyTerms, make_plan
from pykueue.engine.flavors.reservation import reserved_amounts
from pykueue.engine.flavors.scheduling_class import SchedulingClass
from pykueue.engine.options import Options
from pykueue.engine.policies import NO_POLICIES, EvaluationContext, Policies
from pykueue.engine.preemption import classical, fair
from pykueue.engine.preemption.classical import PreemptionRequest, Targets, UsageOf, removed
from pykueue.engine.preemption.context import PreemptionContext
from pykueue.engine.preemption.damping import Damping
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.usage import FlavorUsage
from pykueue.engine.workload import NO_SCAN, WorkloadInfo, effective_counts


class Evaluation(Struct, gc=False):
    """What became of one workload."""

    assignment: Assignment
    targets: Targets
    report: Search | None
    demands: Demands = ()
    """What is demanded of shared capacities with these flavors."""
    shortages: tuple[str, ...] = ()
    """Why shared capacities are not enough, one sentence each."""
    placed: Reservations = ()
    """What it would reserve of them, once its targets are gone."""
    protected_until: float | None = None
    """When the first candidate that a policy protects may be preempted, in seconds since 1970."""
    held: bool = False
    """A shared capacity lets it neither start nor preempt others; workloads behind it go on."""


class Evaluator:
    """Evaluates workloads under the options of an engine."""

    def __init__(
        self,
        options: Options,
        flavors: Mapping[str, kueue.ResourceFlavor],
        usage_of: UsageOf,
        policies: Policies = NO_POLICIES,
        topology: TopologyTerms | None = None,
        damping: Damping | None = None,
    ) -> None:
        self.options = options
        self._topology = topology
        self._policies = policies
        self._damping = damping
        self._flavors = flavors
        #: Past usage of LocalQueues; None where they do not compete by it.
        self.usage_of = usage_of if options.admission_fair_sharing is not None else None
        self.fungible = options.enabled("FlavorFungibility")
        self.fair_sharing = options.fair_sharing
        self._within_nominal = options.enabled("FairSharingPreemptWithinNominal")
        self._partial = options.enabled("PartialAdmission")
        self._ignore_undeclared = (
            options.enabled("QuotaCheckStrategy") and options.quota_check_strategy == "IgnoreUndeclared"
        )

    @property
    def policies(self) -> Policies:
        """The hooks of the engine, and those of PreemptionPolicies where there are any."""
        return self._damping.hooks(self._policies) if self._damping is not None else self._policies

    def context(self, now: float) -> PreemptionContext:
        """What evaluations at `now` (seconds since 1970) share, as long as what changes is reported to it."""
        policies = self.policies
        if policies is NO_POLICIES:
            return PreemptionContext()
        return PreemptionContext(EvaluationContext(now, self.options, policies))

    def plan(self, scheduling_class: SchedulingClass, queue: ClusterQueue) -> Plan:
        """How the queue's flavors could serve a scheduling class."""
        plan: Plan | None = scheduling_class.plans.get(queue.name)
        if plan is None or plan.flavor_usages is not queue.flavor_usages:
            plan = make_plan(
                scheduling_class,
                queue,
                self._flavors,
                self._ignore_undeclared,
                self._topology,
                splits=queue.splits and self.options.hybrid_assignments,
            )
            scheduling_class.plans[queue.name] = plan
        return plan

    def evaluate(
        self,
        info: WorkloadInfo,
        queue: ClusterQueue,
        *,
        replaced: WorkloadInfo | None = None,
        nominated: Pinned | None = None,
        already_targeted: Collection[WorkloadInfo] = (),
        context: PreemptionContext | None = None,
    ) -> Evaluation:
        """Flavors for a workload, and the workloads to preempt.

        `context` is of `context(now)`; without it no policy hook is asked.
        `replaced` is the slice it stands in for, `nominated` binds it to the flavors it was nominated with,
        and `already_targeted` are workloads that must not be preempted, besides those gone from the context.
        """
        attempt = _Attempt(
            self, info, queue, replaced, nominated, already_targeted, context or PreemptionContext()
        )
        found = self._evaluated(attempt, info, replaced)
        found.protected_until = attempt.protected_until
        return found

    def fitting(
        self,
        info: WorkloadInfo,
        queue: ClusterQueue,
        replaced: WorkloadInfo | None = None,
        flavors: Pinned | None = None,
    ) -> Evaluation | None:
        """Flavors with which a workload fits at full size without preemption; None: there are none.

        `flavors` binds it to some of them.
        """
        attempt = _Attempt(
            self, info, queue, replaced, flavors or None, (), PreemptionContext(), preempts=False
        )
        found = attempt.at()
        return found if found.assignment.mode == FIT else None

    def _evaluated(self, attempt: _Attempt, info: WorkloadInfo, replaced: WorkloadInfo | None) -> Evaluation:
        first = attempt.at()
        if attempt.succeeds(first):
            return first
        scheduling_class = info.scheduling_class
        assert scheduling_class is not None
        if self._partial and scheduling_class.shrinkable and replaced is None:
            smaller = attempt.shrink(scheduling_class)
            if smaller is not None:
                return smaller
        return first

    def delayed_flavors(self, queue: ClusterQueue) -> frozenset[str]:
        """Flavors of a queue whose nodes are chosen only after the admission checks (13)."""
        if self._topology is None:
            return frozenset()
        found: set[str] = set()
        for name, on in queue.check_rules:
            check = self._topology.checks.get(name)
            controller = check.spec.controller_name if check is not None else ""
            if controller == MULTIKUEUE_CONTROLLER:
                return frozenset(queue.all_flavors)
            if controller == PROVISIONING_CONTROLLER:
                found.update(on or queue.all_flavors)
        return frozenset(found)

    def unsplittable(self, info: WorkloadInfo, queue: ClusterQueue) -> str:
        """Why no pod set of a workload can be split over flavors; empty: they can be."""
        if self._topology is None:
            return "hybrid assignments need the feature gate TopologyAwareScheduling"
        if ELASTIC_JOB_ANNOTATION in info.obj.metadata.annotations:
            return "the pods of an elastic job cannot be split over flavors"
        checks = self._topology.checks
        for name, controller in (
            ("MultiKueue", MULTIKUEUE_CONTROLLER),
            ("ProvisioningRequests", PROVISIONING_CONTROLLER),
        ):
            if queue.has_check_of(controller, checks):
                return f"pods cannot be split over flavors: ClusterQueue {queue.name} uses {name}"
        return ""

    def search(self, request: PreemptionRequest) -> tuple[Targets, Search]:
        """The workloads to preempt for a request, and how the search went."""
        names = request.queue.flavor_resource_names
        report = Search(needed=tuple(sorted([names[flavor_resource] for flavor_resource in request.needed])))
        queue = request.queue
        if queue.within == "Never" and (queue.reclaim == "Never" or queue.parent is None):
            return [], report
        if self.fair_sharing:
            targets = fair.search(request, report, self.options.preemption_strategies, self._within_nominal)
        else:
            targets = classical.search(request, report)
        if targets:
            report.targets = tuple(Target(info.key, reason) for info, reason in targets)
            report.stopped = "Fits"
        return targets, report


class _Attempt:
    """The evaluation of one workload in one state of the tree."""

    def __init__(
        self,
        evaluator: Evaluator,
        info: WorkloadInfo,
        queue: ClusterQueue,
        replaced: WorkloadInfo | None,
        nominated: Pinned | None,
        already_targeted: Collection[WorkloadInfo],
        context: PreemptionContext,
        preempts: bool = True,
    ) -> None:
        self.context = context
        self.preempts = preempts
        self.evaluator = evaluator
        self.info = info
        self.queue = queue
        scheduling_class = info.scheduling_class
        assert scheduling_class is not None
        self.scheduling_class = scheduling_class
        self.plan = evaluator.plan(scheduling_class, queue)
        self.replaced = replaced
        self.excluded = already_targeted
        scan = info.scan if nominated is None and evaluator.fungible and preempts else NO_SCAN
        if replaced is not None:
            self.excluded = (*already_targeted, replaced)
            pinned, credit = _slice_terms(replaced, self.scheduling_class, evaluator.options)
            self.terms = Terms(scan, pinned, "FlavorOfReplacedSlice", credit)
        elif nominated is not None:
            self.terms = Terms(scan, nominated, "FlavorNotNominated")
        else:
            self.terms = Terms(scan) if scan else NO_TERMS
        if self.plan.splits:
            self.terms = self.terms._replace(unsplittable=evaluator.unsplittable(info, queue))
        #: Searches for one FlavorResource, which the search for the whole workload often repeats.
        self.found: dict[tuple[int, int], tuple[Targets, Search]] = {}
        #: As in `Evaluation`, of all searches.
        self.protected_until: float | None = None

    def at(self, counts: list[int] | None = None) -> Evaluation:
        """The outcome at full size, or at other counts."""
        assignment = self._choose(self.terms, counts)
        evaluation = self.context.evaluation
        if evaluation is not None and evaluation.policies.rewrite is not None and self.terms.pinned is None:
            assignment = self._rewritten(evaluation, assignment, counts)
        if self.info.shared_requests:
            return self._with_shared_capacities(assignment)
        if assignment.mode != PREEMPT:
            return Evaluation(assignment, [], None)
        targets, report = self._targets(assignment)
        return Evaluation(assignment, targets, report)

    def _choose(self, terms: Terms, counts: list[int] | None) -> Assignment:
        # Not kept: it refers to this attempt, and only the garbage collector frees a circle.
        evaluator = self.evaluator
        chooser = Chooser(self.queue, self._oracle, evaluator.fair_sharing, evaluator.fungible)
        return chooser.choose(self.scheduling_class, self.plan, terms, counts)

    def succeeds(self, found: Evaluation) -> bool:
        """Whether it fits or can preempt, without borrowing more than it may.

        A workload that shrank to take its quota back from the one it was preempted for keeps to the borrowing
        level of that size: at full size it would borrow, and be preempted by that one again.
        """
        limit = self.info.level_limit
        if 0 <= limit < found.assignment.level:
            return False
        return found.assignment.mode == FIT or bool(found.targets)

    def _with_shared_capacities(self, assignment: Assignment) -> Evaluation:
        """The outcome where more than quota must fit: what could never fit is not preempted for."""
        if assignment.mode == NO_FIT:
            return Evaluation(assignment, [], None)
        pod_sets = assignment.by_pod_set(
            self.scheduling_class, self.plan.implied, self.evaluator.delayed_flavors(self.queue)
        )
        demands = capacity.demands(self.info.shared_requests, pod_sets)
        if self.replaced is not None:
            demands = capacity.continuing(demands, self.replaced.shared)
        lacking = capacity.lacking(demands)
        shortages = tuple([shared.explain(demand) for shared, demand in lacking])
        if assignment.level > 0:
            shortages += tuple(
                [text for shared, demand in demands if (text := shared.within_nominal(demand))]
            )
        if len(shortages) > len(lacking) or any(shared.sets_aside for shared, _ in lacking):
            assignment.mode, assignment.reason = NO_FIT, WAITING
            return Evaluation(assignment, [], None, demands, shortages, held=True)
        if assignment.mode == FIT and not lacking:
            return Evaluation(assignment, [], None, demands, placed=capacity.place(demands) or ())
        for shared, demand in demands:
            if not shared.could_fit(demand):
                assignment.mode, assignment.reason = NO_FIT, REASONS.index(shared.why_impossible(demand))
                return Evaluation(assignment, [], None, demands, shortages or (shared.explain(demand),))
        assignment.mode = PREEMPT
        targets, report = self._targets(assignment, demands)
        placed: Reservations = ()
        if targets and demands:
            with removed(targets):
                placed = capacity.place(demands) or ()
        return Evaluation(assignment, targets, report, demands, shortages, placed)

    def _rewritten(
        self, evaluation: EvaluationContext, assignment: Assignment, counts: list[int] | None
    ) -> Assignment:
        """The assignment with the flavors that a policy hook names, if it names any."""
        assert evaluation.policies.rewrite is not None
        flavors = evaluation.policies.rewrite(self.info, self.queue, assignment, evaluation.now)
        if not flavors:
            return assignment
        terms = Terms(NO_SCAN, flavors, "FlavorNotNominated", self.terms.credit)
        return self._choose(terms, counts)

    def shrink(self, scheduling_class: SchedulingClass) -> Evaluation | None:
        """The largest size at which it fits or can preempt, by binary search (7)."""
        # From the sizes in the spec; but a pod set that needs no quota any more is not charged again.
        full = [pods.full_count if pods.count else 0 for pods in scheduling_class.pod_sets]
        spare = [
            size - pods.min_count if size and pods.min_count is not None else 0
            for size, pods in zip(full, scheduling_class.pod_sets, strict=True)
        ]
        steps = sum(spare)
        if not steps:
            return None
        low, high = 0, steps + 1
        best: Evaluation | None = None
        while low < high:
            middle = (low + high) // 2
            counts = [count - less * middle // steps for count, less in zip(full, spare, strict=True)]
            found = self.at(counts)
            if self.succeeds(found):
                best, high = found, middle
            else:
                low = middle + 1
        return best

    def _oracle(self, flavor_usage: FlavorUsage, amount: int, level: int) -> tuple[int, int]:
        if not self.preempts:
            return NO_CANDIDATES, level
        request = PreemptionRequest(
            self.info,
            self.queue,
            [(flavor_usage, amount)],
            (flavor_usage.flavor_resource,),
            self.evaluator.usage_of,
            self.excluded,
            self.context,
        )
        targets, report = self._search(request)
        self.found[(flavor_usage.flavor_resource, amount)] = targets, report
        if not targets:
            return NO_CANDIDATES, level
        with removed(targets):
            level, _ = quota.borrowing_level(flavor_usage, amount)
        for info, _ in targets:
            if info.queue is self.queue:
                return PREEMPT, level
        return RECLAIM, level

    def _targets(self, assignment: Assignment, demands: Demands = ()) -> tuple[Targets, Search]:
        """The workloads to preempt for all that the assignment lacks (8.2)."""
        if not self.preempts:
            return [], Search()
        needed = {
            choice.flavor_usage.flavor_resource
            for choice in assignment.every_choice()
            if NO_FIT < choice.mode < FIT
        }
        requests = assignment.demand(self.queue)
        if len(requests) == 1 and len(needed) == 1 and not demands:
            known = self.found.get((requests[0][0].flavor_resource, requests[0][1]))
            if known is not None:
                return known
        request = PreemptionRequest(
            self.info,
            self.queue,
            requests,
            needed,
            self.evaluator.usage_of,
            self.excluded,
            self.context,
            demands,
        )
        return self._search(request)

    def _search(self, request: PreemptionRequest) -> tuple[Targets, Search]:
        targets, report = self.evaluator.search(request)
        until = report.protected_until
        if until is not None and (self.protected_until is None or until < self.protected_until):
            self.protected_until = until
        return targets, report


def _slice_terms(
    replaced: WorkloadInfo, scheduling_class: SchedulingClass, options: Options
) -> tuple[Pinned, Credit]:
    """The flavors a replacement is bound to, and what its predecessor holds already (11.9)."""
    pinned: dict[tuple[int, str], str] = {}
    credit: dict[tuple[int, str], int] = {}
    assert replaced.admission is not None
    by_name = {given.name: given for given in replaced.admission.pod_set_assignments}
    pod_sets = replaced.obj.spec.pod_sets
    counts = zip(pod_sets, effective_counts(replaced.obj, options), strict=True)
    sizes = {pods.name: (pods.count, needed) for pods, needed in counts}
    for index, pods in enumerate(scheduling_class.pod_sets):
        given = by_name.get(pods.name)
        if given is None:
            continue
        for resource, flavor, amount in reserved_amounts(given, *sizes.get(pods.name, (0, 0))):
            pinned[(index, resource)] = flavor
            credit[(index, resource)] = amount
    return pinned, credit
