"""Metrics of a shadow, for Prometheus."""

from __future__ import annotations

from pykueue.prometheus import Counters, Registry
from pykueue.questions.shadow.report import Difference


class ShadowMetrics:
    """Counts compared decisions."""

    def __init__(self) -> None:
        self._registry = Registry()
        self._decisions = Counters(
            "pykueue_shadow_decisions_total",
            "Decisions of the manager that were compared, by kind, and cause of the difference if any.",
            ("kind", "result"),
            self._registry,
        )

    def compared(self, kind: str, difference: Difference | None) -> None:
        """A decision was compared; None: the engine decides the same."""
        self._decisions.inc((kind, "Equal" if difference is None else difference.cause))

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return self._registry.text()
