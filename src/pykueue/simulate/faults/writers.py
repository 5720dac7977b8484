"""Who makes the write that is being stored."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Literal

Writer = Literal["manager", "editor", "other"]

_WRITER: ContextVar[Writer] = ContextVar("WRITER", default="other")


def writer() -> Writer:
    """The writer: the manager, a user who edits by hand what controllers own, or another client."""
    return _WRITER.get()


@contextmanager
def writing_as(name: Writer) -> Iterator[None]:
    """Make writes as this writer."""
    token = _WRITER.set(name)
    try:
        yield
    finally:
        _WRITER.reset(token)


def independent_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task of another client, though it is the write of this one that leads to it."""
    return asyncio.get_running_loop().create_task(work, context=Context())
