"""Taking back what was done: every lasting change to the engine's state is noted here while a fork is open.

Only the ready queues and the timers are copied when a fork begins; when it ends, the notes are undone from
the last to the first, so a fork costs what it changed. While no fork is open nothing is noted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT: Any = object()


class UndoLog:
    """The notes of one engine."""

    __slots__ = ("log", "on")

    def __init__(self) -> None:
        self.on = False
        self.log: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def record_undo(self, undo: Callable[..., Any], *args: Any) -> None:
        """Remembers how to take a change back."""
        if self.on:
            self.log.append((undo, args))

    def set(self, obj: Any, name: str, value: Any) -> None:
        """Sets an attribute."""
        if self.on:
            self.log.append((setattr, (obj, name, getattr(obj, name))))
        setattr(obj, name, value)

    def put(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        """Sets an item of a mapping."""
        if self.on:
            old = mapping.get(key, _ABSENT)
            self.log.append(
                (mapping.pop, (key, None)) if old is _ABSENT else (mapping.__setitem__, (key, old))
            )
        mapping[key] = value

    def drop(self, mapping: dict[Any, Any], key: Any) -> None:
        """Removes an item of a mapping, if it is there."""
        old = mapping.pop(key, _ABSENT)
        if self.on and old is not _ABSENT:
            self.log.append((mapping.__setitem__, (key, old)))

    def replace(self, mapping: dict[Any, Any], key: Any, value: Any | None) -> None:
        """Sets an item of a mapping, or removes it if there is no value."""
        if value is None:
            self.drop(mapping, key)
        else:
            self.put(mapping, key, value)

    def undo(self) -> None:
        """Takes everything back, last change first."""
        self.on = False
        while self.log:
            change, args = self.log.pop()
            change(*args)
