"""The request or reconcile that the running code belongs to: identifiers for log lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

#: A pass of a controller over an object: its name, the key of the object, and the number of the pass.
_Reconcile = tuple[str, object, int]

_WORK: ContextVar[Mapping[str, str] | _Reconcile | None] = ContextVar("work", default=None)

_numbers = count(1)


def at_work() -> Mapping[str, str]:
    """Names and values that say what is being worked on here; empty outside of any work."""
    work = _WORK.get()
    if isinstance(work, tuple):
        controller, key, number = work
        shown = "/".join(str(part) for part in key if part) if isinstance(key, tuple) else str(key)
        return {"controller": controller, "object": shown, "reconcileID": str(number)}
    return work or {}


@contextmanager
def tracing(**fields: str) -> Iterator[None]:
    """Add to what is being worked on while the body runs."""
    token = _WORK.set({**at_work(), **fields})
    try:
        yield
    finally:
        _WORK.reset(token)


def reconciling(controller: str, key: object) -> None:
    """This task works on `key` from now on: a number distinguishes passes over the same key."""
    _WORK.set((controller, key, next(_numbers)))
