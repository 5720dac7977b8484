"""Jobs with claims of devices on a cluster: counted by the configured mappings, and why they are pending."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from manager_stack import Stack, job, story

from pykueue.api.resources import CLUSTER_QUEUES, RESOURCE_CLAIM_TEMPLATES, WORKLOADS

MAPPED = """
resources:
  deviceClassMappings:
  - {name: example.com/gpus, deviceClassNames: [gpu.example.com]}
"""
CLUSTER_QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: gpus}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, example.com/gpus]
    flavors:
    - name: devices
      resources: [{name: cpu, nominalQuota: 9}, {name: example.com/gpus, nominalQuota: 4}]
"""
QUEUE = f"""
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: devices}}
---
{CLUSTER_QUEUE}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: gpus, namespace: default}}
spec: {{clusterQueue: gpus}}
"""
CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: device.driver == 'gpu.example.com'}}]}
"""


def template(name: str, count: int) -> dict[str, Any]:
    """A template of claims of so many devices."""
    exactly = {"deviceClassName": "gpu.example.com", "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def claiming(name: str, template: str, parallelism: int = 1) -> dict[str, Any]:
    """A Job each of whose pods has a claim of that template."""
    container = {
        "name": "main",
        "image": "i",
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
    }
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    spec = {"restartPolicy": "Never", "containers": [container], "resourceClaims": claims}
    return job(name, parallelism, queue="gpus", template={"spec": spec})


def test_jobs_with_claims_share_the_quota_of_their_devices() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.apply(CLASS)
        await stack.apply([template("pair", 2), claiming("a", "pair"), claiming("b", "pair", 2)])
        await stack.settle()
        assert not await stack.suspended("a")
        assert await stack.suspended("b")
        assert "insufficient unused quota for example.com/gpus" in await stack.message("b")
        workload = await stack.workload("a")
        (pods,) = workload["status"]["admission"]["podSetAssignments"]
        assert pods["resourceUsage"]["example.com/gpus"] == "2"

    story(test, MAPPED)


def test_job_is_admitted_once_the_template_it_names_exists() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.apply([claiming("a", "pair")])
        await stack.settle()
        assert await stack.suspended("a")
        text = "podSet main: spec.resourceClaims[0]: ResourceClaimTemplate pair not found"
        assert await stack.message("a") == text
        await stack.apply([template("pair", 2)])
        await stack.settle()
        assert not await stack.suspended("a")
        await stack.client.delete(RESOURCE_CLAIM_TEMPLATES, "pair", "default")
        await stack.settle()
        assert not await stack.suspended("a")

    story(test, MAPPED)


def test_workload_whose_claims_cannot_be_counted_is_not_pending_in_its_queue() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.apply([claiming("a", "many")])
        await stack.settle()
        assert (await stack.cluster_queue("gpus"))["status"]["pendingWorkloads"] == 0
        await stack.apply([template("many", 9)])
        await stack.settle()
        assert (await stack.conditions("a"))["QuotaReserved"] == ("False", "ExceedsMaxQuota")
        for queue in (await stack.cluster_queue("gpus"), await stack.local_queue("gpus")):
            assert queue["status"]["pendingWorkloads"] == 1
        await stack.client.delete(RESOURCE_CLAIM_TEMPLATES, "many", "default")
        await stack.settle()
        assert (await stack.local_queue("gpus"))["status"]["pendingWorkloads"] == 0

    story(test, MAPPED)


def test_workload_without_template_and_without_cluster_queue_names_one_after_the_other() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.client.delete(CLUSTER_QUEUES, "gpus", None)
        await stack.settle()
        await stack.apply([claiming("a", "pair")])
        await stack.settle()
        assert await stack.message("a") == "ClusterQueue gpus doesn't exist"
        before = stack.transport.writes.total()
        await stack.settle(60)
        assert stack.transport.writes.total() == before
        await stack.apply(CLUSTER_QUEUE)
        await stack.settle()
        text = "podSet main: spec.resourceClaims[0]: ResourceClaimTemplate pair not found"
        assert await stack.message("a") == text
        await stack.apply([template("pair", 2)])
        await stack.settle()
        assert not await stack.suspended("a")

    story(test, MAPPED)


async def pending(stack: Stack) -> int:
    """What the status of the LocalQueue says."""
    number: int = (await stack.local_queue("gpus"))["status"]["pendingWorkloads"]
    return number


def test_local_queue_without_cluster_queue_counts_jobs_whose_claims_can_be_counted() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.apply([template("pair", 2)])
        await stack.client.delete(CLUSTER_QUEUES, "gpus", None)
        await stack.apply([claiming("a", "pair"), claiming("b", "none")])
        await stack.settle()
        assert await pending(stack) == 1
        await stack.client.delete(RESOURCE_CLAIM_TEMPLATES, "pair", "default")
        await stack.settle()
        assert await pending(stack) == 0
        await stack.apply([template("pair", 2)])
        await stack.settle()
        assert await pending(stack) == 1
        assert await stack.message("a") == "ClusterQueue gpus doesn't exist"

    story(test, MAPPED)


def test_queues_that_exclude_the_namespace_count_jobs_whose_claims_can_be_counted() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        patch = {"spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}
        await stack.client.patch(CLUSTER_QUEUES, "gpus", None, patch)
        await stack.apply([template("pair", 2), claiming("a", "pair")])
        await stack.settle()
        assert await pending(stack) == 1
        await stack.client.delete(RESOURCE_CLAIM_TEMPLATES, "pair", "default")
        await stack.settle()
        for queue in (await stack.cluster_queue("gpus"), await stack.local_queue("gpus")):
            assert queue["status"]["pendingWorkloads"] == 0

    story(test, MAPPED)


def test_local_queue_counts_a_workload_that_no_longer_names_a_missing_template() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.apply([template("pair", 2)])
        await stack.client.delete(CLUSTER_QUEUES, "gpus", None)
        await stack.apply([claiming("a", "none")])
        await stack.settle()
        assert await pending(stack) == 0
        (workload,) = (await stack.client.list(WORKLOADS)).items
        (pods,) = deepcopy(workload["spec"]["podSets"])
        pods["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "pair"
        patch = {"spec": {"podSets": [pods]}}
        await stack.client.patch(WORKLOADS, workload["metadata"]["name"], "default", patch)
        await stack.settle()
        assert await pending(stack) == 1

    story(test, MAPPED)


def test_jobs_with_claims_name_the_missing_mapping() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.apply([template("pair", 2), claiming("a", "pair")])
        await stack.settle()
        assert await stack.suspended("a")
        text = await stack.message("a")
        assert "no DeviceClass is mapped to a resource (resources.deviceClassMappings" in text
        (workload,) = (await stack.client.list(WORKLOADS)).items
        (reserved,) = workload["status"]["conditions"]
        assert (reserved["type"], reserved["reason"]) == ("QuotaReserved", "Misconfigured")

    story(test)


def test_job_in_a_stopped_queue_is_reported_as_suspended_once_its_claims_can_be_counted() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.client.patch(CLUSTER_QUEUES, "gpus", None, {"spec": {"stopPolicy": "Hold"}})
        await stack.apply([claiming("a", "pair")])
        await stack.settle()
        assert (await stack.conditions("a"))["QuotaReserved"] == ("False", "Misconfigured")
        await stack.apply([template("pair", 2)])
        await stack.settle()
        assert (await stack.conditions("a"))["QuotaReserved"] == ("False", "Suspended")
        assert await stack.message("a") == "ClusterQueue gpus is stopped"

    story(test, MAPPED)


def test_job_behind_others_is_pending_once_its_claims_can_be_counted() -> None:
    async def test(stack: Stack) -> None:
        await stack.apply(QUEUE)
        await stack.client.patch(CLUSTER_QUEUES, "gpus", None, {"spec": {"queueingStrategy": "StrictFIFO"}})
        await stack.apply([template("one", 1), claiming("first", "one", 9)])
        await stack.settle()
        await stack.apply([claiming("second", "pair")])
        await stack.settle()
        assert (await stack.conditions("second"))["QuotaReserved"] == ("False", "Misconfigured")
        await stack.apply([template("pair", 2)])
        await stack.settle()
        assert (await stack.conditions("second"))["QuotaReserved"] == ("False", "PendingEvaluation")
        for queue in (await stack.cluster_queue("gpus"), await stack.local_queue("gpus")):
            assert queue["status"]["pendingWorkloads"] == 2

    story(test, MAPPED)
