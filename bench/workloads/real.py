"""The Jobs in real time, against `pykueue up` in a separate process: over HTTPS, with its durable store."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import uvloop
from bench.apiserver.server import ServerProcess
from bench.workloads import objects
from bench.workloads.virtual import Figures, Watch, ended

from pykueue.api.resources import JOBS
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import load

#: Creations under way at the same time.
CONNECTIONS = 32


def jobs(count: int, nodes: int, in_memory: bool, profile: Path | None) -> Figures:
    """One-pod Jobs created at once, to the last completion that a watch shows."""
    with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as folder:
        file = Path(folder) / "nodes.yaml"
        file.write_text(objects.pool_file(nodes))
        options = ("--nodes", str(file), "--kube-api-qps", "0")
        with ServerProcess(in_memory, profile, options) as server:
            before = server.cpu()
            figures = uvloop.run(_run(server.kubeconfig, count))
            figures["server_cpu_seconds"] = round(server.cpu() - before, 2)
            figures["server_mib"] = round(server.memory() / 2**20)
    return figures


async def _run(kubeconfig: Path, count: int) -> Figures:
    clock = Clock()
    transport = await load(kubeconfig)
    client = Client(transport, clock=clock)
    watch = Watch(client, JOBS, ended)
    free = asyncio.Semaphore(CONNECTIONS)

    async def create(number: int) -> None:
        async with free:
            await client.create(JOBS, objects.job(f"job-{number:06d}"))

    begun = time.perf_counter()
    await asyncio.gather(*(create(number) for number in range(count)))
    created = time.perf_counter() - begun
    await watch.until(count)
    seconds = time.perf_counter() - begun
    await transport.close()
    return {"wall_seconds": round(seconds, 2), "of_which_creating": round(created, 2)}
