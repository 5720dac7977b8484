"""`python -m bench.multikueue`: jobs that a manager cluster dispatches to worker clusters; a table and JSON.

Every cluster is an embedded API server in memory with a manager, all in one virtual loop. Jobs are created
and offered to all workers at once, or with `--step` to so many in each round; the first that admits a job
starts it. There are no pods. The CPU time is that of the process: all managers and API servers, and the
client that creates the jobs. The median time of dispatch is virtual: requests to workers take `--latency`
seconds each, and no other time passes; `--hung` workers stop answering before the first job is created.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import resource as limits
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import yaml
from bench.queues import queues

from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    JOBS,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    SECRETS,
    WORKLOADS,
)
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import webhook_of
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.configuration import parse
from pykueue.manager.manager import Manager
from pykueue.manager.multikueue.access import configure_check
from pykueue.manager.multikueue.kubeconfig import Target
from pykueue.simulate.faults.sites import Line

Object = dict[str, Any]

CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations: {frameworks: [batch/job]}
"""
INCREMENTAL = """
multiKueue:
  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental
  incrementalDispatcherConfig: {{stepSize: {}}}
"""
#: Virtual seconds that are enough for all jobs.
ENOUGH = 3600.0


class Counted:
    """Counts the writes that go through a transport."""

    def __init__(self, inner: Transport, writes: Counter[str]) -> None:
        self._inner = inner
        self._writes = writes

    async def call(self, request: Request) -> Any:
        if request.method != "GET" and "/events" not in request.path:
            self._writes[request.method] += 1
        return await self._inner.call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self._inner.watch(request)

    async def close(self) -> None:
        await self._inner.close()


class Fleet:
    """The manager's cluster, and the workers by name."""

    def __init__(self, clock: Clock, workers: int, step: int, latency: float) -> None:
        self._clock = clock
        self.names = [f"w{number}" for number in range(workers)]
        self._dispatcher = INCREMENTAL.format(step) if step else ""
        self.lines = {name: Line() for name in self.names}
        for line in self.lines.values():
            line.latency = latency
        #: When each Workload was created and admitted, by its name.
        self._created: dict[str, float] = {}
        self.dispatched: dict[str, float] = {}
        self._servers: dict[str, Server] = {}
        self._tasks: list[asyncio.Task[None]] = []
        #: Writes of the manager at home, and on workers.
        self.home: Counter[str] = Counter()
        self.remote: Counter[str] = Counter()

    async def start(self) -> None:
        for number, name in enumerate(["manager", *self.names]):
            server = Server(MemoryStore(), self._clock, random.Random(number))
            self._servers[name] = server
            await server.start()
            await server.install_crds(crds())
            server.register_conversion("kueue.x-k8s.io", convert)
            for resource, obj in queues(1_000_000):
                await Client(server.transport(), clock=self._clock).create(resource, obj)
            transport: Transport = server.transport("pykueue-manager")
            if name == "manager":
                transport = Counted(transport, self.home)
                server.core.on_stored(f"{WORKLOADS.group}/{WORKLOADS.plural}", self._on_workload)
            rng, settings = random.Random(number), parse(CONFIGURATION + self._dispatcher)
            manager = Manager(transport, settings, self._clock, rng, connect=self._connect)
            for hook in manager.webhooks():
                server.admission.register(webhook_of(hook))
            self._tasks.append(asyncio.create_task(manager.run()))
            await manager.synced()
        self.client = Client(self._servers["manager"].transport(), clock=self._clock)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}
        await self.client.create(NAMESPACES, namespace)
        for name in self.names:
            await self.client.create(SECRETS, _secret(name))
            source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
            cluster = {"metadata": {"name": name}, "spec": {"clusterSource": source}}
            header = {"apiVersion": MULTIKUEUE_CLUSTERS.api_version, "kind": MULTIKUEUE_CLUSTERS.kind}
            await self.client.create(MULTIKUEUE_CLUSTERS, {**header, **cluster})
        await configure_check(self.client, "workers", self.names)
        strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": "workers"}]}}
        await self.client.patch(CLUSTER_QUEUES, "cq", None, {"spec": strategy})
        await self._clock.sleep(10)
        self.home.clear()
        self.remote.clear()

    def _connect(self, target: Target) -> Transport:
        name = target.server.removeprefix("https://").partition(".")[0]
        return self.lines[name].transport(Counted(self._servers[name].transport("manager"), self.remote))

    def _on_workload(self, new: Any, old: Any) -> None:
        """Note how long it took from the creation of a Workload to its admission."""
        if new is None:
            return
        name = new.object["metadata"]["name"]
        created = self._created.setdefault(name, self._clock.time())
        if _is_placed(new.object):
            self.dispatched.setdefault(name, self._clock.time() - created)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for server in self._servers.values():
            await server.stop()


