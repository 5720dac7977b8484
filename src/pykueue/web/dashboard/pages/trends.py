"""Trends of the last hours, by ClusterQueue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykueue.api.resources import CLUSTER_QUEUES
from pykueue.web.dashboard.charts.trend import trend
from pykueue.web.dashboard.state.figures import figures

from .base import Page, View, everywhere, part_of

#: ClusterQueues on one page.
QUEUES_MAX: Final = 12


async def build(view: View) -> Mapping[str, Any]:
    view.require("list", CLUSTER_QUEUES)
    trends, now = view.trends, view.now
    names = sorted(each.name for each in figures(view.board).queues if each.kind == "ClusterQueue")
    part = part_of(names, view, "/trends", QUEUES_MAX)
    charts = []
    for name in part.items:
        lines = [(kind, kind.title(), trends.of(name, kind)) for kind in ("pending", "admitted")]
        usage = [("reserved", "Reserved", trends.of(name, "reserved"))]
        charts.append(
            {
                "name": name,
                "workloads": trend(
                    trends.times, lines, now, f"Pending and admitted workloads of {name} over time"
                ),
                "quota": trend(
                    trends.times, usage, now, f"Reserved part of the quota of {name} over time", "%"
                ),
            }
        )
    total = [(kind, kind.title(), trends.total(kind)) for kind in ("pending", "admitted")]
    return {
        "part": part,
        "charts": charts,
        "total": trend(
            trends.times, total, now, "Pending and admitted workloads of all ClusterQueues over time"
        ),
    }


PAGE = Page(
    "/trends",
    "Trends",
    "trends.html",
    build,
    lambda params: everywhere(CLUSTER_QUEUES),
    section="Trends",
    seconds=5.0,
)
