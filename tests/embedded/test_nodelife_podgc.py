"""Pods that only the pod garbage collector removes: without node, out of service, unbound, or too many."""

import pytest
from nodes_stage import condition, play, pod

from pykueue.api.resources import NODES, PODS
from pykueue.embedded.controllers.nodelife.podgc import PodGarbageCollector
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import InformerFactory

TWO = "pools: [{name: n, count: 2, allocatable: {cpu: 4, pods: 110}, simulation: {startDelay: 1s}}]"
ALL = ("nodes", "scheduler", "controllers")


def on(name, pod_name, *command, **options):
    return pod(pod_name, *command, nodeSelector={"kubernetes.io/hostname": name}, **options)


async def names(stage):
    return {one["metadata"]["name"] for one in await stage.pods()}


def test_pods_of_a_deleted_node_are_deleted_after_the_quarantine():
    async def story(stage):
        await stage.create(
            on("n-0", "runs", "sleep", "9000"),
            on("n-0", "done", "true"),
            on("n-0", "held", "sleep", "9000", finalizers=["example.com/mine"]),
            on("n-1", "elsewhere", "sleep", "9000"),
        )
        await stage.until(10)
        await stage.client.delete(NODES, "n-0")
        await stage.until(49)
        assert len(await names(stage)) == 4
        assert (await stage.pod("runs"))["status"]["phase"] == "Running"
        await stage.until(52)
        assert await names(stage) == {"held", "elsewhere"}
        held = await stage.pod("held")
        assert held["status"]["phase"] == "Failed"
        assert condition(held, "DisruptionTarget") == ("True", "DeletionByPodGC")
        assert held["metadata"]["deletionTimestamp"]
        removed = [one for _, type_, one in stage.seen if type_ == "DELETED"]
        assert {one["metadata"]["name"]: one["status"]["phase"] for one in removed} == {
            "runs": "Failed",
            "done": "Succeeded",
        }

    play(story, pools=TWO, parts=ALL)


def test_pods_stay_when_the_node_is_back_in_time():
    async def story(stage):
        await stage.create(on("n-0", "runs", "sleep", "9000"))
        await stage.until(10)
        await stage.client.delete(NODES, "n-0")
        await stage.until(30)
        await stage.declare(TWO)
        await stage.until(200)
        assert (await stage.pod("runs"))["status"]["phase"] == "Running"

    play(story, pools=TWO, parts=ALL)


def test_nodes_that_were_gone_before_are_noticed_after_a_restart():
    async def story(stage):
        await stage.create(on("n-0", "runs", "sleep", "9000"))
        await stage.until(10)
        await stage.kill("controllers")
        await stage.client.delete(NODES, "n-0")
        await stage.until(100)
        stage.start("controllers")
        await stage.until(139)
        assert await names(stage) == {"runs"}
        await stage.until(142)
        assert await names(stage) == set()

    play(story, pools=TWO, parts=ALL)


def test_out_of_service_taint_deletes_the_pods_of_a_node():
    async def story(stage):
        await stage.create(on("n-0", "deleted", "sleep", "9000"), on("n-0", "left", "sleep", "9000"))
        await stage.until(10)
        change = {"metadata": {"annotations": {"sim.pykueue.io/fail": "unreachable"}}}
        await stage.client.patch(NODES, "n-0", None, change)
        await stage.until(100)
        await stage.client.delete(PODS, "deleted", "default")
        await stage.until(200)
        assert await names(stage) == {"deleted", "left"}
        node = await stage.client.get(NODES, "n-0")
        out = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        change = {"spec": {"taints": [*node["spec"]["taints"], out]}}
        await stage.client.patch(NODES, "n-0", None, change)
        await stage.until(202)
        # The taint itself evicts, and who is evicted from a node that is off is removed.
        assert await names(stage) == set()

    play(story, pools=TWO, parts=ALL)


def test_oldest_finished_pods_are_deleted_above_the_threshold():
    async def story(stage):
        client = Client(stage.transport(), clock=stage.clock)
        informers = InformerFactory(client, clock=stage.clock)
        nodes, pods = informers.informer(NODES), informers.informer(PODS)
        collector = PodGarbageCollector(client, nodes, pods, stage.clock, threshold=3)
        stage.start("informers", informers)
        stage.start("collector", collector)
        for number in range(5):
            await stage.create(on("n-0", f"p-{number}", "true"))
            await stage.until(10 * (number + 1))
        assert await names(stage) == {"p-2", "p-3", "p-4"}

    play(story, pools=TWO)


def test_a_pod_bound_to_a_node_that_never_was_goes_too():
    async def story(stage):
        await stage.create(pod("lost", "true", nodeName="nowhere"))
        await stage.until(39)
        assert await names(stage) == {"lost"}
        await stage.until(45)
        with pytest.raises(ApiError):
            await stage.pod("lost")

    play(story, pools=TWO, parts=ALL)
