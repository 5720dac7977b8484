"""The durable store: an SQLite file behind the tables in memory.

Reads never touch the file. Writes change the tables at once and are put into the file in groups by one
thread; they are settled, published and answered when their group is committed (WAL, synchronous=FULL: a
commit survives kill -9 and, as far as the disk keeps its word, power loss). When a group cannot be
committed, its writes and all after it are lost: undone, and refused to their writers.

The file holds the current objects, the last revision and a checksum, but no history: watchers from
before a restart get 410 Gone and list again. It can be read with ordinary SQLite tools while the server runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from pykueue.api.json_bytes import encode_kept
from pykueue.api.objects import Key, Object
from pykueue.embedded.store.contents import (
    FORMAT,
    MODULUS,
    Contents,
    Inspection,
    Row,
    checksum,
    lay_out,
    stamp,
    stored_mark,
)
from pykueue.embedded.store.files import Files
from pykueue.embedded.store.marks import Mark, MarkFile
from pykueue.embedded.store.memory import MemoryStore, StoreError
from pykueue.embedded.store.records import Event, Record, Shelf
from pykueue.embedded.store.table import HISTORY, Table

log = logging.getLogger(__name__)

#: Results that say nothing about the contents of the file.
_NO_DAMAGE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)

_MIB = 1024 * 1024
#: Bytes a new cluster needs on the disk: its first objects, and the log of their writes.
NEEDED = 32 * _MIB

#: Objects kept decoded besides their bytes.
HOT_OBJECTS = 16_384
#: Runs of lost revisions that are kept: a writer that waits for one of them gets the reason.
_LOST_RUNS = 1024
#: Bytes that making sure of the disk writes at most.
_LARGEST_PROBE = 16 * 1024 * 1024
_PAGE = 4096
#: Seconds to wait for more writes before a group is committed, when the last group was not small.
_WINDOW = 0.002
_SMALL_GROUP = 8

#: Writes that many bytes, in place of those of the probe before.
_PROBE = (
    "INSERT INTO objects VALUES (0, '', 'probe', 0, zeroblob(?)) "
    "ON CONFLICT DO UPDATE SET data = excluded.data"
)

_ROW = "(?, ?, ?, ?, ?)"
#: Rows one statement may put.
_MOST_ROWS = 4096


@lru_cache(maxsize=16)
def _put_statement(rows: int) -> str:
    """Puts that many rows. A row without data marks an object as gone."""
    return (
        f"INSERT INTO objects VALUES {', '.join([_ROW] * rows)} "
        "ON CONFLICT DO UPDATE SET revision = excluded.revision, data = excluded.data"
    )


def mark_path(path: Path) -> Path:
    """Where the mark of a store's file is."""
    return Path(f"{path}.mark")


def _checksum(table: Table, record: Record) -> int:
    namespace, name = record.key
    return checksum(table.name, namespace, name, record.revision, record.data)


def _room(free: int) -> str:
    shown = f"{free // 1024} KiB" if free < _MIB else f"{free // _MIB} MiB"
    return f"{shown} are free on its disk"


def lock(path: Path) -> IO[str]:
    """Hold the store's path for this process until the file given back is closed.

    StoreError when another process holds it.
    """
    held = open(f"{path}.lock", "w")  # noqa: SIM115 (the caller holds it)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise StoreError(
            f"{path} is in use by another process; stop it or choose another data directory"
        ) from None
    return held


class _Group:
    """Writes that are committed together."""

    def __init__(self) -> None:
        self.changes: list[tuple[Table, Event]] = []
        self.waiters: list[asyncio.Future[None]] = []
        #: What the file holds with them.
        self.mark = Mark("", 1, 0)

    @property
    def last(self) -> int:
        return self.changes[-1][1].record.revision

    @property
    def size(self) -> int:
        """Bytes it writes, about."""
        return sum(_PAGE + len(event.record.data) for _, event in self.changes)


