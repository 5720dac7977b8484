"""`python -m bench.end_to_end.load`: creates the Workloads of a shape and plays their run times.

It is the part of users and machines: a Workload is created when its time has come, and once it was admitted
for its run time it is marked finished. A preempted one starts from zero; with `--releases` the load gives
back its quota, as a job's controller does: pykueue's manager does that for Workloads without a job itself,
Kueue's waits for it. Prints what it saw as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from bench.end_to_end.wire import Wire
from bench.engine import objects, shapes, topology
from bench.engine.harness import Arrival, Shape

from pykueue.api import conditions, encode
from pykueue.api.objects import get, merge_patch
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    COHORTS,
    EVENTS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
)
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import load as connect
from pykueue.kube.informer import Informer
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.transport import JSON, MERGE_PATCH, Request
from pykueue.manager.workloads import transitions

SHAPES = {"baseline": shapes.baseline, "large": shapes.large, "topology": topology.published}
SET_UP = (CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, NODES, RESOURCE_FLAVORS, TOPOLOGIES)
KINDS = {each.kind: each for each in SET_UP}
#: Requests under way at the same time.
WORKERS = 48
#: Seconds to wait after an answer of 429, as its Retry-After says.
TOO_MANY = 1.0


@dataclass(slots=True)
class Life:
    """What became of one workload; times in seconds of a monotonic clock."""

    arrival: Arrival
    created: float
    admitted: float = 0.0
    first_admitted: float = 0.0
    admissions: int = 0
    finish: asyncio.TimerHandle | None = None
    releasing: bool = False
    done: bool = False


@dataclass(slots=True)
class Figures:
    """What the load saw."""

    workloads: int = 0
    wall: float = 0.0
    """Seconds from the first creation to the last finish."""
    behind: float = 0.0
    """The most seconds a creation came later than it should."""
    admissions: int = 0
    writes: int = 0
    """What everybody wrote, by the server's revision."""
    own_writes: int = 0
    events: int = 0
    """Event objects there are in the end."""
    utilisation: float = 0.0
    """CPU seconds of finished work by CPU seconds of nominal quota while the run lasted."""
    waits: dict[str, dict[str, float]] = field(default_factory=dict)
    """By class: mean seconds from creation to the first and to the last admission, and to the finish."""
    cpu: float = 0.0
    peak: float = 0.0
    """Peak memory in MB."""


