"""What becomes of the entries of a cycle: the state after it, and the decisions.

`TreeCycle` chooses the outcome of each entry; here it is applied. Source of the rules:
docs/reference/kueue-semantics.md 4.5, 5.5 and 6.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.variants import FLAVOR_MIGRATION
from pykueue.engine import capacity
from pykueue.engine.capacity import Reservations
from pykueue.engine.cycle.evaluation import Evaluation, Evaluator
from pykueue.engine.cycle.rules import CycleRules
from pykueue.engine.decisions import Admit, Decision, Evict, PendingReason, Preempt, Requeue, RequeueReason
from pykueue.engine.explanation import Explanation, shadow_of
from pykueue.engine.flavors.reservation import reservation_of
from pykueue.engine.preemption.damping import lost_resource_seconds
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.state import State
from pykueue.engine.workload import ACTIVE, INADMISSIBLE, NO_SCAN, WorkloadInfo, has_delayed_domains

_COARSE: dict[str, PendingReason] = {
    "Misconfigured": "Inadmissible",
    "Suspended": "Inadmissible",
    "WaitingForPodsReady": "Waiting",
    "AdmissionGated": "AdmissionGated",
}

#: The pod counts of an explanation where all pods are meant: one object, never changed.
_ALL_PODS: dict[str, int] = {}

#: Requeue reasons after which the next workload of a StrictFIFO queue is looked at.
_SET_ASIDE = frozenset({"NamespaceMismatch", "Held"})
#: Requeue reasons after which a BestEffortFIFO queue looks at the workload again at once (4.5).
_IMMEDIATE = frozenset({"FailedAfterNomination", "PendingPreemption", "PendingMigration"})
#: Requeue reasons that capacity has no influence on: nothing is reserved for such a workload (backfill).
_UNRELATED = frozenset({"Generic", "NamespaceMismatch", "Held", "PreemptionGated"})


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
        self.explanation = Explanation(
            found.assignment.attempts, found.report, counts=_ALL_PODS, shortages=found.shortages
        )

    def flavors(self) -> set[str]:
        """Flavors it would get."""
        return self.found.assignment.flavors()


class Outcomes:
    """Applies the outcomes of one cycle over one tree."""

    def __init__(self, state: State, evaluator: Evaluator, rules: CycleRules, now: float) -> None:
        self._state = state
        self._evaluator = evaluator
        self._rules = rules
        self._now = now
        self.decisions: list[Decision] = []
        #: Something happened that makes the next cycle different from this one.
        self.progress = False
        #: An entry was admitted, became inadmissible or preempts: the next cycle has other entries or usage.
        self._entries_change = False

    def save_scan(self, entry: Entry) -> None:
        """Remembers which flavors were tried, and whether that leads anywhere while nothing changes."""
        info = entry.info
        if not self._state.scan_memory:
            return
        scan, changes = entry.found.assignment.scan or NO_SCAN, self._state.changes
        before = info.scan
        self.set_scan(info, scan)
        if info.scanned_at == changes:
            return
        tried = info.tried if info.tried_at == changes else ()
        again = scan in tried
        if scan != before and not again:
            # The next evaluation begins elsewhere; but once all flavors were tried, something has to change.
            self.progress = True
        # Pod sets that hide each other's flavors in turn never come to the last ones.
        info.scanned_at = changes if not scan or again else -1
        info.tried, info.tried_at = (*tried, scan), changes

    def set_scan(self, info: WorkloadInfo, scan: Mapping[tuple[int, str], int]) -> None:
        """Remembers which flavors were tried, in this cycle and under the present quotas."""
        self._state.record_undo(info)
        info.scan = scan
        info.scan_cycle = self._state.cycle
        if info.queue is not None:
            info.scan_generation = info.queue.generation

    def skip(self, entry: Entry, outcome: Any, reason: PendingReason = "WaitingForQuota") -> None:
        """Requeues an entry that lost to an earlier one of the cycle."""
        if not self._rules.keep_scan:
            self.set_scan(entry.info, NO_SCAN)
        if self._entries_change:
            # It lost to another entry, not to the usage: the flavors it tried say nothing of the next cycle.
            self._state.record_undo(entry.info)
            entry.info.scanned_at = entry.info.tried_at = -1
        entry.explanation.outcome = outcome
        self.requeue(entry, reason, "FailedAfterNomination")

    def admit(self, entry: Entry) -> None:
        """Reserves quota for an entry, and what it needs of shared capacities."""
        state, info, queue = self._state, entry.info, entry.queue
        assignment = entry.found.assignment
        scheduling_class = info.scheduling_class
        assert scheduling_class is not None
        reservation = reservation_of(
            scheduling_class, self._evaluator.plan(scheduling_class, queue), queue.name, assignment
        )
        required = queue.required_checks(entry.flavors()) if queue.check_rules else []
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
            state.supersede(old)
        state.record_undo(info)
        if info.promise is not None and queue.backfill is not None:
            promise = info.promise
            explanation.shadow = shadow_of(promise.start, promise.certainty, queue.backfill.policy)
        info.admission, info.usage, info.flavor_resources = reservation
        info.shared = entry.placed
        if entry.placed:
            info.admission = capacity.write(reservation.admission, entry.placed)
            if has_delayed_domains(info.admission):
                passed = False
        info.admitted = passed
        info.reserved_at = self._now
        info.assumed = True
        info.ready = False
        info.evicted = info.eviction_assumed = False
        info.scan = NO_SCAN
        info.preempted_for = ""
        info.preemption_attempts = 0
        info.level_limit = -1
        info.reason = ""
        info.promise = None
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

    def preempt(self, entry: Entry) -> None:
        """Evicts the targets of an entry, which is requeued until they have stopped."""
        state, info, queue = self._state, entry.info, entry.queue
        if not all(target.evicted for target, _ in entry.found.targets):
            state.undo_log.set(info, "preemption_attempts", info.preemption_attempts + 1)
            preemptions = queue.tree.preemptions
            state.undo_log.put(preemptions, info.key, preemptions.get(info.key, 0) + 1)
            taken_back = any(target.key == info.preempted_for for target, _ in entry.found.targets)
            if taken_back and entry.found.assignment.shrunk:
                state.undo_log.set(info, "level_limit", entry.found.assignment.level)
        for target, reason in entry.found.targets:
            if target.evicted:
                continue
            victim_queue = target.queue
            assert victim_queue is not None
            state.undo_log.set(target, "eviction_assumed", True)
            state.undo_log.set(target, "preempted_for", info.key)
            state.mark_evicted(target, True)
            self.progress = self._entries_change = True
            lost: dict[str, int] = {}
            if state.damping.on:
                state.damping.preempted(target.key, queue.path, victim_queue.path, self._now)
                lost = lost_resource_seconds(target, self._now)
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
                    lost,
                )
            )
        self.set_scan(info, NO_SCAN)
        entry.explanation.outcome = "Preempting"
        entry.explanation.pending_preemptions = len(entry.found.targets)
        self.requeue(entry, "WaitingForPreemptedWorkloads", "PendingPreemption")

    def migrate(self, entry: Entry, variant: WorkloadInfo) -> None:
        """Evicts the variant with a less preferred flavor; the entry is requeued until its job stopped."""
        state, info = self._state, entry.info
        assert variant.queue is not None
        if not variant.evicted:
            state.undo_log.set(variant, "eviction_assumed", True)
            state.undo_log.set(variant, "preempted_for", info.key)
            state.mark_evicted(variant, True)
            self.progress = self._entries_change = True
            text = f"Evicted to accommodate the variant {info.key}, whose flavor is more preferred"
            self.decisions.append(Evict(variant.key, FLAVOR_MIGRATION, text, variant.queue.name, state.cycle))
        self.set_scan(info, NO_SCAN)
        entry.explanation.outcome = "Migrating"
        self.requeue(entry, "WaitingForPreemptedWorkloads", "PendingMigration")

    def requeue(
        self, entry: Entry, reason: Any, requeue: RequeueReason, blocked_on_gates: bool = False
    ) -> None:
        """Gives an entry back to its queue with its explanation."""
        self.return_to_queue(
            entry.info, entry.queue, reason, requeue, entry.explanation, blocked_on_gates=blocked_on_gates
        )

    def return_to_queue(
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
        strict = queue.blocks
        in_line = (requeue not in _SET_ASIDE if strict else requeue in _IMMEDIATE) or bool(info.scan)
        if requeue in ("PendingPreemption", "PendingMigration"):
            self._state.undo_log.set(pending, "preemptor", info)
        self._state.places.move(info, ACTIVE if in_line else INADMISSIBLE)
        if not in_line:
            self.progress = self._entries_change = True
            if pending.preemptor is info:
                self._state.undo_log.set(pending, "preemptor", None)  # defect D5 of the reference
            alike = self._state.hashing and not strict
            if info.shared_requests:
                alike = alike and all(shared.by_class for shared, _ in info.shared_requests)
            if requeue == "WouldDelay" and queue.backfill is not None and queue.backfill.percentile:
                alike = False  # run times that are fitted depend on more than the class
            if alike and requeue in ("NoFit", "PreemptionNoCandidates", "WouldDelay"):
                pending.set_class_inadmissible(pending.class_of(info), reason)
        if queue.backfill is not None:
            reservable = requeue not in _UNRELATED
            if info.reservable != reservable:
                self._state.undo_log.set(info, "reservable", reservable)
                self._state.undo_log.set(self._state.backfill, "version", self._state.backfill.version + 1)
        if not self._rules.fine_reasons:
            reason = _COARSE.get(reason, "Pending")
        self._state.undo_log.set(info, "reason", reason)
        self.decisions.append(
            Requeue(
                info.key,
                queue.name,
                reason,
                requeue,
                not in_line,
                self._state.cycle,
                explanation,
                blocked_on_gates,
            )
        )
