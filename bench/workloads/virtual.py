"""Runs in virtual time: a whole cluster in one process, seconds are those of computation alone."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bench.workloads import objects

from pykueue.api.resources import JOB_SETS, JOBS, PODS, Resource
from pykueue.cli.process import leave_out_of_collections
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.nodes.pool import ensure_nodes
from pykueue.embedded.podgroups.definitions import (
    COSCHEDULING_POD_GROUPS,
    DEFAULT_QUEUE,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    definitions,
)
from pykueue.embedded.podscheduler import PodScheduler
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.informer import Informer

Object = dict[str, Any]
Figures = dict[str, float]


class Watch:
    """Counts the objects of a resource for which something is true, until there are enough."""

    def __init__(self, client: Client, resource: Resource, true: Callable[[Object], bool]) -> None:
        self._true = true
        self._done: set[str] = set()
        self._wanted = 0
        self._reached = asyncio.Event()
        informer = Informer(client, resource)
        informer.on_event(self._see)
        self._task = asyncio.create_task(informer.run())

    def _see(self, _type: str, _old: Object | None, new: Object | None) -> None:
        if new is not None and self._true(new):
            self._done.add(new["metadata"]["uid"])
            if len(self._done) == self._wanted:
                self._reached.set()

    async def until(self, count: int) -> None:
        self._wanted = count
        if len(self._done) < count:
            await self._reached.wait()
        self._task.cancel()


def ended(obj: Object) -> bool:
    """Whether a Job or a JobSet has come to its end."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(one["type"] in ("Complete", "Completed") and one["status"] == "True" for one in conditions)


def active(obj: Object) -> bool:
    """Whether all pods of a JobSet's Jobs are ready, or were."""
    status = obj.get("status") or {}
    jobs = status.get("replicatedJobsStatus") or ()
    return ended(obj) or (bool(jobs) and all(one.get("ready") or one.get("succeeded") for one in jobs))


def bound(obj: Object) -> bool:
    return bool(obj["spec"].get("nodeName"))


@asynccontextmanager
async def cluster(clock: Clock, nodes: int) -> AsyncIterator[Client]:
    """Everything `pykueue up` runs, without the Job controller's request limit."""
    running = Cluster(clock=clock, rng=random.Random(1), pools=objects.pools(nodes), pace=None)
    await running.start()
    task = asyncio.create_task(running.run())
    await running.synced()
    await clock.sleep(60)
    leave_out_of_collections()
    try:
        yield Client(running.transport("bench"), clock=clock)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await running.stop()


def jobs(count: int, nodes: int) -> Figures:
    """One-pod Jobs created at once, to the last completion."""

    async def main(clock: Clock) -> Figures:
        async with cluster(clock, nodes) as client:
            watch = Watch(client, JOBS, ended)
            made = [objects.job(f"job-{number:06d}") for number in range(count)]
            return await _timed(clock, client, JOBS, made, watch.until(count))

    return run_virtual(main)


def job_sets(count: int, pods: int, nodes: int) -> Figures:
    """JobSets created at once, to the last completion."""

    async def main(clock: Clock) -> Figures:
        async with cluster(clock, nodes) as client:
            watch = Watch(client, JOB_SETS, ended)
            made = [objects.job_set(f"set-{number:04d}", pods) for number in range(count)]
            return await _timed(clock, client, JOB_SETS, made, watch.until(count))

    return run_virtual(main)


def hour(count: int, pods: int, nodes: int) -> Figures:
    """An hour of a cluster on which JobSets are created at once; half of them end within it."""

    async def main(clock: Clock) -> Figures:
        async with cluster(clock, nodes) as client:
            started, done = Watch(client, JOB_SETS, active), Watch(client, JOB_SETS, ended)
            made = [
                objects.job_set(f"set-{number:04d}", pods, "20m" if number % 2 else "2h")
                for number in range(count)
            ]

            async def whole() -> None:
                await started.until(count)
                await done.until(count // 2)
                await clock.sleep(max(0.0, begun + 3600 - clock.time()))

            begun = clock.time()
            return await _timed(clock, client, JOB_SETS, made, whole())

    return run_virtual(main)


async def _timed(clock: Clock, client: Client, resource: Resource, made: list[Object], end: Any) -> Figures:
    begun, virtual, cpu = time.perf_counter(), clock.time(), time.process_time()
    await asyncio.gather(*(client.create(resource, one) for one in made))
    created = time.perf_counter() - begun
    await end
    return {
        "wall_seconds": round(time.perf_counter() - begun, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "of_which_creating": round(created, 2),
        "virtual_seconds": round(clock.time() - virtual, 1),
    }


def scheduling(count: int, nodes: int, mode: str, group_size: int) -> Figures:
    """Pods that are all there when the scheduler starts, until the last has its node; nothing else runs."""

    async def main(clock: Clock) -> Figures:
        server = Server(MemoryStore(), clock, random.Random(1))
        await server.start()
        client = Client(server.transport(), clock=clock)
        await server.install_crds(definitions())
        await client.create(VOLCANO_QUEUES, DEFAULT_QUEUE)
        await ensure_nodes(server.transport(), clock, objects.pools(nodes))
        resource = VOLCANO_POD_GROUPS if mode == "volcano" else COSCHEDULING_POD_GROUPS
        for first in range(0, count, group_size) if mode else ():
            name = f"group-{first // group_size:05d}"
            metadata = {"name": name, "namespace": "default"}
            spec = {"minMember": min(group_size, count - first)}
            kind = {"apiVersion": resource.api_version, "kind": resource.kind}
            await client.create(resource, {**kind, "metadata": metadata, "spec": spec})
        for number in range(count):
            await client.create(PODS, objects.pod(number, mode, f"group-{number // group_size:05d}"))
        watch = Watch(client, PODS, bound)
        await clock.sleep(1)
        begun, cpu = time.perf_counter(), time.process_time()
        scheduler = PodScheduler(server.transport(), clock, random.Random(1))
        task = asyncio.create_task(scheduler.run())
        await watch.until(count)
        seconds = time.perf_counter() - begun
        used = time.process_time() - cpu
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.stop()
        return {
            "wall_seconds": round(seconds, 2),
            "cpu_seconds": round(used, 2),
            "pods_per_second": round(count / seconds),
            "pods_per_cpu_second": round(count / used),
        }

    return run_virtual(main)
