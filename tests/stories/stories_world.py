"""A whole cluster in virtual time for stories, and the manifests that stories are made of."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykueue.api.resources import (
    CLUSTER_QUEUES,
    EVENTS,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    Resource,
)
from pykueue.api.yaml import load_documents
from pykueue.clock import VIRTUAL_EPOCH, Clock, run_virtual
from pykueue.cluster import FRAMEWORKS, Cluster
from pykueue.embedded.nodes.pool import NodePool, load_pools
from pykueue.kube.client import Client
from pykueue.kube.discovery import Discovery
from pykueue.kube.transport import JSON_PATCH
from pykueue.manager.configuration import parse
from pykueue.simulate.history import History
from pykueue.simulate.submit import Submitter

Object = dict[str, Any]

EXAMPLE = Path(__file__).parents[2] / "examples" / "all-or-nothing"
GPU = "nvidia.com/gpu"
SIMULATION = "sim.pykueue.io/"
_HEADER = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


@dataclass
class Story:
    """A running cluster: what a story does to it, and what it sees. Objects are those of one namespace."""

    clock: Clock
    cluster: Cluster
    client: Client
    submitter: Submitter
    history: History
    namespace: str

    # What users do

    async def create(self, *objects: Object | str) -> None:
        """Create objects, or all those of YAML texts."""
        for one in objects:
            await self.submitter.create(load_documents(one, "story") if isinstance(one, str) else [one])

    async def wait(self, seconds: float = 5.0) -> None:
        await self.clock.sleep(seconds)

    async def patch(
        self, resource: Resource, name: str, patch: Any, subresource: str | None = None
    ) -> Object:
        """Merge a patch, or carry out a list of JSON patch operations."""
        kind = {"content_type": JSON_PATCH} if isinstance(patch, list) else {}
        namespace = self.namespace if resource.namespaced else None
        return await self.client.patch(resource, name, namespace, patch, subresource=subresource, **kind)

    async def delete(self, resource: Resource, name: str) -> None:
        namespace = self.namespace if resource.namespaced else None
        await self.client.delete(resource, name, namespace, propagation="Background")

    async def set_quota(self, queue: str, value: str, resource: int = 0, flavor: int = 0) -> None:
        """`kubectl patch clusterqueue QUEUE --type=json -p ...`"""
        path = f"/spec/resourceGroups/0/flavors/{flavor}/resources/{resource}/nominalQuota"
        await self.patch(CLUSTER_QUEUES, queue, [{"op": "replace", "path": path, "value": value}])

    # What users see

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.client.get(resource, name, self.namespace if resource.namespaced else None)

    async def all(self, resource: Resource) -> list[Object]:
        return (await self.client.list(resource, self.namespace if resource.namespaced else None)).items

    async def suspended(self, name: str, resource: Resource = JOBS) -> bool:
        return bool((await self.get(resource, name))["spec"].get("suspend"))

    async def ended(self, name: str) -> str:
        """Complete or Failed; empty while the Job goes on."""
        found = await self.get(JOBS, name)
        return next((kind for kind in ("Complete", "Failed") if holds(found, kind)), "")

    async def pods(self, prefix: str = "") -> list[Object]:
        """Pods that are not being deleted."""
        mine = [pod for pod in await self.all(PODS) if pod["metadata"]["name"].startswith(prefix)]
        return [pod for pod in mine if not pod["metadata"].get("deletionTimestamp")]

    async def in_phase(self, phase: str, prefix: str = "") -> int:
        return sum(pod["status"].get("phase") == phase for pod in await self.pods(prefix))

    async def running(self, prefix: str = "") -> int:
        return await self.in_phase("Running", prefix)

    async def find_workload(self, name: str) -> Object | None:
        """The Workload of a job, or the one of that name, if there is one."""
        for workload in await self.all(WORKLOADS):
            owners = workload["metadata"].get("ownerReferences") or [workload["metadata"]]
            if owners[0]["name"] == name:
                return workload
        return None

    async def workload(self, name: str) -> Object:
        """The Workload of a job, or the one of that name; a story that asks for it knows that it is there."""
        found = await self.find_workload(name)
        assert found is not None, f"no workload of {name}"
        return found

    async def condition(self, name: str, kind: str) -> Object:
        """A condition of a job's Workload; empty where there is none, or no Workload yet."""
        found = await self.find_workload(name)
        return {} if found is None else condition(found, kind)

    async def reason(self, name: str, kind: str = "QuotaReserved") -> tuple[str, str]:
        """Status and reason of a condition of a job's Workload."""
        found = await self.condition(name, kind)
        return found.get("status", ""), found.get("reason", "")

    async def admitted(self, name: str) -> bool:
        return (await self.condition(name, "Admitted")).get("status") == "True"

    async def cluster_queue(self, name: str) -> Object:
        return (await self.get(CLUSTER_QUEUES, name))["status"]

    async def local_queue(self, name: str) -> Object:
        return (await self.get(LOCAL_QUEUES, name))["status"]

    async def used(self, queue: str, resource: str = "cpu", field: str = "flavorsReservation") -> str:
        """What is used of a ClusterQueue's resource, all flavors' lines joined by a space."""
        flavors = (await self.cluster_queue(queue)).get(field) or ()
        totals = [r["total"] for flavor in flavors for r in flavor["resources"] if r["name"] == resource]
        return " ".join(totals)

    async def events(self, name: str, reason: str = "") -> list[str]:
        """Messages of the events about an object of that name, oldest first."""
        selector = f"involvedObject.name={name}"
        found = (await self.client.list(EVENTS, self.namespace, field_selector=selector)).items
        told = [event for event in found if reason in ("", event["reason"])]
        return [event["message"] for event in sorted(told, key=lambda event: event["lastTimestamp"])]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric of the manager over the series with these labels."""
        assert self.cluster.manager is not None
        total = 0.0
        for line in self.cluster.manager.metrics.text().decode().splitlines():
            series, _, value = line.rpartition(" ")
            known = dict(re.findall(r'(\w+)="([^"]*)"', series))
            if series.partition("{")[0] == name and labels.items() <= known.items():
                total += float(value)
        return total

    async def until(self, true: Callable[[], Awaitable[bool]], seconds: float = 3600.0) -> float:
        """Wait until something is so; returns how many seconds that took."""
        start = self.clock.time()
        while not await true():
            assert self.clock.time() < start + seconds, "this does not come true"
            await self.clock.sleep(0.1)
        return self.clock.time() - start


def condition(obj: Object, kind: str) -> Object:
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


def holds(obj: Object, kind: str) -> bool:
    return bool(condition(obj, kind).get("status") == "True")


@asynccontextmanager
async def story_cluster(
    clock: Clock, configuration: str | None, pools: Iterable[NodePool], namespace: str, seed: int
) -> AsyncIterator[Story]:
    settings = None if configuration is None else parse(configuration, frameworks=FRAMEWORKS)
    cluster = Cluster(clock=clock, rng=random.Random(seed), configuration=settings, pools=pools)
    await cluster.start()
    running = asyncio.create_task(cluster.run())
    story = asyncio.current_task()
    assert story is not None

    def end_story(_: object) -> None:
        story.cancel()

    # A story whose cluster has failed would go on with objects that never change again.
    running.add_done_callback(end_story)
    await cluster.synced()
    transport = cluster.transport("story")
    client = Client(transport, clock=clock)
    history = History(client, clock, namespace)
    following = asyncio.create_task(history.run())
    submitter = Submitter(client, Discovery(transport), clock)
    try:
        if namespace != "default":
            await submitter.create(
                [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}]
            )
        yield Story(clock, cluster, client, submitter, history, namespace)
    except asyncio.CancelledError:
        if running.done():
            running.result()
        raise
    finally:
        running.remove_done_callback(end_story)
        for task in (following, running):
            task.cancel()
        await asyncio.gather(following, running, return_exceptions=True)
        await cluster.stop()


def play(
    story: Callable[[Story], Awaitable[None]],
    configuration: str | None = None,
    *,
    nodes: Iterable[NodePool] | None = None,
    objects: Iterable[Object | str] = (),
    namespace: str = "default",
    seed: int = 1,
    make_clock: type[Clock] = Clock,
) -> None:
    """Run a story in virtual time, which the cluster takes from a clock of the class `make_clock`.

    `configuration` is the text of a configuration file, with or without its first two lines. Where no nodes
    are given they are those of the example `all-or-nothing`; `objects` are created before the story begins.
    """
    if configuration is not None and "kind:" not in configuration:
        configuration = _HEADER + configuration
    pools = load_pools(EXAMPLE / "nodes.yaml") if nodes is None else list(nodes)

    async def main(_: Clock) -> None:
        clock = make_clock(VIRTUAL_EPOCH.timestamp())
        async with story_cluster(clock, configuration, pools, namespace, seed) as ready:
            await ready.create(*objects)
            await ready.wait(2)
            await story(ready)

    run_virtual(main)


# Manifests


def pool(name: str = "node", count: int = 1, pods: int = 110, **allocatable: str) -> NodePool:
    """Nodes that are alike; `gpu` is short for GPUs."""
    resources = {"cpu": "64", "memory": "256Gi", "pods": str(pods), **allocatable}
    if "gpu" in resources:
        resources[GPU] = resources.pop("gpu")
    return NodePool(name=name, count=count, allocatable=dict(resources), labels={"kind": name})


def template(
    requests: dict[str, str | int] | None = None,
    *,
    run_time: str = "10s",
    container: Object | None = None,
    simulation: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **pod: Any,
) -> Object:
    """A pod template with one container that runs for a while; `simulation` says more of its program."""
    wanted = {name: str(amount) for name, amount in (requests or {}).items()}
    resources = {"requests": wanted, "limits": {name: wanted[name] for name in wanted if "/" in name}}
    says = {"run-time": run_time, **(simulation or {})}
    return {
        "metadata": {
            "labels": labels or {},
            "annotations": {SIMULATION + name: value for name, value in says.items()},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "i", "resources": resources, **(container or {})}],
            **pod,
        },
    }


def job(
    name: str,
    pods: int = 1,
    requests: dict[str, str | int] | None = None,
    *,
    queue: str | None = "q",
    run_time: str = "10s",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    simulation: dict[str, str] | None = None,
    pod: Object | None = None,
    **spec: Any,
) -> Object:
    """An Indexed Job of that many pods, each asking for 1 cpu where nothing else is said."""
    queued = {} if queue is None else {"kueue.x-k8s.io/queue-name": queue}
    made = template(
        {"cpu": 1} if requests is None else requests, run_time=run_time, simulation=simulation, **(pod or {})
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {**queued, **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {
            "completionMode": "Indexed",
            "parallelism": pods,
            "completions": pods,
            "template": made,
            **spec,
        },
    }