class Load:
    """One run of a shape against the server behind `client`."""

    def __init__(
        self,
        client: Client,
        wire: Wire,
        shape: Shape,
        releases: bool = False,
        limiter: TokenBucket | None = None,
    ) -> None:
        self._client, self._wire, self._shape, self._releases = client, wire, shape, releases
        self._limiter = limiter
        self._lives: dict[str, Life] = {}
        #: Writes to be made.
        self._work: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._workloads = Informer(client, WORKLOADS, objects.NAMESPACE)
        self._left = 0
        self._started = 0.0
        self._all_done = asyncio.Event()
        self.figures = Figures()
        self._totals: dict[str, list[tuple[float, float, float]]] = {}
        self._finished_cpu = 0.0

    async def set_up(self) -> None:
        """Queues, and nodes where the shape has them, until the manager calls each queue active."""
        await self._client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": objects.NAMESPACE}}
        )
        queues = []
        for obj in self._shape.setup:
            kind = type(obj).__name__
            resource = KINDS[kind]
            manifest = {"apiVersion": resource.api_version, "kind": kind, **encode(obj)}
            await self._client.create(resource, manifest)
            if kind == "LocalQueue":
                queues.append(manifest["metadata"]["name"])
        for name in queues:
            while True:
                queue = await self._client.get(LOCAL_QUEUES, name, objects.NAMESPACE)
                present = get(queue, "status", "conditions") or ()
                if any(each["type"] == "Active" and each["status"] == "True" for each in present):
                    break
                await asyncio.sleep(0.05)

    async def run(self) -> Figures:
        """Play the shape to its end."""
        arrivals = list(self._shape.arrivals)
        self._left = len(arrivals)
        self._workloads.on_event(self._hear)
        gc.collect()
        gc.freeze()
        async with asyncio.TaskGroup() as tasks:
            follower = tasks.create_task(self._workloads.run())
            await self._workloads.synced()
            revision = await self._revision()
            workers = [tasks.create_task(self._worker()) for _ in range(WORKERS)]
            started = self._started = time.perf_counter()
            for arrival in arrivals:
                due = started + arrival.at / 1000
                if due > time.perf_counter():
                    await asyncio.sleep(due - time.perf_counter())
                self._work.put_nowait(partial(self._create, arrival))
            await self._all_done.wait()
            self.figures.wall = time.perf_counter() - started
            for task in (follower, *workers):
                task.cancel()
        self.figures.writes = await self._revision() - revision
        self.figures.events = await self._count_events()
        self._sum_up(len(arrivals))
        return self.figures

    async def _revision(self) -> int:
        return int((await self._client.list(NAMESPACES)).resource_version)

    async def _count_events(self) -> int:
        request = Request("GET", EVENTS.path(), query={"limit": "1"})
        listed = await self._client.transport.call(request)
        return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount") or 0)

    def _sum_up(self, count: int) -> None:
        figures = self.figures
        figures.workloads = count
        nominal = 20.0 * sum(type(each).__name__ == "ClusterQueue" for each in self._shape.setup)
        figures.utilisation = self._finished_cpu / (nominal * figures.wall)
        for kind, waits in sorted(self._totals.items()):
            names = ("first admission", "last admission", "finish")
            means = (sum(column) / len(waits) for column in zip(*waits, strict=True))
            figures.waits[kind] = dict(zip(names, means, strict=True))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        figures.cpu = usage.ru_utime + usage.ru_stime
        figures.peak = usage.ru_maxrss / 1024

    # What happens to workloads

    def _hear(self, _type: str, _old: Any, new: Mapping[str, Any] | None) -> None:
        if new is None:
            return
        life = self._lives.get(new["metadata"]["name"])
        if life is None or life.done:
            return
        if conditions.is_finished(new):
            self._finished(life)
        elif conditions.is_admitted(new) and not conditions.is_evicted(new):
            if life.finish is None:
                self._admitted(life)
        else:
            if life.finish is not None:
                life.finish.cancel()
                life.finish = None
            if not conditions.has_quota(new):
                life.releasing = False
            elif self._releases and conditions.is_evicted(new) and not life.releasing:
                life.releasing = True
                self._work.put_nowait(partial(self._release, life))

    def _admitted(self, life: Life) -> None:
        now = time.perf_counter()
        life.admitted = now
        life.first_admitted = life.first_admitted or now
        life.admissions += 1
        self.figures.admissions += 1
        loop = asyncio.get_running_loop()
        work = partial(self._finish, life)
        life.finish = loop.call_later(life.arrival.runs / 1000, self._work.put_nowait, work)

    def _finished(self, life: Life) -> None:
        life.done = True
        ends = (life.first_admitted, life.admitted, time.perf_counter())
        waits = tuple(end - life.created for end in ends)
        self._totals.setdefault(life.arrival.kind, []).append(waits)  # type: ignore[arg-type]
        self._finished_cpu += life.arrival.cpu * life.arrival.pods * life.arrival.runs / 1000
        self._left -= 1
        if not self._left:
            self._all_done.set()

    # Writing

    async def _worker(self) -> None:
        while True:
            work = await self._work.get()
            await work()

    async def _send(self, method: str, path: str, body: Any, content_type: str = JSON) -> int:
        """The status code of the answer; within the limit."""
        if self._limiter is not None:
            await self._limiter.acquire()
        return await self._wire.send(method, path, body, content_type)

    async def _create(self, arrival: Arrival) -> None:
        workload = objects.workload(
            arrival.name,
            arrival.queue,
            arrival.cpu,
            arrival.priority,
            0.0,
            arrival.pods,
            arrival.request,
        )
        manifest = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", **encode(workload)}
        manifest["metadata"] = {"name": arrival.name, "namespace": objects.NAMESPACE}
        life = self._lives[arrival.name] = Life(arrival, time.perf_counter())
        self.figures.own_writes += 1
        path = WORKLOADS.path(objects.NAMESPACE)
        status = await self._send("POST", path, manifest)
        while status == 429:
            await asyncio.sleep(TOO_MANY)
            status = await self._send("POST", path, manifest)
        if status != 201:
            raise RuntimeError(f"the creation of {arrival.name} was answered with {status}")
        due = self._started + arrival.at / 1000
        self.figures.behind = max(self.figures.behind, life.created - due)

    async def _finish(self, life: Life) -> None:
        """Marks a workload finished, unless it lost its place meanwhile."""

        def finished(seen: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if life.finish is None or not conditions.is_admitted(seen) or conditions.is_evicted(seen):
                return None
            return transitions.finished(seen, "Succeeded", "Played", time.time())

        await self._change(life, finished)

    async def _release(self, life: Life) -> None:
        """Gives back the quota of a workload that was preempted."""

        def released(seen: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if not conditions.is_evicted(seen) or not conditions.has_quota(seen):
                return None
            return transitions.released(seen, False, time.time())

        await self._change(life, released)
        # Not only when it is seen: admitted once more meanwhile, it may be preempted again.
        life.releasing = False

    async def _change(
        self, life: Life, make: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    ) -> None:
        """Write what is made of a workload; nothing if that is None."""
        name = life.arrival.name
        while not life.done:
            seen = self._workloads.get(objects.NAMESPACE, name)
            wanted = make(seen)
            if wanted is None:
                return
            patch = merge_patch(seen, wanted)
            patch.setdefault("metadata", {})["resourceVersion"] = seen["metadata"]["resourceVersion"]
            path = WORKLOADS.path(objects.NAMESPACE, name, "status")
            status = await self._send("PATCH", path, patch, MERGE_PATCH)
            if status == 200:
                self.figures.own_writes += 1
                return
            if status not in (409, 429):
                raise RuntimeError(f"a change of {name} was answered with {status}")
            # The newer version is on its way, or the server has too many requests.
            await asyncio.sleep(0.01 if status == 409 else TOO_MANY)


async def play(kubeconfig: Path, shape: Shape, releases: bool, qps: float | None = None) -> Figures:
    """One run against the server of a kubeconfig; `qps` limits the writes per second."""
    transport, wire, clock = await connect(kubeconfig), Wire(kubeconfig), Clock()
    limiter = None if qps is None else TokenBucket(clock, qps, int(2 * qps))
    try:
        await wire.open(WORKERS)
        load = Load(Client(transport, clock=clock), wire, shape, releases, limiter)
        await load.set_up()
        return await load.run()
    finally:
        wire.close()
        await transport.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.end_to_end.load", description=__doc__)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--releases", action="store_true", help="give back the quota of preempted Workloads")
    parser.add_argument("--qps", type=float, help="limit of writes per second; twice as many come at once")
    parser.add_argument("--slower", type=int, default=1, help="multiply all times of the shape")
    options = parser.parse_args()
    shape = shapes.slowed(SHAPES[options.shape](options.scale), options.slower)
    figures = uvloop.run(play(options.kubeconfig, shape, options.releases, options.qps))
    print(json.dumps({name: getattr(figures, name) for name in Figures.__slots__}))


if __name__ == "__main__":
    main()
