"""Errors of the engine."""

from __future__ import annotations


class EngineError(RuntimeError):
    """The engine was used in a way it cannot serve, or its usage accounting is inconsistent."""
