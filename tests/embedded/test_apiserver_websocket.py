"""Commands in containers over a WebSocket, with a client that sends exactly the given frames."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from apiserver_harness import PODS
from front_harness import Peer, Stage, listening

from pykueue.embedded.apiserver.handlers.exec import OUTPUT, Wanted
from pykueue.embedded.apiserver.http import front
from pykueue.kube.errors import ApiError

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
#: What RFC 6455 gives as the answer to that key.
ACCEPTED = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
EXEC = f"{PODS}/p/exec?command=echo&stdin=true"
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10


class Echo:
    """A command that echoes its input."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.size: tuple[int, int] | None = None
        self.killed = asyncio.Event()

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        while data := await self.said.get():
            yield OUTPUT, data

    async def write(self, data: bytes) -> None:
        self.said.put_nowait(data)

    def end_input(self) -> None:
        self.said.put_nowait(b"")

    def resize(self, width: int, height: int) -> None:
        self.size = width, height

    async def exit_code(self) -> int:
        return 3

    def kill(self) -> None:
        self.killed.set()


def frame(
    kind: int, data: bytes, *, final: bool = True, mask: bytes = b"\1\2\3\4", masked: bool = True
) -> bytes:
    head = bytes([(0x80 if final else 0) | kind])
    bit = 0x80 if masked else 0
    head += bytes([bit | len(data)]) if len(data) < 126 else bytes([bit | 127]) + struct.pack(">Q", len(data))
    if not masked:
        return head + data
    return head + mask + bytes(one ^ mask[place % 4] for place, one in enumerate(data))


async def heard(peer: Peer) -> tuple[int, bytes]:
    """The kind and the body of the server's next frame."""
    async with asyncio.timeout(20):
        first, size = await peer.reader.readexactly(2)
        if size == 126:
            size = int.from_bytes(await peer.reader.readexactly(2), "big")
        return first & 15, await peer.reader.readexactly(size)


def conversing(
    folder: Path, story: Callable[[Peer, Echo], Awaitable[None]], protocol: str = "v5.channel.k8s.io"
) -> None:
    async def begin(stage: Stage) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        assert (await (await stage.peer()).ask("POST", PODS, pod)).code == 201
        session = Echo()

        async def enter(found: Any, asked: Wanted) -> Echo:
            assert found["metadata"]["name"] == "p"
            assert asked == Wanted("c", ["echo"], True, False)
            return session

        stage.server.pipeline.enter = enter
        peer = await stage.peer()
        fields = ("Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}")
        more = ("Sec-WebSocket-Version: 13", f"Sec-WebSocket-Protocol: {protocol}")
        peer.say(peer.request("GET", EXEC, None, *fields, *more))
        async with asyncio.timeout(20):
            head = (await peer.reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("HTTP/1.1 101 ")
        assert f"Sec-WebSocket-Accept: {ACCEPTED}\r\n" in head
        assert f"Sec-WebSocket-Protocol: {protocol.split(',')[0]}\r\n" in head
        await story(peer, session)
        async with asyncio.timeout(20):
            await session.killed.wait()

    listening(folder, begin)


def test_channels_to_the_end(tmp_path: Path) -> None:
    async def story(peer: Peer, session: Echo) -> None:
        peer.say(frame(BINARY, b"\0hello"))
        assert await heard(peer) == (BINARY, b"\1hello")
        peer.say(frame(BINARY, b'\4{"Width": 80, "Height": 24}') + frame(BINARY, b"\4no size"))
        peer.say(frame(PING, b"there?"))
        assert await heard(peer) == (PONG, b"there?")
        assert session.size == (80, 24)
        # In parts, byte by byte.
        for byte in frame(BINARY, b"\0one ", final=False) + frame(0, b"two"):
            peer.say(bytes([byte]))
        assert await heard(peer) == (BINARY, b"\1one two")
        peer.say(frame(BINARY, b"\xff\0"))
        kind, status = await heard(peer)
        assert (kind, status[:1]) == (BINARY, b"\3")
        told = json.loads(status[1:])
        assert (told["status"], told["reason"]) == ("Failure", "NonZeroExitCode")
        assert told["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
        assert await heard(peer) == (CLOSE, struct.pack(">H", 1000))
        assert await peer.closed()

    conversing(tmp_path, story, "v5.channel.k8s.io, v4.channel.k8s.io")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frame(CLOSE, struct.pack(">H", 1000)), 1000),
        (frame(BINARY, b"\0x", masked=False), 1002),
        (b"\xf2\x80\0\0\0\0", 1002),
        (b"\x82\xff" + struct.pack(">Q", 2**40), 1009),
        (b"\x82\xff" + struct.pack(">Q", 2**63), 1009),
        (frame(BINARY, b"\0x" * 400_000, final=False) + frame(0, b"x" * 400_000), 1009),
        (frame(3, b""), 1002),
        (frame(0, b"x"), 1002),
        (frame(BINARY, b"\0x", final=False) + frame(BINARY, b"\0y"), 1002),
        (frame(BINARY, b"\0x", final=False) + frame(CLOSE, b""), 1002),
        (frame(PING, b"x", final=False), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(CLOSE, b"x"), 1002),
    ],
)
def test_close_frame_or_protocol_error_of_the_client_is_answered_with_its_code(
    tmp_path: Path, said: bytes, code: int
) -> None:
    async def story(peer: Peer, _session: Echo) -> None:
        peer.say(said)
        kind, status = await heard(peer)
        assert (kind, status[:2]) == (CLOSE, struct.pack(">H", code))

    conversing(tmp_path, story)


