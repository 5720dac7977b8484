"""Questions about queues and workloads, answered as data, for commands, dashboards and tests. Read-only."""

from __future__ import annotations

from pykueue.questions.answers import Answer, Change, Prospect, Why, schema_of, to_data
from pykueue.questions.rights import EVERYTHING, Rights
from pykueue.questions.why import why

__all__ = ["EVERYTHING", "Answer", "Change", "Prospect", "Rights", "Why", "schema_of", "to_data", "why"]
