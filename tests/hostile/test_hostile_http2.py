"""Hostile HTTP/2: floods end their own connection, random frames end nothing else, and nothing stays held."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import ngh2
import pytest
from apiserver_harness import CONFIG_MAPS
from front_harness import Stage, listening
from http2_harness import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    Http2Peer,
    frame,
    http2_peer,
)

from pykueue.embedded.apiserver.http.multiplexed import MultiplexedConnection

WINDOW_UPDATE, GOAWAY, PRIORITY = 8, 7, 2
#: `GET /healthz` with `https` and authority `x`: indexed fields of the static table and literals (RFC 7541).
GET = b"\x82\x87\x04\x08/healthz\x41\x01x"


def resets() -> Iterator[bytes]:
    """Requests taken back as soon as they are sent (CVE-2023-44487)."""
    for number in range(1, 8001, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, number, GET)
        yield frame(RESET, 0, number, (8).to_bytes(4))


def resets_by_the_server() -> Iterator[bytes]:
    """Requests that make the server reset them (CVE-2025-8671): a window of more than 2^31 - 1 bytes."""
    for number in range(1, 80_001, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, number, GET)
        yield frame(WINDOW_UPDATE, 0, number, (2**31 - 1).to_bytes(4))


def continuations() -> Iterator[bytes]:
    """A head that never ends (CVE-2024-27316)."""
    yield frame(HEADERS, END_STREAM, 1, GET)
    for _ in range(5000):
        yield frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b")


def empty_continuations() -> Iterator[bytes]:
    yield frame(HEADERS, END_STREAM, 1, GET)
    for _ in range(5000):
        yield frame(CONTINUATION, 0, 1)


def table_bomb() -> Iterator[bytes]:
    """One large field, stored in the table of the connection and then named thousands of times."""
    stored = b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000  # a length of 127 + 0x21 + 128 * 0x1e bytes
    yield frame(HEADERS, END_HEADERS | END_STREAM, 1, GET + stored)
    for number in range(3, 43, 2):
        yield frame(HEADERS, END_HEADERS | END_STREAM, number, GET + b"\xbe" * 16_000)


def large_settings() -> Iterator[bytes]:
    yield frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff" * 2000)


def garbage() -> Iterator[bytes]:
    yield b"\xff" * 1000


def window_overflow() -> Iterator[bytes]:
    for _ in range(3):
        yield frame(WINDOW_UPDATE, 0, 0, (2**31 - 1).to_bytes(4))


def data_without_request() -> Iterator[bytes]:
    for _ in range(200):
        yield frame(DATA, 0, 1, b"x" * 16_000)


def large_frame() -> Iterator[bytes]:
    yield frame(PING, 0, 0, b"x" * 1_000_000)


def dependent_on_itself() -> Iterator[bytes]:
    yield frame(PRIORITY, 0, 1, (1).to_bytes(4) + b"\0")
    yield frame(HEADERS, END_HEADERS | END_STREAM, 2, GET)  # an even number


async def newest(stage: Stage, count: int) -> MultiplexedConnection:
    """The connection without streams, once there are `count`."""
    async with asyncio.timeout(20):
        while len(stage.connections) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    (its,) = (one for one in stage.connections if isinstance(one, MultiplexedConnection) and not one._streams)
    return its


async def nothing_held(stage: Stage) -> None:
    front = stage.server._listeners[0]._front
    assert front is not None
    async with asyncio.timeout(20):
        while (front._heads, front._bodies, front._in_flight) != (0, 0, 0):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def send(peer: Http2Peer, pieces: Iterator[bytes]) -> None:
    """Send until the server does not take it any more; what it sends is read meanwhile."""

    async def drop() -> None:
        while await peer.reader.read(1 << 16):
            pass

    dropping = asyncio.create_task(drop())
    try:
        for number, piece in enumerate(pieces):
            peer.raw(piece)
            if number % 100 == 0:
                await peer.writer.drain()
        await asyncio.wait([dropping], timeout=20)
    except ConnectionError:
        pass
    finally:
        dropping.cancel()
        await asyncio.gather(dropping, return_exceptions=True)


@pytest.mark.parametrize(
    "attack",
    [
        resets,
        resets_by_the_server,
        continuations,
        empty_continuations,
        table_bomb,
        large_settings,
        garbage,
        window_overflow,
        data_without_request,
        large_frame,
        dependent_on_itself,
    ],
)
def test_a_flood_ends_its_own_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, attack: Callable[[], Iterator[bytes]]
) -> None:
    async def story(stage: Stage) -> None:
        other = await http2_peer(stage)
        watch = other.request("GET", f"{CONFIG_MAPS}?watch=true")
        await other.ask("GET", "/healthz")
        attacker = await http2_peer(stage, begin=False)
        its = await newest(stage, 2)
        attacker.raw(PREFACE + frame(SETTINGS, 0, 0))
        await send(attacker, attack())
        async with asyncio.timeout(20):
            await asyncio.shield(its.gone)
        assert (await other.ask("GET", "/healthz")).code == 200
        assert watch not in other.resets
        other.reset(watch)
        await nothing_held(stage)

    with caplog.at_level(logging.WARNING):
        listening(tmp_path, story)
    assert not caplog.records


@pytest.mark.parametrize(
    "one",
    [frame(PING, 0, 0, b"x" * 8), frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff")],
    ids=["pings", "settings"],
)
def test_acknowledgements_that_are_not_read_end_the_connection(tmp_path: Path, one: bytes) -> None:
    """What has to be acknowledged is not kept for a client that reads nothing."""

    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage)
        await peer.ask("GET", "/healthz")
        its = await newest(stage, 1)
        its.pause_writing()  # as when the client reads nothing
        peer.raw(one * 5000)
        async with asyncio.timeout(20):
            await asyncio.shield(its.gone)
        await nothing_held(stage)

    listening(tmp_path, story)


def test_streams_without_a_window_hold_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks much and lets nothing be sent: few of its requests are begun."""
    monkeypatch.setattr("pykueue.embedded.apiserver.http.multiplexed.ANSWERS_HELD", 100_000)

    async def story(stage: Stage) -> None:
        peer = await http2_peer(stage, {ngh2.Setting.INITIAL_WINDOW_SIZE: 0})
        its = await newest(stage, 1)
        streams = [peer.request("GET", "/openapi/v3/apis/batch/v1") for _ in range(200)]
        while not peer.heads:
            await peer.read()
        other = await http2_peer(stage)
        assert (await other.ask("GET", "/healthz")).code == 200
        size = int(next(iter(peer.heads.values()))["content-length"])
        assert its.engine.queued_body_size() <= 100_000 + 16 * size
        assert len(peer.heads) < len(streams)

    listening(tmp_path, story)


