"""The operations on files that a store makes, apart so that tests can put a faulty disk beneath them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path


class Files:
    """The operating system's files."""

    def connect(self, path: Path, *, read_only: bool = False) -> sqlite3.Connection:
        """Open an SQLite file. A read-only connection changes neither it nor its log."""
        mode = "ro" if read_only else "rw"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)

    def free(self, directory: Path) -> int:
        """Bytes that are free on the disk of a directory."""
        return shutil.disk_usage(directory).free

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write at an offset; on the disk after the next `sync`, or at any time before."""
        os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """Wait until what was written is on the disk. Of a directory: its entries."""
        os.fsync(descriptor)
