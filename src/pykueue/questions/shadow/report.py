# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""What a shadow reports: differences with their causes, and a summary."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Final, Literal

from pykueue.api.meta import format_time
from pykueue.questions.answers import Answer

#: Differences that a report lists.
DIFFERENCES_MAX: Final = 1000

DecisionKind = Literal["Admit", "Preempt", "Requeue", "Overdue"]

#: Why the engine decides otherwise than the manager did, each by evidence that is part of the difference.
Cause = Literal[
    "Snapshot",
    "Requeued",
    "Race",
    "WriteOrder",
    "CycleOrder",
    "FlavorSearch",
    "Tie",
    "QueueOrder",
    "NotDetermined",
    "Overdue",
    "Decision",
]

CAUSES: Final[dict[Cause, str]] = {
    "Snapshot": "the same on a state since the previous decision about the ClusterQueue",
    "Requeued": "the same if inadmissible workloads are considered again sooner or later, not visibly",
    "Race": "the same on a state shortly before: objects changed between the decision and its write",
    "WriteOrder": "the same after decisions that were written later",
    "CycleOrder": "the same if the workload is considered first: the order within a cycle differs",
    "FlavorSearch": "where the search for flavors begins differs: it goes on where an earlier one ended",
    "Tie": "the same in the manager's order of workloads of equal rank, which is arbitrary there",
    "QueueOrder": "the same if the workload is the head of its queue: the order within the queue differs",
    "NotDetermined": "not found within the limits of a comparison",
    "Overdue": "the engine decides on an unchanged state and the manager does not",
    "Decision": "the engine decides otherwise on every state tried",
}


#: Causes of a decision that the engine makes as well: on another moment's state, or by another choice among
#: equals.
TIMING: Final[frozenset[Cause]] = frozenset({"Snapshot", "Requeued", "Race", "WriteOrder", "Tie"})


class Difference(Answer, kw_only=True):
    """A decision that the engine makes otherwise."""

    workload: str
    kind: DecisionKind
    cause: Cause
    resource_version: int
    time: str
    manager: str
    """What the manager decided."""
    engine: str
    """What the engine decides."""
    evidence: list[str] = []


class Tally(Answer, kw_only=True):
    """Decisions of one kind."""

    decisions: int = 0
    equal: int = 0
    """On the state at the decision's resourceVersion; with the log, on the snapshot of its cycle."""
    causes: dict[str, int] = {}
    """Of those that differ."""


class Report(Answer, kw_only=True):
    """What was compared between two times."""

    start: str
    end: str
    decisions: int = 0
    equal: int = 0
    share_equal: float = 1.0
    """Of all decisions."""
    share_in_cycle: float = 1.0
    """With those that are equal on another state that the manager's cycle can have read: cause Snapshot."""
    share_same: float = 1.0
    """With those that differ by timing or chance: causes Snapshot, Requeued, Race, WriteOrder and Tie."""
    kinds: dict[str, Tally] = {}
    overdue: int = 0
    """Decisions of the engine that the manager did not make in time; not among its decisions."""
    causes: dict[str, int] = {}
    differences: list[Difference] = []
    """The newest ones."""
    omitted: int = 0
    """Differences that are not listed."""
    cycles: int = 0
    """Cycles that the manager's log shows; 0 without it."""
    changes: int = 0
    """Changes of objects that were followed."""
    late_changes: int = 0
    """Those that arrived out of order."""
    unread: list[str] = []
    notes: list[str] = []


class Tallies:
    """Counts compared decisions."""

    def __init__(self) -> None:
        self._kinds: dict[str, Tally] = {}
        self._differences: deque[Difference] = deque(maxlen=DIFFERENCES_MAX)
        self._omitted = 0

    def count(self, kind: DecisionKind, difference: Difference | None) -> None:
        """A decision was compared; None: the engine decides the same."""
        tally = self._kinds.setdefault(kind, Tally())
        tally.decisions += 1
        if difference is None:
            tally.equal += 1
        else:
            tally.causes[difference.cause] = tally.causes.get(difference.cause, 0) + 1
            self._omitted += len(self._differences) == DIFFERENCES_MAX
            self._differences.append(difference)

    def report(self, start: float, end: float) -> Report:
        """What was compared between two times, in seconds since 1970."""
        made = {kind: tally for kind, tally in self._kinds.items() if kind != "Overdue"}
        decisions = sum(tally.decisions for tally in made.values())
        equal = sum(tally.equal for tally in made.values())
        same = equal + sum(tally.causes.get(cause, 0) for tally in made.values() for cause in TIMING)
        causes = Counter[str]()
        for tally in self._kinds.values():
            causes.update(tally.causes)
        return Report(
            start=format_time(start),
            end=format_time(end),
            decisions=decisions,
            equal=equal,
            share_equal=equal / decisions if decisions else 1.0,
            share_in_cycle=(equal + causes["Snapshot"]) / decisions if decisions else 1.0,
            share_same=same / decisions if decisions else 1.0,
            kinds=made,
            overdue=self._kinds.get("Overdue", Tally()).decisions,
            causes=dict(causes),
            differences=list(self._differences),
            omitted=self._omitted,
        )


def difference_text(difference: Difference) -> str:
    """One line for logs."""
    text = (
        f"{difference.cause}: {difference.workload} {difference.manager} | pykueue: {difference.engine}"
        f" (resourceVersion {difference.resource_version})"
    )
    return f"{text}; {'; '.join(difference.evidence)}" if difference.evidence else text


def report_text(report: Report) -> Iterator[str]:
    """A report as lines of a table."""
    yield f"from {report.start} to {report.end}: {report.changes} changes of objects followed"
    if report.decisions:
        yield from _compared(report)
    else:
        yield "no decision of the manager was compared"
    if report.overdue:
        yield f"{report.overdue} decisions of pykueue that the manager did not make in time"
    for cause, text in CAUSES.items():
        if cause in report.causes:
            yield f"{cause}: {text}"
    if report.late_changes:
        yield f"{report.late_changes} changes arrived out of order: a longer --settle avoids that"


def _by_changes(report: Report) -> str:
    """The shares where the changes of objects alone are known."""
    return (
        f"{report.decisions} decisions of the manager: {100 * report.share_equal:.2f} % equal to those of "
        f"pykueue on the state at their resourceVersion, {100 * report.share_in_cycle:.2f} % on a state that "
        f"their cycle can have read, {100 * report.share_same:.2f} % but for timing"
    )


def _compared(report: Report) -> Iterator[str]:
    """The share of equal decisions, and a table by kind."""
    if report.cycles:
        yield (
            f"{report.decisions} decisions of the manager, from {report.cycles} cycles: "
            f"{100 * report.share_equal:.2f} % equal to those of pykueue on the snapshot of their cycle, "
            f"{100 * report.share_same:.2f} % but for timing and its choice among equals"
        )
    else:
        yield _by_changes(report)
    rows = [("DECISION", "COUNT", "EQUAL", "CAUSES OF DIFFERENCES")]
    for kind, tally in sorted(report.kinds.items()):
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(tally.causes.items()))
        rows.append((kind, str(tally.decisions), str(tally.equal), causes or "-"))
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    for row in rows:
        yield "   ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
