"""Recordings as the flight recorder writes them, read entry by entry."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from pykueue.engine.recording import FORMAT

#: Bytes that are read at once.
_CHUNK: Final = 1 << 18
#: What is raised by data of another shape than that of a recording.
MALFORMED: Final = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
#: The longest line: the state of an engine at the beginning of a segment.
_LINE_BYTES_MAX: Final = 1 << 31

Entry = dict[str, Any]


class RecordingError(ValueError):
    """A file is no recording, or is damaged; the text names file and line."""


def damaged(place: str, error: Exception) -> RecordingError:
    """The error of a file and line, given what their content raised (one of `MALFORMED`)."""
    if isinstance(error, RecordingError):
        return error
    why = f"no field {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return RecordingError(f"{place}: {why}")


@dataclass
class Segment:
    """One file of a recording."""

    path: Path
    head: Entry
    """With the state of the engine."""
    complete: bool = False
    """It was closed: its last entry says so. Known once all entries were read."""

    @property
    def at(self) -> float:
        """When it begins, in seconds since 1970."""
        return float(self.head["at"])

    def entries(self) -> Iterator[Entry]:
        """What follows on the state, in order. A last line that was not written to its end is left out.

        Raises RecordingError and OSError.
        """
        for number, entry in enumerate(_entries(self.path), 1):
            if "end" in entry:
                self.complete = True
                return
            if number > 1:
                yield entry


def segments(path: Path) -> list[Segment]:
    """The segments of a directory, the oldest first, or the one in a file. Raises RecordingError, OSError."""
    files = sorted(path.glob("flight-*.jsonl.gz")) if path.is_dir() else [path]
    if not files:
        raise RecordingError(f"{path}: there is no recording (flight-*.jsonl.gz)")
    found = []
    for file in files:
        head = next(_entries(file), None)
        if head is None:
            continue  # written by a process that ended at once
        if head.get("recording") != FORMAT or not isinstance(head.get("items"), list):
            raise RecordingError(f"{file}: line 1: no recording of format {FORMAT}")
        if isinstance(head.get("at"), bool) or not isinstance(head.get("at"), int | float):
            raise RecordingError(f"{file}: line 1: at: no time")
        found.append(Segment(file, head))
    if not found:
        raise RecordingError(f"{path}: the recording is empty")
    return found


def _entries(path: Path) -> Iterator[Entry]:
    for number, line in enumerate(_lines(path), 1):
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise RecordingError(f"{path}: line {number}: {error}") from None
        if not isinstance(entry, dict):
            raise RecordingError(f"{path}: line {number}: is no object")
        yield entry


def _lines(path: Path) -> Iterator[bytes]:
    """Whole lines; what follows on the last line break was not written to its end."""
    decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
    rest: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            try:
                data = decompressor.decompress(chunk)
            except zlib.error as error:
                raise RecordingError(f"{path}: at byte {file.tell()}: {error}") from None
            *lines, last = data.split(b"\n")
            for line in lines:
                yield b"".join((*rest, line))
                rest.clear()
                size = 0
            rest.append(last)
            size += len(last)
            if size > _LINE_BYTES_MAX:
                raise RecordingError(f"{path}: a line is longer than {_LINE_BYTES_MAX} bytes")
