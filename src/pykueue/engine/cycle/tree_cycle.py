"""One scheduling cycle over the heads of one tree: nominate, order, process, put back.

Entries are nominated against the tree as it is and then processed one by one, each seeing the usage the
earlier ones left behind. While entries are processed the tree counts what is planned (everything
earlier entries asked for) and not what the workloads use that they preempt; at the end it counts what is
reserved, and what was admitted stays.
Source of the rules: docs/reference/kueue-semantics.md 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappush
from typing import Any

from pykueue.api import pending_reasons
from pykueue.api.cohorts import cycle_message
from pykueue.api.variants import flavor_of, may_migrate
from pykueue.engine import capacity
from pykueue.engine.capacity import Reservations
from pykueue.engine.cycle.backfill import Planner
from pykueue.engine.cycle.evaluation import Evaluator
from pykueue.engine.cycle.outcomes import Entry, Outcomes
from pykueue.engine.cycle.rules import CycleRules
from pykueue.engine.cycle.tentative import TentativeUsage
from pykueue.engine.decisions import PendingReason, RequeueReason
from pykueue.engine.explanation import BackfillProof, Explanation
from pykueue.engine.fair_sharing.shares import Contender, Tournament
from pykueue.engine.flavors.assignment import FIT, NO_FIT, REASONS, WAITING
from pykueue.engine.policies import Held
from pykueue.engine.preemption.classical import removed
from pykueue.engine.preemption.context import PreemptionContext
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.state import State
from pykueue.engine.workload import (
    IN_FLIGHT,
    NO_SCAN,
    WorkloadInfo,
    has_closed_gate,
)

#: Attempts at preemption after which a workload comes before all others of its tree: others, often its own
#: victims, took the quota that it had freed.
MANY_PREEMPTION_ATTEMPTS = 2
#: How often a workload may preempt others until its tree changes in another way than by preemption. A fair
#: share, nominal quota and priority can each entitle a workload to preempt the next, in a circle.
PREEMPTIONS_MAX = 5


class TreeCycle:
    """One cycle over one tree."""

    def __init__(self, state: State, evaluator: Evaluator, rules: CycleRules, now: float) -> None:
        self.state = state
        self.evaluator = evaluator
        self.now = now
        self._rules = rules
        #: Shared by all evaluations; told of what entries change once they are processed.
        self._context = evaluator.context(now)
        self._policies = evaluator.policies
        self.outcomes = Outcomes(state, evaluator, rules, now)
        #: Workloads that got other nodes in this cycle: they are not preempted in it as well.
        self.moved: AbstractSet[WorkloadInfo] = frozenset()
        #: Positions of workloads, by key, among those of the same rank.
        self.among_equals: Mapping[str, int] = {}
        #: Workloads for which others of this cycle were preempted. Under fair sharing they go first: shares
        #: do not consider earlier preemptions, so the two could preempt each other forever.
        self._preempted_for: set[str] = set()
        self._tentative = TentativeUsage()
        self._context.gone = self._tentative.targets
        #: Reservations of pending workloads; None without a BackfillPolicy.
        self._planner = Planner(state, evaluator, now) if state.backfill.on else None

    def run(self, queues: Sequence[ClusterQueue]) -> None:
        """Decide about the heads of the queues: those of one tree, or of trees that share a capacity."""
        usage_of = self.evaluator.usage_of
        heads: list[tuple[WorkloadInfo, ClusterQueue]] = []
        for queue in queues:
            if queue.pending.workloads and not queue.inactive:
                info = queue.pending.head(usage_of, queue.blocks)
                if info is not None:
                    heads.append((info, queue))
        self.decide(heads)

    def decide(self, heads: Sequence[tuple[WorkloadInfo, ClusterQueue]]) -> None:
        """Decide about active workloads as the heads of their queues."""
        entries: list[Entry] = []
        if self._planner is not None:
            self._planner.heads = heads
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
                [self._contender(entry) for entry in entries],
                self._rules.non_borrowing_first,
                self._tentative.exchange_held,
            )
            while (entry := tournament.next()) is not None:
                self._process(entry)
                self._context.changed(entry.queue)
        else:
            if len(entries) > 1:
                entries.sort(key=self._rank)
            for entry in entries:
                self._process(entry)
                self._context.changed(entry.queue)
        self._tentative.settle()

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
            self.among_equals.get(info.key, 0),
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
            (
                -info.priority if self._rules.by_priority else 0,
                info.timestamp,
                self.among_equals.get(info.key, 0),
                info.created,
            ),
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
        if problem:
            self.outcomes.return_to_queue(info, queue, reason, requeue, Explanation(problem=problem))
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
        self.outcomes.set_scan(info, NO_SCAN)
        self.outcomes.return_to_queue(info, queue, "Waiting", "Held", Explanation(problem=held.message))

    def _expire_scan(self, info: WorkloadInfo, queue: ClusterQueue) -> None:
        """Forgets which flavors were tried once that may have changed (6.8).

        Pod sets that hide each other's flavors in turn would do so again after any change, and never use the
        flavors that have unused quota by then: they begin with the first flavors again.
        """
        if info.scanned_at not in (-1, self.state.changes):
            self.outcomes.set_scan(info, NO_SCAN)
            return
        if queue.generation == info.scan_generation:
            return
        if not self._rules.keep_scan or self.state.cycle - info.scan_cycle > 1:
            self.outcomes.set_scan(info, NO_SCAN)

    # --- processing -------------------------------------------------------------------------------------

    def _process(self, entry: Entry) -> None:
        """Decides about one entry (5.5)."""
        if entry.info.parent and any(rank < 0 for rank, _ in self.state.admitted_variants(entry.info)):
            self.outcomes.save_scan(entry)
            self.outcomes.skip(entry, "PreferredVariantAdmitted", "PendingEvaluation")
            return
        found = entry.found
        if found.targets and self._tentative.includes_target(found.targets):
            if not self._rules.recompute:
                self.outcomes.save_scan(entry)
                self.outcomes.skip(entry, "TargetsTaken")
                return
            if self._again(entry):
                return
            found = entry.found
            if not found.targets:
                # What it tried was not enough: the next evaluation goes on with the flavors that are left.
                self.outcomes.save_scan(entry)
        elif not (self.state.unready and found.assignment.mode == FIT):
            # One that is only held until all pods are ready keeps its assignment: it tries no other flavor.
            self.outcomes.save_scan(entry)
        if entry.placed and self._is_taken(entry):
            nodes = self.state.nodes
            if not self._rules.places_again and any(shared is nodes for shared, _ in entry.placed):
                self.outcomes.skip(entry, "NoLongerFits")
                return
            with self._tentative.all_held():
                context = self.evaluator.context(self.now)
                self._evaluate_again(entry, self._tentative.targets | self.moved, context)
            found = entry.found
        assignment = found.assignment
        if assignment.mode == NO_FIT:
            entry.explanation.outcome = "NoFit"
            if found.held:
                self.outcomes.set_scan(entry.info, NO_SCAN)
                self.outcomes.requeue(entry, "Waiting", "Held")
                return
            self._show_reservation(entry)
            self.outcomes.requeue(entry, REASONS[assignment.reason], "NoFit")
            return
        exhausted = assignment.mode != FIT and self._has_preempted_too_often(entry)
        if assignment.mode != FIT and (exhausted or not found.targets):
            entry.explanation.outcome = "PreemptionLimit" if exhausted else "NoCandidates"
            if found.protected_until is not None:
                self.state.flush_at(entry.queue, found.protected_until)
            self._show_reservation(entry)
            self.outcomes.requeue(entry, REASONS[WAITING], "PreemptionNoCandidates")
            kept = capacity.kept(found.demands)
            if kept or not found.shortages:
                self._reserve(entry, kept)
            return
        if assignment.mode != FIT and self._rules.gates_work and has_closed_gate(entry.info.obj):
            self.outcomes.set_scan(entry.info, NO_SCAN)
            entry.explanation.outcome = "PreemptionGated"
            self.outcomes.requeue(entry, "AdmissionGated", "PreemptionGated", blocked_on_gates=True)
            return
        if not self._fits(entry):
            self.outcomes.skip(entry, "NoLongerFits")
            return
        if self._planner is not None and self._would_delay(entry):
            return
        if assignment.mode == FIT:
            if self.state.unready:
                entry.explanation.outcome = "PodsNotReady"
                self.outcomes.requeue(entry, "WaitingForPodsReady", "FailedAfterNomination")
            elif (admitted := self._admitted_variant(entry)) is not None:
                self._migrate(entry, admitted)
            else:
                self._admit(entry)
                if self._planner is not None:
                    self._planner.admitted(entry.queue)
        else:
            self._plan(entry)
            for target, _ in found.targets:
                self._tentative.add_target(target)
                assert target.queue is not None
                self._context.changed(target.queue)
            self.outcomes.preempt(entry)

    def _admit(self, entry: Entry) -> None:
        """Reserves quota for an entry; what that uses counts in every view."""
        if not self._tentative.differs:  # so it is for most entries
            self.outcomes.admit(entry)
            return
        with self._tentative.reserving(entry.queue):
            self.outcomes.admit(entry)

    def _would_delay(self, entry: Entry) -> bool:
        """Whether an entry would delay one that capacity is reserved for; then it is requeued."""
        assert self._planner is not None
        planner, info, queue = self._planner, entry.info, entry.queue
        with self._tentative.all_reserved():
            window = planner.window(info, queue, entry.found) if self.state.backfill.windows.on else None
            proof, other, another = None, None, None
            if window is None:
                proof = another = planner.proof(info, queue, entry.found, entry.placed)
                delays = proof is not None and proof.kind == "WouldDelay"
                fits = entry.found.assignment.mode == FIT and entry.replaced is None
                if fits and (delays or planner.disturbs(info, queue, entry.found)):
                    other = planner.instead(info, queue, entry.found)
                if other is not None:
                    another = planner.proof(info, queue, other, other.placed)
        if window is not None:
            self._hold_back(entry, window)
            return True
        if other is not None and (another is None or another.kind != "WouldDelay"):
            before = entry.found, entry.placed
            entry.found, entry.placed = other, other.placed
            if self._fits(entry):
                proof = another
                entry.explanation.attempts = other.assignment.attempts
            else:
                entry.found, entry.placed = before
        if proof is None or proof.kind != "WouldDelay":
            entry.explanation.backfill = proof
            return False
        # Should the other one not start then, times are computed again.
        self.state.flush_at(entry.queue, max(proof.start, self.now) + 1)
        self._hold_back(entry, proof)
        return True

    def _hold_back(self, entry: Entry, proof: BackfillProof) -> None:
        """Requeues an entry that fits but must leave capacity to others."""
        entry.explanation.backfill = proof
        entry.explanation.outcome = "WouldDelay"
        self._show_reservation(entry)
        self.outcomes.set_scan(entry.info, NO_SCAN)
        self.outcomes.requeue(entry, "Waiting", "WouldDelay")

    def _show_reservation(self, entry: Entry) -> None:
        """Explain from when on capacity is reserved for an entry that does not fit now."""
        if self._planner is None or entry.queue.backfill is None:
            return
        with self._tentative.all_reserved():
            entry.explanation.shadow = self._planner.shadow(entry.info, entry.queue)

    def _admitted_variant(self, entry: Entry) -> WorkloadInfo | None:
        """The admitted variant of the same parent whose flavor is less preferred (11.10)."""
        if not entry.info.parent:
            return None
        return next((other for rank, other in self.state.admitted_variants(entry.info) if rank > 0), None)

    def _migrate(self, entry: Entry, admitted: WorkloadInfo) -> None:
        """Evict the admitted variant for an entry that fits with a more preferred flavor, where it may."""
        flavor = flavor_of(entry.info.obj.metadata.annotations)
        if not may_migrate(entry.queue.variants, entry.queue.flavor_order(), flavor):
            entry.explanation.outcome = "MigrationNotAllowed"
            self.outcomes.requeue(entry, "PendingEvaluation", "Generic")
            return
        self._plan(entry)
        self.outcomes.migrate(entry, admitted)

    def _has_preempted_too_often(self, entry: Entry) -> bool:
        """Whether an entry would preempt more workloads and must not before its tree changes."""
        if entry.queue.tree.preemptions.get(entry.info.key, 0) < PREEMPTIONS_MAX:
            return False
        return any(not target.evicted for target, _ in entry.found.targets)

    def _is_taken(self, entry: Entry) -> bool:
        """Whether earlier entries took what an entry was nominated for of shared capacities, not of quota."""
        # A slice gives way to the one that replaces it.
        held = entry.replaced.shared if entry.replaced is not None else ()
        with removed(entry.found.targets):
            capacity.release(held)
            taken = capacity.taken(entry.placed)
            capacity.reserve(held)
            return taken and quota.fits(entry.found.assignment.demand(entry.queue))

    def _evaluate_again(
        self, entry: Entry, already_targeted: AbstractSet[WorkloadInfo], context: PreemptionContext
    ) -> None:
        """Evaluate an entry for the flavors it was nominated with, beside what earlier entries got."""
        nominated = entry.found.assignment.pinned()
        found = self.evaluator.evaluate(
            entry.info,
            entry.queue,
            replaced=entry.replaced,
            nominated=nominated,
            already_targeted=already_targeted,
            context=context,
        )
        entry.found, entry.placed = found, found.placed
        entry.explanation.attempts = found.assignment.attempts
        entry.explanation.search = found.report
        entry.explanation.shortages = found.shortages
        entry.explanation.recomputed = True

    def _again(self, entry: Entry) -> bool:
        """Evaluate an entry again without the targets of other entries; whether that decided it (5.6)."""
        self._evaluate_again(entry, self.moved, self._context)
        self.outcomes.set_scan(entry.info, NO_SCAN)
        if entry.found.assignment.mode != FIT:
            return False
        # It fits once the victims of an earlier entry are gone: what it needs is kept for it.
        self._plan(entry)
        entry.explanation.outcome = "Deferred"
        self.outcomes.requeue(entry, "WaitingForPreemptedWorkloads", "PendingPreemption")
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
            usage = self._tentative.held(flavor_usage)
            if not borrows:
                amount = min(amount, flavor_usage.nominal - usage)
            elif flavor_usage.borrowing_limit is not None:
                amount = min(amount, flavor_usage.nominal + flavor_usage.borrowing_limit - usage)
            self._tentative.plan(((flavor_usage, amount),))
        self._tentative.plan((), kept)

    def _fits(self, entry: Entry) -> bool:
        """Whether an entry fits once all victims of the cycle and its own are gone.

        One that would be admitted at once must also fit while they still run, next to what was admitted in
        this cycle (defect D3 of the reference, which over-commits here).
        """
        wanted, demands = entry.found.assignment.demand(entry.queue), entry.found.demands
        targets, tentative = entry.found.targets, self._tentative
        if targets:
            with removed(targets):
                fits = quota.fits(wanted) and (not demands or self._place(entry))
        else:
            fits = quota.fits(wanted) and (not demands or self._place(entry))
        if not fits or not tentative.frees or entry.found.assignment.mode != FIT:
            return fits
        if not demands:
            return tentative.fits_reserved(wanted)
        with tentative.all_reserved():
            fits = quota.fits(wanted)
            room = capacity.still_fits(demands, entry.placed)
        if not fits or room:
            return fits
        with tentative.all_held():  # beside the targets as well as beside what is planned
            return self._place(entry)

    def _place(self, entry: Entry) -> bool:
        """Keep what an entry was nominated for of shared capacities, or else place it again.

        Returns whether either is possible now.
        """
        demands = entry.found.demands
        if entry.placed and capacity.still_fits(demands, entry.placed):
            return True
        placed = capacity.place(demands)
        entry.placed = placed or ()
        return placed is not None