async def measure(clock: Clock, given: argparse.Namespace) -> dict[str, float]:
    """CPU seconds until all jobs run on workers, and the writes for them."""
    workers, jobs = given.workers, given.jobs
    fleet = Fleet(clock, workers, given.step, given.latency)
    await fleet.start()
    for name in fleet.names[: given.hung]:
        fleet.lines[name].hang()
    before, began = time.process_time(), clock.time()
    for number in range(jobs):
        await fleet.client.create(JOBS, _job(number))
        if given.pace:
            await clock.sleep(given.pace)
    while clock.time() < began + ENOUGH:
        await clock.sleep(5)
        placed = [one for one in (await fleet.client.list(WORKLOADS)).items if _is_placed(one)]
        if len(placed) == jobs:
            break
    assert len(placed) == jobs, f"{len(placed)} of {jobs} jobs are dispatched"
    spent = time.process_time() - before
    await clock.sleep(60)
    figures = {
        "workers": workers,
        "jobs": jobs,
        "cpu": spent,
        "ms_per_job": 1000 * spent / jobs,
        "writes_home": sum(fleet.home.values()) / jobs,
        "writes_remote": sum(fleet.remote.values()) / jobs,
        "median_s": statistics.median(fleet.dispatched.values()),
        "slowest_s": max(fleet.dispatched.values()),
        "megabytes": limits.getrusage(limits.RUSAGE_SELF).ru_maxrss / 1024,
    }
    await fleet.stop()
    return figures


def _is_placed(workload: Object) -> bool:
    status = workload.get("status") or {}
    return any(
        one["type"] == "Admitted" and one["status"] == "True" for one in status.get("conditions") or ()
    )


def _job(number: int) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    labels = {"kueue.x-k8s.io/queue-name": "lq"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{number:06d}", "namespace": "default", "labels": labels},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def _secret(name: str) -> Object:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://{name}.test"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    data = {"kubeconfig": base64.b64encode(yaml.safe_dump(content).encode()).decode()}
    metadata = {"name": name, "namespace": "kueue-system"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--step", type=int, default=0, help="offer to so many workers in each round")
    parser.add_argument("--hung", type=int, default=0, help="workers that do not answer")
    parser.add_argument("--latency", type=float, default=0.0, help="virtual seconds of a request to a worker")
    parser.add_argument("--pace", type=float, default=0.0, help="virtual seconds between two jobs")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    arguments = parser.parse_args()
    found = run_virtual(lambda clock: measure(clock, arguments))
    names = (
        "workers",
        "jobs",
        "CPU s",
        "ms/job",
        "writes/job at home",
        "on workers",
        "median s",
        "max s",
        "MB",
    )
    print("  ".join(f"{name:>{max(8, len(name))}}" for name in names))
    shown = (f"{value:.2f}" if value % 1 else f"{value:.0f}" for value in found.values())
    print("  ".join(f"{text:>{max(8, len(name))}}" for text, name in zip(shown, names, strict=True)))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(found, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
