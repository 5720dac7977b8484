"""Users of a dashboard that is in the process of an embedded API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.kube.transport import Request, WatchEvent

from .sessions import Sessions


def embedded_sessions(server: Server, clock: Clock) -> Sessions:
    """Sessions of users who have the tokens of the server."""
    return Sessions(lambda token: TokenTransport(server, token), clock)


class TokenTransport:
    """Requests as the user of a bearer token, which is checked for each of them."""

    def __init__(self, server: Server, token: str) -> None:
        self._server = server
        self._token = token

    async def call(self, request: Request) -> Any:
        """The answer. Raises ApiError."""
        return await self._server.token_transport(self._token).call(request)

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        """Changes. Raises ApiError."""
        async for event in self._server.token_transport(self._token).watch(request):
            yield event

    async def close(self) -> None:
        """Nothing to give back."""
