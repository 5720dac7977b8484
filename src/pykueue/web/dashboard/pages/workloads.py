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


def matching(view: View, rows: Sequence[WorkloadRow]) -> list[WorkloadRow]:
    """The Workloads that the user may list and the query selects."""
    query, board = view.query, view.board
    namespace, state = query.get("namespace", ""), query.get("state", "")
    text = query.get("q", "")[:FILTER_MAX].lower()
    queue, cluster_queue = query.get("queue", ""), query.get("clusterQueue", "")
    states = {"Admitted", "Running"} if state in ("Admitted", "Running") else {state}
    listed = {each: view.grants.lists(WORKLOADS, each) for each in {row.namespace for row in rows}}
    flagged: set[str] | None = None
    if query.get("alarm"):
        flagged = {alarm.row.key for alarm in alarms(board) if alarm.kind == query["alarm"]}
    return [
        row
        for row in rows
        if listed[row.namespace]
        and (not namespace or row.namespace == namespace)
        and (not state or row.state in states)
        and (not queue or row.queue == queue)
        and (not cluster_queue or board.queue_of(row) == cluster_queue)
        and (not text or text in row.name.lower() or text in row.job.lower())
        and (flagged is None or row.key in flagged)
    ]


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
