"""Questions about queues and workloads, answered as data, for commands, dashboards and tests. Read-only."""

from __future__ import annotations

from pykueue.questions.answers import Answer, Change, Prospect, Why, answer_from, schema_of, to_data
from pykueue.questions.edits import edited
from pykueue.questions.rights import EVERYTHING, Rights
from pykueue.questions.targets import TargetError, competing, find_workload
from pykueue.questions.why import from_status, why

__all__ = [
    "EVERYTHING",
    "Answer",
    "Change",
    "Prospect",
    "Rights",
    "TargetError",
    "Why",
    "answer_from",
    "competing",
    "edited",
    "find_workload",
    "from_status",
    "schema_of",
    "to_data",
    "why",
]
