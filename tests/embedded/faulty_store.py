"""A durable store in virtual time whose disk can be full."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from apiserver_harness import Api

from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.sqlite import SqliteStore

#: Virtual seconds a call takes.
_CALL = 0.001


class VirtualExecutor(Executor):
    """Runs each call in the loop's thread, a little later in virtual time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        asyncio.get_running_loop().call_later(_CALL, self._run, future, fn, args, kwargs)
        return future

    def _run(self, future: Future[Any], fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)


class Disk:
    """An SQLite connection that refuses statements of more than `room` bytes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.room: int | None = None

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        if self.room is not None and self.room < _size(values):
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(statement, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _size(values: Any) -> int:
    if len(values) == 1 and isinstance(values[0], int):  # zeroblob
        return values[0]
    return sum(len(one) for one in values if isinstance(one, bytes))


def with_disk(path: Path, story: Callable[[Api, Disk], Awaitable[None]]) -> None:
    """Tell a story against a fresh server on a disk, in virtual time."""

    async def main(clock: Clock) -> None:
        store = SqliteStore(path / "state.db", executor=VirtualExecutor())
        server = Server(store, clock, random.Random(1))
        await server.start()
        assert store._connection is not None
        disk = Disk(store._connection)
        store._connection = disk  # type: ignore[assignment]
        api = Api(server, clock)
        try:
            await story(api, disk)
        finally:
            disk.room = None
            await api.close()
            await server.stop()

    run_virtual(main)
