"""One scheduling cycle over the heads of one tree: nominate, order, process, put back.

Entries are nominated against the tree as it is and then processed one by one, each seeing the usage the
earlier ones left behind. While entries are processed the tree counts what is planned (everything
earlier entries asked for); what is only planned is taken off again at the end, and what was admitted stays.
Source of the rules: docs/reference/kueue-semantics.md 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappush
from typing import Any

from pykueue.api import pending_reasons
from pykueue.api.cohorts import cycle_message
from pykueue.api.kueue.names import ELASTIC_JOB_ANNOTATION, WORKLOAD_SLICE_REPLACEMENT_ANNOTATION
from pykueue.api.unsupported import ELASTIC_JOBS
from pykueue.engine import capacity
from pykueue.engine.capacity import Reservations
from pykueue.engine.cycle.evaluation import Evaluation, Evaluator
from pykueue.engine.cycle.tentative import TentativeUsage
from pykueue.engine.decisions import Admit, Decision, PendingReason, Preempt, Requeue, RequeueReason
from pykueue.engine.explanation import Explanation
from pykueue.engine.fair_sharing.shares import Contender, Tournament
from pykueue.engine.flavors.assignment import FIT, NO_FIT, REASONS, WAITING
from pykueue.engine.flavors.reservation import reservation_of
from pykueue.engine.options import Options
from pykueue.engine.policies import Held
from pykueue.engine.preemption.classical import removed
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.state import State
from pykueue.engine.workload import (
    ACTIVE,
    IN_FLIGHT,
    INADMISSIBLE,
    NO_SCAN,
    WorkloadInfo,
    has_closed_gate,
    has_delayed_domains,
)

_COARSE: dict[str, PendingReason] = {
    "Misconfigured": "Inadmissible",
    "Suspended": "Inadmissible",
    "WaitingForPodsReady": "Waiting",
    "AdmissionGated": "AdmissionGated",
}

#: Requeue reasons after which the next workload of a StrictFIFO queue is looked at.
_SET_ASIDE = frozenset({"NamespaceMismatch", "Held"})
#: Requeue reasons after which a BestEffortFIFO queue looks at the workload again at once (4.5).
_IMMEDIATE = frozenset({"FailedAfterNomination", "PendingPreemption"})
#: Attempts at preemption after which a workload comes before all others of its tree: others, often its own
#: victims, took the quota that it had freed.
MANY_PREEMPTION_ATTEMPTS = 2
#: How often a workload may preempt others until its tree changes in another way than by preemption. A fair
#: share, nominal quota and priority can each entitle a workload to preempt the next, in a circle.
PREEMPTIONS_MAX = 5


class Entry:
    """A head that may get quota in this cycle."""

    __slots__ = ("explanation", "found", "info", "is_preemptor", "placed", "queue", "replaced")

    def __init__(
        self,
        info: WorkloadInfo,
        queue: ClusterQueue,
        found: Evaluation,
        replaced: WorkloadInfo | None,
        is_preemptor: bool,
    ) -> None:
        self.info = info
        self.queue = queue
        self.found = found
        self.replaced = replaced
        self.is_preemptor = is_preemptor
        #: What it would reserve of shared capacities.
        self.placed: Reservations = found.placed
        self.explanation = Explanation(found.assignment.attempts, found.report, shortages=found.shortages)


class CycleRules:
    """What the options say about cycles."""

    __slots__ = (
        "by_priority",
        "elastic_jobs",
        "fair_sharing",
        "fine_reasons",
        "gates_work",
        "keep_scan",
        "non_borrowing_first",
        "places_again",
        "preemptors_first",
        "recompute",
    )

    def __init__(self, options: Options) -> None:
        self.elastic_jobs = ELASTIC_JOBS not in options.unsupported
        self.fair_sharing = options.fair_sharing
        self.recompute = options.enabled("RecomputeAssignmentUponPreemptionTargetsOverlap")
        self.preemptors_first = options.enabled("PrioritizePreemptorWorkloads")
        self.by_priority = options.enabled("PrioritySortingWithinCohort")
        self.keep_scan = options.enabled("FlavorFungibilityPreserveScanProgress")
        self.gates_work = options.enabled("ConcurrentAdmission") or options.enabled(
            "MultiKueueOrchestratedPreemption"
        )
        self.fine_reasons = options.enabled("UnadmittedWorkloadsObservability")
        self.places_again = options.enabled("TASRecomputeAssignmentWithinSchedulingCycle")
        self.non_borrowing_first = options.enabled("FairSharingPrioritizeNonBorrowing")


class TreeCycle:
    """One cycle over one tree."""

    def __init__(self, state: State, evaluator: Evaluator, rules: CycleRules, now: float) -> None:
        self.state = state
        self.evaluator = evaluator
        self.now = now
        self._rules = rules
        #: Shared by all nominations, during which the tree stays as it is.
        self._context = evaluator.context(now)
        self._policies = evaluator.policies
        self.decisions: list[Decision] = []
        #: Workloads that got other nodes in this cycle: they are not preempted in it as well.
        self.moved: AbstractSet[WorkloadInfo] = frozenset()
        #: Something happened that makes the next cycle different from this one.
        self.progress = False
        #: An entry was admitted, became inadmissible or preempts: the next cycle has other entries or usage.
        self._entries_change = False
        #: Workloads for which others of this cycle were preempted. Under fair sharing they go first: shares
        #: do not consider earlier preemptions, so the two could preempt each other forever.
        self._preempted_for: set[str] = set()
        self._tentative = TentativeUsage()

    def run(self, queues: Sequence[ClusterQueue]) -> None:
        """Decide about the heads of the queues: those of one tree, or of trees that share a capacity."""
        usage_of = self.evaluator.usage_of
        heads: list[tuple[WorkloadInfo, ClusterQueue]] = []
        for queue in queues:
            if queue.pending.workloads and not queue.inactive:
                info = queue.pending.head(usage_of, queue.strict)
                if info is not None:
                    heads.append((info, queue))
        self.decide(heads)

    def decide(self, heads: Sequence[tuple[WorkloadInfo, ClusterQueue]]) -> None:
        """Decide about active workloads as the heads of their queues."""
        entries: list[Entry] = []
        for info, queue in heads:
            is_preemptor = queue.pending.preemptor is info
            self.state.places.move(info, IN_FLIGHT)
            entry = self._nominate(info, queue, is_preemptor)
            if entry is not None:
                entries.append(entry)
        if not entries:
            return
        if self._rules.fair_sharing:
            self._preempted_for = {entry.info.preempted_for for entry in entries}
            tournament = Tournament(
                [self._contender(entry) for entry in entries], self._rules.non_borrowing_first
            )
            while (entry := tournament.next()) is not None:
                self._process(entry)
        else:
            if len(entries) > 1:
                entries.sort(key=self._rank)
            for entry in entries:
                self._process(entry)
        self._tentative.lift_planned()

    # --- order ------------------------------------------------------------------------------------------

    def _rank(self, entry: Entry) -> tuple[Any, ...]:
        """Position among the entries of a tree (5.4)."""
        info = entry.info
        hook = self._policies.entry_order
        return (
            not (self._rules.preemptors_first and entry.is_preemptor),
            info.preemption_attempts < MANY_PREEMPTION_ATTEMPTS,
            hook(info, entry.queue, self.now) if hook is not None else 0,
            entry.found.assignment.level,
            -info.priority if self._rules.by_priority else 0,
            info.timestamp,
            info.created,
            info.key,
        )

    def _contender(self, entry: Entry) -> Contender:
        info = entry.info
        hook = self._policies.entry_order
        return Contender(
            entry,
            info.key,
            entry.queue,
            entry.found.assignment.demand(entry.queue),
            (-info.priority if self._rules.by_priority else 0, info.timestamp, info.created),
            (
                not (self._rules.preemptors_first and entry.is_preemptor),
                info.preemption_attempts < MANY_PREEMPTION_ATTEMPTS,
                info.key not in self._preempted_for,
                hook(info, entry.queue, self.now) if hook is not None else 0,
            ),
        )

    # --- nomination -------------------------------------------------------------------------------------

    def _nominate(self, info: WorkloadInfo, queue: ClusterQueue, is_preemptor: bool) -> Entry | None:
        """An entry, or None if the head may not get quota now (5.3)."""
        state = self.state
        checks = info.obj.status.admission_checks
        scheduling_class = info.scheduling_class
        assert scheduling_class is not None
        problem = ""
        reason: PendingReason = "Misconfigured"
        requeue: RequeueReason = "Generic"
        labels, selector = state.namespaces.get(info.namespace), queue.selector
        if checks and any(check.state in ("Retry", "Rejected") for check in checks):
            reason, problem = "PendingEvaluation", "an admission check is not passed"
        elif queue.tree.cyclic:
            reason = "Suspended"
            cycle = cycle_message(state.forest.cycle_above(queue))
            problem = f"ClusterQueue {queue.name} is inactive: {cycle}"
        elif labels is None:
            problem = f"namespace {info.namespace} does not exist"
        elif selector is None or not selector.matches(labels):
            requeue = "NamespaceMismatch"
            problem = pending_reasons.namespace_mismatch(queue.name, info.namespace).message
        else:
            problem = scheduling_class.problem
            if not problem and not self._rules.elastic_jobs:
                problem = self._slice_problem(info)
        if problem:
            self._return_to_queue(info, queue, reason, requeue, Explanation(problem=problem))
            return None
        hook = self._policies.eligible
        held = hook(info, queue, self.now) if hook is not None else None
        if held is not None:
            self._hold(info, queue, held)
            return None
        if info.scan:
            self._expire_scan(info, queue)
        replaced = state.replaced_by(info) if info.replaces else None
        found = self.evaluator.evaluate(
            info, queue, replaced=replaced, already_targeted=self.moved, context=self._context
        )
        return Entry(info, queue, found, replaced, is_preemptor)

    def _hold(self, info: WorkloadInfo, queue: ClusterQueue, held: Held) -> None:
        """Sets a head aside, as a policy hook says; the workloads behind it go on, in a strict queue too."""
        if held.until is not None:
            heappush(self.state.timers, (held.until, info.key))
        self._set_scan(info, NO_SCAN)
        self._return_to_queue(info, queue, "Waiting", "Held", Explanation(problem=held.message))

    def _slice_problem(self, info: WorkloadInfo) -> str:
        """Why a workload that is a slice of an elastic job is not admitted, or empty."""
        annotations = info.obj.metadata.annotations
        replaces = annotations.get(WORKLOAD_SLICE_REPLACEMENT_ANNOTATION)
        if replaces or annotations.get(ELASTIC_JOB_ANNOTATION) == "true":
            return ELASTIC_JOBS.message
        return ""

    def _expire_scan(self, info: WorkloadInfo, queue: ClusterQueue) -> None:
        """Forgets which flavors were tried once that may have changed (6.8)."""
        if queue.generation == info.scan_generation:
            return
        if not self._rules.keep_scan or self.state.cycle - info.scan_cycle > 1:
            self._set_scan(info, NO_SCAN)

    # --- processing -------------------------------------------------------------------------------------

    def _process(self, entry: Entry) -> None:
        """Decides about one entry (5.5)."""
        found = entry.found
        if found.targets and self._tentative.includes_target(found.targets):
            if not self._rules.recompute:
                self._save_scan(entry, found)
                self._skip(entry, "TargetsTaken")
                return
            if self._again(entry):
                return
            found = entry.found
            if not found.targets:
                # What it tried was not enough: the next evaluation goes on with the flavors that are left.
                self._save_scan(entry, found)
        elif not (self.state.unready and found.assignment.mode == FIT):
            # One that is only held until all pods are ready keeps its assignment: it tries no other flavor.
            self._save_scan(entry, found)
        if entry.placed and self._is_taken(entry):
            nodes = self.state.nodes
            if not self._rules.places_again and any(shared is nodes for shared, _ in entry.placed):
                self._skip(entry, "NoLongerFits")
                return
            self._evaluate_again(entry)
            found = entry.found
        assignment = found.assignment
        if assignment.mode == NO_FIT:
            entry.explanation.outcome = "NoFit"
            self._requeue(entry, REASONS[assignment.reason], "NoFit")
            return
        exhausted = self._has_preempted_too_often(entry)
        if assignment.mode != FIT and (exhausted or not found.targets):
            entry.explanation.outcome = "PreemptionLimit" if exhausted else "NoCandidates"
            self._requeue(entry, REASONS[WAITING], "PreemptionNoCandidates")
            kept = capacity.kept(found.demands)
            if kept or not found.shortages:
                self._reserve(entry, kept)
            return
        if assignment.mode != FIT and self._rules.gates_work and has_closed_gate(entry.info.obj):
            self._set_scan(entry.info, NO_SCAN)
            entry.explanation.outcome = "PreemptionGated"
            self._requeue(entry, "AdmissionGated", "PreemptionGated", blocked_on_gates=True)
            return
        if not self._fits(entry):
            self._skip(entry, "NoLongerFits")
            return
        if assignment.mode == FIT:
            if self.state.unready:
                entry.explanation.outcome = "PodsNotReady"
                self._requeue(entry, "WaitingForPodsReady", "FailedAfterNomination")
            else:
                self._admit(entry)
        else:
            self._preempt(entry)

    def _has_preempted_too_often(self, entry: Entry) -> bool:
        """Whether an entry would preempt more workloads and must not before its tree changes."""
        if entry.queue.tree.preemptions.get(entry.info.key, 0) < PREEMPTIONS_MAX:
            return False
        return any(not target.evicted for target, _ in entry.found.targets)

    def _save_scan(self, entry: Entry, found: Evaluation) -> None:
        """Remembers which flavors were tried, and whether that leads anywhere while nothing changes."""
        info = entry.info
        if not self.state.scan_memory:
            return
        scan, changes = found.assignment.scan or NO_SCAN, self.state.changes
        before = info.scan
        self._set_scan(info, scan)
        if info.scanned_at == changes:
            return
        tried = info.tried if info.tried_at == changes else ()
        again = scan in tried
        if scan != before and not again:
            # The next evaluation begins elsewhere; but once all flavors were tried, something has to change.
            self.progress = True
        # Pod sets that hide each other's flavors in turn never come to the last ones.
        if not scan or again:
            info.scanned_at = changes
        info.tried, info.tried_at = (*tried, scan), changes

    def _set_scan(self, info: WorkloadInfo, scan: Mapping[tuple[int, str], int]) -> None:
        """Remembers which flavors were tried, in this cycle and under the present quotas."""
        self.state.record_undo(info)
        info.scan = scan
        info.scan_cycle = self.state.cycle
        if info.queue is not None:
            info.scan_generation = info.queue.generation

    def _is_taken(self, entry: Entry) -> bool:
        """Whether earlier entries took what an entry was nominated for of shared capacities, not of quota."""
        tentative = self._tentative
        tentative.lift_freed()
        with removed(entry.found.targets):
            taken = capacity.taken(entry.placed) and quota.fits(entry.found.assignment.demand(entry.queue))
        tentative.count_freed()
        return taken

    def _evaluate_again(self, entry: Entry) -> None:
        """Evaluate an entry for the flavors it was nominated with, beside what earlier entries got."""
        nominated = {
            (index, resource): choice.flavor
            for index, choices in enumerate(entry.found.assignment.choices)
            for resource, choice in choices.items()
        }
        found = self.evaluator.evaluate(
            entry.info,
            entry.queue,
            nominated=nominated,
            already_targeted=self._tentative.targets | self.moved,
            context=self.evaluator.context(self.now),
        )
        entry.found, entry.placed = found, found.placed
        entry.explanation.attempts = found.assignment.attempts
        entry.explanation.search = found.report
        entry.explanation.shortages = found.shortages
        entry.explanation.recomputed = True

    def _again(self, entry: Entry) -> bool:
        """Evaluate an entry again without the targets of other entries; whether that decided it (5.6)."""
        self._tentative.lift_freed()
        self._evaluate_again(entry)
        self._set_scan(entry.info, NO_SCAN)
        self._tentative.count_freed()
        if entry.found.assignment.mode != FIT:
            return False
        # It fits once the victims of an earlier entry are gone: what it needs is kept for it.
        self._plan(entry)
        entry.explanation.outcome = "Deferred"
        self._requeue(entry, "WaitingForPreemptedWorkloads", "PendingPreemption")
        return True

    def _plan(self, entry: Entry) -> None:
        """Counts what an entry asks for, for the rest of the cycle."""
        self._tentative.plan(entry.found.assignment.demand(entry.queue), entry.placed)

    def _reserve(self, entry: Entry, kept: Reservations) -> None:
        """Keeps others of the cohort from taking what an entry waits for (5.7)."""
        queue = entry.queue
        if queue.reclaim == "Any" and not (self._rules.preemptors_first and entry.is_preemptor):
            return
        borrows = entry.found.assignment.level > 0
        for flavor_resource, amount in entry.found.assignment.usage.items():
            flavor_usage = queue.flavor_usages[flavor_resource]
            if not borrows:
                amount = min(amount, flavor_usage.nominal - flavor_usage.usage)
            elif flavor_usage.borrowing_limit is not None:
                amount = min(amount, flavor_usage.nominal + flavor_usage.borrowing_limit - flavor_usage.usage)
            self._tentative.plan(((flavor_usage, amount),))
        self._tentative.plan((), kept)

    def _fits(self, entry: Entry) -> bool:
        """Whether an entry fits once all victims of the cycle and its own are gone.

        One that would be admitted at once must also fit while they still run, next to what was admitted in
        this cycle (defect D3 of the reference, which over-commits here).
        """
        wanted, demands = entry.found.assignment.demand(entry.queue), entry.found.demands
        targets, tentative = entry.found.targets, self._tentative
        freed = tentative.frees
        if freed:
            tentative.lift_freed()
        with removed(targets):
            fits = quota.fits(wanted) and (not demands or self._place(entry))
        if freed:
            tentative.count_freed()
        if fits and freed and entry.found.assignment.mode == FIT:
            tentative.lift_planned()
            fits = quota.fits(wanted)
            room = not capacity.taken(entry.placed) and capacity.fits(demands)
            tentative.count_planned()
            # Beside the targets as well as beside what is planned.
            fits = fits and (room or self._place(entry))
        return fits

    def _place(self, entry: Entry) -> bool:
        """Keep what an entry was nominated for of shared capacities, or else place it again.

        Returns whether either is possible now.
        """
        if entry.placed and not capacity.taken(entry.placed) and capacity.fits(entry.found.demands):
            return True
        placed = capacity.place(entry.found.demands)
        entry.placed = placed or ()
        return placed is not None

    # --- outcomes ---------------------------------------------------------------------------------------

    def _skip(self, entry: Entry, outcome: Any) -> None:
        if not self._rules.keep_scan:
            self._set_scan(entry.info, NO_SCAN)
        if self._entries_change:
            # It lost to another entry, not to the usage: the flavors it tried say nothing of the next cycle.
            self.state.record_undo(entry.info)
            entry.info.scanned_at = entry.info.tried_at = -1
        entry.explanation.outcome = outcome
        self._requeue(entry, REASONS[WAITING], "FailedAfterNomination")

    def _admit(self, entry: Entry) -> None:
        state, info, queue = self.state, entry.info, entry.queue
        assignment = entry.found.assignment
        scheduling_class = info.scheduling_class
        assert scheduling_class is not None
        reservation = reservation_of(
            scheduling_class, self.evaluator.plan(scheduling_class, queue), queue.name, assignment
        )
        required = queue.required_checks(assignment_flavors(entry)) if queue.check_rules else []
        listed = {check.name: check.state for check in info.obj.status.admission_checks}
        passed = all(listed.get(name) == "Ready" for name in (*required, *listed))
        explanation = entry.explanation
        explanation.outcome = "Admitted"
        if assignment.shrunk:
            explanation.counts = {
                pods.name: count
                for pods, count in zip(info.obj.spec.pod_sets, assignment.counts, strict=True)
            }
        old = entry.replaced
        if old is not None:
            state.release(old)
            state.undo_log.set(old, "superseded", True)
        state.record_undo(info)
        info.admission, info.usage, info.flavor_resources = reservation
        info.shared = entry.placed
        if entry.placed:
            info.admission = capacity.write(reservation.admission, entry.placed)
            if has_delayed_domains(info.admission):
                passed = False
        info.admitted = passed
        info.reserved_at = self.now
        info.assumed = True
        info.ready = False
        info.evicted = info.eviction_assumed = False
        info.scan = NO_SCAN
        info.preempted_for = ""
        info.preemption_attempts = 0
        info.level_limit = -1
        info.reason = ""
        if queue.pending.preemptor is info:
            state.undo_log.set(queue.pending, "preemptor", None)
        state.reserve(info, queue)
        state.penalize(info)
        self.progress = self._entries_change = True
        self.decisions.append(
            Admit(
                info.key,
                queue.name,
                info.admission,
                passed,
                info.queue_since,
                state.cycle,
                explanation,
                old.key if old is not None else "",
            )
        )

    def _preempt(self, entry: Entry) -> None:
        state, info, queue = self.state, entry.info, entry.queue
        self._plan(entry)
        if not all(target.evicted for target, _ in entry.found.targets):
            state.undo_log.set(info, "preemption_attempts", info.preemption_attempts + 1)
            preemptions = queue.tree.preemptions
            state.undo_log.put(preemptions, info.key, preemptions.get(info.key, 0) + 1)
            taken_back = any(target.key == info.preempted_for for target, _ in entry.found.targets)
            if taken_back and entry.found.assignment.shrunk:
                state.undo_log.set(info, "level_limit", entry.found.assignment.level)
        for target, reason in entry.found.targets:
            self._tentative.add_target(target)
            if target.evicted:
                continue
            victim_queue = target.queue
            assert victim_queue is not None
            state.undo_log.set(target, "eviction_assumed", True)
            state.undo_log.set(target, "preempted_for", info.key)
            state.mark_evicted(target, True)
            self.progress = self._entries_change = True
            self.decisions.append(
                Preempt(
                    target.key,
                    reason,
                    info.key,
                    info.uid,
                    victim_queue.name,
                    victim_queue.path,
                    queue.path,
                    state.cycle,
                )
            )
        self._set_scan(info, NO_SCAN)
        entry.explanation.outcome = "Preempting"
        entry.explanation.pending_preemptions = len(entry.found.targets)
        self._requeue(entry, "WaitingForPreemptedWorkloads", "PendingPreemption")

    def _requeue(
        self, entry: Entry, reason: Any, requeue: RequeueReason, blocked_on_gates: bool = False
    ) -> None:
        self._return_to_queue(
            entry.info, entry.queue, reason, requeue, entry.explanation, blocked_on_gates=blocked_on_gates
        )

    def _return_to_queue(
        self,
        info: WorkloadInfo,
        queue: ClusterQueue,
        reason: PendingReason,
        requeue: RequeueReason,
        explanation: Explanation,
        blocked_on_gates: bool = False,
    ) -> None:
        """Gives a head back to its queue, active or inadmissible (4.5)."""
        pending = queue.pending
        strict = queue.strict
        in_line = (requeue not in _SET_ASIDE if strict else requeue in _IMMEDIATE) or bool(info.scan)
        if requeue == "PendingPreemption":
            self.state.undo_log.set(pending, "preemptor", info)
        self.state.places.move(info, ACTIVE if in_line else INADMISSIBLE)
        if not in_line:
            self.progress = self._entries_change = True
            if pending.preemptor is info:
                self.state.undo_log.set(pending, "preemptor", None)  # defect D5 of the reference
            alike = self.state.hashing and not strict
            if info.shared_requests:
                alike = alike and all(shared.by_class for shared, _ in info.shared_requests)
            if alike and requeue in ("NoFit", "PreemptionNoCandidates"):
                assert info.scheduling_class is not None
                pending.set_class_inadmissible((info.scheduling_class, info.priority), reason)
        if not self._rules.fine_reasons:
            reason = _COARSE.get(reason, "Pending")
        self.state.undo_log.set(info, "reason", reason)
        self.decisions.append(
            Requeue(
                info.key,
                queue.name,
                reason,
                requeue,
                not in_line,
                self.state.cycle,
                explanation,
                blocked_on_gates,
            )
        )


def assignment_flavors(entry: Entry) -> set[str]:
    """Flavors an entry would get."""
    return {choice.flavor for choices in entry.found.assignment.choices for choice in choices.values()}
