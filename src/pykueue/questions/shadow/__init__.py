"""Decides beside the manager of a live cluster, and reports where the engine decides otherwise. Read-only."""

from __future__ import annotations

from pykueue.questions.shadow.comparison import KUEUE_FLUSH_DELAY
from pykueue.questions.shadow.report import Cause, Difference, Report, Tally
from pykueue.questions.shadow.session import Settings, Shadow

__all__ = ["KUEUE_FLUSH_DELAY", "Cause", "Difference", "Report", "Settings", "Shadow", "Tally"]
