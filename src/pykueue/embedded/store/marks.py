"""The mark: a second record, beside the store's file, of the last write that was acknowledged.

The store's file alone does not show that it is an older copy, or that a part of its log is missing: SQLite
uses what it finds. The mark is written after every commit and before its answers, without waiting for the
disk: it survives the end of the process at once, and is never ahead of the file.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import NamedTuple

from pykueue.embedded.store.files import Files

#: Bytes of one record: what a disk writes as a whole.
SECTOR = 512
_TITLE = "pykueue"


class Mark(NamedTuple):
    """How far a store got."""

    #: The name of the store, random: tells its files from those of another.
    store: str
    revision: int
    #: The checksum of all objects.
    checksum: int

    def encode(self) -> bytes:
        """One sector: a line of text that ends with its own checksum."""
        text = f"{_TITLE} {self.store} {self.revision} {self.checksum:016x}"
        return f"{text} {zlib.crc32(text.encode()):08x}\n".ljust(SECTOR).encode()


def decode(sector: bytes) -> Mark | None:
    """The mark in a sector, or None when it is damaged."""
    text, _, crc = sector.decode("ascii", "replace").rstrip().rpartition(" ")
    try:
        title, store, revision, checksum = text.split(" ")
        if title == _TITLE and int(crc, 16) == zlib.crc32(text.encode()):
            return Mark(store, int(revision), int(checksum, 16))
    except ValueError:
        pass
    return None


def read(path: Path) -> Mark | None:
    """The mark in a file: the newer of its two sectors. ValueError when neither is whole.

    None when there is no file, or one without content.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if not data:
        return None
    marks = [mark for at in (0, SECTOR) if (mark := decode(data[at : at + SECTOR])) is not None]
    if not marks:
        raise ValueError("it holds no whole record")
    return max(marks, key=lambda mark: mark.revision)


class MarkFile:
    """Writes marks, in two sectors by turns, so that one is whole at any time."""

    def __init__(self, path: Path, files: Files, first: Mark) -> None:
        """Start with a mark that is on the disk when this returns. Raises OSError."""
        self._files = files
        self._turn = 0
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            # One after the other: where the first is torn, the other still holds what was there.
            for _ in range(2):
                self.write(first)
                self.sync()
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                files.sync(directory)
            finally:
                os.close(directory)
        except BaseException:
            self.close()
            raise

    def write(self, mark: Mark) -> None:
        """Write a mark; the disk may take its time. Raises OSError."""
        self._files.write(self._descriptor, mark.encode(), self._turn * SECTOR)
        self._turn = 1 - self._turn

    def sync(self) -> None:
        """Wait until the mark is on the disk. Raises OSError."""
        self._files.sync(self._descriptor)

    def close(self) -> None:
        """Write no more."""
        os.close(self._descriptor)
