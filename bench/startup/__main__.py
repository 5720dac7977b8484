"""`python -m bench.startup`: a manager starts beside an API server that holds many pending Workloads.

It has started once its ClusterQueue's status counts them all; then one Workload that fits is created, and the
time to its admission measured. The server runs in a separate process, with its durable store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import uvloop
from bench import usage
from bench.apiserver.load import WORKLOADS, drive, request, workload
from bench.apiserver.server import ServerProcess
from bench.end_to_end.account import of_manager
from bench.end_to_end.run import own_manager

from pykueue.api.objects import Object, get
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, Resource
from pykueue.api.resources import WORKLOADS as WORKLOADS_RESOURCE
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import load as connect

#: The bars: seconds to start with 100 000 pending Workloads, and MB.
BARS = (5, 450)
VERSION = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "default"


def queues(names: dict[str, int]) -> Iterator[tuple[Resource, Object]]:
    """A flavor, and by name queues with that many CPUs."""
    yield (
        RESOURCE_FLAVORS,
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
    )
    for name, cpus in names.items():
        resources = [{"name": "cpu", "nominalQuota": cpus}, {"name": "memory", "nominalQuota": "64Gi"}]
        group = {
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": "default", "resources": resources}],
        }
        yield (
            CLUSTER_QUEUES,
            {
                "apiVersion": VERSION,
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
            },
        )
        yield (
            LOCAL_QUEUES,
            {
                "apiVersion": VERSION,
                "kind": "LocalQueue",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"clusterQueue": name},
            },
        )


def waiting(name: str, queue: str) -> bytes:
    """A Workload that belongs to no job."""
    obj = orjson.loads(workload(name))
    obj["metadata"] = {"name": name, "namespace": NAMESPACE}
    obj["spec"]["queueName"] = queue
    return orjson.dumps(obj)


async def until_pending(client: Client, count: int) -> None:
    """Wait until the status of the full queue counts so many."""
    while True:
        queue = await client.get(CLUSTER_QUEUES, "user-queue")
        if get(queue, "status", "pendingWorkloads") == count:
            return
        await asyncio.sleep(0.1)


async def admission_seconds(client: Client) -> float:
    """From the creation of a Workload that fits to its admission."""
    started = time.perf_counter()
    await client.create(WORKLOADS_RESOURCE, orjson.loads(waiting("fits", "empty-queue")))
    while True:
        found = await client.get(WORKLOADS_RESOURCE, "fits", NAMESPACE)
        if get(found, "status", "admission"):
            return time.perf_counter() - started
        await asyncio.sleep(0.002)


async def measure(count: int, profile: Path | None) -> dict[str, Any]:
    with ServerProcess() as server, tempfile.TemporaryDirectory(prefix="pykueue-bench-") as folder:
        transport = await connect(server.kubeconfig)
        client = Client(transport, clock=Clock())
        for resource, obj in queues({"user-queue": 1, "empty-queue": 100}):
            await client.create(resource, obj)
        run = await drive(
            server,
            (
                request(server, "POST", WORKLOADS, waiting(f"w-{number}", "user-queue"))
                for number in range(count)
            ),
            64,
        )
        assert not run.refused
        account = await asyncio.to_thread(of_manager, server.kubeconfig, Path(folder))
        started = time.perf_counter()
        with own_manager(account, Path(folder), profile) as pid:
            await until_pending(client, count)
            seconds, cpu = time.perf_counter() - started, usage.cpu(pid)
            admission = await admission_seconds(client)
            # What follows the start: each is looked at, and why some wait is written.
            quiet = usage.cpu(pid)
            while True:
                await asyncio.sleep(1)
                now = usage.cpu(pid)
                if now - quiet < 0.05:
                    break
                quiet = now
            figures = {
                "workloads": count,
                "start_seconds": round(seconds, 1),
                "start_cpu_seconds": round(cpu, 1),
                "admission_ms": round(admission * 1000, 1),
                "settled_cpu_seconds": round(now, 1),
                "resident_mb": round(usage.memory(pid) / 1e6),
                "peak_mb": round(usage.peak(pid) / 1e6),
            }
        await transport.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("--workloads", type=int, default=100_000)
    parser.add_argument("--profile", type=Path, help="run the manager under cProfile and write this file")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    figures = uvloop.run(measure(options.workloads, options.profile))
    print(
        f"{figures['workloads']:,} pending: started in {figures['start_seconds']} s (bar {BARS[0]}), "
        f"{figures['start_cpu_seconds']} s CPU; then an admission took {figures['admission_ms']} ms; "
        f"settled after {figures['settled_cpu_seconds']} s CPU; "
        f"{figures['resident_mb']} MB, at most {figures['peak_mb']} MB (bar {BARS[1]})"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
