"""Deciding on objects without a cluster: decisions are carried out in memory, second by second.

Source of what a repeated cycle means: a preempted workload gives its quota back and queues again at its old
place, one second passes between cycles, and three cycles in a row that change nothing are the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pykueue.api import decode, encode, kueue
from pykueue.api.meta import format_time
from pykueue.api.variants import is_parent
from pykueue.engine import (
    Admit,
    Assign,
    Decision,
    DecisionLog,
    Delay,
    Evict,
    Options,
    Preempt,
    Requeue,
    Upsert,
)
from pykueue.engine.decision_log import OBJECTS_MAX
from pykueue.engine.driver import Driver
from pykueue.engine.dump import EngineState, options_of, restore
from pykueue.engine.events import Event
from pykueue.engine.explain.render import message
from pykueue.manager.configuration import Configuration
from pykueue.manager.scheduler.engine_options import engine_options
from pykueue.manifests.namespaces import missing_namespaces


class Run:
    """A driver filled with objects, and what was decided."""

    def __init__(
        self,
        manifests: Collection[dict[str, Any]],
        options: Options,
        now: float,
        record: bool = False,
        state: EngineState | None = None,
    ) -> None:
        """`record` keeps what happens to each workload, for `Engine.story`; `state` is that of a dump."""
        log = DecisionLog(objects_max=max(OBJECTS_MAX, len(manifests))) if record else None
        self.driver = Driver(options, now, log=log)
        self.started = now
        self.decisions: list[dict[str, Any]] = []
        self._messages: dict[str, str] = {}
        self._preempted: dict[str, Preempt] = {}
        objects = [decode(_with_uid(manifest, number)) for number, manifest in enumerate(manifests)]
        named = [obj.metadata.namespace for obj in objects if isinstance(obj, kueue.Workload)]
        objects += missing_namespaces(objects, named)
        #: Everything but the Workloads.
        self.surroundings: list[Event] = [
            Upsert(obj) for obj in objects if not isinstance(obj, kueue.Workload)
        ]
        self.driver.apply(*map(Upsert, objects))
        self._is_new = state is None
        if state is not None:
            restore(self.driver.engine, state)

    def change(self, manifests: Iterable[dict[str, Any]]) -> None:
        """Objects changed, or came in addition."""
        self.driver.apply(*(Upsert(decode(_with_uid(each, n))) for n, each in enumerate(manifests)))

    # --- running ----------------------------------------------------------------------------------------

    def repeat(self, cycles: int) -> None:
        """That many cycles; preemptions are carried out between them."""
        for number in range(cycles):
            if number:
                self.driver.carry_out()
                self.driver.follow_variants()
                self.driver.advance(self.driver.now + 1)
            else:
                self.driver.follow_variants()
            self._note(self.driver.cycle())

    def until_stable(self) -> None:
        """Cycles until nothing is in line any more, or nothing changes any more."""
        for decisions in self.driver.until_stable():
            self._note(decisions)
            if self.driver.cycles == 1 and self._is_new:
                # All queues are new: the flush that comes with a new queue follows the first cycle.
                self.driver.engine.flush()

    # --- telling ----------------------------------------------------------------------------------------

    def _note(self, decisions: Iterable[Decision]) -> None:
        self.decisions += map(self._entry, decisions)

    def _entry(self, decision: Decision) -> dict[str, Any]:
        entry: dict[str, Any] = {"cycle": self.driver.cycles}
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
            case Assign():
                entry |= {
                    "kind": "Assign",
                    "workload": decision.key,
                    "clusterQueue": decision.cluster_queue,
                    "admitted": decision.admitted,
                    "admission": encode(decision.admission),
                }
            case Evict():
                entry |= {
                    "kind": "Evict",
                    "workload": decision.key,
                    "clusterQueue": decision.cluster_queue,
                    "reason": decision.reason,
                    "message": decision.message,
                }
            case Delay():
                entry |= {
                    "kind": "Delay",
                    "workload": decision.key,
                    "clusterQueue": decision.cluster_queue,
                    "message": decision.message,
                }
            case Requeue():
                self._messages[decision.key] = message(decision)
                entry |= {
                    "kind": "Requeue",
                    "workload": decision.key,
                    "clusterQueue": decision.cluster_queue,
                    "reason": decision.reason,
                    "message": message(decision),
                    "queue": "inadmissible" if decision.inadmissible else "active",
                }
        return entry

    def report(self) -> dict[str, Any]:
        """The outcome as one object (its fields are part of the public interface)."""
        engine = self.driver.engine
        queues = {}
        for name in engine.cluster_queues():
            active, parked = engine.in_line(name)
            queues[name] = {"active": active, "inadmissible": parked}
        return {
            "now": format_time(self.started),
            "cycles": self.driver.cycles,
            # Of a workload with variants these are listed, which compete in its place.
            "workloads": {
                key: self._workload(key)
                for key, workload in sorted(self.driver.workloads.items())
                if not is_parent(workload.metadata.labels)
            },
            "clusterQueues": queues,
            "decisions": self.decisions,
            "placements": self._placements(),
        }

    def _placements(self) -> list[dict[str, Any]]:
        """The nodes of flavors with a topology, and the pods of workloads on them."""
        return [
            {
                "flavor": leaf.flavor,
                "topology": leaf.topology,
                "levels": list(leaf.levels),
                "values": list(leaf.values),
                "available": {name: str(amount) for name, amount in leaf.available.items()},
                "used": {name: str(amount) for name, amount in leaf.used.items()},
                "workloads": leaf.pods,
            }
            for leaf in self.driver.engine.topology_leaves()
        ]

    def _workload(self, key: str) -> dict[str, Any]:
        obj = self.driver.workloads[key]
        view = self.driver.engine.workload(key)
        preempted = self._preempted.get(key)
        state, reason, text = "Pending", "", ""
        admission = None
        if obj.condition_is("Finished") or view is None:
            state, reason, text = "Finished", *_condition_of(obj, "Finished")
        elif view.state == "reserved":
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
            reason, text = self.driver.engine.pending_reason(key)
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


def options_with(state: EngineState | None, configuration: Configuration) -> Options:
    """The options of the engine that a state was dumped of; without one, as the configuration says them."""
    return options_of(state) if state is not None else engine_options(configuration)


def _with_uid(manifest: dict[str, Any], number: int) -> dict[str, Any]:
    """Objects without a uid get one that says where they stood: of equal workloads the first one written
    goes first."""
    metadata = manifest.get("metadata") or {}
    if metadata.get("uid"):
        return manifest
    return {**manifest, "metadata": {**metadata, "uid": f"{number:08d}"}}
