"""The files of a recording: segments of compressed lines, each of which can be replayed alone.

A segment begins with the state of the engine. Lines are appended; a segment that is as large as it may be is
closed and the next one begun, and the oldest ones are removed beyond the limits. What was written up to the
last flush can be read whatever becomes of the process.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from pykueue.engine import Engine
from pykueue.engine.decisions import Decision
from pykueue.engine.events import Event
from pykueue.engine.recording import FORMAT, Entry, cycle_entry, event_entry, forget_entry, snapshot

#: A segment is closed at this part of all that may be kept, and at this many bytes at least.
_PARTS: Final = 16
_SEGMENT_BYTES_MIN: Final = 1 << 20
#: Bytes of lines that are compressed at once.
_CHUNK: Final = 1 << 16

_NAME: Final = re.compile(r"flight-(\d{8})\.jsonl\.gz")


def _compressor() -> zlib._Compress:
    """Of gzip, without a name or time in the header."""
    return zlib.compressobj(3, zlib.DEFLATED, 16 + zlib.MAX_WBITS)


@dataclass(frozen=True)
class Limits:
    """How much of a recording is kept."""

    size_bytes_max: int = 1 << 30
    """Of all segments together; the one that is written may exceed it by its own size."""
    age_seconds_max: float = 7 * 24 * 3600.0
    """Segments whose last entry is older are removed."""


class RecordingError(Exception):
    """The directory cannot hold a recording."""


def prepare_directory(folder: Path) -> None:
    """Create the directory of a recording, for its owner alone. Raises RecordingError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode & 0o777
    except OSError as error:
        raise RecordingError(f"{folder}: {error.strerror}") from None
    if mode & 0o077:
        raise RecordingError(f"{folder}: mode is {mode:04o}; accepted: 0700")


def segments(folder: Path) -> list[Path]:
    """The segments in a directory, the oldest first. Raises OSError."""
    return sorted(each for each in folder.iterdir() if _NAME.fullmatch(each.name))


class SegmentWriter:
    """Writes segments, as the recorder of an engine, until it is closed or a write fails.

    Raises OSError where the first segment cannot be written; later errors are kept in `error`.
    """

    def __init__(self, folder: Path, limits: Limits, engine: Engine, now: float) -> None:
        self._folder = folder
        self._limits = limits
        self._engine = engine
        self._at = now
        self._lines: list[bytes] = []
        self._pending = 0
        self._file: BinaryIO | None = None
        self._compressor = _compressor()
        self._size = 0
        #: Why nothing is written any more.
        self.error: OSError | None = None
        self.entries = 0
        self.bytes_written = 0
        existing = segments(folder)
        self._number = int(_NAME.fullmatch(existing[-1].name)[1]) if existing else 0  # type: ignore[index]
        self._open("start")

    # --- engine.Recorder --------------------------------------------------------------------------------

    def applied(self, event: Event, at: float) -> None:
        self._add(event_entry(event, at), at)

    def decided(self, decisions: Sequence[Decision], now: float) -> None:
        self._add(cycle_entry(decisions, now), now)

    def forgot(self, key: str, what: str) -> None:
        self._add(forget_entry(key, what), self._at)

    # --- files ------------------------------------------------------------------------------------------

    def _add(self, entry: Entry, at: float) -> None:
        if self.error is not None:
            return
        self._at = max(self._at, at)
        self.entries += 1
        try:
            self._write(entry)
            if self._size >= max(_SEGMENT_BYTES_MIN, self._limits.size_bytes_max // _PARTS):
                self._end("rotation")
                self._open("rotation")
                self.remove_old(self._at)
        except OSError as error:
            self._fail(error)

    def _write(self, entry: Entry) -> None:
        line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
        self._lines.append(line)
        self._pending += len(line)
        if self._pending >= _CHUNK:
            self._compress()

    def _compress(self) -> None:
        data = b"".join(self._lines)
        self._lines.clear()
        self._pending = 0
        self._append(self._compressor.compress(data))

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        while data:
            written = self._file.write(data)
            data = data[written:]
            self._size += written
            self.bytes_written += written

    def _open(self, why: str) -> None:
        """Begin a segment. A segment that does not follow on the one before it has a gap before it."""
        self._number += 1
        path = self._folder / f"flight-{self._number:08d}.jsonl.gz"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._compressor, self._size = _compressor(), 0
        try:
            self._write(
                {
                    "recording": FORMAT,
                    "segment": self._number,
                    "at": self._at,
                    "gap": why != "rotation",
                    "items": snapshot(self._engine),
                }
            )
            self._sync()
        except OSError:
            path.unlink(missing_ok=True)
            self._file.close()
            raise

    def _end(self, why: str) -> None:
        self._write({"end": why, "at": self._at})
        self._compress()
        self._append(self._compressor.flush(zlib.Z_FINISH))
        assert self._file is not None
        self._file.close()

    def flush(self) -> None:
        """What was added so far can be read from the file."""
        if self.error is None:
            try:
                self._sync()
            except OSError as error:
                self._fail(error)

    def _sync(self) -> None:
        self._compress()
        self._append(self._compressor.flush(zlib.Z_SYNC_FLUSH))

    def close(self) -> None:
        """End the recording."""
        if self.error is None:
            try:
                self._end("stop")
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        """Give up: the files stay as they are."""
        self.error = error
        self._lines.clear()
        if self._file is not None:
            self._file.close()

    def remove_old(self, now: float) -> None:
        """Remove the oldest segments beyond the limits, but never the one that is written. Raises OSError."""
        found = segments(self._folder)[:-1]
        sizes = {each: each.stat() for each in found}
        total = self._size + sum(each.st_size for each in sizes.values())
        for each in found:
            too_old = sizes[each].st_mtime < now - self._limits.age_seconds_max
            if not too_old and total <= self._limits.size_bytes_max:
                break
            each.unlink()
            total -= sizes[each].st_size
