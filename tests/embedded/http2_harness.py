"""A client that speaks HTTP/2 to a listening server, request by request or with the frames it is given."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from typing import Any

import ngh2
import orjson
from front_harness import Answer, Stage

SETTINGS, PING, HEADERS, CONTINUATION, DATA, RESET = 4, 6, 1, 9, 0, 3
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def frames(data: bytes) -> list[tuple[int, int]]:
    """Kind and stream of each of some whole frames."""
    found = []
    while data:
        size, kind, stream = int.from_bytes(data[:3]), data[3], int.from_bytes(data[5:9])
        found.append((kind, stream))
        data = data[9 + size :]
    return found


class Http2Peer:
    """The client's side of one connection. `raw` sends bytes that the library would refuse to send."""

    def __init__(self, stage: Stage, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._token = stage.address.token
        self.reader, self.writer = reader, writer
        configuration = ngh2.Configuration(auto_window_update=False, max_send_header_block_length=1 << 20)
        self.engine = ngh2.Connection(ngh2.Role.CLIENT, configuration)
        #: Streams whose data does not count as read: the server may send no more than their window.
        self.unread: set[int] = set()
        self.heads: dict[int, dict[str, str]] = {}
        self.bodies: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.ended: set[int] = set()
        #: The error codes of streams that were reset, and of the GOAWAY.
        self.resets: dict[int, int] = {}
        self.informational: list[int] = []
        self.goaway: int | None = None
        self.eof = False

    def begin(self, settings: dict[int, int] | None = None) -> None:
        self.engine.initiate_connection(settings)
        self.engine.set_local_window_size(64 << 20)
        self._send()

    def _send(self) -> None:
        while data := self.engine.data_to_send():
            self.writer.write(data)

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def fields(self, method: str, path: str, *more: tuple[str, str]) -> list[tuple[bytes, bytes]]:
        pseudo = ((":method", method), (":scheme", "https"), (":authority", "x"), (":path", path))
        authorization = (
            () if dict(more).get("authorization") else (("authorization", f"Bearer {self._token}"),)
        )
        return [(name.encode(), value.encode()) for name, value in (*pseudo, *authorization, *more)]

    def request(
        self, method: str, path: str, body: Any = None, *more: tuple[str, str], unfinished: bool = False
    ) -> int:
        """Send a request; returns its stream. `unfinished`: more of the body is to come."""
        ended = body is None and not unfinished
        stream = self.engine.send_request(self.fields(method, path, *more), end_stream=ended)
        if body is not None:
            data = body if isinstance(body, bytes) else orjson.dumps(body)
            self.engine.send_data(stream, data, end_stream=not unfinished)
        self._send()
        return stream

    def body(self, stream: int, data: bytes, end: bool = False) -> None:
        self.engine.send_data(stream, data, end_stream=end)
        self._send()

    def read_on(self, stream: int) -> None:
        """Read what a stream has been sent, and all that follows."""
        self.unread.discard(stream)
        self.engine.acknowledge_received_data(len(self.bodies[stream]), stream)
        self._send()

    def reset(self, stream: int) -> None:
        self.engine.reset_stream(stream)
        self._send()

    async def read(self) -> None:
        """Take what comes next from the server."""
        async with asyncio.timeout(20):
            try:
                data = await self.reader.read(1 << 16)
            except ConnectionError:
                data = b""
        if not data:
            self.eof = True
            return
        self.engine.receive_data(data)
        for event in sorted(self.engine.events(), key=lambda one: not isinstance(one, ngh2.GoAwayReceived)):
            self._take(event)
        if self.goaway is None:
            self._send()

    def _take(self, event: ngh2.Event) -> None:
        match event:
            case ngh2.ResponseReceived(stream, headers, ended):
                self.heads[stream] = {name.decode(): value.decode() for name, value in headers}
                if ended:
                    self.ended.add(stream)
            case ngh2.InformationalResponseReceived(stream, _):
                self.informational.append(stream)
            case ngh2.DataReceived(stream, data, ended):
                self.bodies[stream] += data
                if stream not in self.unread and self.goaway is None:
                    self.engine.acknowledge_received_data(len(data), stream)
                if ended:
                    self.ended.add(stream)
            case ngh2.StreamReset(stream, code):
                self.resets[stream] = code
            case ngh2.GoAwayReceived(_, code, _):
                self.goaway = code
            case _:
                pass

    async def answered(self, stream: int) -> Answer:
        """The whole answer of a stream."""
        while stream not in self.ended:
            assert not self.eof, "the connection is closed"
            await self.read()
        head = self.heads[stream]
        return Answer(int(head[":status"]), head, bytes(self.bodies[stream]))

    async def ask(self, method: str, path: str, body: Any = None, *more: tuple[str, str]) -> Answer:
        return await self.answered(self.request(method, path, body, *more))

    async def closed(self) -> bool:
        """Whether the server ends the connection; what it sends before is dropped."""
        async with asyncio.timeout(20):
            try:
                while await self.reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
        return True


async def http2_peer(stage: Stage, settings: dict[int, int] | None = None, begin: bool = True) -> Http2Peer:
    """A connection with HTTP/2. `begin`: send the settings of the client."""
    context = ssl.create_default_context(cadata=stage.address.ca.decode())
    context.set_alpn_protocols(["h2", "http/1.1"])
    reader, writer = await asyncio.open_connection(
        stage.address.host, stage.address.port, ssl=context, limit=1 << 20
    )
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    stage.keep(writer)
    peer = Http2Peer(stage, reader, writer)
    if begin:
        peer.begin(settings)
    return peer
