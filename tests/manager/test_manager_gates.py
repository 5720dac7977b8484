"""Feature gates of the manager: what users and administrators see with each of them on and off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from manager_stack import QUEUES, V1BETA2, Stack, job, story

from pykueue.api.resources import NODES, PODS, WORKLOADS
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.errors import ApiError
from pykueue.manager.components.builtin import components
from pykueue.manager.configuration import parse
from pykueue.manager.configuration.gates import DEPENDENCIES
from queue_manifests import priority

D = "kueue.x-k8s.io/"
#: What is seen of a stack.
Observation = Callable[[Stack], Awaitable[Any]]


async def queue_labels(stack: Stack) -> Any:
    """The labels of a started Job's pods that name its queues."""
    await stack.apply(job("j"))
    await stack.settle()
    labels = (await stack.job("j"))["spec"]["template"]["metadata"]["labels"]
    return sorted(labels.keys() & {f"{D}local-queue-name", f"{D}cluster-queue-name"})


async def orphan(stack: Stack) -> Any:
    """Whether a Workload without the owner that it had is finished."""
    await stack.apply(job("j"))
    await stack.settle()
    found = await stack.workload("j")
    metadata = {"name": "left", "namespace": "default", "labels": {f"{D}job-uid": "gone"}}
    await stack.client.create(
        WORKLOADS, {**found, "metadata": metadata, "status": {}, "spec": {**found["spec"], "active": False}}
    )
    await stack.settle()
    return (await stack.conditions("left")).get("Finished")


def metric(name: str) -> Observation:
    """Whether a metric is served once a Job is admitted."""

    async def observe(stack: Stack) -> Any:
        await stack.apply(job("j"))
        await stack.settle()
        text = stack.manager.metrics.text().decode()
        return any(line.startswith(name) for line in text.splitlines())

    return observe


async def reclaimable(stack: Stack) -> Any:
    """What is recorded of pods that have succeeded."""
    await stack.apply(job("j", 3))
    await stack.settle()
    await stack.run_job("j")
    await stack.job_status("j", active=2, ready=2, succeeded=1)
    await stack.settle()
    return (await stack.workload("j"))["status"].get("reclaimablePods")


async def default_priority(stack: Stack) -> Any:
    """The priority class of a Job that names none."""
    await stack.apply(priority("default", 7))
    await stack.settle()
    await stack.apply(job("j"))
    return (await stack.job("j"))["metadata"]["labels"].get(f"{D}priority-class")


async def name_length(stack: Stack) -> Any:
    """Whether the name of the Workload of a Job with a long name fits a label."""
    await stack.apply(job("a" * 63))
    await stack.settle()
    return len((await stack.workload("a" * 63))["metadata"]["name"]) <= 63


async def minimum(stack: Stack) -> Any:
    """The minimum that a Job may be admitted with."""
    await stack.apply(job("j", 3, annotations={f"{D}job-min-parallelism": "1"}))
    await stack.settle()
    return (await stack.workload("j"))["spec"]["podSets"][0].get("minCount")


async def gated(stack: Stack) -> Any:
    """The reason of a Job's Workload that an admission gate keeps from its queue."""
    await stack.apply(job("j", annotations={f"{D}admission-gated-by": "example.com/review"}))
    await stack.settle()
    return (await stack.conditions("j"))["QuotaReserved"][0]


async def negative_requests(stack: Stack) -> Any:
    """Whether a Workload with a negative request is accepted."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "-1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    try:
        await stack.client.create(WORKLOADS, workload)
    except ApiError as error:
        return error.code
    return 201


STRICT = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: strict}
spec:
  namespaceSelector: {}
  queueingStrategy: StrictFIFO
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default-flavor, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: strict, namespace: default}
spec: {clusterQueue: strict}
"""


