"""A disk beneath the store that fails, fills up, loses what was not synced, and is damaged.

The store's files are real; an SQLite VFS (apsw) and the store's own `Files` see every write and sync of them.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from pykueue.embedded.store.files import Files

_VFS = "pykueue-faults"
_SECTOR = 512


class Disk(Files):
    """The files of one store."""

    def __init__(self, rng: random.Random) -> None:
        global _disk
        _disk = self
        self.rng = rng
        #: Rate at which writes and syncs fail.
        self.rate = 0.0
        #: Writes and syncs until the machine stops; none happens after that.
        self.steps_left: int | None = None
        self.stopped = False
        #: Whether a sync of the log failed, and none has worked since.
        self.unsure = False
        #: Whether the last write of the mark failed.
        self.mark_stale = False
        self.faults = 0
        self._synced: dict[str, bytes] = {}
        self._unsynced: dict[str, list[tuple[int, bytes | None]]] = {}
        self._connections: list[Connection] = []

    # -- what the store does

    def connect(self, path: Path, *, read_only: bool = False) -> sqlite3.Connection:
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
        connection = Connection(path, flags)
        self._connections.append(connection)
        return connection  # type: ignore[return-value]

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        self.mark_stale = self.step()
        if self.mark_stale:
            raise OSError("injected")
        self.note(name, offset, data)
        os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        if self.step():
            raise OSError("injected")
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isfile(name):
            self.settle(name)

    def free(self, directory: Path) -> int:
        return 1 << 40

    # -- what the run observes

    def step(self) -> bool:
        """Count a write or sync; whether it fails."""
        if self.steps_left is not None:
            self.steps_left -= 1
            self.stopped = self.stopped or self.steps_left < 0
        failed = self.stopped or self.rng.random() < self.rate
        self.faults += failed
        return failed

    def note(self, name: str, offset: int, data: bytes | None) -> None:
        """Remember a write that is not synced; without data, a truncation."""
        if name not in self._unsynced:
            self._unsynced[name] = []
            self._synced.setdefault(name, _content(name))
        self._unsynced[name].append((offset, data))

    def settle(self, name: str) -> None:
        """Everything written to a file is on the disk."""
        self._unsynced.pop(name, None)
        self._synced[name] = _content(name)

    def forget(self, name: str) -> None:
        """A file was deleted."""
        self._unsynced.pop(name, None)
        self._synced.pop(name, None)

    # -- faults

    def end(self, power_loss: bool) -> None:
        """The process ends; on a power loss, unsynced writes reach the disk in part or not at all."""
        self.stopped = True
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        if power_loss:
            for name, writes in self._unsynced.items():
                Path(name).write_bytes(self._torn(self._synced.get(name, b""), writes))
        self._unsynced.clear()
        self._synced.clear()
        self.stopped, self.steps_left, self.rate, self.unsure = False, None, 0.0, False

    def _torn(self, image: bytes, writes: list[tuple[int, bytes | None]]) -> bytes:
        data, share = bytearray(image), self.rng.choice((0.0, 0.5, 0.9))
        for offset, written in writes:
            if self.rng.random() >= share:
                continue
            if written is None:
                del data[offset:]
                continue
            if self.rng.random() < 0.3:  # half of it, in whole sectors
                written = written[: self.rng.randint(0, len(written) // _SECTOR) * _SECTOR]
            data.extend(bytes(max(0, offset + len(written) - len(data))))
            data[offset : offset + len(written)] = written
        return bytes(data)

    def damage(self, folder: Path) -> str:
        """Damage one file of the store; what was done."""
        rng = self.rng
        names = sorted(
            one.name for one in folder.glob("s.db*") if one.name in _DAMAGED and one.stat().st_size
        )
        path = folder / rng.choice(names)
        data, kind = (
            bytearray(path.read_bytes()),
            rng.choice(("emptied", "removed", "halved", "garbage", "bit")),
        )
        at = rng.randrange(len(data))
        match kind:
            case "emptied":
                data.clear()
            case "halved":
                del data[at:]
            case "garbage":
                data[at : at + 4096] = rng.randbytes(len(data[at : at + 4096]))
            case "bit":
                data[at] ^= 1 << rng.randrange(8)
        if kind == "removed":
            path.unlink()
        else:
            path.write_bytes(data)
        return f"{path.name} {kind} at {at}"


_DAMAGED = ("s.db", "s.db-wal", "s.db.mark")
_disk: Disk | None = None


def _content(name: str) -> bytes:
    return Path(name).read_bytes() if os.path.exists(name) else b""


def _current() -> Disk:
    assert _disk is not None
    return _disk


class _File(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__("", name, flags)

    def _fail(self) -> None:
        disk = _current()
        if disk.step():
            raise (apsw.FullError if disk.rng.random() < 0.5 else apsw.IOError)("injected")

    def xWrite(self, data: bytes, offset: int) -> None:
        self._fail()
        _current().note(self._name, offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._fail()
        _current().note(self._name, size, None)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        disk, log = _current(), self._name.endswith("-wal")
        if disk.step():
            disk.unsure = disk.unsure or log
            raise apsw.IOError("injected")
        super().xSync(flags)
        disk.settle(self._name)
        if log:
            disk.unsure = False


class _Vfs(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(_VFS, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _File(name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        if _current().step():
            raise apsw.IOError("injected")
        super().xDelete(filename, syncdir)
        _current().forget(filename)


_vfs = _Vfs()


class _Rows:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return next(self._rows, None)


class Connection:
    """As much of `sqlite3.Connection` as the store uses, over the VFS."""

    def __init__(self, path: Path, flags: int) -> None:
        try:
            self._connection = apsw.Connection(str(path), flags=flags, vfs=_VFS)
        except apsw.Error as error:
            raise _translated(error) from error

    def execute(self, statement: str, values: Any = ()) -> _Rows:
        try:
            return _Rows(list(self._connection.execute(statement, values)))
        except apsw.Error as error:
            raise _translated(error) from error

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def close(self) -> None:
        with contextlib.suppress(apsw.Error):
            self._connection.close(True)


_CODES = {
    apsw.FullError: sqlite3.SQLITE_FULL,
    apsw.IOError: sqlite3.SQLITE_IOERR,
    apsw.CantOpenError: sqlite3.SQLITE_CANTOPEN,
    apsw.ReadOnlyError: sqlite3.SQLITE_READONLY,
}


def _translated(error: apsw.Error) -> sqlite3.DatabaseError:
    code = _CODES.get(type(error), 0)
    found = (sqlite3.OperationalError if code else sqlite3.DatabaseError)(str(error))
    found.sqlite_errorcode = code
    return found
