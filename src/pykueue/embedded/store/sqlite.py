"""The durable store: an SQLite file behind the tables in memory.

Reads never touch the file. Writes change the tables at once and are put into the file in groups by one
thread; they are settled, published and answered when their group is committed (WAL, synchronous=FULL: a
commit survives kill -9 and, as far as the disk keeps its word, power loss). When a group cannot be
committed, its writes and all after it are undone and their writers told.

The file holds the current objects and the last revision, nothing of the past: watchers from before a
restart are told to list again. It can be read with ordinary SQLite tools while the server runs.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from pykueue.embedded.store.memory import HISTORY, MemoryStore, StoreError, Table
from pykueue.embedded.store.records import Event, Key, Object, Record, Shelf, encode

log = logging.getLogger(__name__)

#: Marks the file as ours ("pyku"), and the layout of its tables.
APPLICATION_ID = 0x70796B75
FORMAT = 1

#: Objects kept decoded besides their bytes.
HOT_OBJECTS = 16_384
#: Seconds to wait for more writes before a group is committed, when the last group was not small.
_WINDOW = 0.002
_SMALL_GROUP = 8

_SCHEMA = """
CREATE TABLE resources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE objects (
    resource INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    data BLOB,
    PRIMARY KEY (resource, namespace, name)
);
INSERT INTO objects VALUES (0, '', 'revision', 1, NULL);
"""

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


#: Table, namespace, name, revision, data (None when gone).
_Row = tuple[str, str, str, int, bytes | None]


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

    @property
    def last(self) -> int:
        return self.changes[-1][1].record.revision


class SqliteStore(MemoryStore):
    """Everything in memory and in a file."""

    def __init__(self, path: Path | str, history: int = HISTORY, hot_objects: int = HOT_OBJECTS) -> None:
        super().__init__(history)
        self.path = Path(path)
        self._shelf = Shelf(hot_objects)
        self._resources: dict[str, int] = {}
        self._gathering = _Group()
        self._committing: _Group | None = None
        self._scheduled = False
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, "store")
        self._connection: sqlite3.Connection | None = None
        self._lock: IO[str] | None = None
        #: Which file on the disk it is: one that is put in its place is another.
        self._inode = 0

    # -- life

    async def open(self) -> None:
        """Load the file, or make it.

        StoreError when it is in use, damaged, foreign or from a newer version.
        """
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._load)
        except sqlite3.DatabaseError as error:
            self._release()
            raise StoreError(
                f"{self.path} cannot be read: {error}. It is damaged or not a pykueue store; restore a "
                "backup or choose another data directory"
            ) from error
        except BaseException:
            self._release()
            raise

    def _load(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = lock(self.path)
        fresh = not self.path.exists() or self.path.stat().st_size == 0
        if fresh:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self._connection = connection
        self._inode = self.path.stat().st_ino
        if not fresh:
            self._check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
            connection.executescript(f"BEGIN; {_SCHEMA} {marks} COMMIT;")
        self.revision = self.settled_revision = connection.execute(
            "SELECT revision FROM objects WHERE resource = 0"
        ).fetchone()[0]
        connection.execute("DELETE FROM objects WHERE data IS NULL AND resource != 0")
        names = {}
        for number, name in connection.execute("SELECT id, name FROM resources"):
            names[number] = self.table(name)
            self._resources[name] = number
        rows = connection.execute("SELECT * FROM objects WHERE resource != 0")
        for resource, namespace, name, revision, data in rows:
            names[resource].set(Record((namespace, name), revision, None, data, self._shelf))

    def _check(self, connection: sqlite3.Connection) -> None:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        written = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and application != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is an SQLite file, but not a pykueue store; choose another data directory"
            )
        if written > FORMAT:
            raise StoreError(
                f"{self.path} has format {written}, this version reads formats up to {FORMAT}; use the "
                "version that wrote it, or a newer one"
            )
        damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._thread.shutdown(wait=True)

    async def close(self) -> None:
        await self._idle.wait()
        await asyncio.get_running_loop().run_in_executor(None, self._release)

    async def backup(self, path: Path | str) -> None:
        """Copy the store into a file, as it is at one moment, while it goes on working.

        FileExistsError when the file is there already.
        """
        await asyncio.get_running_loop().run_in_executor(None, self._backup, Path(path))

    def _backup(self, path: Path) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        source = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        target = sqlite3.connect(path)
        try:
            source.backup(target)
        finally:
            source.close()
            target.close()

    async def prove(self) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._prove)
        except (sqlite3.Error, OSError, RuntimeError) as error:
            raise StoreError(f"{self.path} cannot be written: {error}") from error

    def _prove(self) -> None:
        connection = self._connection
        if connection is None:
            raise OSError("the store is closed")
        if os.stat(self.path).st_ino != self._inode:
            raise OSError("the file was replaced by another")
        # A commit that changes nothing that matters, but goes all the way to the disk.
        connection.execute("UPDATE objects SET data = NULL WHERE resource = 0")

    # -- writes

    def _record(self, table: Table, key: Key, obj: Object) -> Record:
        return Record(key, self.revision, obj, encode(obj), self._shelf)

    def _changed(self, table: Table, event: Event) -> None:
        table.revision = self.revision
        self._gathering.changes.append((table, event))
        if self._committing is None and not self._scheduled:
            self._scheduled = True
            self._idle.clear()
            asyncio.get_running_loop().call_soon(self._commit)

    async def settled(self, revision: int) -> None:
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

    def _commit(self) -> None:
        """Hand what has gathered to the thread."""
        self._scheduled = False
        group, self._gathering = self._gathering, _Group()
        self._committing = group
        # Only the last version of an object in the group needs to reach the file.
        last = {(table.name, event.record.key): event for table, event in group.changes}
        rows: list[_Row] = []
        for (table, (namespace, name)), event in last.items():
            data = None if event.type == "DELETED" else event.record.data
            rows.append((table, namespace, name, event.record.revision, data))
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._write, rows, group.last)
        future.add_done_callback(self._committed)

    def _resource(self, connection: sqlite3.Connection, table: str) -> int:
        number = self._resources.get(table)
        if number is None:
            connection.execute("INSERT OR IGNORE INTO resources (name) VALUES (?)", (table,))
            number = connection.execute("SELECT id FROM resources WHERE name = ?", (table,)).fetchone()[0]
            self._resources[table] = number
        return number

    def _write(self, rows: list[_Row], revision: int) -> None:
        """Put the rows and the revision into the file, all or none.

        Nearly always in one statement: between statements this thread has to wait for the interpreter, which
        a busy server keeps to itself for milliseconds. The number of rows is filled up to a power of two, so
        that few statements are ever compiled.
        """
        connection = self._connection
        assert connection is not None
        parts: list[list[Any]] = []
        for start in range(0, len(rows), _MOST_ROWS - 1):
            values: list[Any] = []
            part = rows[start : start + _MOST_ROWS - 1]
            for table, *others in part:
                values.append(self._resource(connection, table))
                values += others
            size = 1 << len(part).bit_length()
            values += [0, "", "revision", revision, None] * (size - len(part))
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
        self._committing = None
        error = future.exception()
        if error is not None:
            self._undo(group, error)
        else:
            self._deliver(group.changes)
            for waiter in group.waiters:
                if not waiter.done():
                    waiter.set_result(None)
        if self._gathering.changes:
            self._scheduled = True
            loop = asyncio.get_running_loop()
            if len(group.changes) < _SMALL_GROUP:
                loop.call_soon(self._commit)
            else:
                loop.call_later(_WINDOW, self._commit)
        else:
            self._idle.set()

    def _undo(self, group: _Group, error: BaseException) -> None:
        """Take back the writes of a group that could not be committed, and those made on top of them."""
        log.error("writing to %s failed: %s", self.path, error)
        later, self._gathering = self._gathering, _Group()
        for table, event in reversed(group.changes + later.changes):
            if event.type == "ADDED":
                table.discard(event.record.key)
            elif event.previous is not None:
                table.set(event.previous)
        refusal = StoreError(f"the write could not be made durable: {error}")
        for waiter in group.waiters + later.waiters:
            if not waiter.done():
                waiter.set_exception(refusal)
