"""The dashboard of an embedded API server in the same process: no port and no certificate between them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from pykueue.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.kube.client import Client
from pykueue.kube.transport import Request, WatchEvent
from pykueue.manager.configuration import Configuration
from pykueue.manager.install.dashboard import EMBEDDED_USER, embedded_role
from pykueue.manager.scheduler.engine_options import engine_options

from .server import Dashboard, Serving


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


async def embedded_dashboard(
    server: Server, configuration: Configuration, clock: Clock | None = None, serving: Serving | None = None
) -> Dashboard:
    """A dashboard of the server, with its own rights in the cluster. Users have the tokens of the server."""
    clock = clock or Clock()
    owner = Client(server.transport("system:apiserver"), clock=clock)
    for resource, obj in zip((CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS), embedded_role(), strict=True):
        await owner.apply(resource, obj, field_manager="pykueue", force=True)
    client = Client(server.transport(EMBEDDED_USER, ()), clock=clock)
    return Dashboard(
        client,
        lambda token: TokenTransport(server, token),
        clock,
        options=engine_options(configuration),
        serving=serving,
    )
