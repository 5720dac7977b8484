"""Kept-alive connections to one API server, for requests and for answers that are streamed.

Whatever breaks comes out as ConnectionError: the caller does not know whether a write was carried out, and no
write is sent twice. A GET is sent again when a connection that was used before is closed without any of its
answer: servers close idle connections just as a request is on its way.
"""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohappyeyeballs import start_connection

from pykueue.kube.deadlines import Deadlines
from pykueue.kube.exchange import Answer, Exchange, Fields
from pykueue.kube.http1 import Http1Connection

#: Seconds after which an idle connection is closed: before servers and load balancers close it, as a request
#: that meets their closing is lost.
KEEP_ALIVE = 15.0
#: Seconds until the next address of a host is tried beside one that does not answer (RFC 8305).
NEXT_ADDRESS = 0.25


class Connections:
    """Connections to one server, one for each request under way.

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
        connect_timeout: float,
    ) -> None:
        self._host = host
        self._port = port
        self._ssl = ssl
        shown = f"[{host}]" if ":" in host else host
        self._host_header = shown if port == (443 if ssl else 80) else f"{shown}:{port}"
        self._server_name = server_name or host
        self._connect_timeout = connect_timeout
        self._deadlines = Deadlines()
        #: The one used last is at the end, and is used again first.
        self._idle: list[Http1Connection] = []
        self._timer: asyncio.TimerHandle | None = None

    async def request(
        self, method: str, target: str, fields: Fields, body: bytes | None, deadline: float
    ) -> Answer:
        """The answer to a request; `target` is quoted already.

        Raises ConnectionError when there is none, and TimeoutError when it has not come by `deadline`, in
        seconds of the loop's time.
        """
        exchange = await self._answered(method, target, fields, body, deadline)
        self._release(exchange)
        return exchange.answer.result()

    @asynccontextmanager
    async def stream(self, target: str, fields: Fields, silence: float) -> AsyncIterator[Exchange]:
        """A GET whose answer, when it is no refusal, is read as it comes.

        Raises ConnectionError when it breaks, and TimeoutError when nothing comes for `silence` seconds.
        """
        deadline = asyncio.get_running_loop().time() + silence
        exchange = await self._answered("GET", target, fields, None, deadline, silence)
        try:
            yield exchange
        finally:
            self._release(exchange)

    def close(self) -> None:
        """Close the connections. No request may be under way."""
        while self._idle:
            self._idle.pop().close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines.close()

    async def _answered(
        self,
        method: str,
        target: str,
        fields: Fields,
        body: bytes | None,
        deadline: float,
        silence: float | None = None,
    ) -> Exchange:
        """An exchange whose answer is done, or the head of it where it is streamed."""
        if asyncio.get_running_loop().time() >= deadline:
            raise TimeoutError
        while True:
            connection = self._taken()
            used = connection is not None
            if connection is None:
                connection = await self._opened(deadline)
            exchange = connection.send(method, target, fields, body, deadline, silence)
            self._deadlines.add(exchange)
            try:
                await exchange.answer
            except ConnectionError:
                self._release(exchange)
                if not used or exchange.has_begun or method != "GET":
                    raise
            except BaseException:
                self._release(exchange)
                raise
            else:
                return exchange

    def _release(self, exchange: Exchange) -> None:
        """Nothing is waited for any more; the connection is for others if all of the answer has come."""
        self._deadlines.remove(exchange)
        connection = exchange.carrier
        if not exchange.is_over or not connection.is_open:
            connection.abandon(exchange)
            return
        assert isinstance(connection, Http1Connection)
        loop = asyncio.get_running_loop()
        connection.used = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(KEEP_ALIVE, self._close_unused)

    def _taken(self) -> Http1Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

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

    async def _opened(self, deadline: float) -> Http1Connection:
        until = min(deadline, asyncio.get_running_loop().time() + self._connect_timeout)
        try:
            async with asyncio.timeout_at(until):
                return await self._connected()
        except TimeoutError as error:
            if until == deadline:
                raise
            raise ConnectionError(
                f"Cannot connect to host {self._host}:{self._port} within {self._connect_timeout:g} s"
            ) from error
        except OSError as error:
            raise ConnectionError(f"Cannot connect to host {self._host}:{self._port} [{error}]") from error

    async def _connected(self) -> Http1Connection:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        sock = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS)
        try:
            _, connection = await loop.create_connection(
                lambda: Http1Connection(loop, self._host_header),
                sock=sock,
                ssl=self._ssl,
                server_hostname=self._server_name if self._ssl is not None else None,
            )
        except BaseException:
            sock.close()
            raise
        return connection
