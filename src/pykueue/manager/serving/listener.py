"""One HTTP or HTTPS server that no client can exhaust: slow, silent and oversized ones are turned away."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Seconds a client has for the TLS handshake, and to send the head of its first request.
HANDSHAKE_TIME, HEAD_TIME = 10.0, 10.0
#: Seconds an idle connection is kept: longer than API servers keep theirs (90), so that they close first.
KEEP_ALIVE = 120.0
#: Connections that wait to be accepted, and that are open at once; more are closed as they come.
BACKLOG, CONNECTIONS = 128, 512
#: Bytes that are read ahead of what is asked for, per connection.
READ_BUFFER = 64 * 1024
#: Seconds that requests under way have to end when the server is closed.
CLOSING_TIME = 2.0


class Listener:
    """Serves handlers by path under one method, on one address."""

    def __init__(self, handlers: Mapping[str, Handler], method: str = "GET") -> None:
        app = web.Application(middlewares=[self._answer])
        for path, handler in handlers.items():
            app.router.add_route(method, path, handler)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            shutdown_timeout=CLOSING_TIME,
            handler_cancellation=True,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
        )
        self._server: asyncio.Server | None = None
        #: What cuts off connections that have not sent a request yet, by the identity of their protocol.
        self._silent: dict[int, asyncio.TimerHandle] = {}
        self.port = 0

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Begin to serve; port 0 takes any that is free. Raises OSError."""
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(
            self._connected,
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
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()
        await self._runner.cleanup()

    def _connected(self) -> asyncio.Protocol:
        """The protocol of a new connection; one that stays silent, or is one too many, is cut off."""
        server = self._runner.server
        assert server is not None
        protocol = server()
        delay = HEAD_TIME if len(server.connections) < CONNECTIONS else 0.0
        timer = asyncio.get_running_loop().call_later(delay, self._cut_off, protocol)
        self._silent[id(protocol)] = timer
        return protocol

    def _cut_off(self, protocol: web.RequestHandler) -> None:
        del self._silent[id(protocol)]
        if protocol.transport is not None:
            protocol.transport.abort()

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every refusal is a Status object; internal errors are logged and not returned."""
        timer = self._silent.pop(id(request.protocol), None)
        if timer is not None:
            timer.cancel()
        try:
            return await handler(request)
        except web.HTTPException as error:
            return refusal(error.status, error.text or error.reason)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return refusal(500, "internal error")


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    503: "ServiceUnavailable",
}


def refusal(code: int, message: str) -> web.Response:
    """A Status object that says no."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "InternalError"),
        "code": code,
    }
    return web.Response(status=code, body=orjson.dumps(status), content_type="application/json")
