"""Which Workload `find_workload` takes a name for."""

from __future__ import annotations

import pytest
from engine_world import World

from pykueue.api import kueue
from pykueue.api.kueue.names import WORKLOAD_SLICE_REPLACEMENT_ANNOTATION
from pykueue.questions import TargetError, find_workload
from pykueue.questions.targets import job_resources, without_workload


def workloads() -> list[kueue.Workload]:
    world = World()
    world.namespace("other")
    world.queue("q", {"f": {"cpu": 1}})
    world.workload("job-a-1f", "q", 1, owner="a")
    world.workload("job-b-2f", "q", 1, owner="b")
    world.workload("job-b-3f", "q", 1, owner="b")
    world.workload("plain", "q", 1)
    world.workload("remote", "q", 1, namespace="other")
    return list(world.driver.workloads.values())


@pytest.mark.parametrize(
    "target", ["a", "job/a", "jobs/a", "Job/a", "jobs.batch/a", "job-a-1f", "workload/job-a-1f"]
)
def test_names_of_the_workload_and_of_its_job_mean_it(target: str) -> None:
    assert find_workload(workloads(), target, "default").metadata.name == "job-a-1f"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("b", "Job/b has several workloads: workload/job-b-2f, workload/job-b-3f"),
        ("job/absent", "no Workload of job absent in namespace default"),
        ("jobs.example.com/a", "no Workload of jobs.example.com a in namespace default"),
        ("plai", "no Workload or job plai in namespace default; did you mean plain?"),
        ("remote", "no Workload or job remote in namespace default"),
        ("workload/a", "no Workload a in namespace default"),
        ("/a", "'/a' names no workload; accepted: NAME, workload/NAME, KIND/NAME of a job"),
        ("", "'' names no workload; accepted: NAME, workload/NAME, KIND/NAME of a job"),
    ],
)
def test_names_that_mean_none_or_several_are_refused(target: str, message: str) -> None:
    with pytest.raises(TargetError) as error:
        find_workload(workloads(), target, "default")
    assert str(error.value) == message


def test_the_growth_of_an_elastic_job_is_meant_and_not_the_slice_that_it_replaces() -> None:
    world = World()
    world.queue("q", {"f": {"cpu": 1}})
    world.workload("job-a-1f", "q", 1, owner="a")
    replaces = {WORKLOAD_SLICE_REPLACEMENT_ANNOTATION: "default/job-a-1f"}
    world.workload("job-a-0f", "q", 2, owner="a", annotations=replaces)
    workloads = list(world.driver.workloads.values())
    for target, name in (("job/a", "job-a-0f"), ("a", "job-a-0f"), ("job-a-1f", "job-a-1f")):
        assert find_workload(workloads, target, "default").metadata.name == name


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            {},
            "Job ns/a is not queued: it has no label kueue.x-k8s.io/queue-name. "
            "Set it to the name of a LocalQueue; LocalQueues of the namespace: left, right",
        ),
        (
            {"kueue.x-k8s.io/queue-name": "lef"},
            "its LocalQueue lef does not exist; LocalQueues of the namespace",
        ),
        ({"kueue.x-k8s.io/queue-name": "left"}, "has no Workload, although its LocalQueue left exists"),
    ],
)
def test_job_without_a_workload_is_named_with_what_it_lacks(labels: dict[str, str], message: str) -> None:
    job = {"kind": "Job", "metadata": {"name": "a", "namespace": "ns", "labels": labels}}
    assert message in without_workload(job, ["right", "left"])


def test_kinds_of_jobs_are_found_as_kubectl_writes_them() -> None:
    assert [each.kind for each in job_resources("a")] == ["Job"]
    assert [each.kind for each in job_resources("jobs.batch/a")] == ["Job"]
    assert [each.kind for each in job_resources("rayjob/a")] == ["RayJob"]
    assert job_resources("unknown/a") == []
