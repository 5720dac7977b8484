"""HTTP/2: what HTTP/1.1 has, on streams; and no stream delays the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop
from apiserver_harness import CONFIG_MAPS, config_map
from front_harness import Stage, listening
from http2_harness import DATA, HEADERS, frames, http2_peer

from pykueue.embedded.apiserver.http import front as fronts
from pykueue.embedded.apiserver.http import multiplexed
from pykueue.embedded.apiserver.http.connection import BODY_TIME, HEAD_LIMIT, IDLE_TIME, PIECE, WRITE_TIME
from pykueue.embedded.apiserver.http.multiplexed import MultiplexedConnection
from pykueue.embedded.apiserver.http.negotiation import BODY_LIMIT
from pykueue.embedded.apiserver.registry.call import Call
from pykueue.embedded.store.memory import MemoryStore
from pykueue.embedded.store.sqlite import SqliteStore

NO_ERROR = 0


def large(name: str, size: int = 100_000) -> dict[str, object]:
    return {**config_map(name), "data": {"text": "x" * size}}


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def nothing_held(stage: Stage) -> None:
    """Wait until the server holds nothing of any request, and has no open stream."""
    front = stage.server._listeners[0]._front
    assert front is not None
    await until(lambda: (front._heads, front._bodies, front._in_flight) == (0, 0, 0))
    for connection in stage.connections:
        assert isinstance(connection, MultiplexedConnection)
        await until(lambda one=connection: not one._streams)  # type: ignore[misc]
        assert (connection._bodies, connection._answers) == (0, 0)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_requests_and_a_watch_share_a_connection(tmp_path: Path, run: Callable[..., None]) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        watch = peer.request("GET", f"{CONFIG_MAPS}?watch=true")
        streams = [peer.request("POST", CONFIG_MAPS, config_map(f"a-{n}")) for n in range(40)]
        assert {(await peer.answered(stream)).code for stream in streams} == {201}
        while peer.bodies[watch].count(b"\n") < 40:
            await peer.read()
        events = [orjson.loads(line) for line in bytes(peer.bodies[watch]).splitlines()]
        assert {event["object"]["metadata"]["name"] for event in events} == {f"a-{n}" for n in range(40)}
        found = await peer.ask("GET", f"{CONFIG_MAPS}/a-3")
        assert (found.code, found.headers["content-type"]) == (200, "application/json")
        head = await peer.ask("HEAD", "/healthz")
        assert (head.code, head.body, head.headers["content-length"]) == (200, b"", "2")
        refused = await peer.ask("GET", f"{CONFIG_MAPS}/none")
        assert (refused.code, refused.message) == (404, 'configmaps "none" not found')
        peer.reset(watch)
        await nothing_held(stage)
        assert len(stage.connections) == 1

    listening(tmp_path, story, run)


class Recorded:
    """A transport that notes what is written."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@pytest.mark.parametrize("durable", [False, True])
def test_an_answer_and_the_event_of_its_write_leave_together(tmp_path: Path, durable: bool) -> None:
    def store() -> MemoryStore:
        return SqliteStore(tmp_path / "state.db") if durable else MemoryStore()

    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        watch = peer.request("GET", f"{CONFIG_MAPS}?watch=true")
        while watch not in peer.heads:
            await peer.read()
        front = stage.server._listeners[0]._front
        assert front is not None
        (connection,) = stage.connections
        assert isinstance(connection, MultiplexedConnection)
        recorded = connection._transport = Recorded(connection._transport)
        for number in range(3):
            await until(lambda: not front._watches._rounds.resting)  # events leave at once
            recorded.written.clear()
            stream = peer.request("POST", CONFIG_MAPS, config_map(f"a-{number}"))
            assert (await peer.answered(stream)).code == 201
            while peer.bodies[watch].count(b"\n") <= number:
                await peer.read()
            (answer,) = (found for found in map(frames, recorded.written) if (HEADERS, stream) in found)
            assert (DATA, watch) in answer

    listening(tmp_path, story, store=store)


