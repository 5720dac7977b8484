"""Kept-alive HTTP/1.1 connections for short requests, such as writes.

A request is written in one piece and its answer, parsed by llhttp, is read whole. That takes a fraction of
the CPU time of a general client: no cookies, redirects, content codings, proxies or streams, which writes to
API servers do not use. Whatever breaks comes out as ConnectionError: the caller does not know whether a write
was carried out, and no request is sent twice.
"""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from typing import NamedTuple, cast

import httptools
from aiohappyeyeballs import start_connection

#: Seconds after which an idle connection is closed: before servers and load balancers close it, as a request
#: that meets their closing is lost.
KEEP_ALIVE = 15.0
#: Seconds until the next address of a host is tried beside one that does not answer (RFC 8305).
NEXT_ADDRESS = 0.25
#: Characters of one header line of an answer; servers themselves accept far less in a request.
LINE_MAX = 65_536


class Answer(NamedTuple):
    """The answer to a request; names of headers are in lower case."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    content: bytes

    def header(self, name: str) -> str | None:
        """The first header of that name."""
        return next((value for found, value in self.headers if found == name), None)


class _Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self.is_open = True
        #: When it was last used, in seconds of the loop's time.
        self.used = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._reason = b""
        self._headers: list[tuple[str, str]] = []
        self._parts: list[bytes] = []
        self._has_headers = False

    def send(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a whole request; its answer."""
        assert self._transport is not None
        self._begin()
        self._answer = self._loop.create_future()
        if self.is_open:
            self._transport.write(request)
        else:
            self._fail("the connection was closed")
        return self._answer

    def close(self) -> None:
        """End the connection at once; an answer that is still to come is lost."""
        self.is_open = False
        self._answer = None
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, problem: str, cause: Exception | None = None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            error = ConnectionError(problem)
            error.__cause__ = cause
            self._answer.set_exception(error)
        if self._transport is not None:
            self._transport.abort()

    def _complete(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            status, reason = self._parser.get_status_code(), self._reason.decode("latin-1")
            answer.set_result(Answer(status, reason, self._headers, b"".join(self._parts)))

    # Of the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nothing was asked
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"the answer is not HTTP: {error}", error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._has_headers and error is None:
            framing = {"content-length", "transfer-encoding"}
            if framing.isdisjoint(name for name, _ in self._headers):
                self._complete()  # the end of the connection is that of the answer
        self._fail(str(error or "the server closed the connection"), error)

    # Of the parser

    def on_message_begin(self) -> None:
        if self._answer is None:
            raise ValueError("a second answer")

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) + len(value) > LINE_MAX:
            raise ValueError(f"a header of the answer is longer than {LINE_MAX} characters")
        self._headers.append((name.decode("latin-1").lower(), value.decode(errors="surrogateescape")))

    def on_headers_complete(self) -> None:
        self._has_headers = self._parser.get_status_code() >= 200

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # what comes before the answer proper
            self._headers.clear()
            self._reason = b""
            return
        if not self._parser.should_keep_alive():
            self.is_open = False
        self._complete()


class Connections:
    """Connections to one server, at most `limit` at a time; more requests wait for one.

    `ssl` is None for plain HTTP; `server_name` is checked against the server's certificate in place of
    `host`. `connect_timeout` is in seconds.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        ssl: tls.SSLContext | None,
        server_name: str | None,
        limit: int,
        connect_timeout: float,
    ) -> None:
        self._host = host
        self._port = port
        self._ssl = ssl
        shown = f"[{host}]" if ":" in host else host
        self._host_line = f"Host: {shown}" if port == (443 if ssl else 80) else f"Host: {shown}:{port}"
        self._server_name = server_name or host
        self._connect_timeout = connect_timeout
        self._slots = asyncio.Semaphore(limit)
        #: The one used last is at the end, and is used again first.
        self._idle: list[_Connection] = []
        self._timer: asyncio.TimerHandle | None = None

    async def request(
        self, method: str, target: str, headers: list[tuple[str, str]], body: bytes | None
    ) -> Answer:
        """The answer to a request; `target` is quoted already.

        Raises OSError when there is none, and ValueError for a line break in a header.
        """
        request = self._head(method, target, headers, body) + (body or b"")
        async with self._slots:
            connection = self._taken() or await self._opened()
            try:
                answer = await connection.send(request)
            except BaseException:
                connection.close()
                raise
            if connection.is_open:
                self._put_back(connection)
            else:
                connection.close()
            return answer

    def close(self) -> None:
        """Close the connections. No request may be under way."""
        while self._idle:
            self._idle.pop().close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes | None) -> bytes:
        lines = [
            f"{method} {target} HTTP/1.1",
            self._host_line,
            *[f"{name}: {value}" for name, value in headers],
        ]
        if body is not None or method != "DELETE":
            lines.append(f"Content-Length: {len(body or b'')}")
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1 or "\0" in head:
            raise ValueError(f"line break in a header of {method} {target}")
        return head.encode() + b"\r\n\r\n"

    def _taken(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    def _put_back(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.used = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(KEEP_ALIVE, self._close_unused)

    def _close_unused(self) -> None:
        """Close what was not used for KEEP_ALIVE seconds; look again when the next one may be."""
        loop = asyncio.get_running_loop()
        unused_since = loop.time() - KEEP_ALIVE
        for connection in self._idle:
            if connection.used <= unused_since:
                connection.close()
        self._idle = [connection for connection in self._idle if connection.is_open]
        self._timer = None
        if self._idle:
            wait = min(connection.used for connection in self._idle) - unused_since
            self._timer = loop.call_later(wait, self._close_unused)

    async def _opened(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await self._connected()
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionError(f"Cannot connect to host {self._host}:{self._port} [{error}]") from error

    async def _connected(self) -> _Connection:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        sock = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS)
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(loop),
                sock=sock,
                ssl=self._ssl,
                server_hostname=self._server_name if self._ssl is not None else None,
            )
        except BaseException:
            sock.close()
            raise
        return connection
