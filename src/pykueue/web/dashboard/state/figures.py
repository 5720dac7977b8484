"""Figures of all queues, flavors and nodes, computed at most once for each change."""

from __future__ import annotations

from collections import Counter

from pykueue.questions.share import Shares, shares
from pykueue.questions.top import QueueUse, Top, top

from .board import Board
from .rows import WorkloadRow


def figures(board: Board) -> Top:
    """How full queues, cohorts and flavors are."""
    return board.memo("figures", lambda: top(board.engine))


def node_figures(board: Board) -> Top:
    """The same with nodes, which costs the decoding of all nodes and pods."""
    return board.memo("nodes", lambda: top(board.engine, board.objects("Node"), board.objects("Pod")))


def fair_shares(board: Board) -> Shares:
    """What each queue is entitled to and has received."""
    return board.memo("shares", lambda: shares(board.engine))


def queue_figures(board: Board) -> dict[tuple[str, str], QueueUse]:
    """Figures by kind and name."""
    return board.memo("queues", lambda: {(each.kind, each.name): each for each in figures(board).queues})


def root_of(board: Board) -> dict[str, str]:
    """The root of the tree of each ClusterQueue."""

    def compute() -> dict[str, str]:
        found: dict[str, str] = {}
        root = ""
        for each in figures(board).queues:
            root = each.name if each.depth == 0 else root
            if each.kind == "ClusterQueue":
                found[each.name] = root
        return found

    return board.memo("roots", compute)


def workload_list(board: Board) -> list[WorkloadRow]:
    """All Workloads, the latest first."""
    return board.memo("workloads", lambda: sorted(board.workloads.values(), key=_latest_first))


def _latest_first(row: WorkloadRow) -> tuple[float, str, str]:
    return -row.created, row.namespace, row.name


def states(board: Board) -> Counter[tuple[str, str]]:
    """Numbers of Workloads by namespace and state."""
    return board.memo(
        "states", lambda: Counter((row.namespace, row.state) for row in board.workloads.values())
    )


def local_counts(board: Board) -> Counter[tuple[str, str, str]]:
    """Numbers of Workloads by namespace, LocalQueue and state."""
    return board.memo(
        "local", lambda: Counter((row.namespace, row.queue, row.state) for row in board.workloads.values())
    )


def highest_fraction(queue: QueueUse) -> float:
    """The fraction of quota that is reserved, of the resource with the least left."""
    return max((quota.fraction for quota in queue.quotas), default=0.0)
