"""The durable store: what was acknowledged is there again, and files it cannot trust are refused."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pykueue.embedded.store.contents import APPLICATION_ID, FORMAT
from pykueue.embedded.store.memory import StoreError
from pykueue.embedded.store.sqlite import SqliteStore
from pykueue.embedded.store.table import HistoryGoneError

Story = Callable[[SqliteStore], Awaitable[Any]]


def with_store(path: Path, story: Story) -> Any:
    """Open the store, tell the story, close it."""

    async def main() -> Any:
        store = SqliteStore(path, hot_objects=4)
        await store.open()
        try:
            return await story(store)
        finally:
            await store.close()

    return asyncio.run(main())


def put(store: SqliteStore, name: str, value: int = 0) -> int:
    obj = {"metadata": {"name": name}, "value": value}
    return store.put(store.table("/things"), ("ns", name), obj).revision


def test_what_is_settled_is_there_after_opening_again(tmp_path: Path) -> None:
    async def write(store: SqliteStore) -> int:
        for number in range(50):
            put(store, f"t{number}", number)
        put(store, "t3", 333)
        last = store.remove(store.table("/things"), ("ns", "t4")).revision
        await store.settled(last)
        return last

    async def read(store: SqliteStore) -> tuple[int, dict[str, int]]:
        return store.revision, {one.key[1]: one.object["value"] for one in store.table("/things")}

    last = with_store(tmp_path / "s.db", write)
    revision, values = with_store(tmp_path / "s.db", read)
    assert revision == last
    assert values == {f"t{n}": 333 if n == 3 else n for n in range(50) if n != 4}


def test_objects_that_grew_cold_are_decoded_again(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        for number in range(20):
            put(store, f"t{number:02}", number)
        assert [one.object["value"] for one in store.table("/things").records()] == list(range(20))
        assert [one.peek()["value"] for one in store.table("/things").records("ns")] == list(range(20))

    with_store(tmp_path / "s.db", story)


def test_write_is_not_visible_before_it_is_durable(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        heard: list[int] = []
        table = store.table("/things")
        stop = table.subscribe(lambda batch: heard.extend(event.revision for event in batch.events))
        first = put(store, "a")
        assert store.settled_revision < first
        await store.settled(first)
        assert heard == [first]
        more = [put(store, name) for name in "bcdefghijklmnop"]
        await store.settled(more[-1])
        assert heard == [first, *more]
        assert [event.revision for event in table.since(first)] == more
        stop()

    with_store(tmp_path / "s.db", story)


def test_history_does_not_reach_over_a_restart(tmp_path: Path) -> None:
    async def write(store: SqliteStore) -> int:
        first = put(store, "a")
        await store.settled(put(store, "b"))
        return first

    async def read(store: SqliteStore) -> None:
        assert store.table("/things").since(store.revision) == []
        with pytest.raises(HistoryGoneError):
            store.table("/things").since(first)
        with pytest.raises(HistoryGoneError):
            store.table("/never-seen").since(first)

    first = with_store(tmp_path / "s.db", write)
    with_store(tmp_path / "s.db", read)


def test_write_that_the_disk_refuses_is_undone_and_returns_an_error(tmp_path: Path) -> None:
    async def story(store: SqliteStore) -> None:
        await store.settled(put(store, "kept", 1))
        connection = store._connection
        assert connection is not None
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        table = store.table("/things")
        obj = {"metadata": {"name": "big"}, "value": "x" * 1_000_000}
        record = store.put(table, ("ns", "big"), obj)
        put(store, "kept", 2)
        with pytest.raises(StoreError, match="durable"):
            await store.settled(record.revision)
        assert table.get(("ns", "big")) is None
        kept = table.get(("ns", "kept"))
        assert kept is not None
        assert kept.object["value"] == 1
        connection.execute("PRAGMA max_page_count = 1000000")
        await store.settled(put(store, "later", 3))

    with_store(tmp_path / "s.db", story)


def test_a_backup_is_a_store_of_its_own(tmp_path: Path) -> None:
    async def write(store: SqliteStore) -> None:
        await store.settled(put(store, "a", 1))
        await store.backup(tmp_path / "copy.db")
        await store.settled(put(store, "a", 2))
        with pytest.raises(FileExistsError):
            await store.backup(tmp_path / "copy.db")

    async def value(store: SqliteStore) -> Any:
        record = store.table("/things").get(("ns", "a"))
        return record.object["value"] if record else None

    with_store(tmp_path / "s.db", write)
    assert with_store(tmp_path / "copy.db", value) == 1
    assert with_store(tmp_path / "s.db", value) == 2
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


async def _nothing(_: SqliteStore) -> None: ...


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()


def _newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(
        f"CREATE TABLE x (y); PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT + 1};"
    )
    connection.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 100)


def _damaged(path: Path) -> None:
    async def fill(store: SqliteStore) -> None:
        await store.settled([put(store, f"t{n}", n) for n in range(500)][-1])

    with_store(path, fill)
    data = bytearray(path.read_bytes())
    data[8192:12288] = random.Random(1).randbytes(4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (_foreign, "not a pykueue store"),
        (_newer, f"has format {FORMAT + 1}, this version reads formats up to {FORMAT}"),
        (_garbage, "cannot be read"),
        (_damaged, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], text: str
) -> None:
    path = tmp_path / "s.db"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=text) as refusal:
        with_store(path, _nothing)
    assert str(path) in str(refusal.value)
    assert path.read_bytes() == before


def test_one_process_at_a_time(tmp_path: Path) -> None:
    async def story(_: SqliteStore) -> None:
        other = SqliteStore(tmp_path / "s.db")
        with pytest.raises(StoreError, match="in use by another process"):
            await other.open()

    with_store(tmp_path / "s.db", story)


_WRITER = """
import asyncio, sys
from pykueue.embedded.store.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    table = store.table("/things")
    print("open", store.revision, flush=True)

    async def write(worker):
        number = 0
        while True:
            number += 1
            name = f"w{worker}-{number % 7}"
            if number % 11 == 0 and table.get(("ns", name)) is not None:
                record = store.remove(table, ("ns", name))
                value = -1
            else:
                value = number
                record = store.put(table, ("ns", name), {"metadata": {"name": name}, "value": value})
            await store.settled(record.revision)
            print(record.revision, name, value, flush=True)

    await asyncio.gather(*(write(worker) for worker in range(8)))

