"""Prometheus metrics under the reference's names and labels (reference/kueue-api.md 6)."""

from .gauges import Gauges
from .observer import Observer

__all__ = ["Gauges", "Observer"]
