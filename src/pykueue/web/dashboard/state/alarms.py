"""Alarms: workloads that an administrator should look at.

Clogged: admitted, and its pods have not become ready for CLOGGED_TIME: it holds quota and does not run.
Starving: pending for STARVING_TIME while workloads of its tree that were created later were admitted.
Never fits: it requests more than its queue could ever give, as its condition QuotaReserved says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from pykueue.api.ages import duration_text

from .board import Board
from .figures import root_of
from .rows import WITH_QUOTA, WorkloadRow

AlarmKind = Literal["Clogged", "Starving", "NeverFits"]

#: Seconds.
CLOGGED_TIME: Final = 300.0
STARVING_TIME: Final = 1800.0
#: In the message of Workloads that request more than the most a queue could use, as Kueue writes it.
NEVER_FITS: Final = "maximum capacity"

TITLES: Final[dict[AlarmKind, str]] = {
    "Clogged": "Clogged",
    "Starving": "Starving",
    "NeverFits": "Never fits",
}


class Alarm(NamedTuple):
    """One workload to look at."""

    kind: AlarmKind
    row: WorkloadRow
    cluster_queue: str
    text: str


def alarms(board: Board) -> list[Alarm]:
    """All alarms: those of one kind together, the longest standing first."""

    def compute() -> list[Alarm]:
        found = list(_alarms(board, board.clock.time()))
        return sorted(
            found, key=lambda alarm: (list(TITLES).index(alarm.kind), alarm.row.since, alarm.row.key)
        )

    return board.memo("alarms", compute)


def _alarms(board: Board, now: float) -> Iterator[Alarm]:
    roots = root_of(board)
    latest: dict[str, float] = {}
    for row in board.workloads.values():
        if row.state in WITH_QUOTA:
            root = roots.get(row.cluster_queue, row.cluster_queue)
            latest[root] = max(latest.get(root, 0.0), row.created)
    for row in board.workloads.values():
        queue = board.queue_of(row)
        if row.state == "Pending":
            if NEVER_FITS in row.message:
                yield Alarm("NeverFits", row, queue, row.message)
            elif now - row.created > STARVING_TIME and latest.get(roots.get(queue, queue), 0.0) > row.created:
                text = f"pending for {duration_text(now - row.created)}; later workloads were admitted"
                yield Alarm("Starving", row, queue, text)
        elif row.state == "Admitted" and now - row.since > CLOGGED_TIME:
            text = clogged(board, row)
            if text:
                yield Alarm("Clogged", row, queue, f"not ready for {duration_text(now - row.since)}: {text}")


def clogged(board: Board, row: WorkloadRow) -> str:
    """Why the pods of an admitted Workload are not ready; empty if they are, or nothing is known of them."""
    pods = board.pods_of(row)
    missing = [pod for pod in pods if not pod.ready and pod.phase not in ("Succeeded", "Running")]
    if row.ready and not missing:
        return ""
    if not missing:
        return "" if pods else "it has no pods"
    reasons = list(dict.fromkeys(pod.message for pod in missing if pod.message))
    text = f"{len(missing)} of {max(row.pods, len(pods))} pods do not run"
    return f"{text}: {reasons[0]}" if reasons else text
