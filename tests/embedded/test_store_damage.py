"""A data folder that lacks what was acknowledged: noticed at the start, named, and used only on demand."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from pykueue.embedded.store.files import Files
from pykueue.embedded.store.marks import SECTOR
from pykueue.embedded.store.memory import StoreError
from pykueue.embedded.store.sqlite import SqliteStore

COUNT = 200


async def put(store: SqliteStore, number: int) -> None:
    obj = {"metadata": {"name": f"t{number}"}, "value": number}
    await store.settled(store.put(store.table("/things"), ("ns", f"t{number}"), obj).revision)


async def opened(path: Path, accept_loss: bool = False, files: Files | None = None) -> SqliteStore:
    store = SqliteStore(path, accept_loss=accept_loss, files=files)
    await store.open()
    return store


def killed(folder: Path) -> Path:
    """The files of a store whose process was killed after the last of `COUNT` writes."""
    running, folder = folder / "running", folder / "killed"
    folder.mkdir()

    async def main() -> None:
        store = await opened(running / "s.db")
        for number in range(COUNT):
            await put(store, number)
        for file in running.glob("s.db*"):
            shutil.copy(file, folder)
        await store.close()

    asyncio.run(main())
    assert (folder / "s.db-wal").stat().st_size > 100_000
    (folder / "s.db-shm").unlink()
    return folder / "s.db"


def stopped(folder: Path) -> Path:
    """The files of a store that was closed after the last of `COUNT` writes."""
    killed(folder)
    return folder / "running" / "s.db"


def files(path: Path) -> dict[str, bytes]:
    found = path.parent.glob(f"{path.name}*")
    return {file.name: file.read_bytes() for file in found if not file.name.endswith("-shm")}


def log(path: Path) -> Path:
    return Path(f"{path}-wal")


def mark(path: Path) -> Path:
    return Path(f"{path}.mark")


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


def missing_file(path: Path) -> None:
    path.unlink()


def only_an_empty_file(path: Path) -> None:
    path.write_bytes(b"")
    mark(path).unlink()


def empty_log(path: Path) -> None:
    log(path).write_bytes(b"")


def missing_log(path: Path) -> None:
    log(path).unlink()


def garbage_log(path: Path) -> None:
    log(path).write_bytes(b"garbage!" * 5000)


def half_log(path: Path) -> None:
    data = log(path).read_bytes()
    log(path).write_bytes(data[: len(data) // 2])


def flipped_bit_in_the_log(path: Path) -> None:
    data = bytearray(log(path).read_bytes())
    data[len(data) // 3] ^= 1
    log(path).write_bytes(data)


def half_file(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flipped_bit_in_an_object(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.rindex(b'"value":17}')
    data[at + 2] ^= 1
    path.write_bytes(data)


def missing_object(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM objects WHERE name = 't17'")
    connection.commit()
    connection.close()


def missing_mark(path: Path) -> None:
    mark(path).unlink()


def garbage_mark(path: Path) -> None:
    mark(path).write_bytes(b"garbage!" * 128)


def file_of_another_store(path: Path) -> None:
    async def main() -> None:
        store = await opened(path.parent / "other.db")
        for number in range(2 * COUNT):
            await put(store, number)
        await store.close()

    asyncio.run(main())
    (path.parent / "other.db").replace(path)


LAST = COUNT + 1


@pytest.mark.parametrize(
    ("state", "damage", "text"),
    [
        (killed, empty_file, f"s.db is empty, but .*s.db.mark records acknowledged .* revision {LAST}"),
        (killed, missing_file, f"s.db is missing, but .*s.db.mark records acknowledged .* revision {LAST}"),
        (killed, only_an_empty_file, "s.db is empty, but its log .*s.db-wal is not"),
        (killed, empty_log, "s.db holds no objects, but .*s.db.mark|s.db ends at revision"),
        (killed, missing_log, "s.db holds no objects, but .*s.db.mark|s.db ends at revision"),
        (killed, garbage_log, "s.db holds no objects, but .*s.db.mark|s.db ends at revision"),
        (killed, half_log, f"s.db ends at revision .*, but writes up to revision {LAST} were acknowledged"),
        (killed, flipped_bit_in_the_log, "s.db ends at revision .*s.db-wal is missing or damaged"),
        (killed, missing_mark, "s.db.mark is missing"),
        (stopped, empty_file, "s.db is empty, but"),
        (stopped, missing_file, "s.db is missing, but"),
        (stopped, flipped_bit_in_an_object, "s.db is damaged: the checksum of its objects"),
        (stopped, missing_object, "s.db is damaged: the checksum of its objects"),
        (stopped, missing_mark, "s.db.mark is missing"),
        (stopped, garbage_mark, "s.db.mark is damaged: it holds no whole record"),
        (stopped, file_of_another_store, "s.db is of another store than .*s.db.mark"),
    ],
)
def test_store_that_lacks_acknowledged_writes_opens_only_on_demand(
    tmp_path: Path, state: Callable[[Path], Path], damage: Callable[[Path], None], text: str
) -> None:
    path = state(tmp_path)
    damage(path)
    before = files(path)

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(StoreError, match=text) as refusal:
                await opened(path)
            assert "\n" not in str(refusal.value)
            assert "--accept-data-loss" in str(refusal.value)
        # Looking may leave an empty log and lock.
        assert {name: data for name, data in files(path).items() if name in before or data} == before
        store = await opened(path, accept_loss=True)
        if mark(path).name in before:
            assert store.revision >= LAST, "a revision is given out twice"
        await put(store, 1000)
        await store.close()
        store = await opened(path)
        assert store.table("/things").get(("ns", "t1000")) is not None
        await store.close()

    asyncio.run(main())


def test_half_a_file_is_damaged(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    half_file(path)
    with pytest.raises(StoreError, match=r"cannot be read: .* It is damaged"):
        asyncio.run(opened(path))


@pytest.mark.parametrize("state", [killed, stopped])
def test_torn_mark_is_no_damage(tmp_path: Path, state: Callable[[Path], Path]) -> None:
    path = state(tmp_path)
    data = mark(path).read_bytes()
    for at in (0, SECTOR):
        mark(path).write_bytes(data[: at + 5] + b"?" * 20 + data[at + 25 :])

        async def main() -> None:
            store = await opened(path)
            assert store.revision == LAST
            await store.close()

        asyncio.run(main())
        data = mark(path).read_bytes()


def test_object_that_cannot_be_read_is_left_out_on_demand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = stopped(tmp_path)
    data = bytearray(path.read_bytes())
    at = data.rindex(b'"value":17}')
    data[at + 10] = ord("x")
    path.write_bytes(data)

    async def main() -> None:
        with pytest.raises(StoreError, match="checksum"):
            await opened(path)
        store = await opened(path, accept_loss=True)
        table = store.table("/things")
        assert table.count == COUNT - 1
        assert table.get(("ns", "t17")) is None
        await store.close()
        store = await opened(path)
        assert store.table("/things").count == COUNT - 1
        await store.close()

    asyncio.run(main())
    assert "/things ns/t17 cannot be read and is left out" in caplog.text


def test_store_of_the_format_before_is_taken_over(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE objects SET data = NULL WHERE resource = 0")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    mark(path).unlink()

    async def main() -> None:
        store = await opened(path)
        assert store.revision == LAST
        assert store.table("/things").count == COUNT
        await store.close()
        missing_mark(path)
        with pytest.raises(StoreError, match="mark is missing"):
            await opened(path)

    asyncio.run(main())


class SmallDisk(Files):
    def free(self, directory: Path) -> int:
        return 200 * 1024


def test_new_store_on_a_full_disk_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with pytest.raises(StoreError) as refusal:
        asyncio.run(opened(path, files=SmallDisk()))
    assert str(refusal.value) == (
        f"{path} cannot be created: 200 KiB are free on its disk, a new cluster needs 32 MiB"
    )
    assert not path.exists()
    assert not mark(path).exists()


def test_existing_store_opens_on_a_full_disk(tmp_path: Path) -> None:
    path = stopped(tmp_path)

    async def main() -> None:
        store = await opened(path, files=SmallDisk())
        assert store.table("/things").count == COUNT
        await store.close()

    asyncio.run(main())


class FullDisk(SmallDisk):
    def connect(self, path: Path, *, read_only: bool = False) -> sqlite3.Connection:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error


def test_disk_that_is_full_is_not_called_damage(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    with pytest.raises(StoreError) as refusal:
        asyncio.run(opened(path, files=FullDisk()))
    assert str(refusal.value) == (
        f"{path} cannot be opened: database or disk is full; 200 KiB are free on its disk"
    )


def test_a_damaged_table_definition_is_reported_in_one_line(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    data = path.read_bytes()
    at = data.index(b" revision INTEGER")
    path.write_bytes(data[:at] + b'"' + data[at + 1 :])
    with pytest.raises(StoreError, match="damaged or not a pykueue store") as caught:
        asyncio.run(opened(path))
    assert "\n" not in str(caught.value)
