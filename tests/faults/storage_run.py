"""One run by seed: a store that is written to while its disk fails, ends at any moment, and starts again."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections import Counter
from pathlib import Path

from faulty_store import VirtualExecutor
from storage_disk import Disk

from pykueue.clock import Clock, run_virtual
from pykueue.embedded.store.memory import StoreError
from pykueue.embedded.store.sqlite import SqliteStore

#: What an object may be after a restart: its values, None for absent.
States = set[str | None]


class Run:
    """What clients know of the store, and what must follow from it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.disk = Disk(self.rng)
        self.seen: Counter[str] = Counter()
        self._states: dict[str, States] = {}
        self._highest = 1
        #: Refused while the disk cannot tell whether a sync took place.
        self._unsure: list[tuple[str, str | None]] = []
        self._number = 0

    async def play(self, _: Clock) -> None:
        """Raises AssertionError with what does not hold."""
        for _life in range(self.rng.randint(2, 4)):
            store = await self._open()
            if store is None:
                continue
            self._check(store)
            self.disk.rate = self.rng.choice((0.0, 0.0, 0.02, 0.2))
            if self.rng.random() < 0.7:
                self.disk.steps_left = self.rng.randint(0, 120)
            await asyncio.gather(*(self._write(store, writer) for writer in range(3)))
            await self._close(store)
        store = await self._open(sound=True)
        assert store is not None
        self._check(store)
        await store.close()

    def _store(self) -> SqliteStore:
        return SqliteStore(self.folder / "s.db", executor=VirtualExecutor(), files=self.disk)

    async def _open(self, sound: bool = False) -> SqliteStore | None:
        """None when the disk failed meanwhile: the next life begins."""
        if not sound and self.rng.random() < 0.2:
            self.disk.rate, self.disk.steps_left = self.rng.choice((0.0, 0.3)), self.rng.randint(0, 30)
        store = self._store()
        try:
            await store.open()
        except (StoreError, OSError) as error:
            must(bool(self.disk.faults) and not sound, f"a sound store is refused: {error}")
            must("acknowledged" not in str(error), f"nothing is missing: {error}")
            must("damaged" not in str(error), f"nothing is damaged: {error}")
            self.seen["open failed"] += 1
            self.disk.end(power_loss=self.rng.random() < 0.5)
            self.disk.faults = 0
            return None
        return store

    async def _write(self, store: SqliteStore, writer: int) -> None:
        table = store.table("/things")
        for _ in range(self.rng.randint(1, 12)):
            name = f"{writer}-{self.rng.randrange(4)}"
            before = table.get(("ns", name))
            self._number += 1
            value: str | None = f"{self._number}" + "x" * self.rng.choice((0, 10, 3000, 20_000))
            if before is not None and self.rng.random() < 0.3:
                value, record = None, store.remove(table, ("ns", name))
            else:
                record = store.put(table, ("ns", name), {"metadata": {"name": name}, "value": value})
            try:
                await store.settled(record.revision)
            except StoreError:
                self.seen["refused"] += 1
                after = table.get(("ns", name))
                assert after is before, f"{name}: a refused write had an effect"
                if self.disk.stopped:
                    self._may_be(name, value)
                elif self.disk.unsure:
                    self._unsure.append((name, value))
                if self.disk.stopped:
                    return
                continue
            if self.disk.stopped:  # stored, but the process had no time to answer
                self._may_be(name, value)
                return
            self.seen["acknowledged"] += 1
            self._unsure.clear()
            self._states[name] = {value}
            self._highest = max(self._highest, record.revision)

    def _may_be(self, name: str, value: str | None) -> None:
        self._states.setdefault(name, {None}).add(value)

    async def _close(self, store: SqliteStore) -> None:
        if self.disk.unsure or self.disk.stopped:
            for name, value in self._unsure:
                self._may_be(name, value)
        self._unsure.clear()
        if self.disk.stopped or self.rng.random() < 0.5:
            power_loss = self.rng.random() < 0.5
            self.seen["power loss" if power_loss else "killed"] += 1
            self.disk.end(power_loss)
            await store.close()
        else:
            power_loss = False
            self.disk.rate, self.disk.steps_left = 0.0, None
            self.seen["closed"] += 1
            await store.close()
            self.disk.end(power_loss=False)
        self.disk.faults = 0
        if not power_loss and not self.disk.mark_stale and self.rng.random() < 0.4:
            await self._damage()

    async def _damage(self) -> None:
        """What is damaged is noticed, or all that was acknowledged is there."""
        kept = self.folder / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        for file in self.folder.glob("s.db*"):
            shutil.copy(file, kept)
        what = self.disk.damage(self.folder)
        store = self._store()
        try:
            await store.open()
        except StoreError as error:
            must("\n" not in str(error), f"more than one line: {error}")
            must(str(self.folder / "s.db") in str(error), f"{what}: no file is named: {error}")
            self.seen["damage noticed"] += 1
        else:
            self.seen["damage harmless"] += 1
            states = dict(self._states)
            try:
                self._check(store)
            except AssertionError as error:
                raise AssertionError(f"{what} went unnoticed: {error}") from error
            self._states = states
        self.disk.end(power_loss=False)
        await store.close()
        for file in self.folder.glob("s.db*"):
            file.unlink()
        for file in kept.iterdir():
            shutil.copy(file, self.folder)

    def _check(self, store: SqliteStore) -> None:
        """Hold what is there against what clients were answered."""
        assert store.revision >= self._highest, "a revision is given out twice"
        found = {record.key[1]: record.object["value"] for record in store.table("/things")}
        for name in self._states.keys() | found.keys():
            allowed, value = self._states.get(name, {None}), found.get(name)
            assert value in allowed, f"{name}: found {_short(value)}, not {[_short(one) for one in allowed]}"
            self._states[name] = {value}


def must(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def _short(value: str | None) -> str | None:
    return value and value.rstrip("x")


def play(seed: int, folder: Path) -> Counter[str]:
    """Play one run in an empty folder; what happened in it. AssertionError names the seed."""
    logging.getLogger("pykueue.embedded.store").setLevel(logging.CRITICAL)
    run = Run(seed, folder)
    try:
        run_virtual(run.play)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return run.seen
