"""The answers of `pykueue replay` as one type, for the schema of its output."""

from __future__ import annotations

from pykueue.questions.answers import Answer

from .compare import Difference
from .fidelity import Fidelity
from .replay import Replay


class Replayed(Answer, kw_only=True):
    """One of these is set."""

    replay: Replay | None = None
    """A repetition under the recorded rules."""
    difference: Difference | None = None
    """A simulation under the recorded rules and under changed ones."""
    fidelity: Fidelity | None = None
    """A simulation under the recorded rules, beside what was recorded."""
