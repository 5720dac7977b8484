"""One scheduling cycle over the heads of one tree: nominate, order, process, put back.

Entries are nominated against the tree as it is and then processed one by one, each seeing the usage the
earlier ones left behind. While entries are processed the cells of the tree hold what is planned (everything
earlier entries asked for); what is only planned is taken off again at the end, and what was admitted stays.
Source of the rules: reference/kueue-semantics.md 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.engine.admission import holding_of
from pykueue.engine.assignment import FIT, NO_FIT, REASONS, WAITING
from pykueue.engine.cluster_queue import ClusterQueue
from pykueue.engine.decisions import Admit, Decision, Pend, PendReason, Preempt, RequeueReason
from pykueue.engine.evaluation import Evaluation, Evaluator
from pykueue.engine.explanation import Explanation
from pykueue.engine.fairness import Contender, Tournament
from pykueue.engine.preemption import Scene, put_back, take_away
from pykueue.engine.quota import Cell, add, available, remove
from pykueue.engine.state import State
from pykueue.engine.tree import Tree
from pykueue.engine.workload import NO_SCAN, Record, has_closed_gate

_COARSE: dict[str, PendReason] = {
    "Misconfigured": "Inadmissible",
    "Suspended": "Inadmissible",
    "WaitingForPodsReady": "Waiting",
    "AdmissionGated": "AdmissionGated",
}

#: Requeue reasons after which a BestEffortFIFO queue looks at the workload again at once (4.5).
_IMMEDIATE = frozenset({"FailedAfterNomination", "PendingPreemption", "PreemptionFailed"})
#: Rounds of preemption after which a workload comes before those that were preempted for it.
MANY_ROUNDS = 2


class Entry:
    """A head that may get quota in this cycle."""

    __slots__ = ("explanation", "found", "is_preemptor", "queue", "record", "replaced")

    def __init__(
        self,
        record: Record,
        queue: ClusterQueue,
        found: Evaluation,
        replaced: Record | None,
        is_preemptor: bool,
    ) -> None:
        self.record = record
        self.queue = queue
        self.found = found
        self.replaced = replaced
        self.is_preemptor = is_preemptor
        self.explanation = Explanation(found.assignment.attempts, found.report)


class TreeCycle:
    """One cycle over one tree."""

    def __init__(self, state: State, evaluator: Evaluator, now: float) -> None:
        self.state = state
        self.evaluator = evaluator
        self.now = now
        options = state.options
        self._recompute = options.enabled("RecomputeAssignmentUponPreemptionTargetsOverlap")
        self._preemptors_first = options.enabled("PrioritizePreemptorWorkloads")
        self._by_priority = options.enabled("PrioritySortingWithinCohort")
        self._keep_scan = options.enabled("FlavorFungibilityPreserveScanProgress")
        self._gates_work = options.enabled("ConcurrentAdmission") or options.enabled(
            "MultiKueueOrchestratedPreemption"
        )
        self._fine_reasons = options.enabled("UnadmittedWorkloadsObservability")
        self._non_borrowing_first = options.enabled("FairSharingPrioritizeNonBorrowing")
        #: Shared by all nominations, during which the tree stays as it is.
        self._scene = Scene()
        self.decisions: list[Decision] = []
        #: Something happened that makes the next cycle different from this one.
        self.progress = False
        #: Workloads for which others of this cycle were preempted. Under fair sharing they go first: shares
        #: do not ask who is owed, and could let the two take turns for ever. Otherwise they do so when it was
        #: not the first time: who shrinks to fit what it reclaimed can come behind whom it reclaimed it from.
        self._owed: set[str] = set()
        #: Victims of this cycle.
        self._taken: set[Record] = set()
        #: What they use, by cell of their queue.
        self._freed: dict[Cell, int] = {}
        #: What earlier entries ask for without having been admitted, by cell of their queue.
        self._planned: dict[Cell, int] = {}

    def run(self, tree: Tree) -> None:
        """Decides about the heads of the tree."""
        entries: list[Entry] = []
        usage_of = self.evaluator.usage_of
        heads: list[tuple[Record, ClusterQueue]] = []
        for queue in tree.queues:
            if queue.pending.records and queue.is_active:
                record = queue.pending.head(usage_of, queue.strict)
                if record is not None:
                    heads.append((record, queue))
        for record, queue in heads:
            is_preemptor = queue.pending.sticky is record
            queue.pending.take(record)
            entry = self._nominate(record, queue, is_preemptor)
            if entry is not None:
                entries.append(entry)
        if not entries:
            return
        self._owed = {entry.record.preempted_for for entry in entries}
        if self.state.options.fair_sharing:
            tournament = Tournament([self._contender(entry) for entry in entries], self._non_borrowing_first)
            while (entry := tournament.next()) is not None:
                self._process(entry)
        else:
            if len(entries) > 1:
                entries.sort(key=self._rank)
            for entry in entries:
                self._process(entry)
        for cell, amount in self._planned.items():
            remove(cell, amount)

    # --- order ------------------------------------------------------------------------------------------

    def _rank(self, entry: Entry) -> tuple[Any, ...]:
        """Position among the entries of a tree (5.4)."""
        record = entry.record
        return (
            not (self._preemptors_first and entry.is_preemptor),
            not (record.rounds >= MANY_ROUNDS and record.key in self._owed),
            entry.found.assignment.level,
            -record.priority if self._by_priority else 0,
            record.timestamp,
            record.created,
            record.key,
        )

    def _contender(self, entry: Entry) -> Contender:
        record = entry.record
        return Contender(
            entry,
            record.key,
            entry.queue,
            entry.found.assignment.usage,
            (-record.priority if self._by_priority else 0, record.timestamp, record.created),
            (not (self._preemptors_first and entry.is_preemptor), record.key not in self._owed),
        )

    # --- nomination -------------------------------------------------------------------------------------

    def _nominate(self, record: Record, queue: ClusterQueue, is_preemptor: bool) -> Entry | None:
        """An entry, or None if the head may not get quota now (5.3)."""
        state = self.state
        checks = record.obj.status.admission_checks
        shape = record.shape
        assert shape is not None
        problem = ""
        reason: PendReason = "Misconfigured"
        requeue: RequeueReason = "Generic"
        if checks and any(check.state in ("Retry", "Rejected") for check in checks):
            reason, problem = "PendingEvaluation", "an admission check is not passed"
        elif queue.tree.cyclic:
            reason, problem = "Suspended", f"the cohorts above ClusterQueue {queue.name} form a cycle"
        elif record.namespace not in state.namespaces:
            problem = f"namespace {record.namespace} does not exist"
        elif not state.admits_namespace(queue, record.namespace):
            requeue = "NamespaceMismatch"
            problem = f"ClusterQueue {queue.name} does not take workloads of namespace {record.namespace}"
        else:
            problem = shape.problem
        if problem:
            self._put_back(record, queue, reason, requeue, Explanation(problem=problem))
            return None
        self._expire_scan(record, queue)
        replaced = state.replaced_by(record)
        found = self.evaluator.evaluate(record, queue, replaced=replaced, scene=self._scene)
        return Entry(record, queue, found, replaced, is_preemptor)

    def _expire_scan(self, record: Record, queue: ClusterQueue) -> None:
        """Forgets which flavors were tried once that may have changed (6.8)."""
        if not record.scan or queue.generation == record.scan_generation:
            return
        if not self._keep_scan or self.state.cycle - record.scan_cycle > 1:
            self._set_scan(record, NO_SCAN)

    # --- processing -------------------------------------------------------------------------------------

    def _process(self, entry: Entry) -> None:
        """Decides about one entry (5.5)."""
        found = entry.found
        if self._taken and any(target in self._taken for target, _ in found.targets):
            if not self._recompute:
                self._keep_progress(entry, found)
                self._skip(entry, "TargetsTaken")
                return
            if self._again(entry):
                return
            found = entry.found
        elif not (self.state.unready and found.assignment.mode == FIT):
            # One that is only held until all pods are ready keeps its assignment: it tries no other flavor.
            self._keep_progress(entry, found)
        assignment = found.assignment
        if assignment.mode == NO_FIT:
            entry.explanation.outcome = "NoFit"
            self._pend(entry, REASONS[assignment.reason], "NoFit")
            return
        if assignment.mode != FIT and not found.targets:
            entry.explanation.outcome = "NoCandidates"
            self._pend(entry, REASONS[WAITING], "PreemptionNoCandidates")
            self._reserve(entry)
            return
        if assignment.mode != FIT and self._gates_work and has_closed_gate(entry.record.obj):
            self._set_scan(entry.record, NO_SCAN)
            entry.explanation.outcome = "PreemptionGated"
            self._pend(entry, "AdmissionGated", "PreemptionGated", blocked_on_gates=True)
            return
        if not self._fits(entry):
            self._skip(entry, "NoLongerFits")
            return
        if assignment.mode == FIT:
            if self.state.unready:
                entry.explanation.outcome = "PodsNotReady"
                self._pend(entry, "WaitingForPodsReady", "FailedAfterNomination")
            else:
                self._admit(entry)
        else:
            self._preempt(entry)

    def _keep_progress(self, entry: Entry, found: Evaluation) -> None:
        record = entry.record
        if not self.state.scan_memory:
            return
        scan, changes = found.assignment.scan or NO_SCAN, self.state.changes
        before = record.scan
        self._set_scan(record, scan)
        if record.scanned_at == changes:
            return
        tried = record.tried if record.tried_at == changes else ()
        again = scan in tried
        if scan != before and not again:
            # The next evaluation begins elsewhere; but once all flavors were tried, something has to change.
            self.progress = True
        # Pod sets that hide each other's flavors in turn never come to the last ones.
        if not scan or again:
            record.scanned_at = changes
        record.tried, record.tried_at = (*tried, scan), changes

    def _set_scan(self, record: Record, scan: Mapping[tuple[int, str], int]) -> None:
        """Remembers which flavors were tried, in this cycle and under the present quotas."""
        self.state.keep(record)
        record.scan = scan
        record.scan_cycle = self.state.cycle
        if record.queue is not None:
            record.scan_generation = record.queue.generation

    def _again(self, entry: Entry) -> bool:
        """Evaluates an entry anew without the victims of others; tells whether that settled it (5.6)."""
        nominated = {
            (index, resource): choice.flavor
            for index, choices in enumerate(entry.found.assignment.choices)
            for resource, choice in choices.items()
        }
        for cell, amount in self._freed.items():
            remove(cell, amount)
        found = self.evaluator.evaluate(entry.record, entry.queue, nominated=nominated, taken=self._taken)
        for cell, amount in self._freed.items():
            add(cell, amount)
        entry.found = found
        entry.explanation.attempts = found.assignment.attempts
        entry.explanation.search = found.report
        entry.explanation.recomputed = True
        self._set_scan(entry.record, NO_SCAN)
        if found.assignment.mode != FIT:
            return False
        # It fits once the victims of an earlier entry are gone: what it needs is kept for it.
        self._plan(entry)
        entry.explanation.outcome = "Deferred"
        self._pend(entry, "WaitingForPreemptedWorkloads", "PendingPreemption")
        return True

    def _plan(self, entry: Entry) -> None:
        """Counts what an entry asks for, for the rest of the cycle."""
        cells = entry.queue.cells
        for pair, amount in entry.found.assignment.usage.items():
            self._plan_amount(cells[pair], amount)

    def _plan_amount(self, cell: Cell, amount: int) -> None:
        if amount > 0:
            add(cell, amount)
            self._planned[cell] = self._planned.get(cell, 0) + amount

    def _reserve(self, entry: Entry) -> None:
        """Keeps others of the cohort from taking what an entry waits for (5.7)."""
        queue = entry.queue
        if queue.reclaim == "Any" and not (self._preemptors_first and entry.is_preemptor):
            return
        borrows = entry.found.assignment.level > 0
        for pair, amount in entry.found.assignment.usage.items():
            cell = queue.cells[pair]
            if not borrows:
                self._plan_amount(cell, min(amount, cell.nominal - cell.usage))
            elif cell.borrowing_limit is None:
                self._plan_amount(cell, amount)
            else:
                self._plan_amount(cell, min(amount, cell.nominal + cell.borrowing_limit - cell.usage))

    def _fits(self, entry: Entry) -> bool:
        """Whether an entry fits once all victims of the cycle and its own are gone.

        One that would be admitted at once must also fit while they still run, next to what was admitted in
        this cycle (defect D3 of the reference, which over-commits here).
        """
        cells = entry.queue.cells
        wanted = [
            (cells[pair], amount) for pair, amount in entry.found.assignment.usage.items() if amount > 0
        ]
        freed = self._freed
        targets = entry.found.targets
        for cell, amount in freed.items():
            remove(cell, amount)
        for target, _ in targets:
            take_away(target)
        fits = all(amount <= available(cell) for cell, amount in wanted)
        for target, _ in targets:
            put_back(target)
        for cell, amount in freed.items():
            add(cell, amount)
        if fits and freed and entry.found.assignment.mode == FIT:
            for cell, amount in self._planned.items():
                remove(cell, amount)
            fits = all(amount <= available(cell) for cell, amount in wanted)
            for cell, amount in self._planned.items():
                add(cell, amount)
        return fits

    # --- outcomes ---------------------------------------------------------------------------------------

    def _skip(self, entry: Entry, outcome: Any) -> None:
        if not self._keep_scan:
            self._set_scan(entry.record, NO_SCAN)
        entry.explanation.outcome = outcome
        self._pend(entry, REASONS[WAITING], "FailedAfterNomination")

    def _admit(self, entry: Entry) -> None:
        state, record, queue = self.state, entry.record, entry.queue
        assignment = entry.found.assignment
        shape = record.shape
        assert shape is not None
        holding = holding_of(shape, self.evaluator.plan(shape, queue), queue.name, assignment)
        required = queue.required_checks(assignment_flavors(entry)) if queue.check_rules else []
        listed = {check.name: check.state for check in record.obj.status.admission_checks}
        passed = all(listed.get(name) == "Ready" for name in (*required, *listed))
        explanation = entry.explanation
        explanation.outcome = "Admitted"
        if assignment.shrunk:
            explanation.counts = {
                pods.name: count
                for pods, count in zip(record.obj.spec.pod_sets, assignment.counts, strict=True)
            }
        old = entry.replaced
        if old is not None:
            state.let_go(old)
            state.journal.set(old, "superseded", True)
        state.keep(record)
        record.admission, record.usage, record.holds = holding
        record.reserved_at = self.now
        record.assumed = True
        record.admitted = passed
        record.ready = False
        record.evicted = record.eviction_assumed = False
        record.scan = NO_SCAN
        record.preempted_for = ""
        record.rounds = 0
        record.reason = ""
        if queue.pending.sticky is record:
            state.journal.set(queue.pending, "sticky", None)
        state.hold(record, queue)
        state.penalize(record)
        self.progress = True
        self.decisions.append(
            Admit(
                record.key,
                queue.name,
                holding.admission,
                passed,
                record.queue_since,
                state.cycle,
                explanation,
                old.key if old is not None else "",
            )
        )

    def _preempt(self, entry: Entry) -> None:
        state, record, queue = self.state, entry.record, entry.queue
        self._plan(entry)
        if not all(target.evicted for target, _ in entry.found.targets):
            state.journal.set(record, "rounds", record.rounds + 1)
        for target, reason in entry.found.targets:
            self._taken.add(target)
            victim_queue = target.queue
            assert victim_queue is not None
            for pair, amount in target.usage:
                cell = victim_queue.cells[pair]
                self._freed[cell] = self._freed.get(cell, 0) + amount
            if target.evicted:
                continue
            state.journal.set(target, "eviction_assumed", True)
            state.journal.set(target, "preempted_for", record.key)
            state.mark_evicted(target, True)
            self.progress = True
            self.decisions.append(
                Preempt(
                    target.key,
                    reason,
                    record.key,
                    record.uid,
                    victim_queue.name,
                    victim_queue.path,
                    queue.path,
                    state.cycle,
                )
            )
        self._set_scan(record, NO_SCAN)
        entry.explanation.outcome = "Preempting"
        entry.explanation.pending_preemptions = len(entry.found.targets)
        self._pend(entry, "WaitingForPreemptedWorkloads", "PendingPreemption")

    def _pend(
        self, entry: Entry, reason: Any, requeue: RequeueReason, blocked_on_gates: bool = False
    ) -> None:
        self._put_back(
            entry.record, entry.queue, reason, requeue, entry.explanation, blocked_on_gates=blocked_on_gates
        )

    def _put_back(
        self,
        record: Record,
        queue: ClusterQueue,
        reason: PendReason,
        requeue: RequeueReason,
        explanation: Explanation,
        blocked_on_gates: bool = False,
    ) -> None:
        """Gives a head back to its queue, in line or parked (4.5)."""
        pending = queue.pending
        strict = queue.strict
        in_line = (requeue != "NamespaceMismatch" if strict else requeue in _IMMEDIATE) or bool(record.scan)
        if requeue == "PendingPreemption":
            self.state.journal.set(pending, "sticky", record)
        pending.add(record, parked=not in_line)
        if not in_line:
            self.progress = True
            if pending.sticky is record:
                self.state.journal.set(pending, "sticky", None)  # defect D5 of the reference
            if self.state.hashing and not strict and requeue in ("NoFit", "PreemptionNoCandidates"):
                assert record.shape is not None
                pending.remember((record.shape, record.priority), reason)
        if not self._fine_reasons:
            reason = _COARSE.get(reason, "Pending")
        self.state.journal.set(record, "reason", reason)
        self.decisions.append(
            Pend(
                record.key,
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
