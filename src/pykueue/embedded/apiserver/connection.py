"""One client's connection: HTTP/1.1 from bytes to requests, and from answers to bytes.

Requests of a connection are carried out one after the other in the order they came, so clients may send the
next before the answer. Everything a client can make the server hold is bounded: head, body, requests that
wait, bytes that are not taken. Clients that stall are let go by `check`, which the owner calls now and then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from pykueue.embedded.apiserver.negotiation import BODY_LIMIT, too_large
from pykueue.embedded.apiserver.status import bad_request
from pykueue.kube.errors import ApiError

#: Bytes the request line and the headers may have, besides what arrives together with their beginning.
HEAD_LIMIT = 64 * 1024
#: Requests, and bytes of their bodies, that may wait on one connection before no more is read from it.
_WAITING_REQUESTS, _WAITING_BYTES = 32, 256 * 1024

#: Seconds a client may take to send a head, a body; to begin the next request; to take anything of what it
#: was sent; to close after it was told to.
HEAD_TIME, BODY_TIME, IDLE_TIME, WRITE_TIME, GOODBYE_TIME = 30.0, 60.0, 300.0, 120.0, 5.0

#: Answers up to this many bytes are written in one piece with their head.
_ONE_PIECE = 64 * 1024

_STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"Connection: close\r\n"


class Request:
    """One request, complete."""

    __slots__ = ("body", "fault", "fields", "headers", "keep_alive", "method", "old", "target", "upgrade")

    def __init__(self, method: str, target: str, fields: list[tuple[bytes, bytes]]) -> None:
        self.method = method
        #: Path and query as sent.
        self.target = target
        #: All header fields in order, names in lower case.
        self.fields = fields
        self.headers = dict(fields)
        self.body = b""
        self.keep_alive = False
        #: Whether the client speaks HTTP/1.0, which knows no chunks.
        self.old = False
        #: Whether the client wants to go on with another protocol.
        self.upgrade = False
        #: Why this is no request that can be carried out.
        self.fault: ApiError | None = None

    def header(self, name: bytes) -> str:
        """A header's value, "" when it is not there."""
        value = self.headers.get(name)
        return value.decode("latin-1") if value is not None else ""

    def all(self, name: bytes) -> list[str]:
        """The values of a header that may be repeated."""
        return [value.decode("utf-8", "replace") for field, value in self.fields if field == name]


class Handler(Protocol):
    """Who answers requests."""

    def opened(self, connection: Connection) -> None:
        """A client is there."""

    def closed(self, connection: Connection) -> None:
        """It is gone."""

    def date_field(self) -> bytes:
        """The Date header of an answer given now."""

    async def handle(self, request: Request, connection: Connection) -> None:
        """Answer a request on its connection."""


class Connection(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._parser: HttpRequestParser = HttpRequestParser(self)
        self.transport: Any = None
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
        self._continue = False
        # When patience ends, in the loop's seconds.
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
        self._handler.opened(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._deaf = self._closing = True
        self._handler.closed(self)
        if self._task is not None:
            self._task.cancel()
        if self._drained is not None and not self._drained.done():
            self._drained.cancel()
        self.gone.set_result(None)
        del self._parser  # it refers to this object

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
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._deaf = True  # the request is answered, and that is the end
        except HttpParserError as error:
            self._fail(bad_request(f"the request is not HTTP/1.1: {error}"))
            return
        if self._receiving and not self._head_done and not self._began:
            self._head_size += len(data)
            if self._head_size > HEAD_LIMIT:
                message = f"the request's headers are larger than {HEAD_LIMIT} bytes"
                self._fail(ApiError(431, "RequestHeaderFieldsTooLarge", message))

    # -- the parser's side

    def on_message_begin(self) -> None:
        self._url = b""
        self._fields = []
        self._parts = []
        self._size = self._head_size = 0
        self._receiving = self._began = True
        self._head_done = self._continue = False
        self._receive_until = self._loop.time() + HEAD_TIME

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_done = True
        for name, value in self._fields:
            if name == b"content-length":
                if int(value) > BODY_LIMIT:
                    self._fail(too_large())
                    return
            elif name == b"expect":
                if value.lower() != b"100-continue":
                    self._fail(ApiError(417, "ExpectationFailed", "only 100-continue can be expected"))
                    return
                self._continue = True
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
        parser = self._parser
        request = Request(parser.get_method().decode(), self._url.decode("latin-1"), self._fields)
        parts = self._parts
        request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        request.upgrade = parser.should_upgrade()
        request.old = parser.get_http_version() == "1.0"
        request.keep_alive = parser.should_keep_alive() and not request.upgrade and not request.old
        self._parts = []
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
        self._queue(request)

    def _queue(self, request: Request) -> None:
        self._waiting.append(request)
        self._waiting_bytes += len(request.body)
        if self._wake is not None:
            if not self._wake.done():
                self._wake.set_result(None)
        elif self._task is None:
            self._task = self._loop.create_task(self._serve())
        if not self._reading_paused and (
            len(self._waiting) > _WAITING_REQUESTS or self._waiting_bytes > _WAITING_BYTES + BODY_LIMIT
        ):
            self._reading_paused = True
            self.transport.pause_reading()

    # -- carrying out

    async def _serve(self) -> None:
        waiting, handle = self._waiting, self._handler.handle
        while True:
            while waiting:
                self._request = request = waiting.popleft()
                self._waiting_bytes -= len(request.body)
                self.answered = False
                try:
                    await handle(request, self)
                except ConnectionError:
                    self.transport.abort()
                    return
                if not request.keep_alive or self._closing:
                    self._say_goodbye()
                    return
                if self._paused:
                    await self.drain()
            if self._reading_paused:
                self._reading_paused = False
                self.transport.resume_reading()
            self._go_on()
            self._request = None
            self._idle_until = self._loop.time() + IDLE_TIME
            self._wake = self._loop.create_future()
            await self._wake
            self._wake = None

    def _say_goodbye(self) -> None:
        """Close once the client has had a chance to read the answer.

        A client in the middle of sending would be cut off before it reads; its bytes are taken and dropped
        until it closes or patience ends.
        """
        sending = self._request is not None and self._request.fault is not None
        self._deaf = self._closing = True
        self._request = None
        self._idle_until = self._loop.time() + GOODBYE_TIME
        if not sending:
            self.transport.close()

    def answer(self, code: int, fields: bytes, body: bytes) -> None:
        """Send a whole answer. `fields` are header lines, each with its line end."""
        request = self._request
        assert request is not None
        self.answered = True
        keep = request.keep_alive and not self._closing
        head = b"%b%b%b%bContent-Length: %d\r\n\r\n" % (
            _STATUS_LINES[code],
            fields,
            self._handler.date_field(),
            b"" if keep else _CLOSE,
            len(body),
        )
        if request.method == "HEAD":
            self.transport.write(head)
        elif len(body) <= _ONE_PIECE:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

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
    def task(self) -> asyncio.Task[None] | None:
        """What carries out a request now, if anything does."""
        return self._task if self._request is not None else None

    def check(self, now: float) -> None:
        """Let go of a client that stalls. `now` is the loop's time in seconds."""
        if self._paused and now > self._write_until:
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

    def finish(self) -> None:
        """Begin no further request."""
        self._deaf = self._closing = True

    def abort(self) -> None:
        """End without ceremony."""
        self.transport.abort()


def chunk(data: bytes) -> bytes:
    """A part of a body in the chunked encoding."""
    return b"%x\r\n%b\r\n" % (len(data), data)
