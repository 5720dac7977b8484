"""Elastic Ray clusters: workers come and go while they run, with quota for each that is not gated."""

from __future__ import annotations

from typing import Any

import pytest
from elastic_ray import SPECS, elastic
from kinds_world import KINDS, World, live, play

from pykueue.api.jobkinds import value_at
from pykueue.api.resources import WORKLOADS

Object = dict[str, Any]
GATE = {"name": "kueue.x-k8s.io/elastic-job"}


async def scale(world: World, kind: str, name: str, path: tuple[str, ...], workers: int) -> None:
    resource = KINDS[kind].resource
    found = await world.client.get(resource, name, "default")
    (group,) = value_at(found, (*path, "workerGroupSpecs"))
    patch: Any = {"workerGroupSpecs": [{**group, "replicas": workers}]}
    for step in reversed(path):
        patch = {step: patch}
    await world.client.patch(resource, name, "default", patch)


async def workers(world: World) -> tuple[int, int]:
    """Live workers that are not gated, and that are."""
    found = live(await world.pods("ray.io/node-type=worker"))
    gated = sum(GATE in (pod["spec"].get("schedulingGates") or ()) for pod in found)
    return len(found) - gated, gated


async def reasons(world: World) -> list[str]:
    """Of the end of all Workloads."""
    return sorted(
        one["reason"]
        for workload in await world.all(WORKLOADS)
        for one in workload["status"].get("conditions") or ()
        if one["type"] == "Finished"
    )


@pytest.mark.parametrize("name", SPECS)
def test_ray_cluster_grows_and_shrinks_while_it_runs(name: str) -> None:
    async def story(world: World) -> None:
        job = elastic(name, 2)
        await world.create(job)

        async def has(running: int, gated: int) -> bool:
            return await workers(world) == (running, gated)

        await world.until(lambda: has(2, 0))
        if name == "rayservice":
            await world.until(lambda: world.ready(job))
        before = await world.used()
        target, path = (job["kind"], job["metadata"]["name"]), SPECS[name]
        if name != "raycluster":  # its autoscaler writes to the cluster
            status = (await world.get(job))["status"]
            cluster = (status.get("activeServiceStatus") or status)["rayClusterName"]
            target, path = ("RayCluster", cluster), ("spec",)
        await scale(world, *target, path, 4)
        await world.until(lambda: has(4, 0))
        assert await world.used() == before + 2000
        assert await reasons(world) == ["WorkloadSliceReplaced"]
        await scale(world, *target, path, 20)
        await world.wait(30)
        assert await workers(world) == (4, 16)
        await scale(world, *target, path, 1)
        await world.until(lambda: has(1, 0))
        await world.wait(5)
        assert await world.used() == before - 1000
        assert await reasons(world) == ["OutOfSync", "WorkloadSliceReplaced"]
        assert not value_at(await world.get(job), KINDS[job["kind"]].suspend or ("spec", "suspend"))

    play(story, 10)
