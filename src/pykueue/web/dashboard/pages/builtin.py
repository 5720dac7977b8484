"""All pages of the dashboard, those of the navigation in its order."""

from __future__ import annotations

from typing import Final

from . import objects, overview, queues, workload, workloads
from .base import Page

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    workloads.PAGE,
    workload.PAGE,
    *queues.PAGES,
    objects.PAGE,
)
