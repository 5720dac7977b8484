"""Bounds on what clients make the server hold: before authentication, in trailers, by many connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from apiserver_harness import CONFIG_MAPS, config_map
from front_harness import Peer, Stage, listening

from pykueue.embedded.apiserver.http import front as fronts
from pykueue.embedded.apiserver.http.connection import CHUNK_FRAME, FRAME_LIMIT

CHUNKED = "Transfer-Encoding: chunked"


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def without_token(peer: Peer, method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", *fields, "", "")).encode()


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def held(stage: Stage, heads: int, bodies: int) -> None:
    """Wait until the server holds this many bytes of heads and bodies."""
    (listener,) = stage.server._listeners
    front = listener._front
    assert front is not None
    await until(lambda: (front._heads, front._bodies) == (heads, bodies))


def test_a_body_is_refused_before_it_is_read_if_its_sender_is_unknown(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        for fields in ((CHUNKED,), ("Content-Length: 3000000",), (CHUNKED, "Authorization: Bearer wrong")):
            peer = await stage.peer()
            peer.say(without_token(peer, "POST", CONFIG_MAPS, *fields))
            answer = await peer.heard()
            assert answer.code == 401
            assert answer.headers["connection"] == "close"
        await held(stage, 0, 0)

    listening(tmp_path, story)


def test_a_token_in_a_trailer_does_not_count(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        body = chunks(orjson.dumps(config_map("a")))
        trailer = f"0\r\nAuthorization: Bearer {stage.address.token}\r\nImpersonate-User: x\r\n\r\n".encode()
        peer.say(without_token(peer, "POST", CONFIG_MAPS, CHUNKED) + body + trailer)
        assert (await peer.heard()).code == 401
        known = await stage.peer()
        known.say(known.head("POST", CONFIG_MAPS, CHUNKED) + body + trailer)
        assert (await known.heard()).code == 201  # as itself: impersonation by a trailer does not count

    listening(tmp_path, story)


@pytest.mark.parametrize("where", ["one trailer", "many trailers", "an extension"])
def test_trailers_and_extensions_are_bounded(tmp_path: Path, where: str) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        peer.say(peer.head("POST", CONFIG_MAPS, CHUNKED))
        size = 20 * FRAME_LIMIT
        match where:
            case "one trailer":
                peer.say(b"0\r\nX: " + b"x" * size)
            case "many trailers":
                peer.say(b"0\r\n" + b"X: xxxx\r\n" * (size // 8))
            case _:
                peer.say(b"1;" + b"x" * size)
        answer = await peer.heard()
        assert answer.code == 431
        assert "trailers" in answer.message

    listening(tmp_path, story)


def test_bodies_in_small_chunks_are_read(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        body = orjson.dumps(config_map("small", k="v" * (4 * FRAME_LIMIT // CHUNK_FRAME)))
        pieces = [body[at : at + 1] for at in range(len(body))]
        peer.say(peer.head("POST", CONFIG_MAPS, CHUNKED) + chunks(*pieces) + b"0\r\n\r\n")
        assert (await peer.heard()).code == 201

    listening(tmp_path, story)


def test_unfinished_requests_of_all_connections_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts, "HEADS_HELD", 100_000)
    monkeypatch.setattr(fronts, "BODIES_HELD", 1_000_000)

    async def story(stage: Stage) -> None:
        slow = [await stage.peer() for _ in range(3)]
        for peer in slow:
            peer.say(b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000)
        answers = [asyncio.ensure_future(peer.heard()) for peer in slow]
        done, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        assert [one.result().code for one in done] == [503]
        for one in waiting:
            one.cancel()
        for peer in slow:
            peer.writer.transport.abort()
        await held(stage, 0, 0)
        bodies = [await stage.peer() for _ in range(3)]
        for peer in bodies[:2]:
            peer.say(peer.head("POST", CONFIG_MAPS, "Content-Length: 500000") + b"x" * 450_000)
        await held(stage, 0, 900_000)
        bodies[2].say(bodies[2].head("POST", CONFIG_MAPS, "Content-Length: 500000") + b"x" * 450_000)
        refused = await bodies[2].heard()
        assert refused.code == 503
        assert refused.headers["retry-after"] == "1"
        assert (await (await stage.peer()).ask("GET", CONFIG_MAPS)).code == 200
        for peer in bodies:
            peer.writer.transport.abort()
        await held(stage, 0, 0)

    listening(tmp_path, story)


def test_connections_of_an_address_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fronts, "ADDRESS_CONNECTIONS", 3)

    async def story(stage: Stage) -> None:
        peers = [await stage.peer() for _ in range(3)]
        for peer in peers:
            assert (await peer.ask("GET", CONFIG_MAPS)).code == 200
        extra = await stage.peer()
        assert await extra.closed()
        peers[0].writer.transport.abort()
        await until(lambda: len(stage.connections) == 2)
        assert (await (await stage.peer()).ask("GET", CONFIG_MAPS)).code == 200

    listening(tmp_path, story)
