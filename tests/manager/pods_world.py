"""Pods in queues: manifests, and a kubelet played by the test."""

from __future__ import annotations

from typing import Any

from manager_stack import Stack

from pykueue.api.resources import PODS, WORKLOADS, Resource
from pykueue.kube.errors import ApiError
from queue_manifests import cluster_queue, flavor, local_queue, priority

Object = dict[str, Any]

D = "kueue.x-k8s.io/"
GATE = {"name": f"{D}admission"}
PODS_ON = "integrations: {frameworks: [batch/job, pod]}\n"

FLAVORED = [
    flavor(nodeLabels={"disk": "fast"}, tolerations=[{"key": "fast", "operator": "Exists"}]),
    cluster_queue("cq", {"cpu": 4}, preemption={"withinClusterQueue": "LowerPriority"}),
    local_queue("lq", "cq"),
    priority("high", 100),
]


def pod(
    name: str,
    cpu: str = "1",
    queue: str | None = "lq",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    queued = {f"{D}queue-name": queue} if queue else {}
    containers = [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {**queued, **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {"restartPolicy": "Never", "containers": containers, **spec},
    }


def member(name: str, total: int, group: str = "g", **options: Any) -> Object:
    """A pod of a group; further options as `pod` takes them."""
    labels = {f"{D}pod-group-name": group, **options.pop("labels", {})}
    annotations = {f"{D}pod-group-total-count": str(total), **options.pop("annotations", {})}
    return pod(name, labels=labels, annotations=annotations, **options)


class Pods:
    """The pods of a stack, and their kubelet as the test plays it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    async def create(self, *pods: Object) -> None:
        for one in pods:
            await self.stack.client.create(PODS, one)
        await self.stack.settle()

    async def get(self, name: str) -> Object:
        return await self.stack.get(PODS, name)

    async def exists(self, resource: Resource, name: str) -> bool:
        try:
            await self.stack.get(resource, name)
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return True

    async def names(self) -> list[str]:
        return sorted(one["metadata"]["name"] for one in await self.stack.pods())

    async def is_gated(self, name: str) -> bool:
        return GATE in ((await self.get(name))["spec"].get("schedulingGates") or ())

    async def gated(self) -> list[str]:
        return [name for name in await self.names() if await self.is_gated(name)]

    async def is_held(self, name: str) -> bool:
        """Whether the manager still wants to see what becomes of it."""
        return f"{D}managed" in ((await self.get(name))["metadata"].get("finalizers") or ())

    async def run(self, *names: str) -> None:
        """Bind the pods and let them be ready."""
        for name in names:
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "namespace": "default"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
            }
            await self.stack.client.create(PODS, binding, name=name, subresource="binding")
            await self._status(name, "Running", "True")
        await self.stack.settle()

    async def end(self, *names: str, phase: str = "Succeeded") -> None:
        """The pods end; those that are being deleted go, if nothing else holds them."""
        for name in names:
            await self._status(name, phase, "False")
        await self.stack.settle()
        for name in names:
            if await self.exists(PODS, name) and (await self.get(name))["metadata"].get("deletionTimestamp"):
                await self.stack.client.delete(PODS, name, "default", grace_period=0)
        await self.stack.settle()

    async def _status(self, name: str, phase: str, ready: str) -> None:
        known = (await self.get(name))["status"].get("conditions") or []
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": self.stack.now()}
        others = [one for one in known if one["type"] != "Ready"]
        status = {"phase": phase, "conditions": [*others, condition]}
        await self.stack.patch(PODS, name, {"status": status}, "status")

    async def annotate(self, name: str, key: str, value: str) -> None:
        await self.stack.patch(PODS, name, {"metadata": {"annotations": {D + key: value}}})
        await self.stack.settle()

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.stack.delete(PODS, name)
        await self.stack.settle()

    async def workload(self, name: str = "g") -> Object:
        return await self.stack.get(WORKLOADS, name)

    async def conditions(self, name: str = "g") -> dict[str, tuple[str, str]]:
        found = (await self.workload(name)).get("status", {}).get("conditions") or ()
        return {one["type"]: (one["status"], one["reason"]) for one in found}
