"""Metrics of a shadow, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, generate_latest

from pykueue.questions.shadow.report import Difference

disable_created_metrics()  # type: ignore[no-untyped-call]


class ShadowMetrics:
    """Counts compared decisions."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._decisions = Counter(
            "pykueue_shadow_decisions",
            "Decisions of the manager that were compared, by kind, and cause of the difference if any.",
            ("kind", "result"),
            registry=self._registry,
        )

    def compared(self, kind: str, difference: Difference | None) -> None:
        """A decision was compared; None: the engine decides the same."""
        self._decisions.labels(kind, "Equal" if difference is None else difference.cause).inc()

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)
