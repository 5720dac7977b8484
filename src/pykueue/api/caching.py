"""Caches of what requests bring: bounded in entries, and in the size of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Final, TypeVar

Result = TypeVar("Result")

#: Characters of the longest text that is kept: what is longer is no valid name, quantity or time.
LONGEST_KEY: Final = 512


def cached_by_text(entries: int) -> Callable[[Callable[[str], Result]], Callable[[str], Result]]:
    """Keep the latest results of a function of one text. Long texts are not kept."""

    def decorate(function: Callable[[str], Result]) -> Callable[[str], Result]:
        cached = lru_cache(maxsize=entries)(function)

        @wraps(function)
        def call(text: str) -> Result:
            return cached(text) if len(text) <= LONGEST_KEY else function(text)

        return call

    return decorate
