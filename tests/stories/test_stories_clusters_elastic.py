"""Elastic jobs on worker clusters (docs/reference/admission-checks.md 20.2)."""

from __future__ import annotations

from typing import Any

from clusters_world import Clusters, play
from elastic_ray import SPECS
from elastic_ray import elastic as ray
from kinds_world import KINDS
from stories_world import holds, job

from pykueue.api.jobkinds import value_at, with_value
from pykueue.api.resources import JOBS, WORKLOADS
from pykueue.cluster import JOB_KINDS

Object = dict[str, Any]

GATE = "featureGates: {ElasticJobsViaWorkloadSlices: true}\n"
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
KIND_NAMES = {"raycluster": "RayCluster", "rayjob": "RayJob", "rayservice": "RayService"}


def elastic(name: str, pods: int, run_time: str = "forever") -> Object:
    return job(name, pods, annotations=ELASTIC, run_time=run_time)


async def resize(c: Clusters, pods: int) -> None:
    await c.manager.patch(JOBS, "a", {"spec": {"parallelism": pods, "completions": pods}})
    await c.wait(20)


async def current(workloads: list[Object]) -> list[tuple[str, int]]:
    """Name and size of the Workloads that are not finished."""
    found = [one for one in workloads if not holds(one, "Finished")]
    return [(one["metadata"]["name"], one["spec"]["podSets"][0]["count"]) for one in found]


def test_job_grows_and_shrinks_on_its_worker() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(elastic("a", 2))
        await c.wait(15)
        (worker,) = await c.placed("a")
        w = c.workers[worker]
        uid = (await w.get(JOBS, "a"))["metadata"]["uid"]
        before = await current(await c.manager.all(WORKLOADS))
        assert [size for _, size in before] == [2]

        await resize(c, 5)
        grown = await current(await c.manager.all(WORKLOADS))
        assert [size for _, size in grown] == [5]
        assert grown != before
        # The same job goes on there, under the new slice.
        copy = await w.get(JOBS, "a")
        assert (copy["metadata"]["uid"], copy["spec"]["parallelism"]) == (uid, 5)
        assert await current(await w.all(WORKLOADS)) == grown
        assert await w.phases("a-") == ["Running"] * 5
        assert await c.having(JOBS, "a") == [worker]

        await resize(c, 1)
        assert await current(await c.manager.all(WORKLOADS)) == [(grown[0][0], 1)]
        assert await current(await w.all(WORKLOADS)) == [(grown[0][0], 1)]
        assert await w.phases("a-") == ["Running"]

        await c.manager.delete(JOBS, "a")
        await c.wait(120)
        assert (await c.having(JOBS, "a"), await c.left()) == ([], [])

    play(story, "w1", "w2", configuration=GATE)


def test_job_keeps_running_at_its_size_while_the_worker_has_no_quota_for_more() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(elastic("a", 2))
        await c.wait(15)
        (worker,) = await c.placed("a")
        w = c.workers[worker]
        await resize(c, 20)
        assert (await w.get(JOBS, "a"))["spec"]["parallelism"] == 2
        assert await w.phases("a-") == ["Running"] * 2
        assert await c.placed("a") == {worker}
        await resize(c, 3)
        assert await w.phases("a-") == ["Running"] * 3
        # An eviction of the slice stops the job where it runs.
        ((name, _),) = await current(await c.manager.all(WORKLOADS))
        await resize(c, 20)
        ((name, _),) = await current(await c.manager.all(WORKLOADS))
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": False}})
        await c.wait(60)
        assert await w.pods("a-") == []
        left = [one for one in await c.manager.all(WORKLOADS) if not holds(one, "Finished")]
        assert [holds(one, "QuotaReserved") for one in left] == [False] * len(left)

    play(story, "w1", configuration=GATE)


def test_job_that_ends_while_the_worker_has_no_quota_for_more_ends_here_too() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(elastic("a", 2, run_time="60s"))
        await c.wait(15)
        await resize(c, 20)
        ((_, size),) = await current(await c.manager.all(WORKLOADS))
        assert size == 20
        await c.wait(120)
        assert await current(await c.manager.all(WORKLOADS)) == []
        assert holds(await c.manager.get(JOBS, "a"), "Complete")
        assert await c.left() == []

    play(story, "w1", configuration=GATE)


async def rescale(c: Clusters, sample: str, name: str, workers: int) -> None:
    """Change the number of Ray workers on the manager's cluster."""
    resource, path = KINDS[KIND_NAMES[sample]].resource, (*SPECS[sample], "workerGroupSpecs")
    found = await c.manager.get(resource, name)
    (group,) = value_at(found, path)
    await c.manager.client.update(resource, with_value(found, path, [{**group, "replicas": workers}]))
    await c.wait(60)


async def sizes(workloads: list[Object]) -> list[int]:
    """Pods of the Workloads that are not finished."""
    found = [one for one in workloads if not holds(one, "Finished")]
    return [sum(pods["count"] for pods in one["spec"]["podSets"]) for one in found]


def test_ray_workers_come_and_go_on_the_worker_cluster() -> None:
    async def story(c: Clusters) -> None:
        made = ray("raycluster", 2)
        name = made["metadata"]["name"]
        await c.manager.create(made)
        await c.wait(60)
        w = c.workers["w1"]
        for workers in (2, 4, 1):
            if workers != 2:
                await rescale(c, "raycluster", name, workers)
            assert await sizes(await c.manager.all(WORKLOADS)) == [1 + workers]
            assert await sizes(await w.all(WORKLOADS)) == [1 + workers]
            assert await w.phases() == ["Running"] * (1 + workers)
        await c.manager.delete(KINDS["RayCluster"].resource, name)
        await c.wait(180)
        assert await c.left() == []

    play(story, "w1", configuration=GATE, job_kinds=JOB_KINDS)


def test_rayservice_keeps_the_size_that_it_was_dispatched_with() -> None:
    async def story(c: Clusters) -> None:
        made = ray("rayservice", 2)
        name = made["metadata"]["name"]
        await c.manager.create(made)
        await c.wait(60)
        w = c.workers["w1"]
        before = await sizes(await c.manager.all(WORKLOADS))
        pods = await w.phases()
        assert pods
        for workers in (4, 1):
            await rescale(c, "rayservice", name, workers)
            assert await sizes(await c.manager.all(WORKLOADS)) == before
            assert await sizes(await w.all(WORKLOADS)) == before
            assert await w.phases() == pods

    play(story, "w1", configuration=GATE, job_kinds=JOB_KINDS)
