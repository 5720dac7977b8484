"""What delivering to watchers costs, apart from the writes that cause it: with TLS, and without.

The server runs in a separate process and puts the events into its store itself, in batches as large as
those that busy clients cause. Watchers in another process count frames, over TLS and over a port without TLS,
which only this bench opens: the difference is what encrypting costs.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import orjson
import uvloop
from bench.apiserver.load import WORKLOADS, status_patch, workload
from bench.apiserver.watchers import Watchers

from pykueue.api.crds import crds
from pykueue.clock import Clock
from pykueue.embedded.apiserver.auth.authentication import Authenticator
from pykueue.embedded.apiserver.auth.certificates import Authority, now_utc
from pykueue.embedded.apiserver.http.front import HttpFront
from pykueue.embedded.apiserver.http.listening import ADMIN
from pykueue.embedded.apiserver.server import Server
from pykueue.kube.transport import Request

_TOKEN = "bench"
_HEAD = (
    f"GET {WORKLOADS}?watch=true HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {_TOKEN}\r\n\r\n".encode()
)
#: Bytes waiting on any connection at which the next batch has to wait.
_BEHIND = 4 * 1024 * 1024


class _Program:
    """The server's side: publishes the requested events, and prints the CPU time used."""

    def __init__(self) -> None:
        self._server = Server()
        self._front = HttpFront(
            self._server.pipeline, Authenticator(self._server.core, bytes(32), {_TOKEN: ADMIN})
        )

    async def open(self, folder: Path) -> tuple[int, int, str]:
        """Ports with and without TLS, and the authority's certificate."""
        server = self._server
        await server.start()
        await server.install_crds(crds())
        authority = Authority(folder, now_utc(Clock().time()))
        loop, ports = asyncio.get_running_loop(), []
        for context in (authority.server_context(["127.0.0.1"]), None):
            opened = await loop.create_server(self._front.connect, "127.0.0.1", 0, ssl=context)
            ports.append(opened.sockets[0].getsockname()[1])
        obj = orjson.loads(workload("watched"))
        obj["metadata"]["namespace"] = "default"
        await server.transport().call(Request("POST", WORKLOADS, {}, obj))
        return ports[0], ports[1], authority.certificate.decode()

    async def publish(self, events: int, batch: int) -> dict[str, float]:
        """Publish status changes; the result counts this process's CPU seconds until all are sent."""
        store = self._server.store
        table = store.table("kueue.x-k8s.io/workloads")
        record = table.get(("default", "watched"))
        assert record is not None
        stored = record.object
        changes = [
            {
                **stored,
                "metadata": dict(stored["metadata"]),
                "status": orjson.loads(status_patch(n))["status"],
            }
            for n in range(events)
        ]
        gc.collect()
        gc.freeze()
        start, cpu = time.perf_counter(), time.process_time()
        for first in range(0, events, batch):
            for change in changes[first : first + batch]:
                store.put(table, record.key, change)
            await asyncio.sleep(0)
            await self._sent(_BEHIND)
        await asyncio.sleep(0.05)  # longer than the server gathers events for one write
        await self._sent(0)
        return {"cpu": time.process_time() - cpu, "seconds": time.perf_counter() - start}

    async def _sent(self, most: int) -> None:
        """Wait until no connection has more than so many bytes waiting."""
        for connection in self._front._connections:
            while connection.transport.get_write_buffer_size() > most:  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.001)


async def _serve(pipe: Connection, folder: str) -> None:
    program = _Program()
    loop = asyncio.get_running_loop()
    pipe.send(await program.open(Path(folder)))
    while True:
        events, batch = await loop.run_in_executor(None, pipe.recv)
        pipe.send(await program.publish(events, batch))


def _main(pipe: Connection, folder: str) -> None:
    uvloop.run(_serve(pipe, folder))


def _await(crowd: Watchers, frames: int) -> tuple[int, int]:
    """Frames and bytes seen, once there are as many as expected, or none come for a second."""
    seen, still = crowd.seen(), 0
    while seen[0] < frames and still < 20:
        time.sleep(0.05)
        now = crowd.seen()
        still = still + 1 if now == seen else 0
        seen = now
    return seen


def measure(watchers: int, events: int, batch: int) -> dict[str, Any]:
    """Deliveries per CPU second of the server with TLS and without, and what encrypting takes of it."""
    result: dict[str, Any] = {"watchers": watchers, "batch": batch}
    with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as folder:
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        process = context.Process(target=_main, args=(theirs, folder), daemon=True)
        process.start()
        try:
            tls, plain, ca = pipe.recv()
            for name, port, trusted in (("tls", tls, ca), ("plain", plain, None)):
                crowd = Watchers("127.0.0.1", port, trusted, _HEAD, watchers)
                try:
                    # One event each at the beginning: the object that is there.
                    frames, size = _await(crowd, watchers)
                    pipe.send((events, batch))
                    spent = pipe.recv()
                    now, bytes_now = _await(crowd, frames + events * watchers)
                finally:
                    crowd.stop()
                seen = now - frames
                result[name] = {
                    "missed": events * watchers - seen,
                    "deliveries_per_second": round(seen / spent["seconds"]),
                    "deliveries_per_cpu_second": round(seen / spent["cpu"]),
                    "cpu_us_per_delivery": round(spent["cpu"] / seen * 1e6, 3),
                    "bytes_per_delivery": round((bytes_now - size) / seen),
                }
        finally:
            process.kill()
            process.join()
    with_tls, without = result["tls"]["cpu_us_per_delivery"], result["plain"]["cpu_us_per_delivery"]
    result["tls_share"] = round(1 - without / with_tls, 3)
    return result
