"""The dashboard of an embedded API server in the same process: no port and no certificate between them."""

from __future__ import annotations

from pykueue.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.kube.client import Client
from pykueue.manager.configuration import Configuration
from pykueue.manager.install.dashboard import EMBEDDED_USER, embedded_role
from pykueue.manager.scheduler.engine_options import engine_options

from .security.embedded_tokens import embedded_sessions
from .security.sessions import Sessions
from .server import Dashboard


async def embedded_dashboard(
    server: Server,
    configuration: Configuration,
    clock: Clock | None = None,
    sessions: Sessions | None = None,
) -> Dashboard:
    """A dashboard of the server, with its own rights in the cluster. Users have the tokens of the server."""
    clock = clock or Clock()
    owner = Client(server.transport("system:apiserver"), clock=clock)
    for resource, obj in zip((CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS), embedded_role(), strict=True):
        await owner.apply(resource, obj, field_manager="pykueue", force=True)
    client = Client(server.transport(EMBEDDED_USER, ()), clock=clock)
    return Dashboard(
        client,
        sessions or embedded_sessions(server, clock),
        clock,
        options=engine_options(configuration),
    )
