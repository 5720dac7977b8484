"""RayServices whose Ray cluster keeps its state in Redis, while they are deleted."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from manager_stack import Stack, job, story

from pykueue.api.jobkinds.ray import FAULT_TOLERANCE_ANNOTATION, RAY_CLUSTER, RAY_CLUSTERS, RAY_SERVICE
from pykueue.api.objects import controller_reference
from pykueue.api.resources import CRDS, JOBS, WORKLOADS
from pykueue.api.yaml import load_documents
from pykueue.embedded.operators.definitions import definitions
from queue_manifests import cluster_queue, flavor, local_queue

Object = dict[str, Any]
QUEUES = [flavor(), cluster_queue("cq", {"cpu": 4, "memory": "4Gi"}), local_queue("lq", "cq")]
SAMPLE = Path(__file__).parents[1] / "jobs" / "samples" / "rayservice.yaml"
SERVICES = RAY_SERVICE.resource


def service(fault_tolerance: str) -> Object:
    (found,) = load_documents(SAMPLE.read_text(), SAMPLE.name)
    made = copy.deepcopy(dict(found))
    if fault_tolerance == "options":
        made["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
    elif fault_tolerance == "annotation":
        made["metadata"]["annotations"] = {FAULT_TOLERANCE_ANNOTATION: "true"}
    return made


async def exists(stack: Stack, resource: Any, name: str) -> bool:
    return await stack.client.find(resource, name, "default") is not None


@pytest.mark.parametrize(
    ("gate", "fault_tolerance"),
    [(True, "options"), (True, "annotation"), (True, "none"), (False, "options")],
)
def test_gate_keeps_the_workload_of_a_deleted_service_until_redis_is_empty(
    gate: bool, fault_tolerance: str
) -> None:
    """The test plays KubeRay and the garbage collector, which deletes what a deleted service owns."""
    stays = gate and fault_tolerance != "none"

    async def test(stack: Stack) -> None:
        for definition in definitions((RAY_CLUSTER, RAY_SERVICE)):
            await stack.client.create(CRDS, definition)
        await stack.settle(15)
        made = await stack.client.create(SERVICES, service(fault_tolerance))
        await stack.settle()
        assert (await stack.conditions("translate"))["Admitted"][0] == "True"
        workload = (await stack.workload("translate"))["metadata"]["name"]
        owner = controller_reference(made, SERVICES.api_version, SERVICES.kind)
        metadata = {"name": "translate-a", "namespace": "default", "ownerReferences": [owner]}
        metadata["finalizers"] = ["ray.io/gcs-ft-redis-cleanup-finalizer"]
        spec = made["spec"]["rayClusterConfig"]
        cluster = await stack.client.create(
            RAY_CLUSTERS,
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec},
        )

        await stack.client.delete(SERVICES, "translate", "default", propagation="Foreground")
        await stack.client.delete(WORKLOADS, workload, "default")
        await stack.client.delete(RAY_CLUSTERS, "translate-a", "default")
        await stack.settle()
        cleanup = job("cleanup", queue=None)
        reference = controller_reference(cluster, RAY_CLUSTERS.api_version, RAY_CLUSTERS.kind)
        cleanup["metadata"]["ownerReferences"] = [reference]
        await stack.client.create(JOBS, cleanup)
        await stack.settle()
        assert await exists(stack, WORKLOADS, workload) is stays
        assert await stack.suspended("cleanup") is not stays

        await stack.patch(RAY_CLUSTERS, "translate-a", {"metadata": {"finalizers": None}})
        await stack.settle()
        assert not await exists(stack, WORKLOADS, workload)

    frameworks = "[batch/job, ray.io/raycluster, ray.io/rayservice]"
    text = (
        f"integrations: {{frameworks: {frameworks}}}\n"
        f"featureGates: {{DeferRayServiceFinalizationForRedisCleanup: {str(gate).lower()}, "
        "ElasticJobsViaWorkloadSlices: false}\n"
    )
    story(test, text, QUEUES)
