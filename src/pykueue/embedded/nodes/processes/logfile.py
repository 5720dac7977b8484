"""The log of one run of a container: one line of text per line of output.

`2026-11-21T14:54:45.123456Z stdout F text`: when it was read, from which stream, and whether the line is
complete (`F`) or goes on in the next one (`P`). Lines longer than 16 KiB are cut into parts. A file that has
grown to its limit is kept as `.1`, and a new one is begun.
"""

from __future__ import annotations

import os
from pathlib import Path

from pykueue.api.times import format_micro_time

#: Bytes after which a line is cut.
LINE_LIMIT = 16 * 1024
#: Bytes after which a file is put aside; the one put aside before is dropped.
FILE_LIMIT = 10 * 1024 * 1024


def put_aside(path: Path) -> Path:
    """Where the earlier part of a log is kept."""
    return path.with_name(path.name + ".1")


class LogFile:
    """Writes; what it is given goes to the file at once."""

    def __init__(self, path: str, limit: int = FILE_LIMIT) -> None:
        self._path = Path(path)
        self._limit = limit
        self._rest: dict[str, bytes] = {}
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o640)
        self._size = os.fstat(self._fd).st_size

    def write(self, stream: str, data: bytes, at: float) -> None:
        """Output of `stream` (stdout or stderr), read at a time in seconds since 1970."""
        lines = (self._rest.pop(stream, b"") + data).split(b"\n")
        rest = lines.pop()
        prefix = f"{format_micro_time(at)} {stream} ".encode()
        written = [part for line in lines for part in _parts(prefix, line)]
        while len(rest) > LINE_LIMIT:
            written.append(prefix + b"P " + rest[:LINE_LIMIT] + b"\n")
            rest = rest[LINE_LIMIT:]
        if rest:
            self._rest[stream] = rest
        if written:
            self._append(b"".join(written))

    def end(self, stream: str, at: float) -> None:
        """A stream is over: what it left without a line end is written too."""
        rest = self._rest.pop(stream, b"")
        if rest:
            self._append(f"{format_micro_time(at)} {stream} P ".encode() + rest + b"\n")

    def close(self) -> None:
        """Close the file; nothing can be written afterwards."""
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._limit:
            os.close(self._fd)
            self._path.replace(put_aside(self._path))
            self._open()
        os.write(self._fd, data)
        self._size += len(data)


def _parts(prefix: bytes, line: bytes) -> list[bytes]:
    cuts = range(0, max(len(line), 1), LINE_LIMIT)
    pieces = [line[cut : cut + LINE_LIMIT] for cut in cuts]
    tags = [b"P "] * (len(pieces) - 1) + [b"F "]
    return [prefix + tag + piece + b"\n" for tag, piece in zip(tags, pieces, strict=True)]
