"""One HTTP or HTTPS server that no client can exhaust: slow, silent and oversized ones are turned away."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping

from .connection import Connection
from .messages import Handler, Request, Response, refusal

log = logging.getLogger(__name__)

#: Seconds a client has for the TLS handshake, and to send the head of a request.
HANDSHAKE_TIME, HEAD_TIME = 10.0, 10.0
#: Seconds an idle connection is kept: longer than API servers keep theirs (90), so that they close first.
KEEP_ALIVE = 120.0
#: Connections that wait to be accepted, and that are open at once; more are closed as they come.
BACKLOG, CONNECTIONS = 128, 512
#: Seconds that requests under way have to end when the server is closed.
CLOSING_TIME = 2.0


class Listener:
    """Serves handlers by path under one method, on one address; `others` are all other paths."""

    def __init__(
        self, handlers: Mapping[str, Handler], method: str = "GET", others: Handler | None = None
    ) -> None:
        self._handlers = handlers
        self._method = method
        self._others = others
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self.port = 0

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Begin to serve; port 0 takes any that is free. Raises OSError."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._answer, self._made, self._connections.discard, HEAD_TIME, KEEP_ALIVE),
            host or None,
            port,
            ssl=tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=HANDSHAKE_TIME if tls is not None else None,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Take no more requests; those under way have a moment to end."""
        if self._server is not None:
            self._server.close()
        under_way = [each.task for each in self._connections if each.task is not None]
        for connection in list(self._connections):
            connection.close()
        if under_way:
            await asyncio.wait(under_way, timeout=CLOSING_TIME)
        for connection in list(self._connections):
            connection.abort()

    def _made(self, connection: Connection) -> bool:
        self._connections.add(connection)
        return len(self._connections) <= CONNECTIONS

    async def _answer(self, request: Request) -> Response:
        """Every refusal is a Status object; internal errors are logged and not returned."""
        handler = self._handlers.get(request.path, self._others)
        if handler is None:
            return refusal(404, "the server could not find the requested resource")
        if request.method != self._method:
            return refusal(405, f"the method {request.method} is not supported here")
        try:
            return await handler(request)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return refusal(500, "internal error")
