"""`python -m bench.manager`: a restart with many Workloads, then an idle hour; a table and JSON.

Everything runs in one virtual loop against an embedded API server in memory: seconds are those of computation
alone. Half of the Workloads are finished and half wait in a queue without room, each with its Job.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from bench.queues import queues

from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.pending_reasons import PendingReason
from pykueue.api.resources import JOBS, WORKLOADS
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.jobs.job import BatchJob
from pykueue.jobs.workload import build
from pykueue.kube.client import Client
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.configuration import load
from pykueue.manager.manager import Manager
from pykueue.manager.workloads import transitions

Object = dict[str, Any]

#: The bar, in seconds, for the default size.
RESTART_BAR = 10.0


class Counting:
    """Counts requests, and the writes among them."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.requests = 0
        self.writes = 0

    async def call(self, request: Request) -> Any:
        self.requests += 1
        self.writes += request.method != "GET"
        return await self._inner.call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self._inner.watch(request)

    async def close(self) -> None:
        await self._inner.close()


def job(number: int) -> Object:
    """A suspended Job that does not fit."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"job-{number:06d}",
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


async def fill(client: Client, count: int, now: float) -> None:
    """Jobs with their Workloads, every other one finished."""
    integration = BatchJob()
    for resource_, obj in queues(1):
        await client.create(resource_, obj)
    for number in range(count):
        created = await client.create(JOBS, job(number))
        workload = await client.create(WORKLOADS, build(created, integration, 0, None))
        if number % 2:
            workload = transitions.finished(workload, "Succeeded", "done", now)
        else:
            workload = transitions.pending(workload, PendingReason("ExceedsMaxQuota", "too large"), now)
        change = {"status": workload["status"]}
        await client.patch(WORKLOADS, workload["metadata"]["name"], "default", change, subresource="status")


async def measure(clock: Clock, count: int) -> dict[str, float]:
    """The figures of one run."""
    server = Server(MemoryStore(), clock, random.Random(1))
    await server.start()
    await server.install_crds(crds())
    server.register_conversion("kueue.x-k8s.io", convert)
    await fill(Client(server.transport(), clock=clock), count, clock.time())
    first = Manager(server.transport(), load(None), clock, random.Random(1))
    await settle(first, clock)
    transport = Counting(server.transport())
    before, started = _revisions(server), time.perf_counter()
    manager = Manager(transport, load(None), clock, random.Random(2))
    task = asyncio.create_task(manager.run())
    await manager.synced()
    await clock.sleep(30)
    restart = time.perf_counter() - started
    changed = sum(before.get(key) != revision for key, revision in _revisions(server).items())
    transport.requests, cpu = 0, time.process_time()
    await clock.sleep(3600)
    idle = time.process_time() - cpu
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await server.stop()
    return {
        "workloads": count,
        "restart_seconds": round(restart, 2),
        "objects_changed": changed,
        "idle_hour_requests": transport.requests,
        "idle_hour_cpu_seconds": round(idle, 3),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


async def settle(manager: Manager, clock: Clock) -> None:
    """Let a manager do what there is to do, once."""
    task = asyncio.create_task(manager.run())
    await manager.synced()
    await clock.sleep(600)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _revisions(server: Server) -> dict[tuple[str, Any], int]:
    tables = ("batch/jobs", "kueue.x-k8s.io/workloads", "kueue.x-k8s.io/clusterqueues")
    return {(name, record.key): record.revision for name in tables for record in server.store.table(name)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=20_000)
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    arguments = parser.parse_args()
    figures = run_virtual(lambda clock: measure(clock, arguments.workloads))
    for name, value in figures.items():
        print(f"{name:24} {value:>12}")
    print(f"{'bar: restart_seconds':24} {RESTART_BAR:>12}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