class SqliteStore(MemoryStore):
    """Everything in memory and in a file.

    `executor` runs what waits for the file, one call at a time. `accept_loss` opens a store that lacks
    acknowledged writes, with what is left of it.
    """

    def __init__(
        self,
        path: Path | str,
        history: int = HISTORY,
        hot_objects: int = HOT_OBJECTS,
        executor: Executor | None = None,
        files: Files | None = None,
        accept_loss: bool = False,
    ) -> None:
        super().__init__(history)
        self.path = Path(path)
        #: Where the second record of the last acknowledged write is.
        self.mark_path = mark_path(self.path)
        self._files = files or Files()
        self._accept_loss = accept_loss
        #: What the last committed group left in the file.
        self._mark = Mark("", 1, 0)
        self._mark_file: MarkFile | None = None
        self._shelf = Shelf(hot_objects)
        self._resources: dict[str, int] = {}
        self._gathering = _Group()
        self._committing: _Group | None = None
        self._scheduled = False
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._thread = executor or ThreadPoolExecutor(1, "store")
        self._connection: sqlite3.Connection | None = None
        self._lock: IO[str] | None = None
        #: Which file on the disk it is: one that is put in its place is another.
        self._inode = 0
        #: Runs of lost revisions: first, last, why.
        self._lost: deque[tuple[int, int, str]] = deque(maxlen=_LOST_RUNS)
        #: Bytes that could not be written since writing last worked, and why.
        self._refused, self._fault = 0, ""

    # -- life

    async def open(self) -> None:
        """Load the file, or make it.

        StoreError when it is in use, damaged, foreign or from a newer version, when acknowledged writes are
        missing, and when there is no room for it.
        """
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._load)
        except sqlite3.DatabaseError as error:
            self._fail()
            raise StoreError(self._unopened(error)) from error
        except OSError as error:
            self._fail()
            if error.filename is not None:
                raise
            # Of a write, which does not say to which file.
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}{self._scarce()}") from error
        except BaseException:
            self._fail()
            raise

    def _unopened(self, error: sqlite3.DatabaseError) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _NO_DAMAGE:
            return f"{self.path} cannot be opened: {error}{self._scarce()}"
        # SQLite quotes a damaged table definition, which has several lines.
        reason = " ".join(str(error).split())
        return (
            f"{self.path} cannot be read: {reason}. It is damaged or not a pykueue store; restore a "
            "backup or choose another data directory"
        )

    def _scarce(self) -> str:
        """How much is free on the disk, where that is little."""
        free = self._files.free(self.path.parent)
        return f"; {_room(free)}" if free < NEEDED else ""

    def _load(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = lock(self.path)
        inspection = Inspection(self.path, self.mark_path, self._files, self._accept_loss)
        contents = inspection.look()
        for loss in inspection.losses:
            log.warning("data loss accepted: %s", loss)
        if contents.new:
            free = self._files.free(self.path.parent)
            if free < NEEDED:
                raise StoreError(
                    f"{self.path} cannot be created: {_room(free)}, a new cluster needs {NEEDED // _MIB} MiB"
                )
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            self._mark_file = MarkFile(self.mark_path, self._files, contents.mark)
        connection = self._connection = self._files.connect(self.path)
        self._inode = self.path.stat().st_ino
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        self._take_over(connection, contents)
        if self._mark_file is None:
            self._mark_file = MarkFile(self.mark_path, self._files, contents.mark)

    def _take_over(self, connection: sqlite3.Connection, contents: Contents) -> None:
        """Bring the file into step with its contents, and take them."""
        mark = self._mark = contents.mark
        connection.execute("BEGIN IMMEDIATE")
        if contents.new:
            lay_out(connection)
        connection.execute("DELETE FROM objects WHERE data IS NULL AND resource != 0")
        for key in contents.unreadable:
            connection.execute("DELETE FROM objects WHERE (resource, namespace, name) = (?, ?, ?)", key)
        connection.execute(_put_statement(1), [0, "", "revision", mark.revision, stamp(mark)])
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
        self.begin(mark.revision)
        self._resources = contents.resources
        for table, namespace, name, revision, data in contents.rows:
            self.table(table).set(Record((namespace, name), revision, None, data, self._shelf))

    def _fail(self) -> None:
        self._release()
        self._thread.shutdown()

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._mark_file is not None:
            self._mark_file.close()
            self._mark_file = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def close(self) -> None:
        if self._connection is None:
            return
        await self._idle.wait()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._release)
        self._thread.shutdown()

    async def backup(self, path: Path | str) -> None:
        """Copy the store into a file, as it is at one moment, while it goes on working.

        FileExistsError when the file is there already.
        """
        await asyncio.get_running_loop().run_in_executor(None, self._backup, Path(path))

    def _backup(self, path: Path) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        source = self._files.connect(self.path, read_only=True)
        target = self._files.connect(path)
        try:
            source.backup(target)
            MarkFile(mark_path(path), self._files, stored_mark(target)).close()
        finally:
            source.close()
            target.close()

    async def prove(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._prove)
        except (sqlite3.Error, OSError, RuntimeError) as error:
            raise StoreError(f"{self.path} cannot be written: {error}") from error
        self._recovered()

    def _prove(self) -> None:
        connection = self._connection
        if connection is None:
            raise OSError("the store is closed")
        if os.stat(self.path).st_ino != self._inode:
            raise OSError("the file was replaced by another")
        # Commits that change nothing that matters, but go all the way to the disk: of as many bytes as could
        # not be written before.
        if self._refused:
            connection.execute(_PROBE, (self._refused,))
        connection.execute(_PROBE, (0,))

    # -- writes

    def _record(self, table: Table, key: Key, obj: Object) -> Record:
        return Record(key, self.revision, obj, encode_kept(obj), self._shelf)

    def _changed(self, table: Table, event: Event) -> None:
        table.unsettle(event)
        self._gathering.changes.append((table, event))
        if self._committing is None and not self._scheduled:
            self._scheduled = True
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._commit)

    async def settled(self, revision: int) -> None:
        for first, last, reason in reversed(self._lost):
            if first <= revision <= last:
                raise StoreError(reason)
            if revision > last:
                break
        if revision <= self.settled_revision:
            return
        group = self._committing
        if group is None or revision > group.last:
            group = self._gathering
            if not group.changes:
                return
        waiter = asyncio.get_running_loop().create_future()
        group.waiters.append(waiter)
        await waiter

    async def settle(self) -> None:
        if self._committing is not None or self._gathering.changes:
            await self.settled(self.revision)

    def _commit(self) -> None:
        """Hand what has gathered to the thread."""
        self._scheduled = False
        group, self._gathering = self._gathering, _Group()
        self._committing = group
        # Only the last version of an object in the group needs to reach the file.
        last = {(table.name, event.record.key): event for table, event in group.changes}
        total = self._mark.checksum
        for changed, event in group.changes:
            if event.previous is not None:
                total -= _checksum(changed, event.previous)
            if event.type != "DELETED":
                total += _checksum(changed, event.record)
        group.mark = Mark(self._mark.store, group.last, total % MODULUS)
        rows: list[Row] = []
        for (table, (namespace, name)), event in last.items():
            data = None if event.type == "DELETED" else event.record.data
            rows.append((table, namespace, name, event.record.revision, data))
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._write, rows, group.mark)
        future.add_done_callback(self._committed)

    def _resource(self, connection: sqlite3.Connection, table: str) -> int:
        number = self._resources.get(table)
        if number is None:
            connection.execute("INSERT OR IGNORE INTO resources (name) VALUES (?)", (table,))
            number = connection.execute("SELECT id FROM resources WHERE name = ?", (table,)).fetchone()[0]
            self._resources[table] = number
        return number

    def _write(self, rows: list[Row], mark: Mark) -> None:
        """Put the rows and the mark into the file, all or none, and the mark beside it."""
        try:
            self._put(rows, mark)
        except BaseException:
            # Where only the sync failed, the log may hold all of it, and a restart would find it there: the
            # next commit takes its place.
            with contextlib.suppress(sqlite3.Error):
                self._connected().execute(_PROBE, (0,))
            raise
        assert self._mark_file is not None
        try:
            self._mark_file.write(mark)
        except OSError as error:
            log.error("writing to %s failed: %s", self.mark_path, error)

    def _connected(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _put(self, rows: list[Row], mark: Mark) -> None:
        """One transaction.

        Nearly always in one statement: between statements this thread has to wait for the interpreter, which
        a busy server keeps to itself for milliseconds. The number of rows is filled up to a power of two, so
        that few statements are ever compiled.
        """
        connection = self._connected()
        parts: list[list[Any]] = []
        revision = [0, "", "revision", mark.revision, stamp(mark)]
        for start in range(0, len(rows), _MOST_ROWS - 1):
            values: list[Any] = []
            part = rows[start : start + _MOST_ROWS - 1]
            for table, *others in part:
                values.append(self._resource(connection, table))
                values += others
            size = 1 << len(part).bit_length()
            values += revision * (size - len(part))
            parts.append(values)
        if len(parts) == 1:
            connection.execute(_put_statement(len(parts[0]) // 5), parts[0])
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for values in parts:
                connection.execute(_put_statement(len(values) // 5), values)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _committed(self, future: asyncio.Future[None]) -> None:
        group = self._committing
        assert group is not None
        error = future.exception()
        if error is not None:
            self._committing = None
            self._undo(group, error)
        else:
            self._mark = group.mark
            for table, event in group.changes:
                self._settle(table, event)
            # Writers first: on a connection that writes and watches, answers and events then leave together.
            for waiter in group.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._deliver(group.changes)
            self._committing = None
            if self._fault and group.size >= self._refused:
                self._recovered()
        if self._gathering.changes:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            if len(group.changes) < _SMALL_GROUP:
                loop.call_soon(self._commit)
            else:
                loop.call_later(_WINDOW, self._commit)
        else:
            self._idle.set()

    def _recovered(self) -> None:
        if self._fault:
            log.warning("writing to %s works again", self.path)
        self._refused, self._fault = 0, ""

    def _undo(self, group: _Group, error: BaseException) -> None:
        """Take back the writes of a group that could not be committed, and those made on top of them."""
        if str(error) != self._fault:
            log.error("writing to %s failed: %s", self.path, error)
        self._fault = str(error)
        self._refused = min(_LARGEST_PROBE, group.size)
        later, self._gathering = self._gathering, _Group()
        for table in {table for table, _ in group.changes + later.changes}:
            table.undo()
        reason = f"the write could not be made durable: {error}"
        first = self.settled_revision + 1
        if self._lost and self._lost[-1][0] == first:
            self._lost.pop()
        self._lost.append((first, self.revision, reason))
        for waiter in group.waiters + later.waiters:
            if not waiter.done():
                waiter.set_exception(StoreError(reason))
        for callback in self._on_lost:
            callback()
