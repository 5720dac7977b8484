"""What a store's file holds, and whether that is all it should hold.

Three things must agree: SQLite's own structure, the checksum of all objects that is written with every
commit, and the mark beside the file (`marks`). Reading changes nothing: a refused file is left as it is.
"""

from __future__ import annotations

import sqlite3
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from pykueue.embedded.store import marks
from pykueue.embedded.store.files import Files
from pykueue.embedded.store.marks import Mark
from pykueue.embedded.store.memory import StoreError

#: Marks the file as ours ("pyku"), and the layout of its tables. Format 1 had no checksum and no mark.
APPLICATION_ID = 0x70796B75
FORMAT = 2

#: Checksums of objects add up modulo this.
MODULUS = 1 << 64

#: Table, namespace, name, revision, data (None when gone).
Row = tuple[str, str, str, int, bytes | None]

_SCHEMA = (
    "CREATE TABLE resources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    """CREATE TABLE objects (
        resource INTEGER NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        revision INTEGER NOT NULL,
        data BLOB,
        PRIMARY KEY (resource, namespace, name)
    )""",
    f"PRAGMA application_id = {APPLICATION_ID}",
)


def checksum(table: str, namespace: str, name: str, revision: int, data: bytes) -> int:
    """Of one object. The sum of all objects' does not depend on their order."""
    return zlib.crc32(data, zlib.crc32(f"{table} {namespace} {name} {revision}".encode()))


def stamp(mark: Mark) -> bytes:
    """What the row of the revision holds besides it."""
    return f"{mark.store} {mark.checksum:016x}".encode()


def stored_mark(connection: sqlite3.Connection) -> Mark:
    """The mark in the file itself; with a new name and no checksum where it holds none."""
    revision, data = connection.execute(
        "SELECT revision, data FROM objects WHERE resource = 0 AND name = 'revision'"
    ).fetchone() or (1, None)
    store, _, total = (
        data.decode("ascii", "replace").partition(" ") if isinstance(data, bytes) else ("", "", "")
    )
    try:
        return Mark(store or uuid.uuid4().hex, int(revision), int(total or "0", 16))
    except ValueError:
        return Mark(store, 1, -1)


@dataclass
class Contents:
    """What was found in a file."""

    #: Where the store got to; a new store has revision 1.
    mark: Mark
    #: Numbers of resources in the file.
    resources: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    #: Whether the file has to be laid out first.
    new: bool = False
    #: Keys of objects that cannot be read: resource number, namespace, name.
    unreadable: list[tuple[int, str, str]] = field(default_factory=list)


def lay_out(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty file, in the open transaction."""
    for statement in _SCHEMA:
        connection.execute(statement)


class Inspection:
    """Looks at the files of a store. `accept_loss` takes what is there where something is missing."""

    def __init__(self, path: Path, mark_path: Path, files: Files, accept_loss: bool) -> None:
        self._path = path
        self._mark_path = mark_path
        self._files = files
        self._accept_loss = accept_loss
        #: What is missing or damaged, and was accepted.
        self.losses: list[str] = []

    def look(self) -> Contents:
        """Raises StoreError with what is wrong and what to do, sqlite3.DatabaseError for a damaged file."""
        mark = self._mark()
        if self._path.exists() and self._path.stat().st_size:
            contents = self._contents(mark)
        else:
            contents = self._nothing(mark)
        if mark is not None and mark.revision > contents.mark.revision:
            # Revisions are never given out twice.
            contents.mark = contents.mark._replace(revision=mark.revision)
        return contents

    def _lost(self, what: str, advice: str = "restore a backup") -> None:
        if not self._accept_loss:
            raise StoreError(f"{what}; {advice}, or accept the loss with --accept-data-loss")
        self.losses.append(what)

    def _mark(self) -> Mark | None:
        try:
            return marks.read(self._mark_path)
        except ValueError as error:
            self._lost(
                f"{self._mark_path} is damaged: {error}; whether {self._path} has all acknowledged writes "
                "cannot be checked"
            )
            return None

    def _nothing(self, mark: Mark | None) -> Contents:
        what = "is empty" if self._path.exists() else "is missing"
        log = Path(f"{self._path}-wal")
        if mark is not None and mark.revision > 1:
            self._lost(
                f"{self._path} {what}, but {self._mark_path} records acknowledged writes up to revision "
                f"{mark.revision}"
            )
        elif log.exists() and log.stat().st_size:
            self._lost(f"{self._path} {what}, but its log {log} is not")
        return Contents(Mark(uuid.uuid4().hex, 1, 0), new=True)

    def _contents(self, mark: Mark | None) -> Contents:
        if Path(f"{self._path}-journal").exists():
            # The process ended while the file was made: only a writer takes that back.
            connection = self._files.connect(self._path)
            try:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            finally:
                connection.close()
        connection = self._files.connect(self._path, read_only=True)
        try:
            version = self._check(connection)
            if not version:
                if mark is not None and mark.revision > 1:
                    self._lost(
                        f"{self._path} holds no objects, but {self._mark_path} records acknowledged writes "
                        f"up to revision {mark.revision}"
                    )
                return Contents(Mark(uuid.uuid4().hex, 1, 0), new=True)
            contents = self._read(connection)
            if version > 1:
                self._compare(contents, connection, mark)
            return contents
        finally:
            connection.close()

    def _check(self, connection: sqlite3.Connection) -> int:
        """The format of a file that is whole, 0 of one without tables."""
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        written: int = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and application != APPLICATION_ID:
            raise StoreError(
                f"{self._path} is an SQLite file, but not a pykueue store; choose another data directory"
            )
        if written > FORMAT:
            raise StoreError(
                f"{self._path} has format {written}, this version reads formats up to {FORMAT}; use the "
                "version that wrote it, or a newer one"
            )
        damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(" ".join(damage.split()))
        return written if tables else 0

    def _read(self, connection: sqlite3.Connection) -> Contents:
        contents = Contents(stored_mark(connection)._replace(checksum=0))
        names = {}
        for number, name in connection.execute("SELECT id, name FROM resources"):
            names[number] = name
            contents.resources[name] = number
        found = connection.execute("SELECT * FROM objects WHERE resource != 0 AND data IS NOT NULL")
        contents.rows = list(_rows(found, names, contents))
        total = sum(checksum(*row[:4], row[4] or b"") for row in contents.rows) % MODULUS
        contents.mark = contents.mark._replace(checksum=total)
        return contents

    def _compare(self, contents: Contents, connection: sqlite3.Connection, mark: Mark | None) -> None:
        """Hold what was read against what was written."""
        found, before = contents.mark, len(self.losses)
        if stored_mark(connection) != found or contents.unreadable:
            self._lost(
                f"{self._path} is damaged: the checksum of its objects is not the one that was written with "
                "them"
            )
        if mark is None:
            if len(self.losses) == before and not self._mark_path.exists():
                self._lost(
                    f"{self._mark_path} is missing: whether {self._path} has all acknowledged writes cannot "
                    "be checked",
                    "put it back",
                )
        elif mark.store != found.store:
            self._lost(
                f"{self._path} is of another store than {self._mark_path}", "put back the one that is missing"
            )
        elif found.revision < mark.revision:
            self._lost(
                f"{self._path} ends at revision {found.revision}, but writes up to revision {mark.revision} "
                f"were acknowledged: {self._path}-wal is missing or damaged, or an older copy of "
                f"{self._path} was put in its place"
            )
        elif found.revision == mark.revision and found.checksum != mark.checksum and not self.losses:
            self._lost(f"{self._path} is another copy of the store than {self._mark_path} is of")
        if self.losses:
            self._leave_out_unreadable(contents)

    def _leave_out_unreadable(self, contents: Contents) -> None:
        kept = []
        for row in contents.rows:
            if _readable(row[4]):
                kept.append(row)
            else:
                contents.unreadable.append((contents.resources[row[0]], row[1], row[2]))
                self.losses.append(f"{row[0]} {row[1]}/{row[2]} cannot be read and is left out")
        contents.rows = kept
        total = sum(checksum(*row[:4], row[4] or b"") for row in kept) % MODULUS
        contents.mark = contents.mark._replace(checksum=total)


def _rows(found: sqlite3.Cursor, names: dict[int, str], contents: Contents) -> Iterator[Row]:
    for resource, namespace, name, revision, data in found:
        if resource in names and isinstance(data, bytes) and isinstance(name, str):
            yield names[resource], namespace, name, revision, data
        else:
            contents.unreadable.append((resource, namespace, name))


def _readable(data: bytes | None) -> bool:
    try:
        return isinstance(orjson.loads(data or b""), dict)
    except orjson.JSONDecodeError:
        return False
