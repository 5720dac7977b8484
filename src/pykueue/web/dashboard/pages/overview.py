"""The start page: how full the trees of queues are, and what to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from pykueue.api.resources import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from pykueue.web.dashboard.state.alarms import TITLES, alarms
from pykueue.web.dashboard.state.figures import figures, local_counts, states
from pykueue.web.dashboard.state.rows import STATES

from .base import DeniedError, Page, View, everywhere
from .trends import workloads_chart

#: Queues and cohorts, alarms of one kind, and LocalQueues that are shown; the rest is counted.
QUEUES_MAX: Final = 60
ALARMS_MAX: Final = 5
LOCAL_MAX: Final = 30


async def build(view: View) -> Mapping[str, Any]:
    board, grants = view.board, view.grants
    sees_queues, sees_workloads = grants.lists(CLUSTER_QUEUES), grants.some("list", WORKLOADS)
    if not (sees_queues or sees_workloads or grants.some("list", LOCAL_QUEUES)):
        raise DeniedError(
            f'User "{view.user}" may not list Workloads, LocalQueues or ClusterQueues in any namespace. '
            "Ask an administrator of the cluster for one of the roles kueue-batch-user-role or "
            "kueue-batch-admin-role."
        )
    context: dict[str, Any] = {"sees_queues": sees_queues, "sees_workloads": sees_workloads}
    if sees_workloads:
        counts: Counter[str] = Counter()
        for (namespace, state), number in states(board).items():
            if grants.lists(WORKLOADS, namespace):
                counts[state] += number
        context["counts"] = {state: counts[state] for state in STATES}
        context["alarms"] = _alarms(view)
    if sees_queues:
        queues = figures(board).queues
        shown = queues if grants.lists(COHORTS) else [each for each in queues if each.kind == "ClusterQueue"]
        context["queues"], context["more_queues"] = shown[:QUEUES_MAX], len(shown) - len(shown[:QUEUES_MAX])
        if grants.lists(RESOURCE_FLAVORS):
            context["flavors"] = figures(board).flavors
        context["trend"] = workloads_chart(view)
    else:
        numbers = local_counts(board)
        local = [
            {
                "namespace": namespace,
                "name": name,
                "pending": numbers[namespace, name, "Pending"],
                "admitted": numbers[namespace, name, "Admitted"] + numbers[namespace, name, "Running"],
            }
            for namespace, name in sorted(board.local_queues)
            if grants.lists(LOCAL_QUEUES, namespace)
        ]
        context["local_queues"], context["more_local"] = (
            local[:LOCAL_MAX],
            len(local) - len(local[:LOCAL_MAX]),
        )
    return context


def _alarms(view: View) -> list[dict[str, Any]]:
    """Alarms by kind; those about workloads that the user may not list are counted only."""
    found = []
    all_alarms = alarms(view.board)
    for kind, title in TITLES.items():
        of_kind = [alarm for alarm in all_alarms if alarm.kind == kind]
        named = [alarm for alarm in of_kind if view.grants.lists(WORKLOADS, alarm.row.namespace)]
        if of_kind:
            found.append(
                {
                    "kind": kind,
                    "title": title,
                    "count": len(of_kind),
                    "shown": named[:ALARMS_MAX],
                    "more": max(0, len(named) - ALARMS_MAX),
                    "hidden": len(of_kind) - len(named),
                }
            )
    return found


PAGE = Page(
    "/",
    "Overview",
    "overview.html",
    build,
    lambda params: everywhere(WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES, COHORTS, RESOURCE_FLAVORS),
    section="Overview",
)