asyncio.run(main())
"""


def _check(path: Path, acknowledged: dict[str, tuple[int, int]], highest: int) -> None:
    async def read(store: SqliteStore) -> None:
        assert store.revision >= highest
        for name, (revision, value) in acknowledged.items():
            record = store.table("/things").get(("ns", name))
            if record is None:
                # Removed: as acknowledged, or by a later write that was stored but not acknowledged.
                assert value == -1 or store.revision > revision
            else:
                assert record.revision >= revision
                assert record.revision > revision or record.object["value"] == value

    with_store(path, read)


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    rng = random.Random(5)
    acknowledged: dict[str, tuple[int, int]] = {}
    highest = 0
    for _ in range(int(os.environ.get("PYKUEUE_KILLS", "5"))):
        command = [sys.executable, "-c", _WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline().split()[1]) >= highest
            lines = [writer.stdout.readline() for _ in range(rng.randint(1, 400))]
            writer.send_signal(signal.SIGKILL)
            lines += writer.stdout.read().splitlines(keepends=True)
        if not lines[-1].endswith("\n"):
            lines.pop()  # the process was killed while it wrote the line: it acknowledged nothing
        for line in lines:
            revision, name, value = line.split()
            acknowledged[name] = (int(revision), int(value))
            highest = max(highest, int(revision))
        _check(path, acknowledged, highest)