async def explicit_status(stack: Stack) -> Any:
    """The conditions of a Workload that is behind another one, before anything else is known of it."""
    await stack.apply(STRICT)
    await stack.apply([job("first", cpu="2", queue="strict"), job("second", cpu="3", queue="strict")])
    await stack.settle(2)
    found = (await stack.workload("second")).get("status", {}).get("conditions", ())
    return {(one["type"], one["status"], one["reason"]) for one in found}


async def stuck_pod(stack: Stack) -> Any:
    """Whether a deleted pod of an unreachable node is gone, if its annotation allows that."""
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [taint]}}
    await stack.client.create(NODES, node)
    for name, given in (("safe", {f"{D}safe-to-forcefully-delete": "true"}), ("other", {})):
        spec = {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]}
        metadata = {"name": name, "namespace": "default", "annotations": given}
        await stack.client.create(PODS, {"metadata": metadata, "spec": spec})
        await stack.client.delete(PODS, name, "default")
    await stack.settle(80)
    assert await stack.client.find(PODS, "safe", "default")  # 30 s of grace, and 60 s more
    await stack.settle(20)
    assert await stack.client.find(PODS, "other", "default")
    return await stack.client.find(PODS, "safe", "default") is None


#: By gate: what is seen with the gate on, and with the gate off.
GATES: dict[str, tuple[Observation, Any, Any]] = {
    "AssignQueueLabelsForPods": (queue_labels, [f"{D}cluster-queue-name", f"{D}local-queue-name"], []),
    "FinishOrphanedWorkloads": (orphan, ("True", "OwnerNotFound"), None),
    "MetricForWorkloadCreationLatency": (metric("kueue_workload_creation_latency_seconds"), True, False),
    "LocalQueueMetrics": (metric("kueue_local_queue_admitted_workloads_total"), True, False),
    "MetricsForCohorts": (metric("kueue_cohort_info"), True, False),
    "ReclaimablePods": (reclaimable, [{"name": "main", "count": 1}], None),
    "WorkloadPriorityClassDefaulting": (default_priority, "default", None),
    "ShortWorkloadNames": (name_length, True, False),
    "PartialAdmission": (minimum, 1, None),
    "AdmissionGatedBy": (gated, "False", "True"),
    "WorkloadValidateResourcesAreNonNegative": (negative_requests, 403, 201),
    "FailureRecoveryPolicy": (stuck_pod, True, False),
    "UnadmittedWorkloadsExplicitStatus": (
        explicit_status,
        {("QuotaReserved", "False", "PendingEvaluation"), ("Admitted", "False", "NoReservation")},
        set(),
    ),
}
IN_COHORT = QUEUES.replace("  namespaceSelector: {}", "  namespaceSelector: {}\n  cohortName: all")


@pytest.mark.parametrize("gate", GATES)
def test_gate_changes_what_is_seen(gate: str) -> None:
    observe, on, off = GATES[gate]
    assert on != off
    for value, seen in ((True, on), (False, off)):
        text = (
            f"featureGates: {{{gate}: {str(value).lower()}}}\nmetrics: {{enableClusterQueueResources: true}}"
        )
        assert story(observe, text, IN_COHORT) == seen, f"{gate}: {value}"


#: Gates without which controllers are not built, and what must be off with them.
CONTROLLERS = {
    "MultiKueue": (),
    "TASFailedNodeReplacement": (
        "TASFailedNodeReplacementFailFast",
        "TASReplaceNodeOnPodTermination",
    ),
    "TopologyAwareScheduling": [
        name for name, needed in DEPENDENCIES.items() if "TopologyAwareScheduling" in needed
    ],
}


@pytest.mark.parametrize("gate", CONTROLLERS)
def test_gate_adds_components(gate: str) -> None:
    def names(*off: str) -> set[str]:
        text = f"featureGates: {{{', '.join(f'{name}: false' for name in off)}}}"
        return {component.name for component in components(parse(V1BETA2 + text), BUILT_IN)}

    needs_it = CONTROLLERS[gate]
    assert names(*needs_it) > names(gate, *needs_it)
