"""A WebSocket (RFC 6455) on an upgraded connection: the channels of `kubectl exec`.

Frames are read and written by the protocol of the library `websockets`, which does no I/O itself.
"""

from __future__ import annotations

import asyncio

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.utils import accept_key

from pykueue.embedded.apiserver.objects.errors import bad_request

from .connection import Connection, Request

#: Bytes of the largest message that a client may send.
MESSAGE_LIMIT = 1024 * 1024
#: Unread messages before the connection is not read any further.
_WAITING = 16
#: Bytes that are parsed at a time, so that many small frames do not block other connections.
_SLICE = 4096


class WebSocket:
    """The server's side; messages are bytes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._protocol = Protocol(Side.SERVER, state=State.OPEN, max_size=MESSAGE_LIMIT)
        self._unparsed = bytearray()
        self._message = bytearray()
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._ended = False
        self._paused = False

    @classmethod
    def accept(cls, request: Request, connection: Connection, protocols: tuple[str, ...]) -> WebSocket:
        """Answer the upgrade with the first of `protocols` that the client offers. Raises ApiError (400)."""
        offered = [one.strip() for one in request.header(b"sec-websocket-protocol").split(",")]
        chosen = next((one for one in protocols if one in offered), None)
        key = request.header(b"sec-websocket-key")
        if chosen is None or not key or request.header(b"sec-websocket-version") != "13":
            raise bad_request(
                "the request must be a WebSocket handshake of version 13 with one of the subprotocols "
                f"{', '.join(protocols)}"
            )
        made = cls(connection)
        fields = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept_key(key)}\r\n"
        fields += f"Sec-WebSocket-Protocol: {chosen}\r\n"
        connection.upgrade(fields.encode(), made._take)
        return made

    async def receive(self) -> bytes | None:
        """The client's next message; None after the last one."""
        message = await self._messages.get()
        self._pace()
        return message

    async def send(self, data: bytes) -> None:
        """Send a message, and wait until the client has read enough of what was sent."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_binary(data)
            self._flush()
        await self._connection.drain()

    def close(self) -> None:
        """Send a close frame with code 1000, unless the connection is closing already."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
        self._flush()
        self._end()

    def _take(self, data: bytes) -> None:
        waiting = bool(self._unparsed)
        self._unparsed += data
        if not waiting:
            self._parse()

    def _parse(self) -> None:
        if not self._ended:
            self._protocol.receive_data(bytes(self._unparsed[:_SLICE]))
            for event in self._protocol.events_received():
                if isinstance(event, Frame) and event.opcode in (Opcode.CONT, Opcode.TEXT, Opcode.BINARY):
                    self._message += event.data
                    if event.fin:
                        self._messages.put_nowait(bytes(self._message))
                        self._message.clear()
            self._flush()
        del self._unparsed[: len(self._unparsed) if self._ended else _SLICE]
        if self._protocol.state is not State.OPEN:
            self._end()
        if self._unparsed:
            asyncio.get_running_loop().call_soon(self._parse)
        self._pace()

    def _pace(self) -> None:
        """Read from the connection only while little of what was read is unparsed or unreceived."""
        busy = bool(self._unparsed) or self._messages.qsize() >= _WAITING
        transport = self._connection.transport
        if busy != self._paused and not transport.is_closing():
            self._paused = busy
            (transport.pause_reading if busy else transport.resume_reading)()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:  # empty: the end of the stream, which the owner of the connection writes
                self._connection.transport.write(data)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._messages.put_nowait(None)
