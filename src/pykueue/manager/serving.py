"""What the manager answers: metrics, health, and on a real cluster its admission rules, over HTTP and HTTPS.

Three servers, each on the address the configuration names: metrics (HTTPS where a certificate is given),
health probes (HTTP), webhooks (HTTPS with the certificate of `webhook.certDir`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import orjson
from aiohttp import web

from pykueue.api.conversion import ConversionError, convert
from pykueue.jobs.objects import Object

from .manager import Manager
from .webhooks import Registration

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Serving:
    """The servers of one manager. `webhooks` are served only where the certificate directory holds one."""

    def __init__(self, manager: Manager, metrics_certificate: ssl.SSLContext | None = None) -> None:
        self._manager = manager
        self._configuration = manager.configuration
        self._metrics_certificate = metrics_certificate
        self._runners: list[web.AppRunner] = []
        #: The ports really bound, by purpose: metrics, health, webhooks.
        self.ports: dict[str, int] = {}
        #: Set once all servers are open.
        self.started = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await self.start()
            self.started.set()
            await asyncio.get_running_loop().create_future()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Open all servers. Raises OSError for an address that cannot be bound."""
        health = self._configuration.health
        await self._serve(
            "health",
            health.health_probe_bind_address,
            {
                f"/{health.liveness_endpoint_name}": _live,
                f"/{health.readiness_endpoint_name}": self._ready,
            },
        )
        address = self._configuration.metrics.bind_address
        await self._serve("metrics", address, {"/metrics": self._metrics}, self._metrics_certificate)
        certificate = _certificate(Path(self._configuration.webhook.cert_dir))
        if certificate is not None:
            webhook = self._configuration.webhook
            posts = {hook.path: _reviewer(hook) for hook in self._manager.webhooks()}
            posts["/convert"] = _convert
            await self._serve("webhooks", f"{webhook.host}:{webhook.port}", posts, certificate, "POST")

    async def stop(self) -> None:
        """Close all servers."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _serve(
        self,
        purpose: str,
        address: str,
        handlers: dict[str, Handler],
        certificate: ssl.SSLContext | None = None,
        method: str = "GET",
    ) -> None:
        if address in ("", "0"):
            return  # switched off
        host, _, port = address.rpartition(":")
        app = web.Application(client_max_size=8 * 1024 * 1024)
        for path, handler in handlers.items():
            app.router.add_route(method, path, handler)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=certificate)
        await site.start()
        self.ports[purpose] = runner.addresses[0][1]

    async def _ready(self, request: web.Request) -> web.Response:
        """Ready once the whole cluster has been read."""
        if self._manager.cluster.has_synced:
            return web.Response(text="ok")
        return web.Response(status=503, text="the cluster has not been read yet")

    async def _metrics(self, request: web.Request) -> web.Response:
        text = self._manager.metrics.text()
        return web.Response(body=text, content_type="text/plain", charset="utf-8")


async def _live(request: web.Request) -> web.Response:
    return web.Response(text="ok")


def _reviewer(hook: Registration) -> Handler:
    async def review(request: web.Request) -> web.Response:
        try:
            body: Object = orjson.loads(await request.read())
            answer = await hook.review(body)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            return web.Response(status=400, text=f"not an AdmissionReview: {error!r}")
        return _json(answer)

    return review


async def _convert(request: web.Request) -> web.Response:
    """ConversionReview v1: every object in the version asked for, or why not."""
    try:
        body: Object = orjson.loads(await request.read())
        asked = body["request"]
        version, objects = asked["desiredAPIVersion"], asked["objects"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        return web.Response(status=400, text=f"not a ConversionReview: {error!r}")
    response: Object = {"uid": asked.get("uid", "")}
    try:
        response["convertedObjects"] = _converted(objects, version)
        response["result"] = {"status": "Success"}
    except ConversionError as error:
        response["result"] = {"status": "Failure", "message": str(error)}
    return _json({"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "response": response})


def _converted(objects: Iterable[Object], version: str) -> list[Object]:
    return [convert(obj, version) for obj in objects]


def _json(body: Object) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


def _certificate(directory: Path) -> ssl.SSLContext | None:
    """The serving certificate of a directory; None where there is none."""
    certificate, key = directory / "tls.crt", directory / "tls.key"
    if not (certificate.exists() and key.exists()):
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context
