"""WebSocket (RFC 6455) on an upgraded connection, as far as kubectl's channels need it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct

from pykueue.embedded.apiserver.connection import Connection, Request
from pykueue.embedded.apiserver.status import bad_request

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL = 0x80
#: Bytes of one message that are taken from a client.
MESSAGE_LIMIT = 1024 * 1024
#: Messages that wait to be taken before no more is read.
_WAITING = 16
NORMAL, PROTOCOL_ERROR, TOO_LARGE = 1000, 1002, 1009


class WebSocket:
    """The server's side; messages are bytes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._received = bytearray()
        self._message = bytearray()
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = False
        #: Whether the client has to wait until what it said is taken.
        self._held_up = False

    @classmethod
    def accept(cls, request: Request, connection: Connection, protocols: tuple[str, ...]) -> WebSocket:
        """Answer the upgrade; of our protocols the first that is offered is chosen. Raises ApiError."""
        offered = [one.strip() for one in request.header(b"sec-websocket-protocol").split(",")]
        chosen = next((one for one in protocols if one in offered), None)
        key = request.header(b"sec-websocket-key")
        if chosen is None or not key or request.header(b"sec-websocket-version") != "13":
            raise bad_request(f"a WebSocket of version 13 is needed that speaks {' or '.join(protocols)}")
        digest = base64.b64encode(hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest())
        made = cls(connection)
        fields = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %b\r\n" % digest
        fields += b"Sec-WebSocket-Protocol: %b\r\n" % chosen.encode()
        connection.upgrade(fields, made._take)
        return made

    async def receive(self) -> bytes | None:
        """The client's next message; None when there is none to come."""
        message = await self._messages.get()
        if self._held_up and self._messages.qsize() < _WAITING:
            self._held_up = False
            self._connection.transport.resume_reading()
        return message

    async def send(self, data: bytes) -> None:
        """Send a message, and wait while the client does not take it."""
        self._send(_BINARY, data)
        await self._connection.drain()

    def close(self, code: int = NORMAL) -> None:
        """Say that this is all."""
        if not self._closed:
            self._closed = True
            self._send(_CLOSE, struct.pack(">H", code))
            self._messages.put_nowait(None)

    def _send(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            head = struct.pack(">BB", _FINAL | kind, size)
        elif size < 65536:
            head = struct.pack(">BBH", _FINAL | kind, 126, size)
        else:
            head = struct.pack(">BBQ", _FINAL | kind, 127, size)
        self._connection.transport.write(head + data)

    def _take(self, data: bytes) -> None:
        self._received += data
        while not self._closed and self._frame():
            pass

    def _frame(self) -> bool:
        """Carry out one frame, if it is there as a whole."""
        received = self._received
        if len(received) < 2:
            return False
        first, second = received[0], received[1]
        size, at = second & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(received) < at + width:
                return False
            size = int.from_bytes(received[at : at + width], "big")
            at += width
        if not second & 0x80 or first & 0x70:
            # Clients mask what they send, and nothing was agreed on that would use the other bits.
            self.close(PROTOCOL_ERROR)
            return False
        if size + len(self._message) > MESSAGE_LIMIT:
            self.close(TOO_LARGE)
            return False
        if len(received) < at + 4 + size:
            return False
        mask, body = received[at : at + 4], received[at + 4 : at + 4 + size]
        del received[: at + 4 + size]
        self._carry_out(first, _unmasked(body, mask))
        return True

    def _carry_out(self, first: int, data: bytes) -> None:
        kind = first & 0x0F
        if kind == _CLOSE:
            self.close()
        elif kind == _PING:
            self._send(_PONG, data)
        elif kind in (_CONTINUED, _TEXT, _BINARY):
            self._message += data
            if first & _FINAL:
                self._messages.put_nowait(bytes(self._message))
                self._message.clear()
                if not self._held_up and self._messages.qsize() >= _WAITING:
                    self._held_up = True
                    self._connection.transport.pause_reading()


def _unmasked(data: bytes | bytearray, mask: bytes | bytearray) -> bytes:
    size = len(data)
    repeated = int.from_bytes(bytes(mask) * (size // 4 + 1), "big") >> (8 * (4 - size % 4))
    return (int.from_bytes(data, "big") ^ repeated).to_bytes(size, "big")
