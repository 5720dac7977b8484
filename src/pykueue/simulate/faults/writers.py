"""Who makes the write that is being stored."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Literal

Writer = Literal["manager", "editor", "other"]

_WRITER: ContextVar[Writer] = ContextVar("WRITER", default="other")
_SENT: ContextVar[float | None] = ContextVar("SENT", default=None)


def writer() -> Writer:
    """The writer: the manager, a user who edits by hand what controllers own, or another client."""
    return _WRITER.get()


def sent_at(now: float) -> float:
    """When the request under way was sent first, in seconds since 1970; `now` where that is not known."""
    return _SENT.get() or now


@contextmanager
def writing_as(name: Writer, sent: float | None = None) -> Iterator[None]:
    """Make writes as this writer, by a request that was sent first at that time."""
    tokens = (_WRITER.set(name), _SENT.set(sent))
    try:
        yield
    finally:
        _WRITER.reset(tokens[0])
        _SENT.reset(tokens[1])


def independent_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task of another client, though it is the write of this one that leads to it."""
    return asyncio.get_running_loop().create_task(work, context=Context())
