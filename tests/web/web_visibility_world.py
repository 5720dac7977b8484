"""A cluster in virtual time with one queue, and helpers to fill it and to list its pending workloads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import MERGE_PATCH, Request
from pykueue.manager.configuration import load
from pykueue.manager.manager import Manager
from pykueue.simulate.live.advice import StartAdvice
from pykueue.simulate.live.forecasts import Forecasts, Run
from pykueue.web.visibility.embedded import serve
from queue_manifests import cluster_queue, flavor, local_queue

Object = dict[str, Any]

GROUP = "visibility.kueue.x-k8s.io"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{KUEUE}/namespaces/default/workloads"


def queues(strategy: str = "BestEffortFIFO") -> list[Object]:
    """A ClusterQueue with 1 cpu, and two LocalQueues."""
    return [
        flavor("default"),
        cluster_queue("cq", {"default": {"cpu": 1}}, queueingStrategy=strategy),
        local_queue("left", "cq"),
        local_queue("right", "cq"),
    ]


def workload(name: str, queue: str = "left", priority: int | None = None, cpu: str = "1") -> Object:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec: Object = {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}]}
    if priority is not None:
        spec["priority"] = priority
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default", "labels": {"of": name}},
        "spec": spec,
    }


class World:
    """A running cluster, asked as one user."""

    def __init__(
        self, cluster: Cluster, clock: Clock, user: str = "system:admin", groups: Any = None
    ) -> None:
        assert cluster.server is not None
        self.cluster, self.clock, self.server = cluster, clock, cluster.server
        self._transport = self.server.transport(user, ("system:masters",) if groups is None else groups)

    @property
    def manager(self) -> Manager:
        assert self.cluster.manager is not None
        return self.cluster.manager

    def as_user(self, name: str) -> World:
        return World(self.cluster, self.clock, name, ())

    async def request(self, method: str, path: str, body: Any = None, kind: str = "", **query: str) -> Any:
        content = {"content_type": kind} if kind else {}
        return await self._transport.call(Request(method, path, query, body, **content))

    async def get(self, path: str, **query: str) -> Any:
        return await self.request("GET", path, **query)

    async def submit(self, obj: Object) -> None:
        await self.request("POST", WORKLOADS, obj)

    async def pause(self, seconds: float = 2.0) -> None:
        await self.clock.sleep(seconds)

    async def waiting(self, version: str = "v1beta2", queue: str = "cq", **query: str) -> list[Object]:
        found = await self.get(f"/apis/{GROUP}/{version}/clusterqueues/{queue}/pendingworkloads", **query)
        assert found["kind"] == "PendingWorkloadsSummary"
        assert found["apiVersion"] == f"{GROUP}/{version}"
        items: list[Object] = found["items"]
        return items

    async def waiting_locally(self, queue: str, version: str = "v1beta2", **query: str) -> list[Object]:
        path = f"/apis/{GROUP}/{version}/namespaces/default/localqueues/{queue}/pendingworkloads"
        items: list[Object] = (await self.get(path, **query))["items"]
        return items

    async def admitted(self) -> list[str]:
        """Names of unfinished workloads that hold quota."""
        items = (await self.get(WORKLOADS))["items"]
        return [
            one["metadata"]["name"]
            for one in items
            if (one.get("status") or {}).get("admission") and "Finished" not in _true(one)
        ]

    async def finish(self, name: str) -> None:
        path = f"{WORKLOADS}/{name}"
        old = (await self.get(path))["status"]["conditions"]
        done = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "done",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        body = {"status": {"conditions": [*old, done]}}
        await self.request("PATCH", f"{path}/status", body, MERGE_PATCH)

    async def refused(self, asked: Awaitable[Any]) -> ApiError:
        try:
            answer = await asked
        except ApiError as error:
            return error
        raise AssertionError(f"was answered: {answer}")


def _true(obj: Object) -> set[str]:
    return {one["type"] for one in obj["status"].get("conditions") or () if one["status"] == "True"}


def in_world(
    story: Callable[[World], Awaitable[None]],
    strategy: str = "BestEffortFIFO",
    gates: dict[str, bool] | None = None,
    run_forecast: Run | None = None,
) -> None:
    """Tell a story in a fresh cluster, in virtual time."""

    async def main(clock: Clock) -> None:
        settings = load(None, gates)
        parts = ("apiserver", "manager")
        cluster = Cluster(clock=clock, rng=random.Random(1), configuration=settings, parts=parts)
        await cluster.start()
        assert cluster.server is not None
        assert cluster.manager is not None
        forecasts = Forecasts(cluster.manager, run_forecast) if run_forecast is not None else None
        await serve(cluster.server, cluster.manager, forecasts)
        work = asyncio.get_running_loop().create_task(cluster.run())
        try:
            await cluster.synced()
            if forecasts is not None:
                cluster.manager.advice = StartAdvice(cluster.manager, forecasts)
            world = World(cluster, clock)
            for obj in queues(strategy):
                place = (
                    f"/namespaces/{obj['metadata']['namespace']}" if "namespace" in obj["metadata"] else ""
                )
                await world.request("POST", f"{KUEUE}{place}/{obj['kind'].lower()}s", obj)
            await world.pause()
            await story(world)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await cluster.stop()

    run_virtual(main)
