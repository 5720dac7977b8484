"""The client, its caches and the built-in controllers over HTTPS, against the embedded server on loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pykueue.api.objects import Object
from pykueue.api.resources import CONFIG_MAPS, EVENTS, JOBS, LEASES, PODS
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.controllers import Controllers
from pykueue.kube.client import Client
from pykueue.kube.config import load
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, EventRecorder
from pykueue.kube.http import HttpTransport
from pykueue.kube.informer import Informer
from pykueue.kube.leases import LeaderElector

#: Options of the transport, which every test is run with in turn.
OPTIONS: dict[str, Any] = {}
#: Seconds after which a step that hangs fails its test; nothing is asserted about how long a step takes.
PATIENCE = 30


@pytest.fixture(autouse=True, params=[False, True], ids=["http-1", "http-2"])
def http2(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIONS, "http2", request.param)


@asynccontextmanager
async def running(*components: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(component.run()) for component in components]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


class Link:
    """The network between client and server, which can be cut."""

    def __init__(self) -> None:
        self._ends: set[asyncio.StreamWriter] = set()
        self._target = ("", 0)
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Forward what comes to the port that is returned."""
        self._target = (host, port)
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        listening: int = self._server.sockets[0].getsockname()[1]
        return listening

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._ends |= {writer, far_writer}
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        self._ends -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    def cut(self) -> None:
        """Break all connections; new ones may be made."""
        for end in self._ends:
            end.transport.abort()

    async def close(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


@asynccontextmanager
async def cluster(folder: Path, server: Server, link: Link | None = None) -> AsyncIterator[HttpTransport]:
    """A started server and a transport made from its kubeconfig."""
    await server.start()
    address = await server.serve("127.0.0.1", 0, folder)
    kubeconfig = folder / "kubeconfig"
    text = address.kubeconfig
    if link is not None:
        text = text.replace(f":{address.port}", f":{await link.open(address.host, address.port)}")
    kubeconfig.write_text(text)
    transport = await load(kubeconfig, **OPTIONS)
    try:
        yield transport
    finally:
        await transport.close()
        if link is not None:
            await link.close()
        await server.stop()


def config_map(name: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


async def until(informer: Informer, condition: Callable[[], bool]) -> None:
    """Wait for a condition that events of the informer bring about."""
    changed = asyncio.Event()
    informer.on_event(lambda kind, old, new: changed.set())
    async with asyncio.timeout(PATIENCE):
        while not condition():
            changed.clear()
            await changed.wait()


def test_objects_go_there_and_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path, Server()) as transport:
            client = Client(transport, page_size=2)
            for name in "abcde":
                await client.create(CONFIG_MAPS, config_map(name, v="ä\n" + "x" * 10))
            found = await client.list(CONFIG_MAPS, "default", field_selector="metadata.name!=c")
            assert [one["metadata"]["name"] for one in found.items] == ["a", "b", "d", "e"]
            assert found.items[0]["kind"] == "ConfigMap"
            patched = await client.patch(CONFIG_MAPS, "a", "default", {"data": {"w": "2"}})
            assert patched["data"] == {"v": "ä\n" + "x" * 10, "w": "2"}
            assert "managedFields" not in patched["metadata"]
            stale = found.items[0]
            with pytest.raises(ApiError) as conflict:
                await client.update(CONFIG_MAPS, {**stale, "data": {}})
            assert conflict.value.conflict
            applied = await client.apply(CONFIG_MAPS, config_map("z", k="v"), field_manager="me")
            assert applied["data"] == {"k": "v"}
            await client.delete(CONFIG_MAPS, "z", "default", uid=applied["metadata"]["uid"])
            with pytest.raises(ApiError) as gone:
                await client.get(CONFIG_MAPS, "z", "default")
            assert gone.value.not_found

    asyncio.run(main())


def test_events_arrive(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path, Server()) as transport:
            client = Client(transport)
            created = await client.create(CONFIG_MAPS, config_map("a"))
            recorder = EventRecorder(client, Clock(), "test")
            events = Informer(client, EVENTS, "default")
            async with running(recorder, events):
                recorder.event(created, NORMAL, "Tested", "it works")
                await until(events, lambda: len(events) == 1)
            (event,) = events.list()
            assert (event["message"], event["involvedObject"]["name"]) == ("it works", "a")

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_cache_follows_the_server_when_the_connection_breaks(tmp_path: Path, stream: bool) -> None:
    async def main() -> None:
        server, link = Server(), Link()
        async with cluster(tmp_path, server, link) as transport:
            inside = Client(server.transport())
            await inside.create(CONFIG_MAPS, config_map("first"))
            informer = Informer(Client(transport), CONFIG_MAPS, "default", stream=stream)
            heard: list[tuple[str, str]] = []
            informer.on_event(lambda kind, old, new: heard.append((kind, (new or old)["metadata"]["name"])))
            async with running(informer):
                async with asyncio.timeout(PATIENCE):
                    await informer.synced()
                assert heard == [("ADDED", "first")]
                await inside.create(CONFIG_MAPS, config_map("large", v="x" * 900_000))
                await inside.delete(CONFIG_MAPS, "first", "default")
                await until(informer, lambda: len(heard) == 3)
                link.cut()
                await inside.create(CONFIG_MAPS, config_map("meanwhile"))
                await until(informer, lambda: len(heard) == 4)
            assert heard[1:] == [("ADDED", "large"), ("DELETED", "first"), ("ADDED", "meanwhile")]

    asyncio.run(main())


def test_the_controllers_work_through_the_network_too(tmp_path: Path) -> None:
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {
            "completions": 3,
            "parallelism": 3,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
            },
        },
    }

    async def main() -> None:
        server = Server()
        async with cluster(tmp_path, server) as transport:
            controllers = Controllers(transport, Clock(), random.Random(0))
            inside = Client(server.transport())
            pods = Informer(inside, PODS)
            async with running(controllers, pods):
                await inside.create(JOBS, job)
                await until(pods, lambda: len(pods) == 3)
                await inside.delete(JOBS, "job", "default", propagation="Background")
                await until(pods, lambda: len(pods) == 0)

    asyncio.run(main())


def test_a_lease_is_held_on_the_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path, Server()) as transport:
            client = Client(transport)
            elector = LeaderElector(client, Clock(), "kube-system", "pykueue", "me")
            held: list[Object] = []

            async def lead() -> None:
                held.append(await client.get(LEASES, "pykueue", "kube-system"))

            async with asyncio.timeout(PATIENCE):
                await elector.run(lead)
            assert held[0]["spec"]["holderIdentity"] == "me"
            after = await client.get(LEASES, "pykueue", "kube-system")
            assert after["spec"].get("holderIdentity", "") == ""

    asyncio.run(main())
