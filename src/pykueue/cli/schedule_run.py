"""Deciding on objects without a cluster: decisions are carried out on copies, second by second.

Source of what a repeated cycle means: a preempted workload gives its quota back and queues again at its old
place, one second passes between cycles, and three cycles in a row that change nothing are the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pykueue.api import decode, encode, kueue
from pykueue.api.core import Namespace
from pykueue.api.meta import Condition, ObjectMeta, format_time
from pykueue.engine import Admit, Engine, Options, Pend, Preempt, Upsert
from pykueue.engine.render import message

#: Cycles without any change after which nothing more is expected.
_IDLE_CYCLES = 3
#: No real set of manifests needs more; two workloads that preempt each other for ever do.
_MOST_CYCLES = 10_000


class Run:
    """An engine filled with objects, and what its decisions made of the workloads."""

    def __init__(self, manifests: Iterable[dict[str, Any]], options: Options, now: float) -> None:
        self.engine = Engine(options)
        self.started = self.now = now
        self.cycles = 0
        self.decisions: list[dict[str, Any]] = []
        #: As they are now, by key.
        self.workloads: dict[str, kueue.Workload] = {}
        self.cluster_queues: list[str] = []
        #: Decisions of the last cycle that are not carried out yet.
        self._pending: list[Admit | Preempt | Pend] = []
        self._messages: dict[str, str] = {}
        self._preempted: dict[str, Preempt] = {}
        namespaces: dict[str, None] = {}
        known: set[str] = set()
        for number, manifest in enumerate(manifests):
            obj = decode(_with_uid(manifest, number))
            if isinstance(obj, Namespace):
                known.add(obj.metadata.name)
            elif isinstance(obj, kueue.ClusterQueue):
                self.cluster_queues.append(obj.metadata.name)
            elif isinstance(obj, kueue.Workload):
                self.workloads[obj.metadata.key] = obj
                namespaces[obj.metadata.namespace] = None
            self.engine.apply(Upsert(obj))
        for name in namespaces:
            if name not in known:
                labels = {"kubernetes.io/metadata.name": name}
                self.engine.apply(Upsert(Namespace(metadata=ObjectMeta(name=name, labels=labels))))
        self.cluster_queues.sort()

    # --- running ----------------------------------------------------------------------------------------

    def cycle(self) -> list[Admit | Preempt | Pend]:
        """One cycle over the heads of all queues."""
        self.cycles += 1
        decisions = self.engine.cycle(self.now)
        for decision in decisions:
            self._note(decision)
        return decisions

    def repeat(self, cycles: int) -> None:
        """That many cycles; preemptions are carried out between them."""
        for number in range(cycles):
            if number:
                self._carry_out()
            self._pending = self.cycle()

    def until_stable(self) -> None:
        """Cycles until nothing is in line any more, or nothing changes any more."""
        idle = 0
        while idle < _IDLE_CYCLES and self.cycles < _MOST_CYCLES and self._anybody_in_line():
            self._pending = self.cycle()
            changed = any(not isinstance(decision, Pend) for decision in self._pending)
            if self.cycles == 1:
                # All queues are new: the flush that comes with a new queue follows the first cycle.
                self.engine.flush()
            self._carry_out()
            idle = 0 if changed else idle + 1

    def _anybody_in_line(self) -> bool:
        return any(self.engine.in_line(name)[0] for name in self.cluster_queues)

    def _carry_out(self) -> None:
        """The API shows the last decisions, and a second passes."""
        for decision in self._pending:
            if isinstance(decision, Admit):
                self._show_admitted(decision)
        for decision in self._pending:
            if isinstance(decision, Preempt):
                self._show_released(decision)
        self._pending = []
        self.now += 1

    def _show_admitted(self, decision: Admit) -> None:
        if decision.replaces:
            old = self.workloads[decision.replaces]
            self._show(
                old, [self._condition("Finished", True, "WorkloadSliceReplaced")], old.status.admission
            )
        conditions = [self._condition("QuotaReserved", True, "QuotaReserved")]
        if decision.admitted:
            conditions.append(self._condition("Admitted", True, "Admitted"))
        obj = self.workloads[decision.key]
        over = [type for type in ("Evicted", "Preempted") if obj.condition_is(type)]
        conditions += [self._condition(type, False, "QuotaReserved") for type in over]
        self._show(obj, conditions, decision.admission)

    def _show_released(self, decision: Preempt) -> None:
        conditions = [
            self._condition("QuotaReserved", False, "PendingEvaluation"),
            self._condition("Admitted", False, "NoReservation"),
            self._condition("Evicted", True, "Preempted"),
            self._condition("Preempted", True, decision.reason),
            self._condition("Requeued", True, "Preempted"),
        ]
        self._show(self.workloads[decision.key], conditions, None)

    def _show(
        self, old: kueue.Workload, conditions: list[Condition], admission: kueue.Admission | None
    ) -> None:
        named = {condition.type for condition in conditions}
        kept = [condition for condition in old.status.conditions if condition.type not in named]
        status = kueue.WorkloadStatus(
            conditions=[*kept, *conditions],
            admission=admission,
            admission_checks=old.status.admission_checks,
            reclaimable_pods=old.status.reclaimable_pods if admission is not None else [],
            preemption_gates=old.status.preemption_gates,
        )
        new = kueue.Workload(metadata=old.metadata, spec=old.spec, status=status)
        self.workloads[old.metadata.key] = new
        self.engine.apply(Upsert(new))

    def _condition(self, type: str, holds: bool, reason: str) -> Condition:
        return Condition(
            type=type,
            status="True" if holds else "False",
            reason=reason,
            message="",
            last_transition_time=format_time(self.now),
        )

    # --- telling ----------------------------------------------------------------------------------------

    def _note(self, decision: Admit | Preempt | Pend) -> None:
        entry: dict[str, Any] = {"cycle": self.cycles}
        match decision:
            case Admit():
                self._preempted.pop(decision.key, None)
                self._messages.pop(decision.key, None)
                entry |= {
                    "kind": "Admit",
                    "workload": decision.key,
                    "clusterQueue": decision.cluster_queue,
                    "admitted": decision.admitted,
                    "admission": encode(decision.admission),
                }
                if decision.replaces:
                    entry["replaces"] = decision.replaces
                if decision.explanation.counts:
                    entry["counts"] = decision.explanation.counts
            case Preempt():
                self._preempted[decision.key] = decision
                entry |= {
                    "kind": "Preempt",
                    "workload": decision.key,
                    "clusterQueue": decision.cluster_queue,
                    "reason": decision.reason,
                    "preemptedBy": decision.preemptor,
                }
            case Pend():
                self._messages[decision.key] = message(decision)
                entry |= {
                    "kind": "Pend",
                    "workload": decision.key,
                    "clusterQueue": decision.cluster_queue,
                    "reason": decision.reason,
                    "message": message(decision),
                    "queue": "inadmissible" if decision.parked else "active",
                }
        self.decisions.append(entry)

    def report(self) -> dict[str, Any]:
        """The outcome as one object (its fields are part of the public interface)."""
        queues = {}
        for name in self.cluster_queues:
            active, parked = self.engine.in_line(name)
            queues[name] = {"active": active, "inadmissible": parked}
        return {
            "now": format_time(self.started),
            "cycles": self.cycles,
            "workloads": {key: self._workload(key) for key in sorted(self.workloads)},
            "clusterQueues": queues,
            "decisions": self.decisions,
        }

    def _workload(self, key: str) -> dict[str, Any]:
        obj = self.workloads[key]
        view = self.engine.workload(key)
        preempted = self._preempted.get(key)
        state, reason, text = "Pending", "", ""
        admission = None
        if obj.condition_is("Finished") or view is None:
            state, reason, text = "Finished", *_condition_of(obj, "Finished")
        elif view.state == "holding":
            admission = view.admission
            state = "Admitted" if view.admitted else "QuotaReserved"
            reason, text = "QuotaReserved", ""
            if obj.condition_is("QuotaReserved"):
                reason, text = _condition_of(obj, "QuotaReserved")
            if preempted is not None:
                state = "Preempted"
            elif view.evicted:
                state = "Evicted"
        else:
            reason, text = self.engine.standing(key)
            text = text or self._messages.get(key, "")
            if not obj.spec.active:
                state = "Inactive"
        queue = {"active": "active", "inadmissible": "inadmissible"}.get(view.state) if view else None
        return {
            "state": state,
            "clusterQueue": view.cluster_queue if view is not None else "",
            "admission": encode(admission) if admission is not None else None,
            "reason": reason,
            "message": text,
            "queue": queue,
            "preemptedBy": preempted.preemptor if preempted is not None else None,
            "preemptionReason": preempted.reason if preempted is not None else None,
        }


def _condition_of(obj: kueue.Workload, type: str) -> tuple[str, str]:
    for condition in obj.status.conditions:
        if condition.type == type:
            return condition.reason, condition.message
    return "", ""


def _with_uid(manifest: dict[str, Any], number: int) -> dict[str, Any]:
    """Objects without a uid get one that says where they stood: of equal workloads the first one written
    goes first."""
    metadata = manifest.get("metadata") or {}
    if metadata.get("uid"):
        return manifest
    return {**manifest, "metadata": {**metadata, "uid": f"{number:08d}"}}
