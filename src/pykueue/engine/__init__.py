"""The decisions: pure, synchronous, deterministic; no I/O, no clock, no asyncio."""

from __future__ import annotations

from pykueue.engine.decisions import Admit, Decision, Pend, Preempt
from pykueue.engine.engine import Engine, EngineError
from pykueue.engine.events import Event, Removed, Upsert
from pykueue.engine.explanation import Attempt, Explanation, Level, Search, Target
from pykueue.engine.options import AdmissionFairSharing, Options, Transformation
from pykueue.engine.views import Amount, QueueView, WorkloadView

__all__ = [
    "AdmissionFairSharing",
    "Admit",
    "Amount",
    "Attempt",
    "Decision",
    "Engine",
    "EngineError",
    "Event",
    "Explanation",
    "Level",
    "Options",
    "Pend",
    "Preempt",
    "QueueView",
    "Removed",
    "Search",
    "Target",
    "Transformation",
    "Upsert",
    "WorkloadView",
]
