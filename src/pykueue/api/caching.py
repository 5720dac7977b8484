"""Caches of what requests bring: bounded in entries, and in the size of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

#: Characters of the longest text that is kept: what is longer is no valid name, quantity or time.
LONGEST_KEY: Final = 512


def cached_by_text(entries: int) -> Callable[[Callable[[str], Result]], Callable[[str], Result]]:
    """Keep results of a function of one text, at most so many. Long texts are not kept."""

    def decorate(function: Callable[[str], Result]) -> Callable[[str], Result]:
        # A dict's own lookup: what is known costs no call of a Python function.
        return _Kept(function, entries).__getitem__

    return decorate


class _Kept(dict[str, Result]):
    """Results by text; forgotten all at once when there are too many."""

    def __init__(self, function: Callable[[str], Result], entries: int) -> None:
        super().__init__()
        self._function, self._entries = function, entries

    def __missing__(self, text: str) -> Result:
        result = self._function(text)
        if len(text) <= LONGEST_KEY:
            if len(self) >= self._entries:
                self.clear()
            self[text] = result
        return result
