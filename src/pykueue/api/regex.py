"""Regular expressions that users write, in Go's syntax (RE2), matched in time linear in the text.

Python's `re` backtracks: a pattern of ten characters can take exponential time. It is used for the program's
own patterns only, none of which is ambiguous.
"""

from __future__ import annotations

from typing import Any, Final

import re2

from pykueue.api.caching import cached_by_text

#: Bytes a compiled pattern may take.
_MAX_MEMORY: Final = 1 << 20
#: Characters `find_all` may look at: every match may look at the rest of the text.
MAX_SEARCHED: Final = 20_000_000


class RegexError(ValueError):
    """A pattern that does not compile, or a search that would take too long; the text says why."""


class Regex:
    """A compiled pattern. Raises RegexError when it does not compile."""

    __slots__ = ("_compiled", "pattern", "size")

    def __init__(self, pattern: str) -> None:
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = _MAX_MEMORY
        try:
            self._compiled: Any = re2.compile(pattern, options)
        except UnicodeEncodeError:
            raise RegexError("surrogates are not characters") from None
        except re2.error as error:
            why = error.args[0] if error.args else "it does not compile"
            raise RegexError(why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)) from None
        self.pattern = pattern
        #: Instructions of its program: matching takes at most this many steps per character.
        self.size: int = self._compiled.programsize

    def matches(self, text: str) -> bool:
        """Whether it matches anywhere in the text."""
        try:
            return self._compiled.search(text) is not None
        except UnicodeEncodeError:  # what is not text is not matched
            return False

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """The matches from left to right without overlaps, as Go finds them; at most `limit` if that is not
        negative.

        Raises RegexError after MAX_SEARCHED characters.
        """
        found: list[str] = []
        end, searched = -1, 0
        try:
            for match in self._compiled.finditer(text):
                if len(found) == limit:
                    break
                searched += len(text) - match.start()
                if searched > MAX_SEARCHED:
                    raise RegexError(f"the text has too many matches of {self.pattern!r}")
                if match.end() > match.start() or match.start() != end:
                    found.append(match[0])
                end = match.end()
        except UnicodeEncodeError:
            return []
        return found


@cached_by_text(256)
def compile_regex(pattern: str) -> Regex:
    """The pattern, compiled. Raises RegexError."""
    return Regex(pattern)
