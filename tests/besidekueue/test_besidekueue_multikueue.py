"""MultiKueue between Kueue and pykueue: either of them dispatches to a worker of the other one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from besidekueue_clusters import Clusters, EmbeddedSide, Side, job, jobset, pod_group, pytorch_job
from besidekueue_manager import folder
from besidekueue_planes import PlaneSide
from realcluster_plane import assets, until


@pytest.fixture(
    scope="module",
    params=[(one, server) for server in ("embedded", "real") for one in ("worker", "manager")],
    ids=lambda param: f"kueue-{param[0]}-{param[1]}",
)
def clusters(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Kueue's manager on one of the two clusters, pykueue's on the other one."""
    kueue_manages, server = request.param
    top, kueue = tmp_path_factory.mktemp("clusters"), folder()
    if server == "real":
        assets()
    sides: list[Side] = []
    try:
        for role in ("manager", "worker"):
            program = kueue if kueue_manages == role else None
            if server == "real":
                sides.append(PlaneSide(top / role, program, runs_jobs=role == "worker"))
            else:
                sides.append(EmbeddedSide(top / role, program))
            sides[-1].set_up()
        yield Clusters(*sides, kueue_manages)
    finally:
        for side in sides:
            side.stop()


@pytest.mark.parametrize(
    ("resource", "manifest"),
    [("jobs", job("j")), ("jobsets", jobset("s")), ("pytorchjobs", pytorch_job("p"))],
    ids=["Job", "JobSet", "PyTorchJob"],
)
def test_job_runs_on_the_worker_and_its_end_comes_back(
    clusters: Clusters, resource: str, manifest: dict[str, Any]
) -> None:
    name = manifest["metadata"]["name"]
    clusters.manager.kubectl.apply(manifest)
    clusters.wait_placed(name)
    clusters.wait_finished(name)
    local = clusters.manager.kubectl.get(resource, name) or {}
    ends = {one["type"] for one in local["status"]["conditions"] if one["status"] == "True"}
    assert ends & {"Complete", "Completed", "Succeeded"}
    clusters.wait_cleaned(name)
    assert clusters.worker.kubectl.get(resource, name) is None
    assert not clusters.manager.kubectl.list("pods", "-n", "default")


def test_pod_group_runs_on_the_worker_and_its_status_comes_back(clusters: Clusters) -> None:
    clusters.manager.kubectl.apply(*pod_group("g", 2))
    clusters.wait_placed("g-0")
    clusters.wait_finished("g-0")
    for name in ("g-0", "g-1"):
        local = clusters.manager.kubectl.get("pods", name) or {}
        assert local["status"]["phase"] == "Succeeded"
        assert {"name": "kueue.x-k8s.io/admission"} in local["spec"]["schedulingGates"]
        clusters.manager.kubectl("delete", "pod", name, "--wait=false")
    clusters.wait_cleaned("g-0")
    until(lambda: not clusters.worker.kubectl.list("pods", "-n", "default"), "the copies are removed")


def test_job_that_the_worker_evicts_is_dispatched_again(clusters: Clusters) -> None:
    clusters.manager.kubectl.apply(job("evicted", "10s"))
    clusters.wait_placed("evicted")
    clusters.wait_running("evicted")
    clusters.worker.edit("clusterqueue", "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
    until(lambda: not clusters.placed("evicted"), "the manager gives the worker up")
    clusters.worker.edit("clusterqueue", "cq", {"spec": {"stopPolicy": "None"}})
    clusters.wait_placed("evicted")
    clusters.wait_finished("evicted")
    clusters.wait_cleaned("evicted")


@pytest.mark.parametrize(
    "manifests", [[jobset("es", "8s")], [pytorch_job("ep", "8s")]], ids=["JobSet", "PyTorchJob"]
)
def test_job_of_another_kind_that_the_worker_evicts_is_dispatched_again(
    clusters: Clusters, manifests: list[dict[str, Any]]
) -> None:
    name = manifests[0]["metadata"]["name"]
    clusters.manager.kubectl.apply(*manifests)
    clusters.wait_placed(name)
    clusters.worker.edit("clusterqueue", "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
    until(lambda: not clusters.placed(name), "the manager gives the worker up")
    clusters.worker.edit("clusterqueue", "cq", {"spec": {"stopPolicy": "None"}})
    clusters.wait_placed(name)
    clusters.wait_finished(name)


def test_worker_that_is_lost_and_returns_in_time_keeps_its_job(clusters: Clusters) -> None:
    clusters.manager.kubectl.apply(job("kept", "8s"))
    clusters.wait_placed("kept")
    clusters.wait_running("kept")
    clusters.worker.kill()

    def connected() -> str:
        found = clusters.manager.kubectl.get("multikueuecluster", "w") or {}
        return str(found["status"]["conditions"][0]["status"])

    until(lambda: connected() == "False", "the worker is lost")
    assert clusters.placed("kept") == "w"
    clusters.worker.start()
    until(lambda: connected() == "True", "the worker is back")
    clusters.wait_finished("kept")
    clusters.wait_cleaned("kept")
