"""All pages of the dashboard, those of the navigation in its order."""

from __future__ import annotations

from typing import Final

from . import (
    budgets,
    cohorts,
    flavors,
    nodes,
    objects,
    overview,
    preemptions,
    queues,
    trends,
    workload,
    workloads,
)
from .base import Page

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    workloads.PAGE,
    workload.PAGE,
    *queues.PAGES,
    *cohorts.PAGES,
    *flavors.PAGES,
    nodes.PAGE,
    preemptions.PAGE,
    *budgets.PAGES,
    trends.PAGE,
    objects.PAGE,
)
