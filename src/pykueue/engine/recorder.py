"""Where an engine reports what changes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykueue.engine.decisions import Decision
from pykueue.engine.events import Event


class Recorder(Protocol):
    """Receives every call that changes an engine, after it was made. Calls on forks are left out."""

    def applied(self, event: Event, at: float) -> None:
        """An event was applied at `at` (seconds since 1970)."""

    def decided(self, decisions: Sequence[Decision], now: float) -> None:
        """A scheduling cycle at `now` (seconds since 1970) ended with these decisions."""

    def forgot(self, key: str, what: str) -> None:
        """A decision about a workload could not be carried out; `what` is `Admit` or `Preempt`."""
