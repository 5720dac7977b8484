"""The order in which connections are accepted and served, and what becomes of those that clients close."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvloop
from front_harness import Stage, listening

from pykueue.embedded.apiserver.http import accepting
from pykueue.embedded.apiserver.http.connection import WAITING_REQUESTS, Connection, Request

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Wire:
    """A transport whose other side is the test."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.ours, self.theirs = socket.socketpair()
        self.reading, self.closing = True, False
        connection.connection_made(self)

    def get_extra_info(self, name: str) -> Any:
        return self.ours if name == "socket" else None

    def write(self, _data: bytes) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    close = abort


class Served:
    """A handler that notes whose requests it answers; those of `slow` connections wait until `release`."""

    def __init__(self) -> None:
        self.order: list[Connection] = []
        self.slow: set[Connection] = set()
        self.release = asyncio.Event()
        self.cancelled: list[Connection] = []
        self.open: set[Connection] = set()
        self.held = 0
        self.wires: list[Wire] = []

    def opened(self, connection: Connection) -> bool:
        self.open.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        self.open.discard(connection)

    def identify(self, _request: Request, _connection: Connection) -> None:
        return None

    def hold(self, heads: int, bodies: int) -> bool:
        self.held += heads + bodies
        return True

    def date_field(self) -> bytes:
        return b""

    async def handle(self, _request: Request, connection: Connection) -> None:
        self.order.append(connection)
        if connection in self.slow:
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.append(connection)
                raise
        connection.answer(200, b"", b"")


async def turns(count: int) -> None:
    """Let the loop go round so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


def served(story: Callable[[Served], Awaitable[None]]) -> None:
    """Tell a story of connections that a handler serves."""

    async def main() -> None:
        handler = Served()
        try:
            await story(handler)
        finally:
            for wire in handler.wires:
                wire.ours.close()
                wire.theirs.close()

    uvloop.run(main())


def connected(handler: Served) -> tuple[Connection, Wire]:
    connection = Connection(handler)
    handler.wires.append(Wire(connection))
    return connection, handler.wires[-1]


def test_connections_that_always_have_a_next_request_are_served_in_turn() -> None:
    async def story(handler: Served) -> None:
        many = [connected(handler)[0] for _ in range(5)]
        for connection in many:
            connection.data_received(GET * WAITING_REQUESTS)
        await turns(5 * WAITING_REQUESTS)
        assert handler.order == many * WAITING_REQUESTS

    served(story)


def test_a_new_request_is_overtaken_at_most_once_by_each_connection() -> None:
    async def story(handler: Served) -> None:
        many = [connected(handler)[0] for _ in range(5)]
        for connection in many:
            connection.data_received(GET * WAITING_REQUESTS)
        await turns(3)
        late, _ = connected(handler)
        before = len(handler.order)
        late.data_received(GET)
        await turns(3)
        assert handler.order.index(late) - before <= len(many)

    served(story)


def test_a_request_is_cancelled_when_its_client_closes() -> None:
    async def story(handler: Served) -> None:
        slow, _ = connected(handler)
        handler.slow.add(slow)
        body = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
        slow.data_received(body * 3)
        await turns(2)
        assert (handler.order, handler.held) == ([slow], 300)
        slow.connection_lost(None)
        await turns(3)
        assert handler.cancelled == [slow]
        assert (handler.open, handler.held) == (set(), 0)
        assert handler.order == [slow]

    served(story)


def test_a_client_that_closes_while_nothing_is_read_from_it_is_noticed() -> None:
    async def story(handler: Served) -> None:
        pairs = [connected(handler) for _ in range(2)]
        for connection, wire in pairs:
            handler.slow.add(connection)
            connection.data_received(GET * (WAITING_REQUESTS + 2))
            assert not wire.reading
        await turns(2)
        (closed, gone), (kept, _) = pairs
        gone.theirs.sendall(GET)  # what is not read hides the end of the connection
        gone.theirs.close()
        now = asyncio.get_running_loop().time()
        for connection in (closed, kept):
            connection.check(now)
        await turns(3)
        assert handler.open == {kept}
        assert handler.cancelled == [closed]
        handler.release.set()
        await turns(2 * WAITING_REQUESTS)
        assert handler.order.count(kept) == WAITING_REQUESTS + 2
        assert pairs[1][1].reading

    served(story)


def clients(stage: Stage, count: int) -> list[socket.socket]:
    """Connections that the kernel has made and the server has not accepted yet."""
    address = (stage.address.host, stage.address.port)
    return [socket.create_connection(address) for _ in range(count)]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports of the clients with whom a TLS handshake begins, in order."""
    ports: list[int] = []

    async def note(_self: accepting.Acceptor, accepted: socket.socket) -> None:
        ports.append(accepted.getpeername()[1])
        accepted.close()

    monkeypatch.setattr(accepting.Acceptor, "_shake", note)
    return ports


def test_all_connections_that_wait_are_accepted_at_once_and_begun_in_order(
    tmp_path: Path, begun: list[int]
) -> None:
    async def story(stage: Stage) -> None:
        waiting = clients(stage, 3 * accepting.BEGUN_TOGETHER)
        counts = [len(begun)]
        for _ in range(8):
            await asyncio.sleep(0)
            counts.append(len(begun))
        assert begun == [one.getsockname()[1] for one in waiting]
        steps = [after - before for before, after in pairwise(counts)]
        assert max(steps) <= accepting.BEGUN_TOGETHER
        for one in waiting:
            one.close()

    listening(tmp_path, story, uvloop.run)


def test_no_handshake_begins_with_clients_that_have_closed(tmp_path: Path, begun: list[int]) -> None:
    async def story(stage: Stage) -> None:
        waiting = clients(stage, 20)
        for one in waiting[::2]:
            one.close()
        await turns(8)
        assert begun == [one.getsockname()[1] for one in waiting[1::2]]
        for one in waiting[1::2]:
            one.close()

    listening(tmp_path, story, uvloop.run)


def test_accepting_is_retried_when_no_file_descriptor_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "_RETRY", 0.0)
    refusals = [OSError(24, "Too many open files")] * 2
    accept = socket.socket.accept

    def refusing(listener: socket.socket) -> tuple[socket.socket, Any]:
        if refusals:
            raise refusals.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", refusing)

    async def story(stage: Stage) -> None:
        assert (await (await stage.peer()).ask("GET", "/readyz")).code == 200
        assert not refusals

    listening(tmp_path, story, uvloop.run)
