"""Jobs inside jobs of other kinds, pods that outlive a status, and jobs that their operator refuses.

Sources: docs/reference/kueue-integrations.md 9.1 and 9.3, docs/reference/operators.md 0.
"""

from __future__ import annotations

from typing import Any

import pytest
from kind_samples import SAMPLES
from kind_worlds import frameworks, serve
from manager_stack import Stack, job, story

from pykueue.api.jobkinds import pod_set_slots, value_at
from pykueue.api.resources import JOBS, PODS, WORKLOADS, Resource
from queue_manifests import cluster_queue, flavor, local_queue

Object = dict[str, Any]
D = "kueue.x-k8s.io/"
RAY_JOB, RAY_CLUSTER = SAMPLES["rayjob"].kind.resource, SAMPLES["raycluster"].kind.resource
PYTORCH = SAMPLES["pytorchjob"].kind.resource
STUDIES = Resource("science.example.com", "v1", "studies", "Study", True)


def child_of(owner: Object, obj: Object) -> Object:
    """The object as its owner's operator makes it."""
    metadata = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}


def ray_cluster(name: str) -> Object:
    found = SAMPLES["raycluster"].job()
    return {**found, "metadata": {**found["metadata"], "name": name}}


def running_pod(labels: dict[str, str]) -> Object:
    """A pod on a node, with the labels of its operator."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": labels},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    }


async def deactivate(stack: Stack, job_name: str) -> None:
    """What a user does to evict the Workload of a job."""
    workload = await stack.workload(job_name)
    await stack.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})


def test_cluster_and_submitter_of_a_ray_job_are_part_of_it() -> None:
    async def test(stack: Stack) -> None:
        await serve(stack, RAY_JOB, RAY_CLUSTER)
        await stack.client.create(RAY_JOB, SAMPLES["rayjob"].job())
        await stack.settle()
        owner = await stack.get(RAY_JOB, "tune")
        assert owner["spec"]["suspend"] is False
        await stack.client.create(RAY_CLUSTER, child_of(owner, ray_cluster("tune-abcde")))
        await stack.client.create(JOBS, child_of(owner, job("tune")))
        await stack.settle()
        assert not (await stack.get(RAY_CLUSTER, "tune-abcde"))["spec"].get("suspend")
        assert not await stack.suspended("tune")
        (workload,) = await stack.workloads()
        await stack.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})
        await stack.settle()
        assert (await stack.get(RAY_CLUSTER, "tune-abcde"))["spec"]["suspend"] is True
        assert await stack.suspended("tune")

    story(test, frameworks("ray.io/rayjob", "ray.io/raycluster"), QUEUES_WITH_MEMORY)


def test_job_of_a_wrapped_ray_job_follows_the_wrapper() -> None:
    """The topmost owner in a queue decides, also where those between are in a queue."""
    wrappers = SAMPLES["appwrapper"].kind.resource

    async def test(stack: Stack) -> None:
        await serve(stack, wrappers, RAY_JOB, RAY_CLUSTER)
        await stack.client.create(wrappers, SAMPLES["appwrapper"].job())
        await stack.settle()
        wrapper = await stack.get(wrappers, "render")
        middle = await stack.client.create(RAY_JOB, child_of(wrapper, SAMPLES["rayjob"].job()))
        await stack.client.create(RAY_CLUSTER, child_of(middle, ray_cluster("inner")))
        await stack.settle()
        (workload,) = await stack.workloads()
        assert workload["metadata"]["ownerReferences"][0]["kind"] == "AppWrapper"
        await stack.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})
        await stack.settle()
        assert (await stack.get(RAY_CLUSTER, "inner"))["spec"]["suspend"] is True
        assert (await stack.get(RAY_JOB, "tune"))["spec"]["suspend"] is True

    names = ("workload.codeflare.dev/appwrapper", "ray.io/rayjob", "ray.io/raycluster")
    story(test, frameworks(*names))


def test_job_inside_one_without_a_queue_is_queued_itself() -> None:
    async def test(stack: Stack) -> None:
        await serve(stack, RAY_JOB, RAY_CLUSTER)
        found = SAMPLES["rayjob"].job()
        found["metadata"]["labels"] = {}
        owner = await stack.client.create(RAY_JOB, found)
        await stack.settle()
        created = await stack.client.create(RAY_CLUSTER, child_of(owner, ray_cluster("inner")))
        assert created["spec"]["suspend"] is True
        await stack.settle()
        (workload,) = await stack.workloads()
        assert workload["metadata"]["ownerReferences"][0]["name"] == "inner"
        assert (await stack.get(RAY_CLUSTER, "inner"))["spec"]["suspend"] is False

    story(test, frameworks("ray.io/rayjob", "ray.io/raycluster"), QUEUES_WITH_MEMORY)


def test_job_inside_an_external_framework_waits_for_its_workload() -> None:
    async def test(stack: Stack) -> None:
        await serve(stack, STUDIES)
        study = {
            "apiVersion": "science.example.com/v1",
            "kind": "Study",
            "metadata": {"name": "s", "namespace": "default", "labels": {f"{D}queue-name": "lq"}},
            "spec": {},
        }
        owner = await stack.client.create(STUDIES, study)
        await stack.settle()
        await stack.client.create(JOBS, child_of(owner, job("part")))
        await stack.settle()
        assert await stack.workloads() == [], "its own controller makes the Workload"
        assert await stack.suspended("part")

    external = "externalFrameworks: [Study.v1.science.example.com]"
    story(test, f"integrations: {{frameworks: [batch/job], {external}}}\n")


@pytest.mark.parametrize("name", ["pytorchjob", "raycluster", "sparkapplication"])
def test_quota_stays_while_pods_go_on_whatever_the_status_says(name: str) -> None:
    sample = SAMPLES[name]
    labels = {
        "pytorchjob": {
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/job-name": "language-model",
        },
        "raycluster": {"ray.io/cluster": "notebooks"},
        "sparkapplication": {"sparkoperator.k8s.io/app-name": "sessions"},
    }[name]

    async def test(stack: Stack) -> None:
        resource = sample.kind.resource
        await serve(stack, resource)
        await stack.client.create(resource, sample.job())
        await stack.settle()
        await stack.client.create(PODS, running_pod(labels))
        await deactivate(stack, sample.name)
        await stack.patch(resource, sample.name, {"status": sample.stopped}, "status")
        await stack.settle(10)
        assert (await stack.conditions(sample.name))["QuotaReserved"][0] == "True"
        await stack.patch(PODS, "p", {"status": {"phase": "Failed"}}, "status")
        await stack.settle(5)
        assert (await stack.conditions(sample.name))["QuotaReserved"][0] == "False"

    story(test, frameworks(sample.framework), QUEUES_WITH_MEMORY)


def test_parts_of_an_evicted_job_are_left_to_its_controller_until_its_quota_is_released() -> None:
    """A controller that has not seen the suspension yet would resume them, again and again."""
    sample = SAMPLES["pytorchjob"]
    labels = {"training.kubeflow.org/operator-name": "pytorchjob-controller"}
    labels["training.kubeflow.org/job-name"] = sample.name

    async def test(stack: Stack) -> None:
        await serve(stack, PYTORCH)
        owner = await stack.client.create(PYTORCH, sample.job())
        await stack.settle()
        await stack.client.create(JOBS, child_of(owner, job("part", queue="")))
        await stack.client.create(PODS, running_pod(labels))
        await stack.settle()
        await stack.patch(JOBS, "part", {"spec": {"suspend": False}})
        await stack.settle()
        assert not await stack.suspended("part")
        await deactivate(stack, sample.name)
        await stack.settle(10)
        assert not await stack.suspended("part")
        await stack.patch(PODS, "p", {"status": {"phase": "Failed"}}, "status")
        await stack.settle(5)
        assert await stack.suspended("part")

    story(test, frameworks(sample.framework), QUEUES_WITH_MEMORY)


_PENDING = {"pendingServiceStatus": {"rayClusterName": "translate-next"}}


@pytest.mark.parametrize(
    ("name", "running", "cluster"),
    [
        ("rayjob", SAMPLES["rayjob"].running, "tune-abcde"),
        ("rayservice", {**SAMPLES["rayservice"].running, **_PENDING}, "translate-next"),
    ],
)
def test_quota_stays_while_pods_go_on_whose_cluster_the_status_names_no_more(
    name: str, running: Object, cluster: str
) -> None:
    sample = SAMPLES[name]

    async def test(stack: Stack) -> None:
        resource = sample.kind.resource
        await serve(stack, resource)
        await stack.client.create(resource, sample.job())
        await stack.settle()
        await stack.patch(resource, sample.name, {"status": running}, "status")
        job = await stack.get(resource, sample.name)
        (head,) = (slot for slot in pod_set_slots(job, sample.kind) if slot.name == "head")
        labels = {**value_at(job, head.template)["metadata"]["labels"], "ray.io/cluster": cluster}
        await stack.client.create(PODS, running_pod(labels))
        await deactivate(stack, sample.name)
        await stack.settle(10)
        stopped = {**dict.fromkeys(running), **sample.stopped}
        await stack.patch(resource, sample.name, {"status": stopped}, "status")
        await stack.settle(30)
        assert (await stack.conditions(sample.name))["QuotaReserved"][0] == "True"
        await stack.patch(PODS, "p", {"status": {"phase": "Failed"}}, "status")
        await stack.settle(5)
        assert (await stack.conditions(sample.name))["QuotaReserved"][0] == "False"

    story(test, frameworks(sample.framework), QUEUES_WITH_MEMORY)


def test_quota_of_a_ray_service_that_stays_ready_returns_when_its_pods_are_gone() -> None:
    sample = SAMPLES["rayservice"]

    async def test(stack: Stack) -> None:
        resource = sample.kind.resource
        await serve(stack, resource)
        await stack.client.create(resource, sample.job())
        await stack.settle()
        serving = {**sample.running, "activeServiceStatus": {"rayClusterName": "translate-a"}}
        await stack.patch(resource, sample.name, {"status": serving}, "status")
        labels = {"ray.io/cluster": "translate-a"}
        await stack.client.create(PODS, running_pod(labels))
        await deactivate(stack, sample.name)
        await stack.settle(10)
        assert (await stack.conditions(sample.name))["QuotaReserved"][0] == "True"
        await stack.patch(PODS, "p", {"status": {"phase": "Failed"}}, "status")
        await stack.settle(5)
        assert (await stack.conditions(sample.name))["QuotaReserved"][0] == "False"

    story(test, frameworks(sample.framework), QUEUES_WITH_MEMORY)


def test_ray_job_that_its_operator_refuses_gives_its_quota_back() -> None:
    async def test(stack: Stack) -> None:
        await serve(stack, RAY_JOB)
        await stack.client.create(RAY_JOB, SAMPLES["rayjob"].job())
        await stack.settle()
        assert (await stack.conditions("tune"))["QuotaReserved"][0] == "True"
        status = {"jobDeploymentStatus": "ValidationFailed", "message": "rayVersion is missing"}
        await stack.patch(RAY_JOB, "tune", {"status": status}, "status")
        await stack.settle(5)
        assert (await stack.conditions("tune"))["QuotaReserved"] == ("False", "OnHold")
        assert await stack.message("tune") == "rayVersion is missing"
        assert (await stack.get(RAY_JOB, "tune"))["spec"]["suspend"] is True
        assert (await stack.cluster_queue())["status"]["reservingWorkloads"] == 0

    story(test, frameworks("ray.io/rayjob"), QUEUES_WITH_MEMORY)


QUEUES_WITH_MEMORY = [
    flavor(),
    cluster_queue("cq", {"cpu": 20, "memory": "100Gi"}),
    local_queue("lq", "cq"),
]
