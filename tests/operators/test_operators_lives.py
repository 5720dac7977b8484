"""The life of jobs of other projects' kinds that their real operators run: queued, run, evicted, run again.

The jobs are those of examples/. Time is real, so the tests wait for conditions, and a step that takes long
does not fail.
"""

from __future__ import annotations

import json
import re

import pytest
from operators_jobs import NODE_LABELS, TOLERATION, Object, Stage, Team, live, templates
from operators_ray import serving_endpoint
from realcluster_plane import until

FINITE = [
    ("jobset", "tests/operators/samples/jobset.yaml"),
    ("training", "examples/kubeflow/pytorchjob.yaml"),
    ("training", "examples/kubeflow/tfjob.yaml"),
    ("training", "examples/kubeflow/xgboostjob.yaml"),
    ("training", "examples/kubeflow/paddlejob.yaml"),
    ("training", "examples/kubeflow/jaxjob.yaml"),
    ("mpi", "examples/mpi/mpijob.yaml"),
    ("ray", "examples/ray/rayjob.yaml"),
    ("trainer", "examples/trainjob/trainjob.yaml"),
    ("appwrapper", "examples/appwrapper/appwrapper.yaml"),
    ("spark", "examples/spark/sparkapplication.yaml"),
]
SERVING = [
    ("lws", "examples/leaderworkerset/leaderworkerset.yaml"),
    ("ray", "examples/ray/raycluster.yaml"),
]


def name_of(example: str, story: str) -> str:
    return f"{re.sub(r'.*/|.yaml$', '', example)}-{story}"


def check_pods(pods: list[Object]) -> None:
    """Pods have the node labels and the toleration of the flavor."""
    assert pods
    for pod in pods:
        assert pod["spec"]["nodeSelector"] == NODE_LABELS, pod["metadata"]["name"]
        assert any(one.items() >= TOLERATION.items() for one in pod["spec"]["tolerations"])


@pytest.mark.parametrize(("operator", "example"), FINITE)
def test_job_is_admitted_and_finishes(stage: Stage, operator: str, example: str) -> None:
    team = Team(stage, name_of(example, "ends"))
    job = team.submit(example, "3s")
    team.wait(job, "Finished", reason="Succeeded")
    check_pods(team.pods())
    team.wait_until_free(job)


def runs(team: Team, job: Object) -> None:
    """Wait until it is admitted and ready, with pods."""
    team.wait(job, "PodsReady")
    until(lambda: live(team.pods()), "pods of the job")
    check_pods(live(team.pods()))


def evict(team: Team, job: Object) -> None:
    """Let an urgent Job take its quota and finish; then it runs again."""
    runs(team, job)
    urgent = team.submit_urgent()
    team.wait(urgent, "Finished", reason="Succeeded")
    runs(team, job)


@pytest.mark.parametrize(("operator", "example"), FINITE)
def test_job_is_evicted_and_runs_again(stage: Stage, operator: str, example: str) -> None:
    team = Team(stage, name_of(example, "evicted"))
    job = team.submit(example, "forever")
    evict(team, job)
    team.drain()
    team.wait(job, "Admitted", "False")
    until(lambda: not live(team.pods()), "pods of the evicted job gone")
    # Its templates are again those that it was created with.
    found = json.dumps(templates(team.get(job)), sort_keys=True)
    assert found == json.dumps(templates(job), sort_keys=True)
    team.wait_until_free(job)


@pytest.mark.parametrize(("operator", "example"), SERVING)
def test_serving_job_is_evicted_and_serves_until_it_is_deleted(
    stage: Stage, operator: str, example: str
) -> None:
    team = Team(stage, name_of(example, "serves"))
    job = team.submit(example, "forever")
    evict(team, job)
    team.delete(job)
    until(lambda: not team.pods(), "pods of the deleted job gone")
    team.wait_until_free(job)


@pytest.mark.parametrize("operator", ["ray"])
def test_ray_service_with_an_endpoint_is_evicted_and_its_pods_run_again_until_it_is_deleted(
    stage: Stage, operator: str
) -> None:
    """The test writes the endpoint. KubeRay 1.6 leaves the service Ready when its pods are gone."""
    team = Team(stage, "rayservice-serves")
    job = team.submit("examples/ray/rayservice.yaml", "forever")
    until(lambda: len(live(team.pods())) == 3, "pods of the service")
    assert not team.holds(job, "PodsReady")
    team.apply(serving_endpoint(job["metadata"]["name"], team.name))
    evict(team, job)
    team.delete(job)
    until(lambda: not team.pods(), "pods of the deleted service gone")
    team.wait_until_free(job)
