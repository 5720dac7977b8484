"""Jobs whose capacity comes from the autoscaler of the embedded cluster (row T9b)."""

from __future__ import annotations

import pytest
from stories_world import Object, Story, holds, job, play
from topology_stories import HOSTNAME, annotated, assigned

from pykueue.api.resources import NODES, POD_TEMPLATES, PROVISIONING_REQUESTS
from pykueue.embedded.nodes.pool import NodePool, parse_pools
from queue_manifests import cluster_queue, flavor, local_queue, topology

CHECK = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: config}
spec:
  provisioningClassName: CLASS
  retryStrategy: {backoffLimitCount: 2, backoffBaseSeconds: 60}
  podSetUpdates:
    nodeSelector:
    - {key: sim.pykueue.io/provisioning-request, valueFromProvisioningClassDetail: ProvisioningRequest}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: capacity}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: config}
"""
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


def objects(provisioning_class: str) -> list[Object | str]:
    """Queues with an admission check whose requests have that class."""
    checks = {"admissionChecks": [{"name": "capacity"}]}
    quota: dict[str, dict[str, str | int]] = {"cloud": {"cpu": 40}}
    return [
        flavor("cloud"),
        CHECK.replace("CLASS", provisioning_class),
        cluster_queue("cq", quota, admissionChecksStrategy=checks),
        local_queue("lq", "cq"),
    ]


def training_job(name: str, pods: int) -> Object:
    """A Job whose pods need a node each."""
    return job(name, pods, {"cpu": 4}, queue="lq", run_time="120s")


def scaled(scaling: str) -> list[NodePool]:
    """One pool of nodes of 4 cpu, with this `scaling`."""
    text = f"{{name: cloud, allocatable: {{cpu: 4, pods: 110}}, scaling: {{{scaling}}}}}"
    return parse_pools(f"seed: 1\npools: [{text}]")


async def names(s: Story) -> list[str]:
    return sorted(node["metadata"]["name"] for node in await s.all(NODES))


@pytest.mark.parametrize("name", [ATOMIC, "generic-scale-up.k8s.io", "queued-provisioning.gke.io"])
def test_t9b_nodes_come_for_all_pods_and_go_after_the_job(name: str) -> None:
    async def story(s: Story) -> None:
        await s.wait(10)
        await s.create(training_job("train", 4))
        await s.wait(30)
        assert await names(s) == []
        assert await s.suspended("train")
        (check,) = (await s.workload("train"))["status"]["admissionChecks"]
        assert check["state"] == "Pending"
        assert check["message"].startswith("4 of 4 nodes are starting, expected at 2026-01-01T00:0")

        async def starts() -> bool:
            return not await s.suspended("train")

        await s.until(starts, 400)
        assert len(await names(s)) == 4
        await s.wait(10)
        assert await s.running("train") == 4
        await s.wait(150)
        assert await s.ended("train") == "Complete"
        assert await s.all(PROVISIONING_REQUESTS) == []
        await s.wait(700)
        assert await names(s) == []
        assert await s.all(POD_TEMPLATES) == []

    nodes = scaled("max: 6, startUp: 1m-3m")
    play(story, nodes=nodes, objects=objects(name))


def test_28_pods_are_placed_by_topology_on_the_nodes_that_came() -> None:
    """docs/reference/admission-checks.md 21.2."""

    async def story(s: Story) -> None:
        await s.wait(10)
        await s.create(annotated(training_job("train", 2), required=HOSTNAME))
        await s.wait(30)
        (given,) = (await s.workload("train"))["status"]["admission"]["podSetAssignments"]
        assert (given["delayedTopologyRequest"], given.get("topologyAssignment")) == ("Pending", None)
        assert await s.reason("train", "Admitted") == ("False", "UnsatisfiedAdmissionChecks")

        async def starts() -> bool:
            return not await s.suspended("train")

        await s.until(starts, 400)
        (given,) = (await s.workload("train"))["status"]["admission"]["podSetAssignments"]
        assert given["delayedTopologyRequest"] == "Ready"
        hosts = set(await assigned(s, "train"))
        (update,) = (await s.workload("train"))["status"]["admissionChecks"][0]["podSetUpdates"]
        assert set(update["nodeSelector"]) == {"sim.pykueue.io/provisioning-request"}
        assert hosts <= set(await names(s))
        await s.wait(20)
        assert {pod["spec"]["nodeName"] for pod in await s.pods("train")} == hosts

    pools = """
seed: 1
pools:
- name: cloud
  allocatable: {cpu: 16, pods: 110}
  labels: {tas: "yes"}
  scaling: {max: 6, startUp: 1m}
"""
    checks = {"admissionChecks": [{"name": "capacity"}]}
    tas = flavor("tas", nodeLabels={"tas": "yes"}, topologyName="hosts")
    quota: dict[str, dict[str, str | int]] = {"tas": {"cpu": 40}}
    needed = [
        topology("hosts", HOSTNAME),
        tas,
        CHECK.replace("CLASS", ATOMIC),
        cluster_queue("cq", quota, admissionChecksStrategy=checks),
        local_queue("lq", "cq"),
    ]
    play(story, nodes=parse_pools(pools), objects=needed)


def test_t9b_job_larger_than_the_pool_gets_no_nodes_and_blocks_no_smaller_one() -> None:
    async def story(s: Story) -> None:
        await s.wait(10)
        await s.create(training_job("large", 7), training_job("small", 2))
        await s.wait(150)
        assert len(await names(s)) == 2
        assert await s.suspended("large")
        assert not await s.suspended("small")
        (check,) = (await s.workload("large"))["status"]["admissionChecks"]
        assert check["message"] == "Capacity is not found, the autoscaler will try to find it later."

    nodes = scaled("max: 6, startUp: 1m")
    play(story, nodes=nodes, objects=objects(ATOMIC))


def test_job_whose_nodes_never_come_is_retried_and_deactivated() -> None:
    async def story(s: Story) -> None:
        await s.wait(10)
        await s.create(training_job("train", 2))
        await s.wait(3600)
        workload = await s.workload("train")
        assert workload["spec"]["active"] is False
        assert (await s.reason("train", "Evicted")) == ("True", "DeactivatedDueToAdmissionCheck")
        message = (await s.condition("train", "Evicted"))["message"]
        assert "Node cloud-0 could not be started" in message
        (eviction, _) = workload["status"]["schedulingStats"]["evictions"]
        assert (eviction["reason"], eviction["count"]) == ("AdmissionCheck", 2)

    nodes = scaled("max: 6, startUp: 1m, failureRate: 1")
    play(story, nodes=nodes, objects=objects(ATOMIC))


def test_job_starts_when_a_stock_out_is_over() -> None:
    async def story(s: Story) -> None:
        await s.wait(10)
        await s.create(training_job("train", 2))
        await s.wait(1700)
        assert await s.suspended("train")
        (check,) = (await s.workload("train"))["status"]["admissionChecks"]
        assert check["message"].endswith("Out of stock or backing off: cloud.")
        await s.wait(300)
        assert await s.ended("train") == "Complete" or await s.running("train") == 2
        await s.wait(200)
        assert await s.ended("train") == "Complete"
        assert holds(await s.workload("train"), "Finished")

    nodes = scaled("max: 6, startUp: 1m, stockOuts: [{start: 0s, duration: 30m}]")
    play(story, nodes=nodes, objects=objects("queued-provisioning.gke.io"))
