"""`python -m bench.causes`: the CPU time of the manager per workload of the large shape, by cause.

Server, manager and load run in one process in virtual time, so that requests and scheduling cycles are
the same on every machine. The server and the load are left out; so are connections and TLS, which
`bench.end_to_end` includes. With `--total` the causes are not separated, which costs time itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import gc
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.causes.meter import IN_MANAGER, SERVER, Meter, MeteredTransport
from bench.engine import objects, shapes
from bench.engine.harness import Arrival, Shape

from pykueue.api import conditions, encode
from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.objects import merge_patch
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, RESOURCE_FLAVORS, WORKLOADS
from pykueue.cli.process import collect_less_often
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.engine import Engine
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.events import EventRecorder
from pykueue.kube.informer import Informer
from pykueue.manager.configuration import parse
from pykueue.manager.manager import Manager
from pykueue.manager.metrics.observer import Observer
from pykueue.manager.queues.controller import QueueController
from pykueue.manager.scheduler.loop import Scheduler
from pykueue.manager.workloads import transitions
from pykueue.manager.workloads.controller import WorkloadController

KINDS = {each.kind: each for each in (CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS)}
CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
"""
#: Virtual seconds of one request.
LATENCY = 0.05

#: What is measured for which cause. A part that is used by another one is counted for itself.
CAUSES: dict[str, list[tuple[type, tuple[str, ...]]]] = {
    "watch caches and indexes": [(Informer, ("_take", "note"))],
    "engine: events": [(Engine, ("apply",))],
    "engine: cycles": [(Engine, ("cycle", "has_heads"))],
    "metrics": [(Observer, ("changed", "cycle", "_was_created"))],
    "status of queues": [
        (
            QueueController,
            ("_workload_changed", "_cluster_queue_changed", "_local_queue_changed", "reconcile"),
        )
    ],
    "workload controller": [(WorkloadController, ("_workload_changed", "reconcile"))],
    "scheduler: events": [(Scheduler, ("_workload_changed",))],
    "scheduler: decisions written": [(Scheduler, ("_admit", "_preempt", "_write_requeues"))],
    "scheduler: loop": [(Scheduler, ("_cycle",))],
    "events for people": [(Scheduler, ("_record_admission",)), (EventRecorder, ("event", "run"))],
}


class Load:
    """Creates the Workloads of a shape, and finishes each once it was admitted for its run time."""

    def __init__(self, client: Client, clock: Clock, arrivals: list[Arrival]) -> None:
        self._client, self._clock = client, clock
        self._arrivals = {arrival.name: arrival for arrival in arrivals}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._left = set(self._arrivals)
        self._done = asyncio.Event()
        self.workloads = Informer(client, WORKLOADS, objects.NAMESPACE, clock=clock)
        self.workloads.on_event(self._changed)

    async def play(self) -> None:
        """Until all are finished."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for arrival in self._arrivals.values():
            await self._clock.sleep(began + arrival.at / 1000 - loop.time())
            workload = objects.workload(arrival.name, arrival.queue, arrival.cpu, arrival.priority, 0.0)
            manifest = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", **encode(workload)}
            manifest["metadata"] = {"name": arrival.name, "namespace": objects.NAMESPACE}
            await self._client.create(WORKLOADS, manifest)
        await self._done.wait()

    def _changed(self, _type: str, _old: Any, new: Any) -> None:
        if new is None:
            return
        name = new["metadata"]["name"]
        if conditions.is_finished(new):
            self._left.discard(name)
            if not self._left:
                self._done.set()
        elif conditions.is_admitted(new) and not conditions.is_evicted(new):
            if name not in self._ends:
                seconds = self._arrivals[name].runs / 1000
                self._ends[name] = self._clock.call_later(seconds, self._ended, name)
        elif name in self._ends:
            self._ends.pop(name).cancel()

    def _ended(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._finish(name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, name: str) -> None:
        while True:
            seen = self.workloads.get(objects.NAMESPACE, name)
            if seen is None or not conditions.is_admitted(seen) or conditions.is_evicted(seen):
                return
            patch = merge_patch(seen, transitions.finished(seen, "Succeeded", "Played", self._clock.time()))
            patch["metadata"] = {"resourceVersion": seen["metadata"]["resourceVersion"]}
            try:
                await self._client.patch(WORKLOADS, name, objects.NAMESPACE, patch, subresource="status")
                return
            except ApiError:
                await self._clock.sleep(0.01)


async def measure(clock: Clock, shape: Shape, meter: Meter) -> int:
    """Play the shape; the requests that the manager made."""
    server = Server(MemoryStore(), clock, random.Random(1))
    await server.start()
    await server.install_crds(crds())
    server.register_conversion("kueue.x-k8s.io", convert)
    client = Client(server.transport(), clock=clock)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": objects.NAMESPACE}}
    await client.create(NAMESPACES, namespace)
    for obj in shape.setup:
        kind = type(obj).__name__
        manifest = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **encode(obj)}
        await client.create(KINDS[kind], manifest)
    transport = MeteredTransport(server.transport("pykueue-manager"), meter, LATENCY)
    context = contextvars.copy_context()
    context.run(IN_MANAGER.set, True)
    manager = context.run(Manager, transport, parse(CONFIGURATION), clock, random.Random(2))
    loop = asyncio.get_running_loop()
    tasks = [context.run(loop.create_task, manager.run())]
    await manager.synced()
    load = Load(client, clock, list(shape.arrivals))
    tasks.append(loop.create_task(load.workloads.run()))
    await load.workloads.synced()
    await clock.sleep(20)
    gc.collect()
    gc.freeze()
    collect_less_often()
    meter.on = True
    await load.play()
    await clock.sleep(3)
    meter.on = False
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return transport.requests


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.causes", description=__doc__)
    parser.add_argument("--queues", type=int, default=100, help="queues of one cohort, of 50 workloads each")
    parser.add_argument("--total", action="store_true", help="do not separate the causes")
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    meter = Meter()
    asyncio.events.Handle._run = meter.measured_callback()  # type: ignore[method-assign]
    for cause, parts in () if options.total else CAUSES.items():
        for owner, names in parts:
            for name in names:
                meter.function(owner, name, cause)
    shape = shapes.large(0.1, options.queues)
    count = 50 * options.queues
    requests = run_virtual(lambda clock: measure(clock, shape, meter))
    server = meter.seconds.pop(SERVER, 0.0)
    total = sum(meter.seconds.values())
    print(f"{count:,} workloads, {requests:,} requests; the server took {server:.2f} s within them")
    for cause, seconds in sorted(meter.seconds.items(), key=lambda item: -item[1]):
        print(f"  {cause:<30}{seconds:>8.2f} s{seconds / count * 1e6:>8.0f} us each{seconds / total:>6.0%}")
    print(f"  {'all':<30}{total:>8.2f} s{total / count * 1e6:>8.0f} us each")
    if options.json is not None:
        figures = {"workloads": count, "requests": requests, "seconds": meter.seconds, "server": server}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