def test_watches_of_both_versions_see_the_same(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        first, second = await stage.peer(), await http2_peer(stage)
        await second.ask("POST", CONFIG_MAPS, config_map("a"))
        first.say(first.head("GET", f"{CONFIG_MAPS}?watch=true"))
        watch = second.request("GET", f"{CONFIG_MAPS}?watch=true")
        assert b"chunked" in await first.reader.readuntil(b"\r\n\r\n")
        chunks = [await first.chunk()]
        while b"\n" not in second.bodies[watch]:
            await second.read()
        await second.ask("POST", CONFIG_MAPS, config_map("b"))
        chunks.append(await first.chunk())
        while second.bodies[watch].count(b"\n") < 2:
            await second.read()
        assert bytes(second.bodies[watch]) == b"".join(chunks)

    listening(tmp_path, story)


def test_a_watch_that_is_not_read_delays_no_write_and_is_ended(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        watch = peer.request("GET", f"{CONFIG_MAPS}?watch=true")
        peer.unread.add(watch)
        for n in range(20):
            assert (await peer.ask("POST", CONFIG_MAPS, large(f"a-{n}"))).code == 201
        while len(peer.bodies[watch]) < 65_535:  # its window
            await peer.read()
        assert (await peer.ask("GET", "/healthz")).code == 200
        assert len(peer.bodies[watch]) == 65_535
        await stage.later(0)  # what it was sent is noted
        await stage.later(WRITE_TIME + 1)
        while watch not in peer.resets:
            await peer.read()
        assert (await peer.ask("GET", "/healthz")).code == 200
        await nothing_held(stage)

    listening(tmp_path, story)


def test_a_watch_goes_on_when_it_is_read_again(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        watch = peer.request("GET", f"{CONFIG_MAPS}?watch=true")
        peer.unread.add(watch)
        for n in range(5):
            await peer.ask("POST", CONFIG_MAPS, large(f"a-{n}"))
        while len(peer.bodies[watch]) < 65_535:
            await peer.read()
        await stage.later(0)
        peer.read_on(watch)
        while peer.bodies[watch].count(b"\n") < 5:
            await peer.read()
        await stage.later(WRITE_TIME + 1)
        assert (await peer.ask("GET", "/healthz")).code == 200
        assert watch not in peer.resets

    listening(tmp_path, story)


def test_a_watch_too_far_behind_is_ended_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykueue.embedded.apiserver.watch.delivery.BACKLOG", 300_000)

    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        watch = peer.request("GET", f"{CONFIG_MAPS}?watch=true")
        peer.unread.add(watch)
        for n in range(6):
            assert (await peer.ask("POST", CONFIG_MAPS, large(f"a-{n}"))).code == 201
        while watch not in peer.resets:
            await peer.read()
        assert (await peer.ask("GET", f"{CONFIG_MAPS}/a-5")).code == 200

    listening(tmp_path, story)


def test_a_list_is_sent_as_the_client_reads_it(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        for n in range(4):
            await peer.ask("POST", CONFIG_MAPS, large(f"a-{n}", 700_000))
        stream = peer.request("GET", CONFIG_MAPS)
        peer.unread.add(stream)
        while len(peer.bodies[stream]) < 65_535:
            await peer.read()
        (connection,) = stage.connections
        assert isinstance(connection, MultiplexedConnection)
        assert connection.engine.queued_body_size() <= PIECE
        assert (await peer.ask("GET", f"{CONFIG_MAPS}/a-0")).code == 200
        peer.read_on(stream)
        found = await peer.answered(stream)
        assert [one["metadata"]["name"] for one in orjson.loads(found.body)["items"]] == [
            f"a-{n}" for n in range(4)
        ]
        await nothing_held(stage)

    listening(tmp_path, story)


def test_requests_wait_while_answers_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexed, "ANSWERS_HELD", 200_000)
    monkeypatch.setattr(multiplexed, "BEGUN_TOGETHER", 1)

    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        await peer.ask("POST", CONFIG_MAPS, large("a"))
        streams = [peer.request("GET", f"{CONFIG_MAPS}/a") for _ in range(30)]
        peer.unread.update(streams)
        (connection,) = stage.connections
        assert isinstance(connection, MultiplexedConnection)
        while sum(len(peer.bodies[stream]) for stream in streams) < 2 * 65_535:
            await peer.read()
        other = await http2_peer(stage)
        assert (await other.ask("GET", f"{CONFIG_MAPS}/a")).code == 200
        assert 0 < len(connection._ready) < 30
        for stream in streams:
            peer.read_on(stream)
        assert {(await peer.answered(stream)).code for stream in streams} == {200}

    listening(tmp_path, story)


class Gate:
    """Lets writes pass when it is opened; reads pass at once."""

    def __init__(self, stage: Stage) -> None:
        self._pass = stage.server.pipeline.handle
        self._opened = asyncio.Event()
        self.waiting = 0

    async def handle(self, call: Call) -> Any:
        if call.method != "GET":
            self.waiting += 1
            await self._opened.wait()
        return await self._pass(call)

    def open(self) -> None:
        self._opened.set()


@pytest.mark.interpreted
def test_writes_wait_for_one_another_but_not_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexed, "WRITES_UNDER_WAY", 3)

    async def story(stage: Stage) -> None:
        gate = Gate(stage)
        monkeypatch.setattr(stage.server.pipeline, "handle", gate.handle)
        peer = await http2_peer(stage)
        writes = [peer.request("POST", CONFIG_MAPS, config_map(f"a-{n}")) for n in range(10)]
        assert (await peer.ask("GET", CONFIG_MAPS)).code == 200
        assert gate.waiting == 3
        peer.reset(writes[0])  # its place is the next one's
        await until(lambda: gate.waiting == 4)
        gate.open()
        assert {(await peer.answered(write)).code for write in writes[1:]} == {201}
        await nothing_held(stage)

    listening(tmp_path, story)


@pytest.mark.interpreted
def test_a_user_with_many_requests_does_not_shut_out_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts, "IN_FLIGHT", 3)
    monkeypatch.setattr(fronts, "FEW_IN_FLIGHT", 1)

    async def story(stage: Stage) -> None:
        gate = Gate(stage)
        monkeypatch.setattr(stage.server.pipeline, "handle", gate.handle)
        many, other = await http2_peer(stage), await http2_peer(stage)
        held = [many.request("POST", CONFIG_MAPS, config_map(f"a-{n}")) for n in range(3)]
        await until(lambda: gate.waiting == 3)
        refused = await many.ask("GET", CONFIG_MAPS)
        assert (refused.code, refused.headers["retry-after"]) == (429, "1")
        user = (("impersonate-user", "other"), ("impersonate-group", "system:masters"))
        assert (await other.ask("GET", CONFIG_MAPS, None, *user)).code == 200
        gate.open()
        assert {(await many.answered(one)).code for one in held} == {201}
        assert (await many.ask("GET", CONFIG_MAPS)).code == 200

    listening(tmp_path, story)


def test_a_body_is_asked_for_when_the_client_waits_to_be_asked(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        stream = peer.request("POST", CONFIG_MAPS, None, ("expect", "100-continue"), unfinished=True)
        while stream not in peer.informational:
            await peer.read()
        peer.body(stream, orjson.dumps(config_map("a")), end=True)
        assert (await peer.answered(stream)).code == 201
        other = peer.request("POST", CONFIG_MAPS, config_map("b"), ("expect", "tea"))
        assert (await peer.answered(other)).code == 417

    listening(tmp_path, story)


def test_what_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """The answer comes at once, the client is asked to stop sending, and the connection stays."""

    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        declared = ("content-length", str(BODY_LIMIT + 1))
        for fields, code in (
            ((declared,), 413),
            ((("authorization", "Bearer wrong"),), 401),
            ((("x-long", "x" * (HEAD_LIMIT - 100)),), 431),
        ):
            stream = peer.request("POST", CONFIG_MAPS, None, *fields, unfinished=True)
            answer = await peer.answered(stream)
            assert answer.code == code
            while stream not in peer.resets:
                await peer.read()
            assert peer.resets[stream] == NO_ERROR
        stream = peer.request("POST", CONFIG_MAPS, b"x" * (BODY_LIMIT + 1), unfinished=True)
        assert (await peer.answered(stream)).code == 413
        assert (await peer.ask("GET", "/healthz")).code == 200
        await nothing_held(stage)

    listening(tmp_path, story)


def test_trailers_are_no_header_fields(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        stream = peer.request("POST", CONFIG_MAPS, config_map("a"), unfinished=True)
        peer.engine.send_trailers(stream, [(b"impersonate-user", b"other")])
        assert (await peer.answered(stream)).code == 201

    listening(tmp_path, story)


def test_slow_clients(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer, silent, half = await http2_peer(stage), await http2_peer(stage), await http2_peer(stage)
        stream = peer.request("POST", CONFIG_MAPS, b"{", unfinished=True)
        await peer.ask("GET", "/healthz")
        await silent.ask("GET", "/healthz")
        await half.ask("GET", "/healthz")
        half.raw(b"\0\1\0")
        await until(lambda: any(getattr(one, "_unread", 0) for one in stage.connections))
        await stage.later(BODY_TIME + 1)
        assert (await peer.answered(stream)).code == 408
        assert await half.closed()
        while stream not in peer.resets:
            await peer.read()
        await stage.later(IDLE_TIME + 1)
        while not silent.eof:
            await silent.read()
        assert silent.goaway == NO_ERROR

    listening(tmp_path, story)


def test_a_client_that_takes_its_request_back_ends_it(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        watches = [peer.request("GET", f"{CONFIG_MAPS}?watch=true") for _ in range(20)]
        upload = peer.request("POST", CONFIG_MAPS, b"x" * 1000, unfinished=True)
        await peer.ask("GET", "/healthz")
        for stream in (*watches, upload):
            peer.reset(stream)
        await nothing_held(stage)

    listening(tmp_path, story)


def test_a_connection_has_a_limited_number_of_streams(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        await peer.ask("GET", "/healthz")
        assert peer.engine.remote_settings[3] == multiplexed.STREAMS
        streams = [
            peer.request("GET", f"{CONFIG_MAPS}?watch=true&timeoutSeconds=600")
            for _ in range(multiplexed.STREAMS + 10)
        ]
        while len(peer.heads) < multiplexed.STREAMS + 1:
            await peer.read()
        for stream in streams[:20]:  # as the library has kept ten requests back, 240 remain
            peer.reset(stream)
        assert {(await peer.ask("GET", "/healthz")).code for _ in range(3)} == {200}

    listening(tmp_path, story)


def test_connections_of_an_address_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fronts, "ADDRESS_CONNECTIONS", 2)

    async def story(stage: Stage) -> None:
        peers = [await http2_peer(stage) for _ in range(3)]
        assert await peers[2].closed()
        assert (await peers[0].ask("GET", "/healthz")).code == 200

    listening(tmp_path, story)


def test_stopping_lets_requests_end(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        watch = peer.request("GET", f"{CONFIG_MAPS}?watch=true")
        await peer.ask("GET", "/healthz")
        closing = asyncio.create_task(stage.server.stop())
        while not peer.eof:
            await peer.read()
        assert watch in peer.ended
        assert peer.goaway == NO_ERROR
        await closing

    listening(tmp_path, story)
