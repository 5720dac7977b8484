"""Topology-aware scheduling on a whole cluster: pods run where their Workload's assignment puts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from stories_world import SIMULATION, Story, condition, job, play
from topology_stories import BLOCK, RACK, TOPOLOGY, D, annotated, assigned, bound, hosts, queues

from pykueue.api.resources import CLUSTER_QUEUES, NODES, TOPOLOGIES
from pykueue.embedded.nodes.pool import Scaling
from queue_manifests import API, admission_check, priority

Object = dict[str, Any]


def test_pods_of_a_required_rack_run_on_the_hosts_of_the_assignment_in_order_of_rank() -> None:
    async def story(s: Story) -> None:
        await s.create(annotated(job("a", 4, {"cpu": 2}, run_time="1h"), required=RACK))
        await s.wait(20)
        assert await s.admitted("a")
        assert await assigned(s, "a") == {"n-0": 2, "n-1": 2}
        assert await bound(s, "a-") == {"n-0": 2, "n-1": 2}
        assert await s.running("a-") == 4
        by_index = {
            pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod["spec"]["nodeName"]
            for pod in await s.pods("a-")
        }
        assert by_index == {"0": "n-0", "1": "n-0", "2": "n-1", "3": "n-1"}

    play(story, nodes=hosts(), objects=queues())


def on(story: Callable[[Story], Awaitable[None]], *, cpu: int = 100, **layout: Any) -> None:
    """Play a story on racks of hosts with 4 cpu."""
    play(story, nodes=hosts(**layout), objects=queues(cpu))


async def fail(s: Story, node: str, how: str = "crash") -> None:
    await s.patch(NODES, node, {"metadata": {"annotations": {f"{SIMULATION}fail": how}}})


# Where pods go


def test_slices_of_a_job_set_are_whole_on_their_racks() -> None:
    async def story(s: Story) -> None:
        made = annotated(job("a", 8, {"cpu": 2}, run_time="1h"), slice=RACK, size="4")
        await s.create(made)
        await s.wait(20)
        found = await bound(s, "a-")
        assert found == await assigned(s, "a")
        racks = [found.get(f"n-{2 * rack}", 0) + found.get(f"n-{2 * rack + 1}", 0) for rack in range(3)]
        assert sorted(racks) == [0, 4, 4]

    on(story, racks=3)


def test_jobs_without_a_request_are_placed_too_where_all_flavors_have_a_topology() -> None:
    async def story(s: Story) -> None:
        await s.create(job("a", 3, run_time="1h"))
        await s.wait(20)
        assert await bound(s, "a-") == await assigned(s, "a")
        (pod, *_) = await s.pods("a-")
        assert pod["metadata"]["annotations"][f"{D}/podset-unconstrained-topology"] == "true"
        assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == pod["spec"]["nodeName"]

    on(story)


def test_a_request_that_no_rack_can_hold_waits_and_says_what_is_missing() -> None:
    async def story(s: Story) -> None:
        await s.create(annotated(job("a", 5, {"cpu": 2}), required=RACK))
        await s.wait(20)
        assert await s.reason("a") == ("False", "TopologyPlacementFailed")
        assert (
            "holds 5 pods: the largest, n-block-0/n-block-0-rack-0, holds 4"
            in (await s.condition("a", "QuotaReserved"))["message"]
        )

    on(story)


def test_pods_outside_of_workloads_take_room_and_give_it_back() -> None:
    async def story(s: Story) -> None:
        alone = job("x", 1, {"cpu": 3}, run_time="60s", queue=None)
        alone["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n-0"}
        await s.create(alone)
        await s.wait(10)
        await s.create(annotated(job("a", 2, {"cpu": 4}, run_time="1h"), required=RACK))
        await s.wait(20)
        assert await s.reason("a") == ("False", "TopologyPlacementFailed")
        await s.wait(60)
        assert await bound(s, "a-") == {"n-0": 1, "n-1": 1}

    on(story, racks=1)


def test_a_preemptor_gets_the_rack_of_its_victim() -> None:
    async def story(s: Story) -> None:
        await s.create(priority("high", 100))
        await s.create(annotated(job("low", 4, {"cpu": 2}, run_time="1h"), required=RACK))
        await s.wait(20)
        urgent = job("high", 4, {"cpu": 2}, run_time="1h", labels={f"{D}/priority-class": "high"})
        await s.create(annotated(urgent, required=RACK))
        await s.wait(60)
        assert await s.reason("low", "Evicted") == ("True", "Preempted")
        assert await bound(s, "high-") == {"n-0": 2, "n-1": 2}
        assert not await bound(s, "low-")

    play(
        story,
        nodes=hosts(racks=1),
        objects=queues(100, preemption={"withinClusterQueue": "LowerPriority"}),
    )


def test_a_queue_without_its_topology_is_inactive_until_it_exists() -> None:
    async def story(s: Story) -> None:
        await s.create(annotated(job("a", 2, run_time="1h"), required=RACK))
        await s.wait(5)
        active = condition(await s.get(CLUSTER_QUEUES, "q"), "Active")
        assert (active["status"], active["reason"]) == ("False", "TopologyNotFound")
        assert "dc" in active["message"]
        await s.create(TOPOLOGY)
        await s.wait(20)
        assert await s.running("a-") == 2
        kept = await s.get(TOPOLOGIES, "dc")
        assert kept["metadata"]["finalizers"] == [f"{D}/resource-in-use"]

    play(story, nodes=hosts(), objects=queues()[1:])


# Nodes that fail


def test_pods_of_a_failed_node_run_on_another_one_of_the_block() -> None:
    async def story(s: Story) -> None:
        await s.create(annotated(job("a", 4, {"cpu": 2}, run_time="1h"), required=BLOCK))
        await s.wait(20)
        assert await assigned(s, "a") == {"n-0": 2, "n-1": 2}
        await fail(s, "n-0")
        took = await s.until(lambda: is_on(s, {"n-1": 2, "n-2": 2}))
        assert 300 < took < 400, "the pods are evicted from their node after 5 minutes"
        assert await assigned(s, "a") == {"n-1": 2, "n-2": 2}
        assert await s.admitted("a")
        assert not (await s.workload("a"))["status"].get("unhealthyNodes")
        assert not await s.condition("a", "Evicted")

    on(story)


async def is_on(s: Story, nodes: dict[str, int]) -> bool:
    return {node: count for node, count in (await bound(s, "a-")).items() if node} == nodes


def test_without_a_replacement_the_workload_is_evicted_and_queued_again() -> None:
    async def story(s: Story) -> None:
        await s.create(annotated(job("a", 4, {"cpu": 2}, run_time="1h"), required=RACK))
        await s.wait(20)
        await s.client.delete(NODES, "n-0", None)
        await s.wait(60)
        assert await s.events((await s.workload("a"))["metadata"]["name"], "EvictedDueToNodeFailures")
        assert await s.running("a-") == 4, "it was admitted again"
        assert await assigned(s, "a") == {"n-2": 2, "n-3": 2}
        stats = (await s.workload("a"))["status"]["schedulingStats"]["evictions"]
        assert [(one["reason"], one["count"]) for one in stats] == [("NodeFailures", 1)]

    on(story)


def test_a_tainted_node_is_left_when_its_pods_are_gone_and_not_if_they_tolerate_the_taint() -> None:
    async def story(s: Story) -> None:
        tolerating = [{"key": "repair", "operator": "Exists"}]
        await s.create(annotated(job("a", 1, {"cpu": 4}, run_time="1h"), required=BLOCK))
        await s.wait(20)
        made = job("b", 1, {"cpu": 4}, run_time="1h", pod={"tolerations": tolerating})
        await s.create(annotated(made, required=BLOCK))
        await s.wait(20)
        assert (await assigned(s, "a"), await assigned(s, "b")) == ({"n-0": 1}, {"n-1": 1})
        taint = {"spec": {"taints": [{"key": "repair", "effect": "NoExecute"}]}}
        for node in ("n-0", "n-1"):
            await s.patch(NODES, node, taint)
        await s.wait(60)
        assert await assigned(s, "a") == {"n-2": 1}
        assert await assigned(s, "b") == {"n-1": 1}
        assert await bound(s, "a-") == {"n-2": 1}

    on(story)


# Domains that are chosen after admission checks


def test_domains_are_chosen_when_the_provisioned_nodes_are_there() -> None:
    async def story(s: Story) -> None:
        await s.create(annotated(job("a", 4, {"cpu": 2}, run_time="1h"), required=RACK))
        await s.wait(10)
        (given,) = (await s.workload("a"))["status"]["admission"]["podSetAssignments"]
        assert given["delayedTopologyRequest"] == "Pending"
        assert "topologyAssignment" not in given
        await s.wait(600)
        (given,) = (await s.workload("a"))["status"]["admission"]["podSetAssignments"]
        assert given["delayedTopologyRequest"] == "Ready"
        assert sum((await assigned(s, "a")).values()) == 4
        assert await bound(s, "a-") == await assigned(s, "a")

    (pool,) = hosts(racks=1, of=2)
    growing = msgspec.structs.replace(pool, count=1, scaling=Scaling(max=2, start_up="2m"))
    check = admission_check(
        "prov",
        "kueue.x-k8s.io/provisioning-request",
        parameters={"apiGroup": D, "kind": "ProvisioningRequestConfig", "name": "c"},
    )
    config = {
        "apiVersion": API,
        "kind": "ProvisioningRequestConfig",
        "metadata": {"name": "c"},
        "spec": {
            "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
            "managedResources": ["cpu"],
        },
    }
    strategy = {"admissionChecks": [{"name": "prov"}]}
    play(story, nodes=[growing], objects=[config, check, *queues(100, admissionChecksStrategy=strategy)])


# Feature gates


def gated(story: Callable[[Story], Awaitable[None]], gates: str) -> None:
    play(story, f"featureGates: {{{gates}}}", nodes=hosts(), objects=queues())


def test_pods_with_a_host_port_run_on_a_host_each_where_no_other_pod_uses_it() -> None:
    def web(name: str, pods: int, run_time: str, **more: Any) -> Object:
        made = job(name, pods, {"cpu": 1}, run_time=run_time, **more)
        for container in made["spec"]["template"]["spec"]["containers"]:
            container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        return made

    async def story(s: Story) -> None:
        alone = web("x", 1, "60s", queue=None)
        alone["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n-0"}
        await s.create(alone)
        await s.wait(10)
        await s.create(annotated(web("three", 3, "1h"), unconstrained="true"))
        await s.create(annotated(web("one", 1, "1h"), unconstrained="true"))
        await s.wait(20)
        assert await bound(s, "three-") == {"n-1": 1, "n-2": 1, "n-3": 1}
        assert await s.reason("one") == ("False", "WaitingForQuota")
        await s.wait(60)
        assert await bound(s, "one-") == {"n-0": 1}

    gated(story, "SchedulerLibraryIntegration: true")


async def seconds_until_moved(s: Story, change: Object, at_most: float) -> float | None:
    """How long a pod stays assigned to n-0 after a change of that node; None if it stays there."""
    await s.create(annotated(job("a", 1, {"cpu": 2}, run_time="2h"), required=BLOCK))
    await s.wait(20)
    assert await assigned(s, "a") == {"n-0": 1}
    await s.patch(NODES, "n-0", change)
    start = s.clock.time()
    while s.clock.time() < start + at_most:
        await s.wait(1)
        if await assigned(s, "a") not in ({}, {"n-0": 1}):
            return s.clock.time() - start
    return None


FAIL = {"metadata": {"annotations": {f"{SIMULATION}fail": "not-ready"}}}
TAINT = {"spec": {"taints": [{"key": "repair", "effect": "NoSchedule"}]}}


@pytest.mark.parametrize(
    ("gates", "change", "least", "most"),
    [
        ("", FAIL, 300, 400),
        ("TASReplaceNodeOnPodTermination: false", FAIL, 30, 60),
        ("TASReplaceNodeDueToNotReadyOverFixedTime: true", FAIL, 30, 60),
        ("TASReplaceNodeOnPodTermination: false", TAINT, 0, 10),
        ("TASReplaceNodeOnPodTermination: false, TASReplaceNodeOnNodeTaints: false", TAINT, None, None),
    ],
)
def test_gates_decide_when_a_node_has_failed(
    gates: str, change: Object, least: float | None, most: float | None
) -> None:
    async def story(s: Story) -> None:
        took = await seconds_until_moved(s, change, 420)
        if least is None or most is None:
            assert took is None
        else:
            assert took is not None
            assert least <= took <= most

    gated(story, gates)


# Restarts and other kinds


def test_pods_of_a_group_go_by_the_label_that_ranks_them() -> None:
    async def story(s: Story) -> None:
        await s.create(*(ranked(3 - number, 4) for number in range(4)))
        await s.wait(20)
        nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in await s.pods("r-")}
        assert nodes == {"r-0": "n-0", "r-1": "n-0", "r-2": "n-1", "r-3": "n-1"}

    on(story)


def ranked(rank: int, of: int) -> Object:
    """A pod of a group that asks for one rack and is ranked by the label `rank`."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"r-{rank}",
            "namespace": "default",
            "labels": {f"{D}/queue-name": "q", f"{D}/pod-group-name": "g", "rank": str(rank)},
            "annotations": {
                f"{D}/pod-group-total-count": str(of),
                f"{D}/pod-group-pod-index-label": "rank",
                f"{D}/podset-required-topology": RACK,
                f"{SIMULATION}run-time": "1h",
            },
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def replicated(name: str, replicas: int, pods: int, **annotations: str) -> Object:
    made = annotated(job("x", pods, {"cpu": 1}, queue=None, run_time="1h"), **annotations)
    return {"name": name, "replicas": replicas, "template": {"spec": made["spec"]}}


def job_set(*parts: Object) -> Object:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "default", "labels": {f"{D}/queue-name": "q"}},
        "spec": {"replicatedJobs": list(parts)},
    }


def test_a_leader_and_its_workers_share_a_rack() -> None:
    async def story(s: Story) -> None:
        parts = [replicated("leader", 1, 1, required=RACK), replicated("workers", 2, 3, required=RACK)]
        for part in parts:
            part["template"]["spec"]["template"]["metadata"]["annotations"][f"{D}/podset-group-name"] = "g"
        await s.create(job_set(*parts))
        await s.wait(30)
        assert await assigned(s, "set", "leader") == {"n-0": 1}
        assert await assigned(s, "set", "workers") == {"n-0": 3, "n-1": 3}
        assert await bound(s, "set-") == {"n-0": 4, "n-1": 3}

    on(story)


def test_slices_of_a_job_set_may_be_larger_than_one_of_its_jobs() -> None:
    async def story(s: Story) -> None:
        await s.create(job_set(replicated("workers", 4, 1, slice="kubernetes.io/hostname", size="2")))
        await s.wait(30)
        found = await bound(s, "set-")
        assert found == await assigned(s, "set", "workers")
        assert sorted(found.values()) in ([2, 2], [4])

    on(story)
