"""The decisions: pure, synchronous, deterministic; no I/O, no clock, no asyncio."""

from __future__ import annotations

from pykueue.engine.decision_log import DecisionLog
from pykueue.engine.decisions import Admit, Assign, Decision, Delay, Evict, Preempt, Requeue
from pykueue.engine.engine import Engine
from pykueue.engine.errors import EngineError
from pykueue.engine.events import Event, Removed, Upsert
from pykueue.engine.explain.views import Amount, QueueView, WorkloadView
from pykueue.engine.explanation import Attempt, Explanation, Level, Search, Target
from pykueue.engine.log_entries import Change, Entry, Story
from pykueue.engine.options import AdmissionFairSharing, Options, Transformation

__all__ = [
    "AdmissionFairSharing",
    "Admit",
    "Amount",
    "Assign",
    "Attempt",
    "Change",
    "Decision",
    "DecisionLog",
    "Delay",
    "Engine",
    "EngineError",
    "Entry",
    "Event",
    "Evict",
    "Explanation",
    "Level",
    "Options",
    "Preempt",
    "QueueView",
    "Removed",
    "Requeue",
    "Search",
    "Story",
    "Target",
    "Transformation",
    "Upsert",
    "WorkloadView",
]