def random_frames(rng: random.Random) -> Iterator[bytes]:
    """Frames of all kinds, most of them with the right size, on a few streams."""
    kinds = (DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION, 16, 99)
    for number in range(300):
        kind = rng.choice(kinds)
        stream = rng.choice((0, 1, 3, 2 * number + 1, rng.randrange(1 << 31)))
        payload = {
            HEADERS: GET + rng.randbytes(rng.randrange(3)),
            PING: bytes(8),
            SETTINGS: rng.randbytes(6 * rng.randrange(3)),
            RESET: bytes(4),
            WINDOW_UPDATE: rng.randbytes(4),
            PRIORITY: rng.randbytes(5),
        }.get(kind, rng.randbytes(rng.randrange(50)))
        yield frame(kind, rng.choice((0, 1, 4, 5, 8, 0x2D, rng.randrange(256))), stream, payload)


def test_random_frames_leave_the_server_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        other = await http2_peer(stage)
        for seed in range(40):
            peer = await http2_peer(stage, begin=False)
            peer.raw(PREFACE + frame(SETTINGS, 0, 0) + b"".join(random_frames(random.Random(seed))))
            peer.writer.write_eof() if peer.writer.can_write_eof() else peer.writer.close()
        assert (await other.ask("GET", "/healthz")).code == 200
        async with asyncio.timeout(20):
            while len(stage.connections) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await nothing_held(stage)

    with caplog.at_level(logging.WARNING):
        listening(tmp_path, story)
    assert not caplog.records


def test_random_frames_cost_no_other_request(tmp_path: Path) -> None:
    """Frames one at a time, with requests on another connection in between."""

    async def story(stage: Stage) -> None:
        other = await http2_peer(stage)
        for seed in range(100, 105):
            peer = await http2_peer(stage, begin=False)
            peer.raw(PREFACE + frame(SETTINGS, 0, 0))
            for piece in random_frames(random.Random(seed)):
                peer.raw(piece)
            assert (await other.ask("GET", f"{CONFIG_MAPS}/none")).code == 404
            peer.writer.transport.abort()

    listening(tmp_path, story)
