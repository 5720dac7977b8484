"""The list of Workloads, filtered and in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pykueue.api.resources import WORKLOADS
from pykueue.web.dashboard.state.alarms import alarms
from pykueue.web.dashboard.state.board import Board
from pykueue.web.dashboard.state.figures import workload_list
from pykueue.web.dashboard.state.rows import STATES, WorkloadRow

from .base import Page, View, everywhere, part_of

#: Characters of a filter.
FILTER_MAX: Final = 200
#: Namespaces that the filter offers.
NAMESPACES_MAX: Final = 300


def shown_state(board: Board, row: WorkloadRow) -> str:
    """The state of a Workload for people: an admitted one runs once a pod of it does."""
    if row.state == "Admitted" and any(pod.phase == "Running" for pod in board.pods_of(row)):
        return "Running"
    return row.state


def matching(view: View, rows: Sequence[WorkloadRow]) -> Sequence[WorkloadRow]:
    """The Workloads that the user may list and the query selects."""
    query, board = view.query, view.board
    if not view.grants.lists(WORKLOADS):
        listed = {each: view.grants.lists(WORKLOADS, each) for each in {row.namespace for row in rows}}
        rows = [row for row in rows if listed[row.namespace]]
    if namespace := query.get("namespace"):
        rows = [row for row in rows if row.namespace == namespace]
    if state := query.get("state"):
        states = {"Admitted", "Running"} if state in ("Admitted", "Running") else {state}
        rows = [row for row in rows if row.state in states]
    if queue := query.get("queue"):
        rows = [row for row in rows if row.queue == queue]
    if cluster_queue := query.get("clusterQueue"):
        rows = [row for row in rows if board.queue_of(row) == cluster_queue]
    if text := query.get("q", "")[:FILTER_MAX].lower():
        rows = [row for row in rows if text in row.name.lower() or text in row.job.lower()]
    if kind := query.get("alarm"):
        flagged = {alarm.row.key for alarm in alarms(board) if alarm.kind == kind}
        rows = [row for row in rows if row.key in flagged]
    return rows


async def build(view: View) -> Mapping[str, Any]:
    view.require_some(WORKLOADS)
    rows = matching(view, workload_list(view.board))
    part = part_of(rows, view, "/workloads")
    namespaces = [each for each in view.board.namespaces() if view.grants.lists(WORKLOADS, each)]
    return {
        "part": part,
        "rows": [(row, shown_state(view.board, row), view.board.queue_of(row)) for row in part.items],
        "namespaces": namespaces[:NAMESPACES_MAX],
        "states": [state for state in STATES if state != "Running"],
        "filtered": any(
            view.query.get(key) for key in ("namespace", "state", "q", "queue", "clusterQueue", "alarm")
        ),
    }


PAGE = Page(
    "/workloads",
    "Workloads",
    "workloads.html",
    build,
    lambda params: everywhere(WORKLOADS),
    section="Workloads",
)
