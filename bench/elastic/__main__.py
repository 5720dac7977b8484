"""`python -m bench.elastic`: a job that changes its size every second among 1000 others; a table and JSON.

Everything runs in one virtual loop against an embedded API server in memory, without pods: seconds are those
of computation alone. Half of the other jobs run, half are pending; the quota suffices for the job.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import time
from contextlib import suppress
from typing import Any

from bench.manager.__main__ import Counting
from bench.queues import queues

from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.meta import format_time
from pykueue.api.resources import JOBS, WORKLOADS
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import webhook_of
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.manager.configuration import load
from pykueue.manager.manager import Manager

Object = dict[str, Any]

#: The largest size of the job, in pods of 1 CPU.
SIZE = 20


def job(name: str, size: int, cpu: int = 1, elastic: bool = False) -> Object:
    """A Job of the LocalQueue."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"kueue.x-k8s.io/elastic-job": "true"} if elastic else {},
        },
        "spec": {
            "parallelism": size,
            "completions": 1_000_000,
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


async def measure(clock: Clock, neighbours: int, seconds: int) -> dict[str, float]:
    """The figures of one run."""
    server = Server(MemoryStore(), clock, random.Random(1))
    await server.start()
    await server.install_crds(crds())
    server.register_conversion("kueue.x-k8s.io", convert)
    client = Client(server.transport(), clock=clock)
    for kind, obj in queues(neighbours // 2 + SIZE):
        await client.create(kind, obj)
    transport = Counting(server.transport())
    manager = Manager(transport, load(None), clock, random.Random(1))
    for hook in manager.webhooks():
        server.admission.register(webhook_of(hook))
    task = asyncio.create_task(manager.run())
    await manager.synced()
    await client.create(JOBS, job("elastic", 1, elastic=True))
    await clock.sleep(5)
    for number in range(neighbours):
        await client.create(JOBS, job(f"job-{number:05d}", 1, 1 if number % 2 else neighbours))
    await clock.sleep(60)
    await _run_jobs(clock, client)
    rng = random.Random(2)
    rounds = [await _changes(clock, client, transport, rng, seconds // 4) for _ in range(4)]
    kept = [one for one in (await client.list(WORKLOADS)).items if "elastic" in one["metadata"]["name"]]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await server.stop()
    return {
        "other_jobs": neighbours,
        "changes": seconds // 4 * 4,
        "writes_per_change": round(sum(writes for writes, _ in rounds) / max(1, seconds // 4 * 4), 2),
        "cpu_ms_per_change_first_quarter": round(rounds[0][1] * 1000 / max(1, seconds // 4), 2),
        "cpu_ms_per_change_last_quarter": round(rounds[3][1] * 1000 / max(1, seconds // 4), 2),
        "workloads_of_the_job": len(kept),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


async def _run_jobs(clock: Clock, client: Client) -> None:
    """Say that the pods of the started jobs are ready: they would be evicted within the hour otherwise."""
    for one in (await client.list(JOBS)).items:
        if not one["spec"]["suspend"]:
            count = one["spec"]["parallelism"]
            status = {"active": count, "ready": count, "startTime": format_time(clock.time())}
            name = one["metadata"]["name"]
            await client.patch(JOBS, name, "default", {"status": status}, subresource="status")
    await clock.sleep(5)


async def _changes(
    clock: Clock, client: Client, transport: Counting, rng: random.Random, count: int
) -> tuple[int, float]:
    """Change the size every second; the writes of the manager, and the CPU seconds that everything took."""
    before, cpu, size = transport.writes, time.process_time(), 0
    for _ in range(count):
        size = rng.choice([each for each in range(1, SIZE + 1) if each != size])
        await client.patch(JOBS, "elastic", "default", {"spec": {"parallelism": size}})
        await clock.sleep(1)
    return transport.writes - before, time.process_time() - cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000, help="other jobs")
    parser.add_argument("--seconds", type=int, default=3600, help="of virtual time")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    arguments = parser.parse_args()
    figures = run_virtual(lambda clock: measure(clock, arguments.jobs, arguments.seconds))
    for name, value in figures.items():
        print(f"{name:34} {value:>10}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
