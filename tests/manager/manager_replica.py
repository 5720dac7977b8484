"""A replica of the manager in this process, beside an embedded API server that listens."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.resources import SECRETS
from pykueue.clock import Clock
from pykueue.embedded.apiserver.http.listening import Address
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.transport import Transport
from pykueue.manager.components import Runnable
from pykueue.manager.configuration import Configuration, parse
from pykueue.manager.replica import Replica

Object = dict[str, Any]

#: The name that the API server asks the webhook server's certificate for.
HOST = "kueue-webhook-service.kueue-system.svc"

CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: "127.0.0.1:0"}
metrics: {bindAddress: "127.0.0.1:0"}
webhook: {host: 127.0.0.1, port: 0}
leaderElection: {leaderElect: false}
"""


def configured(text: str = "") -> Configuration:
    """The servers on free ports of loopback, unless `text` says otherwise."""
    sections = dict.fromkeys(line.partition(":")[0] for line in text.splitlines() if line[:1].isalpha())
    kept = [line for line in CONFIGURATION.splitlines() if line.partition(":")[0] not in sections]
    return parse("\n".join([*kept, text]))


class Running:
    """A running replica and how to ask it."""

    def __init__(self, server: Server, address: Address, replica: Replica, session: Any) -> None:
        self.server = server
        self.address = address
        self.replica = replica
        self.client = Client(server.transport())
        self._session: aiohttp.ClientSession = session

    async def trust(self) -> ssl.SSLContext:
        """TLS that trusts only the authorities in the Secret."""
        secret = await self.client.get(SECRETS, "kueue-webhook-server-cert", "kueue-system")
        return ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())

    async def post(self, path: str, **arguments: Any) -> tuple[int, Any]:
        """What the webhook server answers: the code and the decoded body."""
        url = f"https://127.0.0.1:{self.replica.serving.ports['webhooks']}{path}"
        tls = await self.trust()
        async with self._session.post(url, ssl=tls, server_hostname=HOST, **arguments) as answer:
            return answer.status, await answer.json()

    async def scrape(self, token: str | None = None) -> tuple[int, str]:
        url = f"https://127.0.0.1:{self.replica.serving.ports['metrics']}/metrics"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        tls = await self.trust()
        async with self._session.get(url, ssl=tls, server_hostname=HOST, headers=headers) as answer:
            return answer.status, await answer.text()

    async def get(self, purpose: str, path: str) -> tuple[int, str]:
        """What a server without TLS answers."""
        url = f"http://127.0.0.1:{self.replica.serving.ports[purpose]}{path}"
        async with self._session.get(url) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def running(
    text: str = "",
    wrap: Callable[[Transport], Transport] | None = None,
    servers: Sequence[Callable[[Replica], Runnable]] = (),
) -> AsyncIterator[Running]:
    """A replica that serves; `wrap` goes between it and the API server, `servers` are served beside."""
    clock = Clock()
    server = Server(MemoryStore(), clock, random.Random(1))
    await server.start()
    await server.install_crds(crds())
    server.register_conversion("kueue.x-k8s.io", convert)
    address = await server.serve()
    transport: Transport = server.transport()
    if wrap is not None:
        transport = wrap(transport)
    replica = Replica(transport, configured(text), clock, random.Random(1), servers)
    task = asyncio.create_task(replica.run())
    started = asyncio.create_task(replica.serving.started.wait())
    try:
        await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        async with aiohttp.ClientSession() as session:
            yield Running(server, address, replica, session)
    finally:
        started.cancel()
        task.cancel()
        await asyncio.gather(task, started, return_exceptions=True)
        await server.stop()


def with_replica(
    test: Callable[[Running], Awaitable[None]],
    text: str = "",
    wrap: Callable[[Transport], Transport] | None = None,
    loop: Callable[..., None] = asyncio.run,
) -> None:
    """Run a test against a replica in real time, on the event loop of `loop`."""

    async def main() -> None:
        async with running(text, wrap) as found:
            await test(found)

    loop(main())