def test_input_before_a_protocol_error_reaches_the_command(tmp_path: Path) -> None:
    async def story(peer: Peer, session: Echo) -> None:
        written: list[bytes] = []

        async def write(data: bytes) -> None:
            written.append(data)

        session.write = write  # type: ignore[method-assign]
        peer.say(frame(BINARY, b"\0one") + frame(BINARY, b"\0two") + frame(BINARY, b"\0x", masked=False))
        assert (await heard(peer))[0] == CLOSE
        await session.killed.wait()
        assert b"".join(written) == b"onetwo"


def test_many_pings_at_once_are_answered_with_the_last(tmp_path: Path) -> None:
    async def story(peer: Peer, _session: Echo) -> None:
        peer.say(b"".join(frame(PING, b"%d" % number) for number in range(100)))
        assert await heard(peer) == (PONG, b"99")
        peer.say(frame(CLOSE, b""))
        assert await heard(peer) == (CLOSE, b"")

    conversing(tmp_path, story)


def test_a_client_that_vanishes_takes_its_command_along(tmp_path: Path) -> None:
    async def story(peer: Peer, _session: Echo) -> None:
        peer.writer.transport.abort()

    conversing(tmp_path, story)


def test_a_client_that_vanishes_while_its_input_waits_takes_its_command_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_CHECK_INTERVAL", 0.01)

    async def story(peer: Peer, session: Echo) -> None:
        began = asyncio.Event()

        async def write(_data: bytes) -> None:
            began.set()
            await asyncio.Event().wait()

        session.write = write  # type: ignore[method-assign]
        # More than is received, and less than the buffers of the sockets hold: while a client still has
        # bytes to send, the end of its connection waits behind them.
        peer.say(frame(BINARY, b"\0" + b"x" * 100) * 300)
        await began.wait()
        for _ in range(200):  # until nothing more is read from it
            await asyncio.sleep(0)
        peer.writer.transport.abort()

    conversing(tmp_path, story)


def test_more_input_than_is_taken_waits_with_the_client(tmp_path: Path) -> None:
    async def story(peer: Peer, session: Echo) -> None:
        taken = asyncio.Event()
        kept: list[bytes] = []

        async def write(data: bytes) -> None:
            await taken.wait()
            kept.append(data)
            if len(b"".join(kept)) == 50_000:
                session.end_input()

        session.write = write  # type: ignore[method-assign]
        for number in range(500):
            peer.say(frame(BINARY, b"\0" + b"%100d" % number))
        taken.set()
        kind, status = await heard(peer)
        assert (kind, status[:1]) == (BINARY, b"\3")
        assert b"".join(kept) == b"".join(b"%100d" % number for number in range(500))
        peer.say(frame(CLOSE, b""))

    conversing(tmp_path, story)


def test_command_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    async def begin(stage: Stage) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        assert (await (await stage.peer()).ask("POST", PODS, pod)).code == 201

        async def enter(_pod: Any, _asked: Wanted) -> Echo:
            raise ApiError(500, "InternalError", "there is no such program")

        stage.server.pipeline.enter = enter
        peer = await stage.peer()
        fields = ("Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}")
        more = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: v4.channel.k8s.io")
        peer.say(peer.request("GET", EXEC, None, *fields, *more))
        async with asyncio.timeout(20):
            await peer.reader.readuntil(b"\r\n\r\n")
        kind, status = await heard(peer)
        assert (kind, status[:1]) == (BINARY, b"\3")
        assert json.loads(status[1:])["message"] == "there is no such program"
        assert (await heard(peer))[0] == CLOSE

    listening(tmp_path, begin)
