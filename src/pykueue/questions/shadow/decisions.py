"""Decisions of a manager, as changes of its Workloads show them, and whether the engine's are the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pykueue.api import kueue
from pykueue.api.hybrid import parts_of
from pykueue.api.kueue.names import EVICTED, PREEMPTED, QUOTA_RESERVED
from pykueue.api.meta import Condition, find_condition
from pykueue.api.topologies import Domain, expand
from pykueue.engine import Admit, Decision, Preempt, Requeue
from pykueue.engine.explain.render import reason_text
from pykueue.questions.shadow.changes import Change
from pykueue.questions.shadow.report import DecisionKind

#: The preemptor in the message of Preempted=True (docs/reference/kueue-semantics.md 8.10).
_PREEMPTOR: Final = re.compile(r"\(UID: ([^,)]+)")

#: Domains of an assignment that are named.
_DOMAINS_SHOWN: Final = 8

#: In messages of pending workloads: it does not fit; it stays active nevertheless.
_UNFIT: Final = "couldn't assign flavors"
_PREEMPTING: Final = "Pending the preemption of"
_DEFERRED: Final = "will fit after these preemptions complete"
_PREEMPTIONS: Final = re.compile(rf"{_PREEMPTING} (\d+)")
_SKIPPED: Final = "no longer fits after processing another workload"


@dataclass(frozen=True)
class Observed:
    """A decision that the manager made."""

    kind: DecisionKind
    workload: str
    """`namespace/name` of the workload it is about."""
    change: Change
    after: kueue.Workload
    preemptor_uid: str = ""
    """Of a preemption: the uid of the workload that quota is taken for."""

    def text(self) -> str:
        """What the manager decided, in words."""
        match self.kind:
            case "Admit":
                return f"admitted: {assignment_text(self.after.status.admission)}"
            case "Preempt":
                found = find_condition(self.after.status.conditions, PREEMPTED)
                return f"preempted: {found.message if found is not None else ''}"
            case _:
                return f"pending: {self._pending_text()}"

    @property
    def is_inadmissible(self) -> bool:
        """Whether the workload does not fit, so that it is inadmissible until something changes."""
        text = self._pending_text()
        return _UNFIT in text and not self.is_preempting and _SKIPPED not in text

    @property
    def is_preempting(self) -> bool:
        """Whether the workload is pending until others are preempted for it."""
        return _PREEMPTING in self._pending_text()

    @property
    def awaits_preemption(self) -> bool:
        """Whether the workload is pending until others, which it or another one preempts, have stopped."""
        return self.is_preempting or _DEFERRED in self._pending_text()

    @property
    def preemptions(self) -> int | None:
        """How many workloads are preempted for a pending one, if its message says so."""
        match = _PREEMPTIONS.search(self._pending_text())
        return int(match.group(1)) if match is not None else None

    def _pending_text(self) -> str:
        if self.kind != "Requeue":
            return ""
        found = find_condition(self.after.status.conditions, QUOTA_RESERVED)
        return found.message if found is not None else ""


def observed(change: Change) -> Observed | None:
    """The decision that a change of a Workload shows; None for a change that shows none."""
    before, after = change.before, change.after
    if not isinstance(after, kueue.Workload) or not isinstance(before, kueue.Workload):
        return None
    key = after.metadata.key
    had, has = before.condition_is(QUOTA_RESERVED), after.condition_is(QUOTA_RESERVED)
    if has and not had and after.status.admission is not None:
        return Observed("Admit", key, change, after)
    preempted = find_condition(after.status.conditions, PREEMPTED)
    if has and _turned_true(before, after, PREEMPTED) and after.condition_is(EVICTED):
        match = _PREEMPTOR.search(preempted.message) if preempted is not None else None
        return Observed("Preempt", key, change, after, match.group(1) if match else "")
    if not has and not had and not after.condition_is("Finished") and _reconsidered(before, after):
        return Observed("Requeue", key, change, after)
    return None


def _turned_true(before: kueue.Workload, after: kueue.Workload, type: str) -> bool:
    old, new = (find_condition(each.status.conditions, type) for each in (before, after))
    if new is None or new.status != "True":
        return False
    return old is None or old.status != "True" or old.last_transition_time != new.last_transition_time


def _reconsidered(before: kueue.Workload, after: kueue.Workload) -> bool:
    """The manager wrote another reason or message why the workload has no quota."""

    def pending_reason(workload: kueue.Workload) -> tuple[str, str] | None:
        found: Condition | None = find_condition(workload.status.conditions, QUOTA_RESERVED)
        return (found.reason, found.message) if found is not None and found.status == "False" else None

    return pending_reason(after) not in (None, pending_reason(before))


def assignment_text(admission: kueue.Admission | None) -> str:
    """The ClusterQueue, counts and flavors of an admission."""
    if admission is None:
        return "no admission"
    sets = [
        f"{each.name} x{each.count if each.count is not None else '?'} "
        + ",".join(f"{resource}={flavor}" for resource, flavor in sorted(each.flavors.items()))
        + "".join(f" {part.flavor} x{part.pods}" for part in parts_of(each))
        + ("" if parts_of(each) else _domains_text(each.topology_assignment))
        for each in admission.pod_set_assignments
    ]
    return f"ClusterQueue {admission.cluster_queue}, {'; '.join(sets)}"


def _domains(assignment: kueue.TopologyAssignment | None) -> list[Domain]:
    """The domains with their pods, however they are encoded."""
    return expand(assignment) if assignment is not None else []


def _domains_text(assignment: kueue.TopologyAssignment | None) -> str:
    """The first domains and their pods; empty without a topology."""
    found = _domains(assignment)
    if not found:
        return ""
    shown = [f"{'/'.join(values)} x{pods}" for values, pods in found[:_DOMAINS_SHOWN]]
    more = f" and {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    return f" in {', '.join(shown)}{more}"


def same_assignment(one: kueue.Admission | None, other: kueue.Admission | None) -> bool:
    """Whether two admissions give the same pods the same flavors and domains."""

    def essence(admission: kueue.Admission) -> object:
        return admission.cluster_queue, [
            (each.name, each.count, dict(each.flavors), _domains(each.topology_assignment))
            for each in admission.pod_set_assignments
        ]

    return one is not None and other is not None and essence(one) == essence(other)


@dataclass(frozen=True)
class Verdict:
    """What the engine decides in place of a decision of the manager."""

    equal: bool
    text: str = ""
    ahead: tuple[str, ...] = ()
    """Other workloads that it admits before."""
    preempted: tuple[str, ...] = ()
    """Workloads that it preempts for the same preemptor."""
    is_final: bool = True
    """No further cycle can change it."""


def verdict(about: Observed, preemptor: str, decisions: Sequence[Decision]) -> Verdict | None:
    """What one cycle says of a decision; None where it says nothing about it.

    `preemptor` is the key of the workload that a preemption is for.
    """
    if about.kind == "Preempt":
        return _preemption(about, preemptor, decisions)
    own = next(
        (each for each in decisions if isinstance(each, Admit | Requeue) and each.key == about.workload), None
    )
    if isinstance(own, Admit):
        same = about.kind == "Admit" and same_assignment(own.admission, about.after.status.admission)
        return Verdict(same, f"admit: {assignment_text(own.admission)}")
    if own is None:
        return None
    text = f"pending: {reason_text(own.explanation)}"
    if about.kind == "Requeue":
        return Verdict(True, text)
    return Verdict(False, text, is_final=own.inadmissible)


def _preemption(about: Observed, preemptor: str, decisions: Iterable[Decision]) -> Verdict | None:
    targets = [each.key for each in decisions if isinstance(each, Preempt) and each.preemptor == preemptor]
    if targets:
        text = f"preempt {', '.join(sorted(targets))} for {preemptor}"
        return Verdict(about.workload in targets, text, preempted=tuple(targets))
    own = next(
        (each for each in decisions if isinstance(each, Admit | Requeue) and each.key == preemptor), None
    )
    if isinstance(own, Admit):
        return Verdict(False, f"admit {preemptor} without preemption: {assignment_text(own.admission)}")
    if own is None:
        return None
    return Verdict(False, f"{preemptor} pending: {reason_text(own.explanation)}", is_final=own.inadmissible)
