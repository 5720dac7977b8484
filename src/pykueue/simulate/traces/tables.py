"""Lines and columns of text tables: streamed, with errors that name file, line and column."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, cast
from zoneinfo import ZoneInfo

from .record import TraceError

#: Characters of a line beyond which a file is no table.
LINE_MAX = 1 << 20
#: What a file raises that is damaged or cannot be read on; `zlib.error` is of damaged .gz files.
BROKEN = (EOFError, OSError, zlib.error)


@contextmanager
def opened(file: Path) -> Iterator[io.TextIOBase]:
    """A text file, unpacked if its name ends in .gz. Raises TraceError if it cannot be opened.

    Bytes that are no UTF-8 are given as surrogates, so that their place can be named: see `not_text`.
    """
    with ExitStack() as stack:
        try:
            raw: IO[bytes] = stack.enter_context(file.open("rb"))
        except OSError as error:
            raise TraceError(file, 0, "", f"cannot be read: {error.strerror}") from None
        if file.suffix == ".gz":
            raw = cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=raw)))
        # Files that spreadsheets write begin with a byte order mark.
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
        yield stack.enter_context(text)


def not_text(text: str) -> int | None:
    """The position of the first character that is none; None where all of it is text."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line. Raises TraceError for lines that are too long, no text, or cut off."""
    with opened(file) as text:
        number = 0
        while True:
            number += 1
            try:
                line = text.readline(LINE_MAX + 1)
            except BROKEN as error:
                raise TraceError(file, number, "", f"cannot be read: {error}") from None
            if not line:
                return
            if (at := not_text(line)) is not None:
                raise TraceError(file, number, f"column {at + 1}", "not UTF-8 text")
            if len(line) > LINE_MAX:
                raise TraceError(file, number, "", f"line of more than {LINE_MAX} characters")
            yield number, line.rstrip("\r\n")


class Row:
    """One line of a table."""

    __slots__ = ("_cells", "file", "line")

    def __init__(self, file: Path, line: int, cells: Mapping[str, str]) -> None:
        self.file = file
        self.line = line
        self._cells = cells

    def text(self, column: str) -> str:
        return self._cells.get(column, "")

    def number(self, column: str, missing: float | None = None) -> float:
        """A number that is not negative; `missing` stands for an empty cell. Raises TraceError."""
        text = self._cells.get(column, "").strip()
        if not text or text.lower() in ("nan", "null", "none"):
            if missing is None:
                raise self.error(column, "no value; accepted: a number")
            return missing
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, f"{text!r} is not a number") from None
        if not 0 <= value < 1e18:
            raise self.error(column, f"{text} is not accepted; accepted: a number of at least 0")
        return value

    def time(self, column: str, zone: ZoneInfo) -> float | None:
        """Seconds since 1970; None for an empty cell. Raises TraceError."""
        text = self._cells.get(column, "").strip()
        if not text or text.lower() in ("none", "null", "nan"):
            return None
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            raise self.error(column, f"{text!r} is not a date and time") from None
        return (value if value.tzinfo is not None else value.replace(tzinfo=zone)).timestamp()

    def error(self, column: str, why: str) -> TraceError:
        return TraceError(self.file, self.line, column, why)


def rows(file: Path, required: Sequence[str], names: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of a file of comma-separated values. `names`: the columns of a file without a header.

    Raises TraceError for a column that is missing and for a row of another length.
    """
    numbered = lines(file)
    last = [0]

    def texts() -> Iterator[str]:
        for number, line in numbered:
            last[0] = number
            yield line

    reader = csv.reader(texts())
    columns = list(names)
    try:
        for cells in reader:
            if not cells:
                continue
            if not columns:
                columns = [cell.strip() for cell in cells]
                missing = [name for name in required if name not in columns]
                if missing:
                    found = ", ".join(columns[:20])
                    why = f"no column {', '.join(missing)}; the columns are {found}"
                    raise TraceError(file, last[0], "", why)
                continue
            if len(cells) != len(columns):
                why = f"{len(cells)} cells; accepted: {len(columns)}"
                raise TraceError(file, last[0], "", why)
            yield Row(file, last[0], dict(zip(columns, cells, strict=True)))
    except csv.Error as error:
        raise TraceError(file, last[0], "", str(error)) from None
    if not columns:
        raise TraceError(file, 1, "", f"empty; accepted: a table with the columns {', '.join(required)}")
