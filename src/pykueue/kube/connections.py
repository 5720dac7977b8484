"""Kept-alive connections to one API server, for requests and for answers that are streamed.

Whatever breaks comes out as ConnectionError: the caller does not know whether a write was carried out, and no
write is sent twice. A GET is sent again when a connection that was used before is closed without any of its
answer: servers close idle connections just as a request is on its way.
"""

from __future__ import annotations

import asyncio
import socket
import ssl as tls
from collections.abc import Iterator
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING

from aiohappyeyeballs import start_connection

from pykueue.kube.deadlines import Deadlines
from pykueue.kube.errors import NotCarriedOutError
from pykueue.kube.exchange import Answer, Exchange, Fields
from pykueue.kube.http1 import Http1Connection
from pykueue.kube.opening import Opening

if TYPE_CHECKING:
    from pykueue.kube.http2 import Http2Connection
    from pykueue.kube.opening import Connection

#: Seconds after which an idle connection is closed: before servers and load balancers close it, as a request
#: that meets their closing is lost.
KEEP_ALIVE = 15.0
#: Seconds until the next address of a host is tried beside one that does not answer (RFC 8305).
NEXT_ADDRESS = 0.25
#: How often a request is sent that the server says it has not looked at.
ATTEMPTS = 3


class Connections:
    """Connections to one server: one for each request under way, or with HTTP/2 one for many.

    `ssl` is None for plain HTTP; `server_name` is checked against the server's certificate in place of
    `host`. `connect_timeout` is in seconds. HTTP/2 is spoken with `http2` where the server offers it in the
    TLS handshake and the library for it is installed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        ssl: tls.SSLContext | None,
        server_name: str | None,
        connect_timeout: float,
        http2: bool = False,
    ) -> None:
        self._host = host
        self._port = port
        self._ssl = ssl
        shown = f"[{host}]" if ":" in host else host
        self._host_header = shown if port == (443 if ssl else 80) else f"{shown}:{port}"
        self._server_name = server_name or host
        self._connect_timeout = connect_timeout
        self._loop = asyncio.get_running_loop()
        #: The time that deadlines are given in.
        self.time = self._loop.time
        self._deadlines = Deadlines(self._loop)
        #: Whether a connection may turn out to be one that requests share; and the task that opens it.
        self._may_share = http2 and ssl is not None and find_spec("ngh2") is not None
        if ssl is not None and self._may_share:
            ssl.set_alpn_protocols(["h2", "http/1.1"])
        self._opening: asyncio.Task[OSError | None] | None = None
        self._shared: list[Http2Connection] = []
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
        self.release(exchange)
        return exchange.answer.result()

    async def begin(self, target: str, fields: Fields, silence: float) -> Exchange:
        """A GET whose answer, when it is no refusal, is read as it comes; to be released afterwards.

        Raises ConnectionError when it breaks, and TimeoutError when nothing comes for `silence` seconds.
        """
        return await self._answered("GET", target, fields, None, self.time() + silence, silence)

    def close(self) -> None:
        """Close the connections. No request may be under way."""
        for connection in self._all():
            connection.close()
        self._idle, self._shared = [], []
        if self._opening is not None:
            self._opening.cancel()
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
        if self.time() >= deadline:
            raise TimeoutError
        attempt = 0
        while True:
            attempt += 1
            connection = self._taken(attempt == 1) or await self._opened(deadline)
            was_used = connection.has_answered
            exchange = connection.send(method, target, fields, body, deadline, silence)
            self._deadlines.add(exchange)
            try:
                await exchange.answer
            except NotCarriedOutError:
                self.release(exchange)
                if attempt == ATTEMPTS:
                    raise
            except ConnectionError:
                self.release(exchange)
                if attempt > 1 or method != "GET" or exchange.has_begun or not was_used:
                    raise
            except BaseException:
                self.release(exchange)
                raise
            else:
                return exchange

    def release(self, exchange: Exchange) -> None:
        """Nothing is waited for any more; the connection is for others if all of the answer has come."""
        self._deadlines.remove(exchange)
        connection = exchange.carrier
        if exchange.is_over:
            connection.has_answered = True
        if not exchange.is_over or exchange.held:
            connection.abandon(exchange)
        connection.used = self.time()
        if isinstance(connection, Http1Connection):
            self._put_back(connection)

    def _put_back(self, connection: Http1Connection) -> None:
        if not connection.is_open:
            connection.close()
            return
        self._idle.append(connection)
        self._close_later(KEEP_ALIVE)

    def _all(self) -> Iterator[Connection]:
        yield from self._idle
        yield from self._shared

    def _taken(self, idle: bool) -> Connection | None:
        """One that is open already; with `idle`, one that was idle too."""
        for shared in self._shared:
            if shared.has_room:
                return shared
        while idle and self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    def _close_later(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._close_unused)

    def _close_unused(self) -> None:
        """Close what was not used for KEEP_ALIVE seconds; look again when the next one may be."""
        unused_since = self.time() - KEEP_ALIVE
        for connection in self._all():
            if connection.is_idle and connection.used <= unused_since:
                connection.close()
        self._idle = [connection for connection in self._idle if connection.is_open]
        self._shared = [connection for connection in self._shared if not connection.is_lost]
        self._timer = None
        if self._idle or self._shared:
            waits = [connection.used - unused_since for connection in self._idle]
            self._close_later(min(waits, default=KEEP_ALIVE))

    # Opening

    async def _opened(self, deadline: float) -> Connection:
        """A new connection, or room on one that others have opened meanwhile."""
        while self._may_share:
            # Requests that begin together wait for one connection, which all of them may share.
            if self._opening is None:
                self._opening = self._loop.create_task(self._open_shared())
            async with asyncio.timeout_at(deadline):
                problem = await asyncio.shield(self._opening)
            if problem is not None:
                raise ConnectionError(*problem.args) from problem
            connection = self._taken(idle=True)
            if connection is not None:
                return connection
        return await self._open(deadline)

    async def _open_shared(self) -> OSError | None:
        """Open a connection for those that wait for it; why that failed."""
        try:
            connection = await self._open(inf)
        except OSError as error:
            return error
        finally:
            self._opening = None
        if isinstance(connection, Http1Connection):
            self._may_share = False
            self._put_back(connection)
        return None

    async def _open(self, deadline: float) -> Connection:
        until = min(deadline, self.time() + self._connect_timeout)
        try:
            async with asyncio.timeout_at(until):
                connection = await self._connected()
        except TimeoutError as error:
            if until == deadline:
                raise
            raise ConnectionError(
                f"Cannot connect to host {self._host}:{self._port} within {self._connect_timeout:g} s"
            ) from error
        except OSError as error:
            raise ConnectionError(f"Cannot connect to host {self._host}:{self._port} [{error}]") from error
        if not isinstance(connection, Http1Connection):
            self._shared.append(connection)
            self._deadlines.add(connection)
            self._close_later(KEEP_ALIVE)
        return connection

    async def _connected(self) -> Connection:
        addresses = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        sock = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS)
        try:
            _, opening = await self._loop.create_connection(
                lambda: Opening(self._made),
                sock=sock,
                ssl=self._ssl,
                server_hostname=self._server_name if self._ssl is not None else None,
            )
        except BaseException:
            sock.close()
            raise
        assert opening.connection is not None
        return opening.connection

    def _made(self, agreed: str | None) -> Connection:
        """A connection that speaks the protocol agreed upon in the TLS handshake."""
        if agreed == "h2":
            from pykueue.kube.http2 import Http2Connection

            return Http2Connection(self._loop, self._host_header)
        return Http1Connection(self._loop, self._host_header)
