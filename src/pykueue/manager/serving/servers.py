"""The manager's servers, each on the address that the configuration names.

Probes (HTTP), metrics (HTTPS, for those only whom the API server allows it), webhooks (HTTPS), and profiles
where an address is given for them (HTTP). Those with TLS open once there is a certificate; the webhook server
does not wait for the caches, for what is to be read may have to be converted by it first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from pykueue.kube.client import Client
from pykueue.manager.install_names import CONVERT_PATH, METRICS_PATH
from pykueue.manager.manager import Manager

from .access import Access
from .listener import Listener
from .messages import Handler, Request, Response, plain
from .reviews import Reviews
from .tls import ServingTls

log = logging.getLogger(__name__)

#: Seconds after which a replica whose webhook server is open counts as ready although it has not read the
#: cluster: what it waits for may be objects that only a ready replica is asked to convert.
READY_ANYWAY = 20.0
#: Addresses that stand for no server.
_SWITCHED_OFF = ("", "0")


class Serving:
    """The servers of one manager. `client` asks who may read metrics."""

    def __init__(self, manager: Manager, client: Client, tls: ServingTls) -> None:
        self._manager = manager
        self._configuration = manager.configuration
        self._tls = tls
        self._access = Access(client)
        self._listeners: list[Listener] = []
        self._opened_at: float | None = None
        self._leaving = False
        #: The ports really bound, by purpose: metrics, health, webhooks, profiling.
        self.ports: dict[str, int] = {}
        #: Set once all servers are open.
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError for an address that cannot be bound."""
        try:
            await self._open_plain()
            await self._tls.ready.wait()
            await self._open_secured()
            self._opened_at = asyncio.get_running_loop().time()
            self.started.set()
            log.info("serving: %s", ", ".join(f"{name} on {port}" for name, port in self.ports.items()))
            await asyncio.get_running_loop().create_future()
        finally:
            await self.close()

    def leave(self) -> None:
        """Say that this replica is not to be asked any more."""
        self._leaving = True

    async def close(self) -> None:
        """Close all servers; requests under way have a moment to end."""
        await asyncio.gather(*(listener.close() for listener in self._listeners))
        self._listeners.clear()

    async def _open_plain(self) -> None:
        health = self._configuration.health
        probes = {
            f"/{health.liveness_endpoint_name.strip('/')}": _live,
            f"/{health.readiness_endpoint_name.strip('/')}": self._ready,
        }
        await self._open("health", health.health_probe_bind_address, probes)
        if self._configuration.pprof_bind_address not in _SWITCHED_OFF:
            from .profiling import handlers as profiling_handlers  # seldom wanted, and large

            await self._open("profiling", self._configuration.pprof_bind_address, profiling_handlers())

    async def _open_secured(self) -> None:
        webhook = self._configuration.webhook
        reviews = Reviews(self._manager.webhooks(), self._manager.synced, self._manager.unused_paths())
        host = f"[{webhook.host}]" if ":" in webhook.host else webhook.host
        await self._open(
            "webhooks", f"{host}:{webhook.port}", reviews.handlers(CONVERT_PATH), True, method="POST"
        )
        metrics = {METRICS_PATH: self._access.guarded(self._metrics)}
        await self._open("metrics", self._configuration.metrics.bind_address, metrics, True)

    async def _open(
        self,
        purpose: str,
        address: str,
        handlers: Mapping[str, Handler],
        secured: bool = False,
        method: str = "GET",
    ) -> None:
        if address in _SWITCHED_OFF:
            return
        host, _, port = address.rpartition(":")
        listener = Listener(handlers, method)
        self._listeners.append(listener)
        await listener.open(host.strip("[]"), int(port), self._tls.context if secured else None)
        self.ports[purpose] = listener.port

    async def _ready(self, request: Request) -> Response:
        """Ready once webhooks are answered and the cluster has been read."""
        if self._leaving:
            return plain("shutting down", 503)
        if self._opened_at is None:
            return plain("there is no serving certificate yet", 503)
        waited = asyncio.get_running_loop().time() - self._opened_at
        if self._manager.cluster.has_synced or waited >= READY_ANYWAY:
            return plain("ok")
        return plain("the cluster has not been read yet", 503)

    async def _metrics(self, request: Request) -> Response:
        return Response(self._manager.metrics.text())


async def _live(request: Request) -> Response:
    return plain("ok")
