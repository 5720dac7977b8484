"""The elements of a JSON list that is too large to be read at once, each with its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import TextIOBase
from pathlib import Path
from typing import Any, Final

from .record import TraceError
from .tables import BROKEN, LINE_MAX, not_text, opened

#: Characters that are read at once.
_CHUNK: Final = 1 << 16
#: Characters of an element beyond which a file is no list of jobs.
ELEMENT_MAX: Final = LINE_MAX
_BLANK: Final = re.compile(r"[ \t\r\n]*")


def elements(file: Path) -> Iterator[tuple[int, Any]]:
    """The line on which each element of the list in a file begins, and the element.

    Raises TraceError with line and column of what is wrong, after the elements before it.
    """
    with opened(file) as stream:
        yield from _List(file, stream).elements()


class _List:
    """A list that is read from a stream; in memory is what was read and not given yet."""

    def __init__(self, file: Path, stream: TextIOBase) -> None:
        self._file = file
        self._stream = stream
        self._text = ""
        #: Where the text that is left begins.
        self._at = 0
        self._ended = False
        #: Of the beginning of `_text`, counted from 1.
        self._line = self._column = 1
        self._decoder = json.JSONDecoder()

    def elements(self) -> Iterator[tuple[int, Any]]:
        if self._next() != "[":
            raise self._error(self._at, "not a JSON list")
        self._at += 1
        if self._next() == "]":
            self._at += 1
        else:
            while True:
                self._next()
                line = self._line + self._text.count("\n", 0, self._at)
                yield line, self._element()
                found = self._next()
                if found not in (",", "]"):
                    raise self._error(self._at, "unexpected end of data" if not found else "no comma or ]")
                self._at += 1
                if found == "]":
                    break
        if self._next():
            raise self._error(self._at, "text after the end of the list")

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank is not None else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _element(self) -> Any:
        while True:
            try:
                value, self._at = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                # It may go on in what is not read yet.
                if len(self._text) - self._at < ELEMENT_MAX and self._read():
                    continue
                raise self._broken(error) from None
            else:
                return value

    def _broken(self, error: ValueError | RecursionError) -> TraceError:
        if not isinstance(error, json.JSONDecodeError):
            return self._error(self._at, "nested too deep, or a number with too many digits")
        if error.pos >= len(self._text.rstrip()) or error.msg.startswith("Unterminated"):
            why = "unexpected end of data" if self._ended else f"a job of more than {ELEMENT_MAX} characters"
            return self._error(error.pos, why)
        return self._error(error.pos, error.msg)

    def _read(self) -> bool:
        """Reads more; False at the end of the file."""
        if self._ended:
            return False
        try:
            more = self._stream.read(_CHUNK)
        except BROKEN as error:
            raise self._error(len(self._text), f"cannot be read: {error}") from None
        if not more:
            self._ended = True
            return False
        self._line, self._column = self._place(self._at)
        before = self._text[self._at :]
        self._text, self._at = before + more, 0
        if (at := not_text(more)) is not None:
            raise self._error(len(before) + at, "not UTF-8 text")
        return True

    def _place(self, at: int) -> tuple[int, int]:
        """Line and column of a position of the text, counted from 1."""
        breaks = self._text.count("\n", 0, at)
        if not breaks:
            return self._line, self._column + at
        return self._line + breaks, at - self._text.rindex("\n", 0, at)

    def _error(self, at: int, why: str) -> TraceError:
        line, column = self._place(at)
        return TraceError(self._file, line, f"column {column}", why)
