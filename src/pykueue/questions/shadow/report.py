# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""What a shadow reports: differences with their causes, and a summary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from pykueue.questions.answers import Answer

DecisionKind = Literal["Admit", "Preempt", "Requeue", "Overdue"]

#: Why the engine decides otherwise than the manager did, each by evidence that is part of the difference.
Cause = Literal[
    "Snapshot",
    "Requeued",
    "Race",
    "WriteOrder",
    "CycleOrder",
    "FlavorSearch",
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
    "FlavorSearch": "another flavor: the manager continues an earlier search, which no object shows",
    "NotDetermined": "not found within the limits of a comparison",
    "Overdue": "the engine decides on an unchanged state and the manager does not",
    "Decision": "the engine decides otherwise on every state tried",
}


#: Causes of a decision that the engine makes as well, on another moment's state.
TIMING: Final[frozenset[Cause]] = frozenset({"Snapshot", "Requeued", "Race", "WriteOrder"})


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
    """On the state at the decision's resourceVersion."""
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
    """With those that differ by timing only: causes Snapshot, Requeued, Race and WriteOrder."""
    kinds: dict[str, Tally] = {}
    overdue: int = 0
    """Decisions of the engine that the manager did not make in time; not among its decisions."""
    causes: dict[str, int] = {}
    differences: list[Difference] = []
    """The newest ones."""
    omitted: int = 0
    """Differences that are not listed."""
    changes: int = 0
    """Changes of objects that were followed."""
    late_changes: int = 0
    """Those that arrived out of order."""
    unread: list[str] = []
    notes: list[str] = []


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


def _compared(report: Report) -> Iterator[str]:
    """The share of equal decisions, and a table by kind."""
    yield (
        f"{report.decisions} decisions of the manager: {100 * report.share_equal:.2f} % equal to those of "
        f"pykueue on the state at their resourceVersion, {100 * report.share_in_cycle:.2f} % on a state that "
        f"their cycle can have read, {100 * report.share_same:.2f} % but for timing"
    )
    rows = [("DECISION", "COUNT", "EQUAL", "CAUSES OF DIFFERENCES")]
    for kind, tally in sorted(report.kinds.items()):
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(tally.causes.items()))
        rows.append((kind, str(tally.decisions), str(tally.equal), causes or "-"))
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    for row in rows:
        yield "   ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
