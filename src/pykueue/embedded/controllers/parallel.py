"""Requests sent at the same time, and what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def outcomes(works: Iterable[Coroutine[Any, Any, Any]], limit: int | None = None) -> list[Any]:
    """The result of each, or the Exception that ended it; all are tried, at most `limit` at the same time.

    What is not an Exception, such as a cancellation, is raised.
    """
    left = list(works)
    found: list[Any] = []
    while left:
        batch = left[:limit]
        del left[:limit]
        results = await asyncio.gather(*batch, return_exceptions=True)
        for one in results:
            if isinstance(one, BaseException) and not isinstance(one, Exception):
                raise one
        found += results
    return found


def first_error(found: Iterable[Any]) -> Exception | None:
    """The first Exception among outcomes."""
    return next((one for one in found if isinstance(one, Exception)), None)
