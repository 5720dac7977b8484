"""Split jobs whose flavor loses its nodes: their pods get another flavor, or the job goes on without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from stories_world import Story, job, play
from test_stories_hybrid import parts, pools, pools_by_index, queues, split

from pykueue.api.kueue.names import (
    HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION,
    HYBRID_LOSS_POLICY_ANNOTATION,
)
from pykueue.api.resources import CLUSTER_QUEUES, JOBS, NODES, WORKLOADS
from pykueue.embedded.nodes.pool import NodePool
from pykueue.kube.errors import ApiError
from queue_manifests import cluster_queue, flavor, local_queue

Object = dict[str, Any]

LOSS = '{"lostAfter": "20s", "retryAfter": "10m", "shrinkAfter": "1m"}'
#: A Job that does not count pods that its flavor lost.
DISRUPTED = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}


def lossy(made: Object, *flavors: Any, minimum: int | None = None, slice_size: int = 1) -> Object:
    """A split job that goes on without nodes of a flavor."""
    made["spec"] |= {"podFailurePolicy": DISRUPTED, "backoffLimitPerIndex": 100}
    if minimum is not None:
        made["metadata"].setdefault("annotations", {})["kueue.x-k8s.io/job-min-parallelism"] = str(minimum)
    return split(made, *flavors, slice_size=slice_size)


def on_losses(story: Callable[[Story], Awaitable[None]], spare: int, configuration: str = "") -> None:
    """Play with a policy for lost flavors, and a third flavor with so many cpus."""
    amounts = {"cpu": "4", "memory": "64Gi", "pods": "110"}
    third = NodePool(name="spare", count=3, allocatable=amounts, labels={"capacity": "spare"})
    objects = [each for each in queues() if each["kind"] not in ("ClusterQueue", "LocalQueue")]
    quota = {"reserved": {"cpu": 12}, "spot": {"cpu": 10}, "spare": {"cpu": spare}}
    queue = cluster_queue("q", quota)
    queue["metadata"]["annotations"] = {
        HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: "true",
        HYBRID_LOSS_POLICY_ANNOTATION: LOSS,
    }
    spare_flavor = flavor("spare", nodeLabels={"capacity": "spare"})
    objects = [*objects, spare_flavor, queue, local_queue("q")]
    play(story, configuration=configuration, nodes=[*pools(), third], objects=objects)


async def nodes_by_index(s: Story) -> dict[int, str]:
    """By completion index: the node that a pod runs on."""
    return {
        int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]): pod["spec"]["nodeName"]
        for pod in await s.pods("a-")
        if pod["status"]["phase"] == "Running"
    }


async def reclaim(s: Story, *nodes: str) -> None:
    """The nodes go, as spot nodes do."""
    for name in nodes:
        await s.delete(NODES, name)


def test_pods_that_lost_the_spot_nodes_run_on_another_flavor() -> None:
    async def story(s: Story) -> None:
        await s.create(lossy(job("a", 20, {"cpu": 1}, run_time="1h"), "reserved", "spot", "spare"))
        await s.wait(30)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 8)]
        await reclaim(s, "spot-0", "spot-1", "spot-2")
        await s.wait(120)
        assert await parts(s, "a") == [("reserved", 12), ("spare", 8)]
        assert Counter((await pools_by_index(s, "a-")).values()) == {"reserved": 12, "spare": 8}
        assert await s.used("q") == "12 0 8"
        assert await s.reason("a", "lost.pykueue.io/spot") == ("True", "PodsUnschedulable")
        assert await s.reason("a", "Evicted") == ("", "")
        await s.wait(4200)
        assert await s.ended("a") == "Complete"
        assert await s.used("q") == "0 0 0"

    on_losses(story, spare=8)


def test_only_pods_that_the_nodes_left_have_no_room_for_get_another_flavor() -> None:
    async def story(s: Story) -> None:
        await s.create(lossy(job("a", 20, {"cpu": 1}, run_time="1h"), "reserved", "spot", "spare"))
        await s.wait(30)
        before = await nodes_by_index(s)
        await reclaim(s, "spot-1", "spot-2")
        await s.wait(200)
        after = await nodes_by_index(s)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 4), ("spare", 4)]
        stayed = {index for index, node in before.items() if node not in ("spot-1", "spot-2")}
        assert stayed == {index for index, node in after.items() if before[index] == node}
        assert Counter(node.partition("-")[0] for node in after.values()) == {
            "reserved": 12,
            "spot": 4,
            "spare": 4,
        }
        assert await s.used("q") == "12 4 4"

    on_losses(story, spare=8)


def test_pods_return_to_their_flavor_where_no_other_has_room() -> None:
    async def story(s: Story) -> None:
        await s.create(lossy(job("a", 20, {"cpu": 1}, run_time="2h"), "reserved", "spot", "spare"))
        await s.wait(30)
        await reclaim(s, "spot-0", "spot-1", "spot-2")
        await s.wait(120)
        assert await parts(s, "a") == [("reserved", 12)]
        assert await s.used("q") == "12 0 0"
        assert await s.running("a-") == 12
        for number in range(3):
            await s.create(pools()[1].node(number))
        await s.wait(700)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 8)]
        assert await s.running("a-") == 20
        assert await s.reason("a", "lost.pykueue.io/spot") == ("False", "TriedAgain")

    on_losses(story, spare=0)


def test_job_that_accepts_fewer_pods_goes_on_without_those_that_no_flavor_has_room_for() -> None:
    async def story(s: Story) -> None:
        made = lossy(job("a", 20, {"cpu": 1}, run_time="10m"), "reserved", "spot", minimum=10)
        await s.create(made)
        await s.wait(30)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 8)]
        await reclaim(s, "spot-0", "spot-1", "spot-2")
        await s.wait(200)
        assert await parts(s, "a") == [("reserved", 12)]
        (given,) = (await s.workload("a"))["status"]["admission"]["podSetAssignments"]
        assert (given["count"], given["resourceUsage"]) == (12, {"cpu": "12"})
        assert (await s.get(JOBS, "a"))["spec"]["parallelism"] == 12
        assert await s.running("a-") == 12
        assert await s.used("q") == "12 0 0"
        # What is left of the 20 indexes runs on 12 pods, and the job ends with the size that its user wrote.
        await s.wait(1500)
        assert await s.ended("a") == "Complete"
        assert await s.used("q") == "0 0 0"

    on_losses(story, spare=0)


def test_evicted_job_that_had_shrunk_starts_again_with_all_pods() -> None:
    async def story(s: Story) -> None:
        await s.create(lossy(job("a", 20, {"cpu": 1}, run_time="1h"), "reserved", "spot", minimum=10))
        await s.wait(30)
        await reclaim(s, "spot-0", "spot-1", "spot-2")
        await s.wait(200)
        assert (await s.get(JOBS, "a"))["spec"]["parallelism"] == 12
        name = (await s.workload("a"))["metadata"]["name"]
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.wait(60)
        assert await s.suspended("a")
        assert (await s.get(JOBS, "a"))["spec"]["parallelism"] == 20
        await s.patch(WORKLOADS, name, {"spec": {"active": True}})
        await s.wait(20)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 8)]
        assert await s.reason("a", "lost.pykueue.io/spot") == ("False", "QuotaReserved")

    on_losses(story, spare=0)


def test_least_number_of_a_flavor_holds_for_pods_that_lost_it() -> None:
    async def story(s: Story) -> None:
        flavors = ({"name": "reserved"}, {"name": "spot", "min": 6}, {"name": "spare"})
        await s.create(lossy(job("a", 20, {"cpu": 1}, run_time="1h"), *flavors))
        await s.wait(30)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 8)]
        await reclaim(s, "spot-0", "spot-1", "spot-2")
        await s.wait(120)
        assert await parts(s, "a") == [("reserved", 12), ("spare", 2)]

    on_losses(story, spare=8)


def test_removed_policy_lets_pods_go_to_their_flavor_again() -> None:
    async def story(s: Story) -> None:
        await s.create(lossy(job("a", 20, {"cpu": 1}, run_time="2h"), "reserved", "spot"))
        await s.wait(30)
        await reclaim(s, "spot-0", "spot-1", "spot-2")
        await s.wait(120)
        assert await parts(s, "a") == [("reserved", 12)]
        await s.patch(
            CLUSTER_QUEUES, "q", {"metadata": {"annotations": {HYBRID_LOSS_POLICY_ANNOTATION: None}}}
        )
        await s.wait(60)
        assert await parts(s, "a") == [("reserved", 12), ("spot", 8)]
        assert await s.reason("a", "lost.pykueue.io/spot") == ("False", "PolicyRemoved")
        for number in range(3):
            await s.create(pools()[1].node(number))
        await s.wait(60)
        assert await s.running("a-") == 20

    on_losses(story, spare=0)


def test_jobs_of_a_job_set_move_as_a_whole() -> None:
    async def story(s: Story) -> None:
        made = lossy(job("w", 4, run_time="1h"), "reserved", "spot", "spare", slice_size=4)
        workers = {"name": "w", "replicas": 5, "template": {"spec": made["spec"]}}
        metadata = {"name": "s", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
        spec = {"replicatedJobs": [workers]}
        api = "jobset.x-k8s.io/v1alpha2"
        await s.create({"apiVersion": api, "kind": "JobSet", "metadata": metadata, "spec": spec})
        await s.wait(30)
        assert await parts(s, "s") == [("reserved", 12), ("spot", 8)]
        await reclaim(s, "spot-0", "spot-1", "spot-2")
        await s.wait(150)
        assert await parts(s, "s") == [("reserved", 12), ("spare", 8)]
        of_job = {
            (pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], pod["spec"]["nodeName"][:4])
            for pod in await s.pods("s-")
            if pod["status"]["phase"] == "Running"
        }
        assert len(of_job) == 5

    on_losses(story, spare=8, configuration="integrations: {frameworks: [jobset.x-k8s.io/jobset]}\n")


@pytest.mark.parametrize(
    ("text", "allowed", "why"),
    [
        ("yes", "true", "must be a JSON object"),
        ('{"lostAfter": "soon"}', "true", "lostAfter: soon is not accepted: must be a duration"),
        ('{"shrinkAfter": "0s"}', "true", "shrinkAfter: 0s is not accepted"),
        ('{"after": "1m"}', "true", "after"),
        (LOSS, "false", "needs the annotation pykueue.io/hybrid-assignments-allowed: true"),
    ],
)
def test_policies_that_mean_nothing_are_refused(text: str, allowed: str, why: str) -> None:
    async def story(s: Story) -> None:
        queue = cluster_queue("other", {"reserved": {"cpu": 1}})
        queue["metadata"]["annotations"] = {
            HYBRID_ASSIGNMENTS_ALLOWED_ANNOTATION: allowed,
            HYBRID_LOSS_POLICY_ANNOTATION: text,
        }
        with pytest.raises(ApiError, match=why):
            await s.create(queue)

    on_losses(story, spare=0)
