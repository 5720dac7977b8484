"""A Kubernetes API server for tests: `pykueue_server` for pytest, `running_server` for everything else.

The server runs in a thread of the test's process, listens on loopback with TLS, keeps all in memory and
is gone when the test is. Controllers, client libraries and kubectl use it as they use any cluster.
Guide: docs/use/test-server.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
import threading
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

try:
    import uvloop
except ModuleNotFoundError as error:
    from pykueue.extras import how_to_install

    raise ModuleNotFoundError(
        f"pykueue.testing needs the extra 'cluster'; {how_to_install('cluster')}", name=error.name
    ) from None

from pykueue.api.yaml import load_documents
from pykueue.clock import Clock
from pykueue.cluster import Cluster
from pykueue.embedded.apiserver.http.listening import Address
from pykueue.embedded.nodes.pool import NodePool, load_pools

T = TypeVar("T")

#: Seconds the thread may take to end before the test fails.
_PATIENCE = 30.0


@dataclass(frozen=True)
class RunningServer:
    """A running API server and what a client needs to reach it."""

    #: `https://127.0.0.1:<port>`.
    url: str
    #: Bearer token of a cluster administrator.
    token: str
    #: The certificate authority that signed the server's certificate, PEM.
    ca_file: Path
    #: A kubeconfig of a cluster administrator.
    kubeconfig: Path
    #: The parts behind it, for tests that look inside; use them on the server's loop only (`run`).
    cluster: Cluster
    _loop: asyncio.AbstractEventLoop

    @property
    def environment(self) -> Mapping[str, str]:
        """This process's environment with KUBECONFIG set, for subprocesses."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's event loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def install_definitions(self, *sources: Path | Mapping[str, Any]) -> None:
        """Install CustomResourceDefinitions: YAML files (other kinds in them are left out) or objects.

        They are served and established when this returns. Raises OSError, YamlError or ApiError.
        """
        definitions: list[dict[str, Any]] = []
        for source in sources:
            if isinstance(source, Path):
                definitions += load_documents(source.read_text(), str(source))
            else:
                definitions.append(dict(source))
        wanted = [one for one in definitions if one.get("kind") == "CustomResourceDefinition"]
        assert self.cluster.server is not None
        self.run(self.cluster.server.install_crds(wanted))


@contextlib.contextmanager
def running_server(
    *,
    parts: Collection[str] = ("apiserver",),
    nodes: Path | Iterable[NodePool] = (),
    seed: int | None = None,
) -> Iterator[RunningServer]:
    """A running server until the block is left.

    `parts` are those of `pykueue up --only`: with `kube`, controllers, pod scheduler and simulated nodes
    run too. `nodes` is a node pool file or its pools. `seed` makes uids and generated names repeatable.
    """
    pools = load_pools(nodes) if isinstance(nodes, Path) else list(nodes)
    rng = random.Random(seed)
    ready: Future[RunningServer] = Future()
    stop = asyncio.Event()

    async def main(folder: Path) -> None:
        cluster = Cluster(clock=Clock(), rng=rng, pools=pools, parts=parts)
        await cluster.start()
        try:
            assert cluster.server is not None, "a server without the part `apiserver`"
            address: Address = await cluster.server.serve(directory=folder)
            ca_file = folder / "ca.crt"
            ca_file.write_bytes(address.ca)
            work = asyncio.ensure_future(cluster.run())
            ready.set_result(
                RunningServer(
                    address.url,
                    address.token,
                    ca_file,
                    folder / "kubeconfig",
                    cluster,
                    asyncio.get_running_loop(),
                )
            )
            await stop.wait()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        finally:
            await cluster.stop()

    def serve(folder: Path) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main(folder))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    with tempfile.TemporaryDirectory(prefix="pykueue-") as name:
        thread = threading.Thread(target=serve, args=(Path(name),), name="pykueue-server", daemon=True)
        thread.start()
        try:
            server = ready.result()
            try:
                yield server
            finally:
                server._loop.call_soon_threadsafe(stop.set)
        finally:
            thread.join(_PATIENCE)
            if thread.is_alive():
                raise RuntimeError(f"the server did not end within {_PATIENCE:.0f} s")


@pytest.fixture
def pykueue_server() -> Iterator[RunningServer]:
    """A fresh, empty API server for one test."""
    with running_server() as server:
        yield server
