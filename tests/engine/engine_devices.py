"""Manifests of devices for engine tests: classes, templates of claims, and slices."""

from __future__ import annotations

from typing import Any

from engine_world import START, World

from pykueue.api.meta import format_time
from pykueue.engine.options import DeviceMapping, DeviceSource, Options

VERSION = "resource.k8s.io/v1"
GPUS = DeviceMapping("example.com/gpus", ("gpu.example.com", "big.example.com"))


def world(*mappings: DeviceMapping, quota: dict[str, Any] | None = None, **gates: bool) -> World:
    """A queue `q` with quota for cpu and devices."""
    made = World(Options(device_mappings=mappings or (GPUS,), gates=gates))
    made.flavor()
    made.queue("q", quota or {"cpu": 100, "example.com/gpus": 4})
    return made


def device_class(made: World, name: str, *expressions: str, extended: str = "", created: float = 0) -> None:
    """A DeviceClass whose devices satisfy the expressions."""
    metadata = {"name": name, "creationTimestamp": format_time(START + created)}
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": each}} for each in expressions]}
    if extended:
        spec["extendedResourceName"] = extended
    made.apply({"apiVersion": VERSION, "kind": "DeviceClass", "metadata": metadata, "spec": spec})


def request(name: str = "gpu.example.com", count: int = 1, *expressions: str, **more: Any) -> dict[str, Any]:
    """An exact request."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    exactly = {"deviceClassName": name, "allocationMode": "ExactCount", "count": count, **more}
    return {"name": "r", "exactly": exactly | ({"selectors": selectors} if selectors else {})}


def template(made: World, name: str, *requests: dict[str, Any], namespace: str = "default") -> None:
    """A ResourceClaimTemplate of these requests."""
    requests = tuple({**each, "name": f"r{number}"} for number, each in enumerate(requests))
    metadata = {"name": name, "namespace": namespace, "uid": name}
    spec = {"spec": {"devices": {"requests": list(requests)}}}
    made.apply({"apiVersion": VERSION, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec})


def slices(
    made: World,
    *devices: dict[str, Any],
    name: str = "s",
    generation: int = 1,
    count: int = 1,
    driver: str = "gpu.example.com",
) -> None:
    """A ResourceSlice of a pool of `count` slices."""
    pool = {"name": "p", "generation": generation, "resourceSliceCount": count}
    spec = {"driver": driver, "pool": pool, "nodeName": "n", "devices": list(devices)}
    metadata = {"name": name, "uid": name}
    made.apply({"apiVersion": VERSION, "kind": "ResourceSlice", "metadata": metadata, "spec": spec})


def device(name: str, memory: str = "40Gi", **attributes: Any) -> dict[str, Any]:
    """A device with that much memory."""
    kinds = {int: "int", str: "string", bool: "bool"}
    return {
        "name": name,
        "attributes": {key: {kinds[type(value)]: value} for key, value in attributes.items()},
        "capacity": {"memory": {"value": memory}},
    }


def pods(*claims: str, by: str = "resourceClaimTemplateName", **resources: str) -> dict[str, Any]:
    """The spec of a pod with these claims."""
    named = [{"name": f"c{number}", by: claim} for number, claim in enumerate(claims)]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", **resources}}}
    return {"containers": [container], "resourceClaims": named}


def source(kind: Any, name: str, expression: str = "true") -> DeviceSource:
    """A source of amounts of the driver of `slices`."""
    return DeviceSource(kind, name, "gpu.example.com", expression)


def charged(made: World, name: str = "w") -> dict[str, int]:
    """What a workload requests besides cpu, by resource."""
    view = made.engine.workload(f"default/{name}")
    assert view is not None
    ((_, amounts),) = view.requests
    return {resource: amount.value() for resource, amount in amounts.items() if resource != "cpu"}
