"""Jobs of all kinds with a field for it on a worker cluster, in one pair of clusters.

The manifests are those of examples/.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest
from clusters_world import Clusters, play
from kinds_world import KINDS, manifests
from stories_world import EXAMPLE, holds, job

from pykueue.api.jobkinds import value_at
from pykueue.api.resources import JOB_SETS, JOBS
from pykueue.cluster import JOB_KINDS

Object = dict[str, Any]

FINITE = [
    "kubeflow/pytorchjob",
    "kubeflow/tfjob",
    "kubeflow/xgboostjob",
    "kubeflow/paddlejob",
    "mpi/mpijob",
    "ray/rayjob",
    "trainjob/trainjob",
    "appwrapper/appwrapper",
]
ENDLESS = ["ray/raycluster", "ray/rayservice"]
OTHERS = {"Job": JOBS, "JobSet": JOB_SETS}


class Seen(NamedTuple):
    """What was seen of one job."""

    #: The job and its copy while it runs, and the job after its end, or after that of its copy.
    local: Object
    copy: Object
    ended: Object
    #: Reason of the condition Finished.
    finished: str
    #: Whether its copy is still there at the end.
    is_left: bool


def samples() -> dict[str, tuple[list[Object], Object]]:
    """What each job needs, and the job, by example."""
    found: dict[str, tuple[list[Object], Object]] = {"job": ([], job("plain", 2, run_time="30s"))}
    for name in (*FINITE, *ENDLESS):
        *others, made = manifests(EXAMPLE.parent / f"{name}.yaml")
        labels = {"kueue.x-k8s.io/queue-name": "q"}
        found[name] = others, {**made, "metadata": {**made["metadata"], "labels": labels}}
    return found


@cache
def lives() -> dict[str, Seen]:
    """All of them run at the same time."""
    seen: dict[str, Seen] = {}

    async def story(c: Clusters) -> None:
        worker, made = c.workers["w1"], samples()
        for _, obj in made.values():
            resource = OTHERS.get(obj["kind"]) or KINDS[obj["kind"]].resource
            await c.manager.client.create(resource, obj)
        await c.wait(9)
        running = {}
        for name, (_, obj) in made.items():
            resource = OTHERS.get(obj["kind"]) or KINDS[obj["kind"]].resource
            key = obj["metadata"]["name"]
            running[name] = (await c.manager.get(resource, key), await worker.find(resource, key) or {})
        await c.wait(600)
        for name, (_, obj) in made.items():
            resource = OTHERS.get(obj["kind"]) or KINDS[obj["kind"]].resource
            key = obj["metadata"]["name"]
            local = await c.manager.get(resource, key)
            (workload,) = await c.manager.workloads(key)
            ends = [one for one in workload["status"]["conditions"] if one["type"] == "Finished"]
            is_left = await worker.find(resource, key) is not None
            seen[name] = Seen(*running[name], local, ends[0]["reason"] if ends else "", is_left)

    needed = [one for others, _ in samples().values() for one in others]
    play(story, "w1", cpu=200, objects=needed, job_kinds=JOB_KINDS)
    return seen


@pytest.mark.parametrize("name", ["job", *FINITE, *ENDLESS])
def test_job_is_handed_over_and_runs_on_the_worker(name: str) -> None:
    seen = lives()[name]
    kind = KINDS.get(seen.local["kind"])
    field = kind.managed_by if kind is not None and kind.managed_by else ("spec", "managedBy")
    assert value_at(seen.local, field) == "kueue.x-k8s.io/multikueue"
    assert seen.copy
    assert value_at(seen.copy, field) in (None, "" if kind is None else kind.controller)
    assert seen.copy["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "multikueue"
    assert seen.local["status"]
    assert seen.local["status"] == seen.copy["status"]


@pytest.mark.parametrize("name", ["job", *FINITE])
def test_end_of_the_job_comes_back(name: str) -> None:
    seen = lives()[name]
    assert (seen.finished, seen.is_left) == ("Succeeded", False)
    assert seen.ended["status"] != seen.local["status"]


@pytest.mark.parametrize("name", ENDLESS)
def test_job_that_serves_goes_on(name: str) -> None:
    seen = lives()[name]
    assert (seen.finished, seen.is_left) == ("", True)
    assert not holds(seen.ended, "Failed")


@pytest.mark.parametrize("gate", [True, False], ids=["on", "off"])
def test_changed_serve_configuration_of_a_ray_service_reaches_the_worker(gate: bool) -> None:
    others, made = samples()["ray/rayservice"]
    resource, name = KINDS["RayService"].resource, made["metadata"]["name"]

    async def story(c: Clusters) -> None:
        await c.manager.client.create(resource, made)
        await c.wait(20)
        before = (await c.workers["w1"].get(resource, name))["spec"].get("serveConfigV2")
        await c.manager.patch(resource, name, {"spec": {"serveConfigV2": "applications: []"}})
        await c.wait(5)
        copy = await c.workers["w1"].get(resource, name)
        assert copy["spec"].get("serveConfigV2") == ("applications: []" if gate else before)
        assert copy["spec"]["rayClusterConfig"]["suspend"] is False

    gates = f"featureGates: {{MultiKueueRemoteSpecSync: {str(gate).lower()}}}\n"
    play(story, "w1", cpu=50, objects=others, job_kinds=["RayService", "RayCluster"], configuration=gates)
