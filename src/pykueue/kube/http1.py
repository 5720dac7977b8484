"""A connection with HTTP/1.1: one request at a time, its answer parsed by llhttp (`httptools`).

A request is written in one piece. There are no cookies, content codings or proxies, which requests to API
servers do not use: that takes a fraction of the CPU time of a general client.
"""

from __future__ import annotations

import asyncio
from typing import cast

import httptools

from pykueue.kube.exchange import LINE_MAX, READ_BUFFER, STREAM_HELD, Exchange, Fields


class Http1Connection(asyncio.BufferedProtocol):
    """The client's side of one connection; `host` is the value of the header Host."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str) -> None:
        self._loop = loop
        self._host = host
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._has_headers = self._paused = False
        self._buffer = memoryview(bytearray(READ_BUFFER))
        self.is_open = True
        self.used = loop.time()
        self.has_answered = False

    def send(
        self,
        method: str,
        target: str,
        fields: Fields,
        body: bytes | None,
        deadline: float,
        silence: float | None = None,
    ) -> Exchange:
        """Send a request; the arguments are those of `Connections.request` and of `Exchange`."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._has_headers = False
        self._exchange = exchange = Exchange(self._loop, self, deadline, silence)
        head = f"{method} {target} HTTP/1.1\r\nHost: {self._host}\r\n".encode() + fields.text
        if body is not None:
            self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        elif method in ("GET", "DELETE"):
            self._transport.write(head + b"\r\n")
        else:
            self._transport.write(head + b"Content-Length: 0\r\n\r\n")
        if not self.is_open:
            self._fail(ConnectionError("the connection was closed"))
        return exchange

    @property
    def is_idle(self) -> bool:
        """Whether no answer is waited for."""
        return self._exchange is None

    def close(self) -> None:
        self.is_open = False
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    # As the carrier of an exchange

    def abandon(self, exchange: Exchange) -> None:
        self.close()

    def taken(self, exchange: Exchange, size: int) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # As the protocol of a transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        exchange = self._exchange
        if exchange is None or self._parser is None:
            self.close()  # nothing was asked
            return
        exchange.has_begun = True
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the answer is not HTTP: {error}"), error)
            return
        if exchange.streamed:
            exchange.received()
            if exchange.held > STREAM_HELD and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        exchange = self._exchange
        if exchange is not None and self._has_headers and error is None:
            framing = {b"content-length", b"transfer-encoding"}
            if framing.isdisjoint(name.lower() for name, _ in exchange.headers):
                self._exchange = None
                exchange.end()  # the end of the connection is that of the answer
        problem = str(error or "the server closed the connection")
        if exchange is not None and exchange.has_begun:
            problem = "the connection ended within a response"
        self._fail(ConnectionError(problem), error)

    def _fail(self, problem: ConnectionError, cause: Exception | None = None) -> None:
        self.is_open = False
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            problem.__cause__ = cause
            exchange.fail(problem)
        if self._transport is not None:
            self._transport.abort()

    # As the receiver of a parser

    def on_message_begin(self) -> None:
        if self._exchange is None:
            raise ValueError("a second answer")

    def on_status(self, reason: bytes) -> None:
        if self._exchange is not None:
            self._exchange.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) + len(value) > LINE_MAX:
            raise ValueError(f"a header of the answer is longer than {LINE_MAX} characters")
        if self._exchange is not None:
            self._exchange.headers.append((name, value))

    def on_headers_complete(self) -> None:
        exchange, parser = self._exchange, self._parser
        if exchange is None or parser is None:
            return
        exchange.status = parser.get_status_code()
        if exchange.status >= 200:
            self._has_headers = True
            exchange.head()

    def on_body(self, part: bytes) -> None:
        if self._exchange is not None:
            self._exchange.data(part)

    def on_message_complete(self) -> None:
        exchange, parser = self._exchange, self._parser
        if exchange is None or parser is None:
            return
        if exchange.status < 200:  # what comes before the answer proper
            exchange.headers.clear()
            exchange.reason = b""
            return
        if not parser.should_keep_alive():
            self.is_open = False
        self._exchange = None
        exchange.end()
