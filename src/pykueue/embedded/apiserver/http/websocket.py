"""A WebSocket (RFC 6455) on an upgraded connection: the channels of `kubectl exec`.

Frames are written, and the connection is closed, by the protocol of the library `websockets`, which does no
I/O itself. Frames are read by `frames`.
"""

from __future__ import annotations

import asyncio

from websockets.frames import CloseCode
from websockets.protocol import Protocol, Side, State
from websockets.utils import accept_key

from pykueue.embedded.objects.errors import bad_request

from .connection import Connection
from .exchange import Request
from .frames import FrameError, FrameReader

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
        self._protocol = Protocol(Side.SERVER, state=State.OPEN)
        self._frames = FrameReader(MESSAGE_LIMIT)
        self._messages: list[bytes] = []
        #: Set while there are messages, and when there will be no more.
        self._arrived = asyncio.Event()
        #: Whether bytes that have arrived are still to be read as frames.
        self._unread = False
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

    async def receive(self) -> list[bytes]:
        """The client's next messages, as many as have arrived; none after the last one."""
        await self._arrived.wait()
        messages, self._messages = self._messages, []
        if not self._ended:
            self._arrived.clear()
        self._pace()
        return messages

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
        if not self._ended:
            self._frames.feed(data)
            if not self._unread:
                self._read()

    def _read(self) -> None:
        """Read the next slice of what has arrived."""
        if self._ended:
            return
        frames = self._frames
        try:
            self._unread = frames.read(_SLICE)
        except FrameError as error:
            self._unread = False
            self._protocol.fail(error.code, str(error))
        if frames.messages:
            self._messages += frames.messages
            frames.messages.clear()
            self._arrived.set()
        if frames.ping is not None:
            self._protocol.send_pong(frames.ping)
            frames.ping = None
        if frames.close is not None:
            self._protocol.receive_data(frames.close)
        self._flush()
        if self._protocol.state is not State.OPEN:
            self._end()
        elif self._unread:
            asyncio.get_running_loop().call_soon(self._read)
        self._pace()

    def _pace(self) -> None:
        """Read from the connection only while little of what was read is unparsed or unreceived."""
        busy = not self._ended and (self._unread or len(self._messages) >= _WAITING)
        connection = self._connection
        if busy != self._paused and not connection.transport.is_closing():
            self._paused = busy
            (connection.pause_reading if busy else connection.resume_reading)()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:  # empty: the end of the stream, which the owner of the connection writes
                self._connection.transport.write(data)

    def _end(self) -> None:
        self._ended = True
        self._arrived.set()
