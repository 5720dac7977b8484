"""Deployments and StatefulSets whose controllers meet lost answers, conflicts, dropped watches and death."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

from pykueue.api.resources import CONTROLLER_REVISIONS, DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.controllers import Controllers
from pykueue.embedded.nodes import SimulatedNodes
from pykueue.embedded.nodes.pool import NodePool, ensure_nodes
from pykueue.embedded.podscheduler import PodScheduler
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.simulate.faults.trace import Trace
from pykueue.simulate.faults.transport import NO_FAULTS, FaultyTransport, Rates

Object = dict[str, Any]

RATES = Rates(
    conflict=0.1,
    error=0.05,
    patience=0.05,
    lost=0.05,
    unsure=0.1,
    slow=0.3,
    delay=0.5,
    drop=0.1,
    gone=0.2,
    stall=0.1,
    stall_time=1.0,
    crash=0.01,
    no_events=True,
)


def serving(kind: str, name: str, replicas: int, **spec: Any) -> Object:
    containers = [{"name": "main", "image": "v1", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {
                    "labels": {"app": name},
                    "annotations": {"sim.pykueue.io/run-time": "forever"},
                },
                "spec": {"containers": containers, "terminationGracePeriodSeconds": 2},
            },
            **spec,
        },
    }


class Cluster:
    """A server, nodes that can be relied on, and controllers that cannot."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock = clock
        self.rng = random.Random(seed)
        self.server = Server(MemoryStore(), clock, self._fork())
        self.client = Client(self.server.transport("user"), clock=clock)
        self._crashed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.troubled = True

    def _fork(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    async def start(self) -> None:
        await self.server.start()
        pool = NodePool(name="n", count=3, allocatable={"cpu": 16, "memory": "64Gi", "pods": 110}, labels={})
        await ensure_nodes(self.server.transport("nodes"), self.clock, [pool])
        for component in (
            PodScheduler(self.server.transport("scheduler"), self.clock, self._fork()),
            SimulatedNodes(self.server.transport("nodes"), self.clock, self._fork()),
        ):
            self._tasks.append(asyncio.create_task(component.run()))
        self._tasks.append(asyncio.create_task(self._controllers()))

    async def _controllers(self) -> None:
        """Run them, again and again."""
        while True:
            self._crashed.clear()
            rates = RATES if self.troubled else NO_FAULTS
            self.transport = FaultyTransport(
                self.server.transport("controllers"),
                self.clock,
                self._fork(),
                rates,
                Trace(),
                self._crashed.set,
            )
            controllers = Controllers(self.transport, self.clock, self._fork(), pace=None)
            work = asyncio.create_task(controllers.run())
            try:
                await self._crashed.wait()
            finally:
                self.transport.die()
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
                await self.transport.drained()
            await self.clock.sleep(self.rng.uniform(0.1, 3.0))

    def calm(self) -> None:
        self.troubled = False
        self.transport.rates = NO_FAULTS

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        await self.server.stop()

    async def meddle(self) -> None:
        """What a user does: other images and sizes, pods deleted."""
        resource, name = self.rng.choice(((DEPLOYMENTS, "web"), (STATEFUL_SETS, "db")))
        try:
            match self.rng.randrange(3):
                case 0:
                    patch: Object = {"replicas": self.rng.randint(0, 5)}
                case 1:
                    container = {
                        "name": "main",
                        "image": f"v{self.rng.randint(1, 3)}",
                        "resources": {"requests": {"cpu": "1"}},
                    }
                    patch = {"template": {"spec": {"containers": [container]}}}
                case _:
                    pods = (await self.client.list(PODS)).items
                    if pods:
                        await self.client.delete(PODS, self.rng.choice(pods)["metadata"]["name"], "default")
                    return
            await self.client.patch(resource, name, "default", {"spec": patch})
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise


async def check(cluster: Cluster) -> None:
    pods = (await cluster.client.list(PODS)).items
    for resource, name in ((DEPLOYMENTS, "web"), (STATEFUL_SETS, "db")):
        found = await cluster.client.get(resource, name, "default")
        image = found["spec"]["template"]["spec"]["containers"][0]["image"]
        replicas = found["spec"]["replicas"]
        mine = [pod for pod in pods if pod["metadata"]["labels"]["app"] == name]
        assert len(mine) == replicas, (name, [pod["metadata"]["name"] for pod in mine])
        assert {pod["spec"]["containers"][0]["image"] for pod in mine} <= {image}
        status = found["status"]
        assert status["observedGeneration"] == found["metadata"]["generation"]
        assert (status.get("replicas", 0), status.get("readyReplicas", 0)) == (replicas, replicas)
        assert status.get("updatedReplicas", 0) == replicas
    sets = (await cluster.client.list(REPLICA_SETS)).items
    assert len({str(one["spec"]["template"]["spec"]) for one in sets}) == len(sets)
    revisions = (await cluster.client.list(CONTROLLER_REVISIONS)).items
    assert len({one["revision"] for one in revisions}) == len(revisions)


@pytest.mark.parametrize("seed", range(40))
def test_what_serves_ends_up_as_it_is_wanted(seed: int) -> None:
    async def main(clock: Clock) -> None:
        cluster = Cluster(clock, seed)
        await cluster.start()
        try:
            await cluster.client.create(DEPLOYMENTS, serving("Deployment", "web", 4))
            await cluster.client.create(STATEFUL_SETS, serving("StatefulSet", "db", 3, serviceName="db"))
            for _ in range(12):
                await clock.sleep(cluster.rng.uniform(0.5, 12.0))
                await cluster.meddle()
            cluster.calm()
            await clock.sleep(300.0)
            await check(cluster)
        finally:
            await cluster.stop()

    run_virtual(main)
