"""The visibility API on the embedded API server, in process: no port, no certificate, its RBAC."""

from __future__ import annotations

from pykueue.embedded.apiserver.server import Server
from pykueue.manager.install_names import VISIBILITY_GROUP
from pykueue.manager.manager import Manager
from pykueue.simulate.live.forecasts import Forecasts

from .api import GATE, VERSIONS, VisibilityApi


async def serve(server: Server, manager: Manager, forecasts: Forecasts | None = None) -> None:
    """Have the server answer for the group with what the manager knows, unless its gate is off."""
    if manager.configuration.gates[GATE]:
        await server.aggregation.extend(VISIBILITY_GROUP, VERSIONS, VisibilityApi(manager, forecasts))
