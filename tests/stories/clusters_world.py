"""A manager cluster and worker clusters with nodes and all job kinds, in virtual time."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

import yaml
from stories_world import holds

from pykueue.api.resources import CLUSTER_QUEUES, NAMESPACES, PODS, SECRETS, WORKLOADS, Resource
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import FRAMEWORKS, Cluster
from pykueue.embedded.nodes.pool import NodePool, Simulation
from pykueue.kube.client import Client
from pykueue.kube.discovery import Discovery
from pykueue.kube.transport import Transport
from pykueue.manager.configuration import parse
from pykueue.manager.multikueue.access import configure_check
from pykueue.manager.multikueue.kubeconfig import Target
from pykueue.simulate.submit import Submitter
from queue_manifests import API, cluster_queue, flavor, local_queue, priority

Object = dict[str, Any]

HEADER = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
NAMESPACE = "kueue-system"


class Member:
    """One of the clusters. Objects are those of the namespace `default`."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.cluster = cluster
        self.client = Client(cluster.transport("tester"), clock=clock)
        self._submitter = Submitter(self.client, Discovery(cluster.transport("tester")), clock)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.cluster.start()
        self._running = asyncio.create_task(self.cluster.run())
        await self.cluster.synced()

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        await self.cluster.stop()

    async def create(self, *objects: Object) -> None:
        await self._submitter.create(list(objects))

    async def patch(self, resource: Resource, name: str, patch: Object, subresource: str = "") -> Object:
        namespace = "default" if resource.namespaced else None
        return await self.client.patch(resource, name, namespace, patch, subresource=subresource or None)

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.client.get(resource, name, "default" if resource.namespaced else None)

    async def find(self, resource: Resource, name: str) -> Object | None:
        return await self.client.find(resource, name, "default" if resource.namespaced else None)

    async def delete(self, resource: Resource, name: str) -> None:
        namespace = "default" if resource.namespaced else None
        await self.client.delete(resource, name, namespace, propagation="Background")

    async def all(self, resource: Resource) -> list[Object]:
        return (await self.client.list(resource, "default" if resource.namespaced else None)).items

    async def pods(self, prefix: str = "") -> list[Object]:
        """Those that are not being deleted, by name."""
        found = [pod for pod in await self.all(PODS) if pod["metadata"]["name"].startswith(prefix)]
        live = [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]
        return sorted(live, key=lambda pod: str(pod["metadata"]["name"]))

    async def phases(self, prefix: str = "") -> list[str]:
        return [pod["status"]["phase"] for pod in await self.pods(prefix)]

    async def workloads(self, name: str) -> list[Object]:
        """Those of an object, or the one of that name, by name."""
        found = []
        for one in await self.all(WORKLOADS):
            metadata = one["metadata"]
            owners = [owner["name"] for owner in metadata.get("ownerReferences") or ()]
            if name in (*owners, metadata["name"]):
                found.append(one)
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    async def workload(self, name: str) -> Object:
        (found,) = await self.workloads(name)
        return found

    async def holds(self, name: str, kind: str) -> bool:
        """Whether all Workloads of an object, of which there are some, have a condition."""
        found = await self.workloads(name)
        return bool(found) and all(holds(one, kind) for one in found)


class Clusters:
    """The manager's cluster, its workers by name, and the check `workers` on its queue `q`."""

    def __init__(
        self,
        clock: Clock,
        workers: Iterable[str],
        configuration: str,
        pools: list[NodePool],
        job_kinds: Collection[str],
    ) -> None:
        self.clock = clock
        names = list(workers)
        settings = parse(HEADER + configuration, frameworks=FRAMEWORKS)
        made = [
            Cluster(
                clock=clock,
                rng=random.Random(number),
                configuration=settings,
                pools=pools if number else [],
                connect=self._connect,
                job_kinds=job_kinds,
            )
            for number in range(len(names) + 1)
        ]
        self.manager = Member(made[0], clock)
        self.workers = {name: Member(one, clock) for name, one in zip(names, made[1:], strict=True)}

    def queues(self, manager: bool) -> list[Object]:
        """The queue `q` of the manager or of a worker; empty: the default."""
        return []

    def _connect(self, target: Target) -> Transport:
        name = target.server.removeprefix("https://").partition(".")[0]
        return self.workers[name].cluster.transport("manager")

    async def start(self, cpu: int, objects: Iterable[Object]) -> None:
        for member in (self.manager, *self.workers.values()):
            await member.start()
            quota: dict[str, str | int] = {"cpu": cpu, "memory": "1Ti"}
            if member is self.manager:
                quota = {"cpu": 1000, "memory": "100Ti"}
            await member.create(priority("low", 1), priority("high", 10), *objects)
            made = self.queues(member is self.manager)
            await member.create(*(made or [flavor(), cluster_queue("q", quota), local_queue("q")]))
        client = self.manager.client
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await client.create(NAMESPACES, namespace)
        for name in self.workers:
            await client.create(SECRETS, _secret(name))
            source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
            cluster = {"metadata": {"name": name}, "spec": {"clusterSource": source}}
            await self.manager.create({"apiVersion": API, "kind": "MultiKueueCluster", **cluster})
        await configure_check(client, "workers", self.workers)
        strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": "workers"}]}}
        await self.manager.patch(CLUSTER_QUEUES, "q", {"spec": strategy})
        await self.wait()

    async def stop(self) -> None:
        for member in (self.manager, *self.workers.values()):
            await member.stop()

    async def wait(self, seconds: float = 5.0) -> None:
        await self.clock.sleep(seconds)

    async def until(self, true: Callable[[], Awaitable[bool]], seconds: float = 120.0) -> None:
        end = self.clock.time() + seconds
        while not await true():
            assert self.clock.time() < end, "this does not come true"
            await self.clock.sleep(0.5)

    async def placed(self, name: str) -> set[str]:
        """The workers that the Workloads of an object run on; "" for one that has none."""
        found = await self.manager.workloads(name)
        return {str((one.get("status") or {}).get("clusterName") or "") for one in found}

    async def having(self, resource: Resource, name: str) -> list[str]:
        """The workers that have an object of this name."""
        return [worker for worker, member in self.workers.items() if await member.find(resource, name)]

    async def left(self) -> list[str]:
        """What there is of Workloads on workers."""
        return [one["metadata"]["name"] for w in self.workers.values() for one in await w.all(WORKLOADS)]


def _secret(name: str) -> Object:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://{name}.test"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    data = {"kubeconfig": base64.b64encode(yaml.safe_dump(content).encode()).decode()}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def play(
    story: Callable[[Clusters], Awaitable[None]],
    *workers: str,
    configuration: str = "",
    cpu: int = 10,
    pools: list[NodePool] | None = None,
    objects: Iterable[Object] = (),
    job_kinds: Collection[str] = (),
    kind: type[Clusters] = Clusters,
) -> None:
    """Run a story in virtual time, with so many CPUs in the queue `q` of each worker."""
    amounts: dict[str, str | int | float] = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    nodes = [NodePool(name="n", count=2, allocatable=amounts, simulation=Simulation(stop_delay="5s"))]

    async def main(clock: Clock) -> None:
        world = kind(clock, workers, configuration, nodes if pools is None else pools, job_kinds)
        try:
            await world.start(cpu, objects)
            await story(world)
        finally:
            await world.stop()

    run_virtual(main)
