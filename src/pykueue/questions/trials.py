"""Trials: what would be decided after a change, tried on a fork of an engine and undone.

Two kinds: a workload alone, as if it were the head of its queue and nothing else were pending; and in place,
with all other pending workloads. Nothing finishes in a trial; preempted workloads give their quota back
between two cycles, one second apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pykueue.api import kueue
from pykueue.api.kueue.names import EVICTED, PODS_READY
from pykueue.engine import Admit, Decision, Engine, Preempt, Removed, Requeue, Upsert, lifecycle
from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explanation import Explanation

#: Cycles after which a trial of a workload alone ends: it tries every flavor, and preempts others.
ALONE_CYCLES_MAX: Final = 50
#: Cycles after which a trial in place ends.
PLACE_CYCLES_MAX: Final = 2000


class TrialsExhausted(Exception):
    """A question needs more trials than were allowed."""


class Outcome(NamedTuple):
    """What became of the workload in a trial."""

    admitted: bool
    cycles: int
    """Cycles run, that in which it was admitted included."""
    preempted: tuple[str, ...] = ()
    """Workloads that were preempted, by whatever workload."""
    others: tuple[str, ...] = ()
    """Other workloads that were admitted."""
    explanation: Explanation | None = None
    """Of the last decision about the workload."""
    queues: frozenset[str] | None = None
    """ClusterQueues that were decided about; None for all."""


class Trials:
    """Runs trials about one workload on forks of an engine."""

    def __init__(self, engine: Engine, key: str, now: float, place_decisions_max: int) -> None:
        """`now` is in seconds since 1970; `place_decisions_max` bounds all trials in place together."""
        self.engine = engine
        self.key = key
        self.now = now
        self.place_decisions_left = place_decisions_max

    def alone(self, events: Iterable[Upsert] = ()) -> Outcome:
        """The outcome after some events if the workload were the head and nothing else were pending."""
        with self.engine.fork() as trial:
            key = self._apply(trial, events)
            preempted: dict[str, None] = {}
            explanation = None
            for cycle in range(1, ALONE_CYCLES_MAX + 1):
                now = self.now + cycle
                decisions, progress = trial.cycle_alone(key, now)
                own = _own(decisions, key)
                if own is None:
                    return Outcome(False, cycle, tuple(preempted))
                explanation = own.explanation
                if isinstance(own, Admit):
                    return Outcome(True, cycle, tuple(preempted), (), explanation)
                targets = _all_targets(decisions)
                preempted |= dict.fromkeys(targets)
                freed = _release(trial, targets, now)
                if not freed and (own.inadmissible or not progress):
                    break
            return Outcome(False, cycle, tuple(preempted), (), explanation)

    def _apply(self, trial: Engine, events: Iterable[Upsert]) -> str:
        """Apply the events of a change; the key of the workload then, which may have moved."""
        key = self.key
        for event in events:
            obj = event.obj
            if isinstance(obj, kueue.Workload) and obj.metadata.key != key:
                namespace, _, name = key.partition("/")
                trial.apply(Removed("Workload", namespace, name))
                key = obj.metadata.key
            trial.apply(event)
        return key

    def in_place(self, events: Sequence[Upsert] = (), to_end: bool = False) -> Outcome:
        """The outcome after some events with all pending workloads considered as usual.

        The trial ends when the workload is admitted, or (`to_end`) when nothing is left to decide.
        Raises TrialsExhausted if that takes more decisions than are allowed.
        """
        before = _cluster_queue(self.engine, self.key)
        with self.engine.fork() as trial:
            key = self._apply(trial, events)
            queues: frozenset[str] | None = None
            final = False
            if events and not trial.options.block_admission:
                # Other trees decide the same with and without the change.
                names = sorted({before, _cluster_queue(trial, key)} & set(trial.cluster_queues()))
                trial.focus(names)
                queues = frozenset(member for name in names for member in trial.members(name))
                # Without preemption nothing returns quota: what is inadmissible is not evaluated again.
                final = not to_end and not any(_may_preempt(trial, name) for name in queues)
            preempted: dict[str, None] = {}
            others: dict[str, None] = {}
            explanation = None
            admitted_in = cycle = 0
            while trial.has_heads():
                cycle += 1
                if cycle > PLACE_CYCLES_MAX or self.place_decisions_left <= 0:
                    raise TrialsExhausted
                now = self.now + cycle
                decisions = trial.cycle(now)
                self.place_decisions_left -= len(decisions)
                own = _own(decisions, key)
                explanation = own.explanation if own is not None else explanation
                admitted = [each.key for each in decisions if isinstance(each, Admit)]
                others |= dict.fromkeys(other for other in admitted if other != key)
                if isinstance(own, Admit) and not admitted_in:
                    admitted_in = cycle
                    if not to_end:
                        break
                if final and isinstance(own, Requeue) and own.inadmissible:
                    break
                targets = _all_targets(decisions)
                preempted |= dict.fromkeys(targets)
                _release(trial, targets, now)
                if trial.options.block_admission:
                    _make_ready(trial, admitted, now)
            return Outcome(
                bool(admitted_in), admitted_in or cycle, tuple(preempted), tuple(others), explanation, queues
            )


def _cluster_queue(engine: Engine, key: str) -> str:
    """The ClusterQueue that the workload competes in; empty for none."""
    view = engine.workload(key)
    return view.cluster_queue if view is not None else ""


def _may_preempt(engine: Engine, name: str) -> bool:
    """Whether workloads of a ClusterQueue may preempt any others."""
    queue = engine.cluster_queue_object(name)
    if queue is None:
        return False
    policy = queue.spec.preemption
    return policy.within_cluster_queue != "Never" or policy.reclaim_within_cohort != "Never"


def _own(decisions: Sequence[Decision], key: str) -> Admit | Requeue | None:
    for decision in decisions:
        if isinstance(decision, Admit | Requeue) and decision.key == key:
            return decision
    return None


def _all_targets(decisions: Sequence[Decision]) -> dict[str, PreemptionReason]:
    """The workloads that any of the decisions preempts."""
    found: dict[str, PreemptionReason] = {}
    for decision in decisions:
        found = _targets(decision) | found
    return found


def _targets(decision: Decision) -> dict[str, PreemptionReason]:
    """The workloads that a decision preempts, including those that are already being preempted."""
    if isinstance(decision, Preempt):
        return {decision.key: decision.reason}
    if not isinstance(decision, Requeue) or decision.explanation.outcome != "Preempting":
        return {}
    search = decision.explanation.search
    return {target.key: "InClusterQueue" for target in search.targets} if search is not None else {}


def _release(engine: Engine, targets: Mapping[str, PreemptionReason], now: float) -> bool:
    """Preempted workloads give their quota back; whether any did."""
    found = False
    for key, reason in targets.items():
        workload = _with_reservation(engine, key, now)
        if workload is None:
            continue
        if workload is not engine.workload_object(key):
            # Admitted in this trial: its status shows that before it can show that it is evicted.
            engine.apply(Upsert(workload))
        if not workload.condition_is(EVICTED):
            workload = lifecycle.preempted(workload, reason, now)
        engine.apply(Upsert(lifecycle.released(workload, now)))
        found = True
    return found


def _make_ready(engine: Engine, keys: Iterable[str], now: float) -> None:
    """The pods of admitted workloads become ready, so that they do not block the next admission."""
    for key in keys:
        workload = _with_reservation(engine, key, now)
        if workload is not None:
            engine.apply(Upsert(lifecycle.with_condition(workload, PODS_READY, True, PODS_READY, now)))


def _with_reservation(engine: Engine, key: str, now: float) -> kueue.Workload | None:
    """A workload as its status shows it once the decisions about it are written; None without quota."""
    workload, held = engine.workload_object(key), engine.reservation(key)
    if workload is None or held is None:
        return None
    return lifecycle.reserved(workload, *held, now) if workload.status.admission is None else workload
