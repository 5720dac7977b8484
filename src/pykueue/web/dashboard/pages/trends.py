"""Trends of the last hours, by ClusterQueue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from pykueue.api.resources import CLUSTER_QUEUES
from pykueue.web.dashboard.charts.trend import trend
from pykueue.web.dashboard.state.figures import figures

from .base import Page, View, everywhere, part_of

#: ClusterQueues on one page.
QUEUES_MAX: Final = 12


def workloads_chart(view: View, queue: str | None = None) -> Markup:
    """Pending and admitted workloads of a ClusterQueue over time; of all without one."""
    trends = view.trends
    lines = [
        (kind, kind.title(), trends.total(kind) if queue is None else trends.of(queue, kind))
        for kind in ("pending", "admitted")
    ]
    whose = "all ClusterQueues" if queue is None else f"ClusterQueue {queue}"
    return trend(trends.times, lines, view.now, f"Pending and admitted workloads of {whose} over time")


def reserved_chart(view: View, queue: str) -> Markup:
    """The reserved part of the quota of a ClusterQueue over time."""
    lines = [("reserved", "Reserved", view.trends.of(queue, "reserved"))]
    text = f"Reserved part of the quota of ClusterQueue {queue} over time"
    return trend(view.trends.times, lines, view.now, text, "%")


async def build(view: View) -> Mapping[str, Any]:
    view.require("list", CLUSTER_QUEUES)
    names = sorted(each.name for each in figures(view.board).queues if each.kind == "ClusterQueue")
    part = part_of(names, view, "/trends", QUEUES_MAX)
    charts = [
        {"name": name, "workloads": workloads_chart(view, name), "quota": reserved_chart(view, name)}
        for name in part.items
    ]
    return {"part": part, "charts": charts, "total": workloads_chart(view)}


PAGE = Page(
    "/trends",
    "Trends",
    "trends.html",
    build,
    lambda params: everywhere(CLUSTER_QUEUES),
    section="Trends",
    seconds=5.0,
)
