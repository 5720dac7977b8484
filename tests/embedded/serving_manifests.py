"""Deployments and StatefulSets whose simulated pods run until they are deleted."""

from __future__ import annotations

from typing import Any

from jobset_world import World

from pykueue.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS, Resource

Object = dict[str, Any]

REVISION = "deployment.kubernetes.io/revision"


def template(image: str = "web:1", **annotations: str) -> Object:
    """A template of pods that take an eighth of a node."""
    simulation = {"sim.pykueue.io/run-time": "forever", **annotations}
    return {
        "metadata": {
            "labels": {"app": "web"},
            "annotations": {key.replace("_", "-"): value for key, value in simulation.items()},
        },
        "spec": {"containers": [{"name": "main", "image": image, "resources": {"requests": {"cpu": "1"}}}]},
    }


def deployment(replicas: int = 3, image: str = "web:1", pods: Object | None = None, **spec: Any) -> Object:
    return _serving("Deployment", replicas, pods or template(image), spec)


def stateful_set(replicas: int = 3, image: str = "web:1", pods: Object | None = None, **spec: Any) -> Object:
    return _serving("StatefulSet", replicas, pods or template(image), {"serviceName": "web", **spec})


def _serving(kind: str, replicas: int, pods: Object, spec: Object) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": pods,
            **spec,
        },
    }


async def change(world: World, resource: Resource, **spec: Any) -> Object:
    return await world.client.patch(resource, "web", "default", {"spec": spec})


async def new_image(world: World, resource: Resource, image: str) -> None:
    containers = template(image)["spec"]["containers"]
    await change(world, resource, template={"spec": {"containers": containers}})


async def status(world: World, resource: Resource = DEPLOYMENTS) -> Object:
    return (await world.client.get(resource, "web", "default")).get("status") or {}


async def conditions(world: World) -> dict[str, tuple[str, str]]:
    found = (await status(world)).get("conditions") or ()
    return {one["type"]: (one["status"], one["reason"]) for one in found}


async def replica_sets(world: World) -> list[tuple[str, int]]:
    """Revision and size of each, oldest first."""
    found = (await world.client.list(REPLICA_SETS, "default")).items
    pairs = [(one["metadata"]["annotations"][REVISION], one["spec"]["replicas"]) for one in found]
    return sorted(pairs, key=lambda pair: int(pair[0]))


async def images(world: World) -> list[str]:
    """The images of the pods that stay, by the pods' names."""
    return [pod["spec"]["containers"][0]["image"] for pod in await world.pods()]


async def ready_names(world: World) -> list[str]:
    found = (await world.client.list(PODS, "default")).items
    return sorted(
        pod["metadata"]["name"]
        for pod in found
        if not pod["metadata"].get("deletionTimestamp")
        and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or ())
    )


__all__ = ["DEPLOYMENTS", "REPLICA_SETS", "STATEFUL_SETS"]
