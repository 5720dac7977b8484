"""One client's connection: HTTP/1.1 from bytes to requests, and from answers to bytes.

Requests of a connection are carried out one after the other in the order they came, so clients may send the
next before the answer. Everything a client can make the server hold is bounded: head, body, pending requests,
unread bytes. Connections of clients that stall are closed by `check`, which the owner calls periodically.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from pykueue.embedded.apiserver.watch.delivery import Output
from pykueue.embedded.objects.errors import bad_request
from pykueue.kube.errors import ApiError

from .exchange import Handler, Known, Request
from .negotiation import BODY_LIMIT, too_large

#: Bytes the request line and the headers may have, besides what arrives together with their beginning.
HEAD_LIMIT = 64 * 1024
#: Requests, and bytes of their bodies, that may wait on one connection before no more is read from it.
WAITING_REQUESTS, WAITING_BYTES = 32, 256 * 1024
#: Bytes that the frame of a chunked body may have (extensions and trailers), besides these for each chunk.
FRAME_LIMIT, CHUNK_FRAME = 64 * 1024, 32

#: Seconds a client may take to send a head, a body; to begin the next request; to take anything of what it
#: was sent; to close after it was told to.
HEAD_TIME, BODY_TIME, IDLE_TIME, WRITE_TIME, GOODBYE_TIME = 30.0, 60.0, 300.0, 120.0, 5.0
#: Seconds for which the identity found when a head arrived is used.
IDENTITY_TIME = 1.0

#: Answers up to this many bytes are written in one piece with their head.
_ONE_PIECE = 64 * 1024
#: Bytes of a large answer written between two pauses.
PIECE = 1024 * 1024

_STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"Connection: close\r\n"


class Connection(asyncio.Protocol):
    """The server's side of one connection, and of the exchange under way on it."""

    framing = "chunked"

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._parser: Any = HttpRequestParser(self)
        self.transport: Any = None
        #: The client's address, without the port.
        self.address = ""
        #: The client's verified certificate, as `ssl` describes it.
        self.certificate: dict[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        #: The request being answered, and whether its answer has begun.
        self._request: Request | None = None
        self.answered = False
        self._chunked = False
        # The message being received.
        self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._receiving = self._head_done = self._began = False
        self._head_size = 0
        #: Bytes that arrived together with the beginning of the message.
        self._first_size = 0
        #: Bytes and chunks of the body's frame.
        self._frame_size = self._chunks = 0
        #: The request being received, from the end of its head on.
        self._received: Request | None = None
        #: The Authorization header that the client sent last with a valid token, and whose it is.
        self.known: Known = (None, None)
        #: Bytes of heads and bodies held for this connection.
        self._held_heads = self._held_bodies = 0
        self._continue = False
        # Deadlines, in the loop's seconds.
        self._receive_until = 0.0
        self._idle_until = self._loop.time() + HEAD_TIME
        self._write_until = 0.0
        self._drained: asyncio.Future[None] | None = None
        self._paused = self._reading_paused = False
        #: Nothing more is read as requests: the connection is about to end.
        self._deaf = False
        self._closing = False
        #: Who takes what comes after the request, in another protocol.
        self._taker: Callable[[bytes], None] | None = None
        #: Done when the connection is.
        self.gone: asyncio.Future[None] = self._loop.create_future()

    # -- the transport's side

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.certificate = transport.get_extra_info("peercert") or None
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self._handler.opened(self):
            self._deaf = True
            transport.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._deaf = self._closing = True
        self._handler.closed(self)
        self._parts = []
        self._receiving = False
        self._waiting.clear()
        self._waiting_bytes = 0
        self._account()
        if self._task is not None:
            self._task.cancel()
        if self._drained is not None and not self._drained.done():
            self._drained.cancel()
        self.gone.set_result(None)
        self._parser = None  # it refers to this object

    def pause_writing(self) -> None:
        self._paused = True
        self._write_until = self._loop.time() + WRITE_TIME

    def resume_writing(self) -> None:
        self._paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._taker is not None:
            self._taker(data)
            return
        if self._deaf:
            return
        self._began = False
        size = self._size
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._deaf = True  # the request is answered, and that is the end
        except HttpParserError as error:
            self._fail(bad_request(f"the request is not HTTP/1.1: {error}"))
            return
        if self._receiving and not self._began:
            if not self._head_done:
                self._head_size += len(data)
                if self._head_size > HEAD_LIMIT:
                    message = f"the request's headers are larger than {HEAD_LIMIT} bytes"
                    self._fail(ApiError(431, "RequestHeaderFieldsTooLarge", message))
            else:
                self._frame_size += len(data) - (self._size - size)
                if self._frame_size > FRAME_LIMIT + CHUNK_FRAME * self._chunks:
                    message = f"the chunks' extensions and trailers are larger than {FRAME_LIMIT} bytes"
                    self._fail(ApiError(431, "RequestHeaderFieldsTooLarge", message))
        if self._began:
            self._first_size = len(data)
        if not self._account():
            message = "the server holds too many unfinished requests, please try again later"
            self._fail(ApiError(503, "ServiceUnavailable", message, None, 1))
            self._account()

    # -- the parser's side

    def on_message_begin(self) -> None:
        self._url = b""
        self._fields = []
        self._parts = []
        self._size = self._head_size = self._frame_size = self._chunks = 0
        self._received = None
        self._receiving = self._began = True
        self._head_done = self._continue = False
        self._receive_until = self._loop.time() + HEAD_TIME

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:  # trailers are not header fields: none of them counts
            self._fields.append((name.lower(), value))

    def on_chunk_header(self) -> None:
        self._chunks += 1

    def on_headers_complete(self) -> None:
        self._head_done = True
        parser = self._parser
        request = Request(parser.get_method().decode(), self._url.decode("latin-1"), self._fields)
        headers = request.headers
        length = int(headers.get(b"content-length", 0))  # the parser refuses a second one
        if length > BODY_LIMIT:
            self._fail(too_large())
            return
        if b"expect" in headers:
            if headers[b"expect"].lower() != b"100-continue":
                self._fail(ApiError(417, "ExpectationFailed", "only 100-continue can be expected"))
                return
            self._continue = True
        self._received = request
        if length or b"transfer-encoding" in headers:
            try:
                request.user = self._handler.identify(request, self)
            except ApiError as error:
                self._fail(error)
                return
        self._receive_until = self._loop.time() + BODY_TIME
        if self._request is None and not self._waiting:
            self._go_on()

    def on_body(self, data: bytes) -> None:
        if self._deaf:
            return
        self._size += len(data)
        if self._size > BODY_LIMIT:
            self._parts = []
            self._fail(too_large())
            return
        self._parts.append(data)

    def on_message_complete(self) -> None:
        if self._deaf:
            return
        parser, request = self._parser, self._received
        assert request is not None
        parts = self._parts
        request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        request.upgrade = parser.should_upgrade()
        request.old = parser.get_http_version() == "1.0"
        request.keep_alive = parser.should_keep_alive() and not request.upgrade and not request.old
        # Who it is holds for a body that arrived with its head or soon after.
        if self._loop.time() >= self._receive_until - BODY_TIME + IDENTITY_TIME:
            request.user = None
        self._parts = []
        self._received = None
        self._receiving = self._continue = False
        self._queue(request)

    def _go_on(self) -> None:
        """Tell the client that its body is welcome."""
        if self._continue:
            self._continue = False
            self.transport.write(_CONTINUE)

    def _fail(self, fault: ApiError) -> None:
        """Answer what was asked before, then the fault, then no more."""
        if self._deaf:
            return
        request = Request("GET", "", [])
        request.fault = fault
        self._deaf = True
        self._receiving = False
        self._parts = []
        self._queue(request)

    def _account(self) -> bool:
        """Report what is held for this connection; False when all connections hold too much."""
        heads, bodies = 0, self._waiting_bytes
        if self._receiving:
            bodies += self._size
            if not self._head_done:
                heads = self._first_size + self._head_size
        before_heads, before_bodies = self._held_heads, self._held_bodies
        if heads == before_heads and bodies == before_bodies:
            return True
        self._held_heads, self._held_bodies = heads, bodies
        return self._handler.hold(heads - before_heads, bodies - before_bodies)

    def _queue(self, request: Request) -> None:
        self._waiting.append(request)
        self._waiting_bytes += len(request.body)
        if self._wake is not None:
            if not self._wake.done():
                self._wake.set_result(None)
        elif self._task is None:
            self._task = self._loop.create_task(self._serve())
        if not self._reading_paused and (
            len(self._waiting) > WAITING_REQUESTS or self._waiting_bytes > WAITING_BYTES + BODY_LIMIT
        ):
            self.pause_reading()

    def pause_reading(self) -> None:
        """Take nothing more from the client for now; `check` notices when it closes meanwhile."""
        self._reading_paused = True
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take what the client sends again."""
        self._reading_paused = False
        self.transport.resume_reading()

    # -- carrying out

    @property
    def output(self) -> Output:
        """Where a watch writes parts that `framed` has made."""
        output: Output = self.transport
        return output

    def framed(self, data: bytes) -> bytes:
        """A part of an answer as it is written."""
        return chunk(data)

    async def _serve(self) -> None:
        waiting, handle = self._waiting, self._handler.handle
        while True:
            while waiting:
                self._request = request = waiting.popleft()
                self.answered = False
                try:
                    await handle(request, self)
                except ConnectionError:
                    self.transport.abort()
                    return
                self._waiting_bytes -= len(request.body)
                self._account()
                if not request.keep_alive or self._closing:
                    self._say_goodbye()
                    return
                if self._paused:
                    await self.drain()
                if waiting:
                    await asyncio.sleep(0)  # each connection in turn
            if self._reading_paused:
                self.resume_reading()
            self._go_on()
            self._request = None
            self._idle_until = self._loop.time() + IDLE_TIME
            self._wake = self._loop.create_future()
            await self._wake
            self._wake = None

    def _say_goodbye(self) -> None:
        """Close once the client has had a chance to read the answer.

        A client in the middle of sending would be cut off before it reads; its bytes are taken and dropped
        until it closes or GOODBYE_TIME is over.
        """
        sending = self._request is not None and self._request.fault is not None
        self._deaf = self._closing = True
        self._request = None
        self._idle_until = self._loop.time() + GOODBYE_TIME
        if not sending:
            self.transport.close()

    def answer(self, code: int, fields: bytes, body: bytes) -> None:
        """Send a whole answer. `fields` are header lines, each with its line end."""
        head = self._head(code, fields, len(body))
        if self._request is not None and self._request.method == "HEAD":
            self.transport.write(head)
        elif len(body) <= _ONE_PIECE:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    async def answer_in_pieces(self, code: int, fields: bytes, body: bytes) -> None:
        """Send a whole answer as the client takes it: to encrypt one of more than PIECE bytes at once would
        delay others."""
        self.transport.write(self._head(code, fields, len(body)))
        pieces = memoryview(body)
        for start in range(0, len(body), PIECE):
            self.transport.write(pieces[start : start + PIECE])
            await asyncio.sleep(0)
            await self.drain()

    def _head(self, code: int, fields: bytes, size: int) -> bytes:
        """The head of an answer, which begins with it."""
        request = self._request
        assert request is not None
        self.answered = True
        keep = request.keep_alive and not self._closing
        return b"%b%b%b%bContent-Length: %d\r\n\r\n" % (
            _STATUS_LINES[code],
            fields,
            self._handler.date_field(),
            b"" if keep else _CLOSE,
            size,
        )

    def upgrade(self, fields: bytes, taker: Callable[[bytes], None]) -> None:
        """Go on with another protocol: what the client sends from now on is the taker's."""
        self.answered = True
        self._taker = taker
        self.transport.write(b"%b%b%b\r\n" % (_STATUS_LINES[101], fields, self._handler.date_field()))

    def begin(self, fields: bytes) -> None:
        """Begin an answer (200) of unknown length. 505 for clients that do not understand chunks."""
        request = self._request
        assert request is not None
        if request.old:
            raise ApiError(505, "", "streams need HTTP/1.1")
        self.answered = True
        keep = b"" if request.keep_alive and not self._closing else _CLOSE
        self.transport.write(
            b"%b%b%b%bTransfer-Encoding: chunked\r\n\r\n"
            % (_STATUS_LINES[200], fields, self._handler.date_field(), keep)
        )

    def send(self, data: bytes) -> None:
        """Send a part of an answer that was begun."""
        if data:
            self.transport.write(chunk(data))

    def end(self) -> None:
        """End an answer that was begun."""
        self.transport.write(b"0\r\n\r\n")

    async def drain(self) -> None:
        """Wait until the client has taken most of what it was sent."""
        if self._paused and not self.transport.is_closing():
            self._drained = self._loop.create_future()
            try:
                await self._drained
            finally:
                self._drained = None

    # -- the owner's side

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What carries out a request now."""
        return [self._task] if self._request is not None and self._task is not None else []

    def check(self, now: float) -> None:
        """Close the connection of a client that stalls. `now` is the loop's time in seconds."""
        if (self._paused and now > self._write_until) or (self._reading_paused and self._hung_up()):
            self.transport.abort()
        elif self._receiving:
            if now > self._receive_until and not self._reading_paused:
                self._fail(ApiError(408, "Timeout", "the request took too long to arrive"))
        elif self._request is None and now > self._idle_until:
            if self._closing:
                self.transport.abort()
            else:
                self._deaf = self._closing = True
                self._idle_until = now + GOODBYE_TIME
                self.transport.close()

    def _hung_up(self) -> bool:
        """Whether the client has closed: transports do not report it while nothing is read."""
        connected = self.transport.get_extra_info("socket")
        return connected is not None and hung_up(connected.fileno())

    def finish(self) -> None:
        """Begin no further request."""
        self._deaf = self._closing = True

    def abort(self) -> None:
        """End without ceremony."""
        self.transport.abort()


def chunk(data: bytes) -> bytes:
    """A part of a body in the chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def hung_up(descriptor: int) -> bool:
    """Whether the other side of a socket has closed it, although bytes it sent before may not be read yet.

    False where the system does not tell (other than Linux).
    """
    closed: int = getattr(select, "POLLRDHUP", 0)
    if not closed or descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, closed)
    return bool(poll.poll(0))
