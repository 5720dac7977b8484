"""Nodes that die, are drained or taken back under running jobs (docs/reference/cluster-workloads.md, 4.5
and 4.6).

What a cluster does with nodes and pods meets what the manager makes of it: failures that no program causes,
readiness that is lost, capacity that is released.
"""

from __future__ import annotations

from typing import Any

import msgspec
from stories_world import Story, condition, holds, job, play, pool

from pykueue.api.resources import CONFIG_MAPS, JOB_SETS, JOBS, NODES, POD_DISRUPTION_BUDGETS, PODS, WORKLOADS
from pykueue.embedded.nodes.pool import Life, NodePool
from queue_manifests import queues

Object = dict[str, Any]

#: One pod of a job on each of them.
FOUR = pool(count=4, cpu="1")
TEN_CPUS = queues({"cpu": 10})
IGNORE_DISRUPTIONS = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}
RECOVERY = "waitForPodsReady: {timeout: 5m, recoveryTimeout: 3m}"
FAIL = "sim.pykueue.io/fail"


async def annotate(story: Story, node: str, **said: str | None) -> None:
    changes = {f"sim.pykueue.io/{name}": value for name, value in said.items()}
    await story.patch(NODES, node, {"metadata": {"annotations": changes}})


async def node_of(story: Story, prefix: str) -> str:
    """The node of the first running pod of that prefix."""
    running = [one for one in await story.pods(prefix) if one["status"]["phase"] == "Running"]
    return str(running[0]["spec"]["nodeName"])


async def is_running(story: Story, count: int, prefix: str = "") -> bool:
    return await story.running(prefix) == count


async def has_ended(story: Story, name: str) -> bool:
    return bool(await story.ended(name))


def test_job_that_ignores_disruptions_continues_after_a_node_failure() -> None:
    async def story(story: Story) -> None:
        await story.create(
            job("train", 3, run_time="10m", backoffLimit=0, podFailurePolicy=IGNORE_DISRUPTIONS)
        )
        await story.until(lambda: is_running(story, 3))
        node = await node_of(story, "train-")
        await story.delete(NODES, node)
        # The cluster waits 40 s for the node to come back, then it gives the pod up.
        await story.wait(38)
        assert await story.running("train-") == 3
        await story.wait(5)
        assert await story.running("train-") == 2
        await story.until(lambda: is_running(story, 3), 20)
        assert node not in {one["spec"]["nodeName"] for one in await story.pods("train-")}
        await story.until(lambda: has_ended(story, "train"))
        assert await story.ended("train") == "Complete"
        status = (await story.get(JOBS, "train"))["status"]
        assert (status["succeeded"], status.get("failed", 0)) == (3, 0)

    play(story, nodes=[FOUR], objects=TEN_CPUS)


def test_job_with_backoff_limit_0_fails_with_its_node() -> None:
    async def story(story: Story) -> None:
        await story.create(job("train", 3, run_time="10m", backoffLimit=0))
        await story.until(lambda: is_running(story, 3))
        await story.delete(NODES, await node_of(story, "train-"))
        await story.until(lambda: has_ended(story, "train"), 200)
        assert await story.ended("train") == "Failed"
        assert condition(await story.get(JOBS, "train"), "Failed")["reason"] == "BackoffLimitExceeded"
        assert (await story.reason("train", "Finished"))[0] == "True"
        assert await story.used("q") == "0"

    play(story, nodes=[FOUR], objects=TEN_CPUS)


def test_a_crash_is_a_failure_of_the_pods_unless_it_lasts() -> None:
    async def story(story: Story) -> None:
        await story.create(
            job("train", 3, run_time="10m", backoffLimit=0, podFailurePolicy=IGNORE_DISRUPTIONS)
        )
        await story.until(lambda: is_running(story, 3))
        node = await node_of(story, "train-")
        await annotate(story, node, fail="crash")
        await story.wait(20)
        await annotate(story, node, fail=None)
        # The machine is back before a controller reacts, and reports that the program ended with code 255.
        await story.until(lambda: has_ended(story, "train"), 60)
        assert await story.ended("train") == "Failed"

    play(story, nodes=[FOUR], objects=TEN_CPUS)


def test_a_job_that_loses_a_node_for_good_is_evicted_and_starts_again_elsewhere() -> None:
    async def story(story: Story) -> None:
        await story.create(job("train", 3, run_time="10m"))
        await story.until(lambda: is_running(story, 3))
        await story.wait(5)
        assert await story.reason("train", "PodsReady") == ("True", "Started")
        node = await node_of(story, "train-")
        await annotate(story, node, fail="unreachable")
        await story.wait(48)
        assert await story.reason("train", "PodsReady") == ("True", "Started")
        await story.wait(5)
        # The node sends no updates: its pod counts as not ready, the job as not all ready.
        assert await story.reason("train", "PodsReady") == ("False", "WaitForRecovery")
        await story.wait(170)
        assert await story.admitted("train")
        await story.wait(15)
        assert await story.reason("train", "Evicted") == ("True", "PodsReadyTimeout")
        assert await story.reason("train", "Requeued") == ("False", "PodsReadyTimeout")
        # Two pods end; the third is on a node that does not hear it should.
        await story.wait(5)
        (stuck,) = await story.all(PODS)
        assert stuck["spec"]["nodeName"] == node
        assert stuck["metadata"]["deletionTimestamp"]
        await story.until(lambda: is_running(story, 3), 120)
        await story.wait(5)
        assert await story.reason("train", "PodsReady") == ("True", "Started")
        await story.wait(620)
        # All work is done, but the Job is not Complete before every one of its pods has ended.
        found = await story.get(JOBS, "train")
        assert (found["status"]["succeeded"], found["status"]["terminating"]) == (3, 1)
        assert holds(found, "SuccessCriteriaMet")
        assert not holds(found, "Complete")
        out = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        taints = (await story.get(NODES, node))["spec"]["taints"]
        await story.patch(NODES, node, {"spec": {"taints": [*taints, out]}})
        await story.until(lambda: has_ended(story, "train"), 10)
        assert await story.ended("train") == "Complete"

    play(story, RECOVERY, nodes=[FOUR], objects=TEN_CPUS)


def test_a_job_whose_node_comes_back_in_time_goes_on() -> None:
    async def story(story: Story) -> None:
        await story.create(job("train", 3, run_time="10m"))
        await story.until(lambda: is_running(story, 3))
        node = await node_of(story, "train-")
        await annotate(story, node, fail="unreachable")
        await story.wait(120)
        assert await story.reason("train", "PodsReady") == ("False", "WaitForRecovery")
        await annotate(story, node, fail=None)
        await story.wait(5)
        assert await story.reason("train", "PodsReady") == ("True", "Recovered")
        await story.until(lambda: has_ended(story, "train"))
        status = (await story.get(JOBS, "train"))["status"]
        assert await story.ended("train") == "Complete"
        # The program went on all the time.
        assert (status["succeeded"], status.get("failed", 0)) == (3, 0)
        assert not await story.condition("train", "Evicted")

    play(story, RECOVERY, nodes=[FOUR], objects=TEN_CPUS)


def test_a_failed_nodes_pod_is_replaced_when_five_minutes_are_over() -> None:
    async def story(story: Story) -> None:
        await story.create(
            job("train", 3, run_time="20m", backoffLimit=0, podFailurePolicy=IGNORE_DISRUPTIONS)
        )
        await story.until(lambda: is_running(story, 3))
        node = await node_of(story, "train-")
        await annotate(story, node, fail="not-ready")
        await story.wait(295)
        assert {one["spec"]["nodeName"] for one in await story.pods("train-")} >= {node}
        await story.wait(15)
        assert node not in {one["spec"]["nodeName"] for one in await story.pods("train-")}
        await story.until(lambda: has_ended(story, "train"))
        assert await story.ended("train") == "Complete"

    play(story, nodes=[FOUR], objects=TEN_CPUS)


def test_drain_evicts_the_pods_of_a_job_one_by_one_within_its_budget() -> None:
    async def story(story: Story) -> None:
        await story.create(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "b", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"job-name": "train"}}, "minAvailable": 2},
            },
            job("train", 3, run_time="20m", backoffLimit=0, podFailurePolicy=IGNORE_DISRUPTIONS),
        )
        await story.until(lambda: is_running(story, 3))
        await story.wait(5)
        # The pool gives up all but the first node and the one that is free.
        text = (await story.client.get(CONFIG_MAPS, "node-pools", "kube-system"))["data"]["pools.yaml"]
        change = {"data": {"pools.yaml": text.replace("count: 6", "count: 3")}}
        await story.client.patch(CONFIG_MAPS, "node-pools", "kube-system", change)
        fewest = 3
        while len((await story.client.list(NODES)).items) > 3:
            fewest = min(fewest, await story.running("train-"))
            await story.wait(1)
        assert fewest >= 2
        budget = await story.get(POD_DISRUPTION_BUDGETS, "b")
        assert budget["status"]["desiredHealthy"] == 2
        await story.until(lambda: has_ended(story, "train"))
        status = (await story.get(JOBS, "train"))["status"]
        assert (await story.ended("train"), status.get("failed", 0)) == ("Complete", 0)

    play(story, nodes=[pool(count=6, cpu="1")], objects=TEN_CPUS)


def spot(count: int, **life: str) -> NodePool:
    return msgspec.structs.replace(pool("spot", count, cpu="1"), life=Life(**life))


def job_set(**spec: Any) -> Object:
    workers = job("x", 3, run_time="10m", queue=None, backoffLimit=0)["spec"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "set",
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {
            "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": workers}}],
            **spec,
        },
    }


def test_reclaimed_spot_node_restarts_a_jobset_in_its_place() -> None:
    async def story(story: Story) -> None:
        await story.create(job_set(failurePolicy={"maxRestarts": 3}))
        await story.until(lambda: is_running(story, 3))
        node = await node_of(story, "set-")
        before = (await story.get(NODES, node))["metadata"]["uid"]
        await annotate(story, node, reclaim="true")
        await story.wait(5)
        assert (await story.get(JOB_SETS, "set"))["status"]["restarts"] == 1
        # The place is kept; there is only no machine for it yet.
        assert await story.admitted("set")
        assert await story.used("q") == "3"
        await story.until(lambda: is_running(story, 3), 200)
        assert (await story.get(NODES, node))["metadata"]["uid"] != before

        async def completed() -> bool:
            return holds(await story.get(JOB_SETS, "set"), "Completed")

        await story.until(completed)
        assert (await story.get(JOB_SETS, "set"))["status"]["restarts"] == 1
        assert not await story.condition("set", "Evicted")

    play(story, nodes=[spot(3, reclaim_notice="30s", replace_after="1m")], objects=TEN_CPUS)


def member(name: str) -> Object:
    made = job(name, run_time="10m", queue=None)["spec"]["template"]
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-name": "group"}
    annotations = {**made["metadata"]["annotations"], "kueue.x-k8s.io/pod-group-total-count": "3"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
        "spec": made["spec"],
    }


def test_pod_group_that_loses_a_node_accepts_a_replacement_pod() -> None:
    async def story(story: Story) -> None:
        for number in range(3):
            await story.create(member(f"member-{number}"))
        await story.until(lambda: is_running(story, 3))
        node = await node_of(story, "member-0")
        await story.delete(NODES, node)
        await story.wait(50)
        lost = await story.get(PODS, "member-0")
        # It is kept, as what it was, until another pod takes its place, which stays the group's.
        assert lost["status"]["phase"] == "Failed"
        assert condition(lost, "DisruptionTarget")["reason"] == "DeletionByPodGC"
        group = await story.get(WORKLOADS, "group")
        assert holds(group, "Admitted")
        assert condition(group, "WaitingForReplacementPods")["reason"] == "PodsFailed"
        await story.create(member("another"))
        await story.until(lambda: is_running(story, 3), 60)
        assert (await story.get(PODS, "another"))["spec"]["nodeName"] != node

        async def finished() -> bool:
            return holds(await story.get(WORKLOADS, "group"), "Finished")

        await story.until(finished)
        assert condition(await story.get(WORKLOADS, "group"), "Finished")["reason"] == "Succeeded"
        assert await story.used("q") == "0"

    play(story, nodes=[FOUR], objects=TEN_CPUS)


def test_jobs_finish_on_nodes_that_come_and_go() -> None:
    """A day's work for six spot nodes, each of which lasts about an hour."""

    async def story(story: Story) -> None:
        names = [f"job-{number}" for number in range(12)]
        for name in names:
            await story.create(
                job(name, 2, run_time="12m", backoffLimit=0, podFailurePolicy=IGNORE_DISRUPTIONS)
            )

        async def all_ended() -> bool:
            return all([await story.ended(name) for name in names])

        while not await all_ended():
            await story.wait(60)
        assert {await story.ended(name) for name in names} == {"Complete"}
        assert await story.used("q") == "0"

    nodes = [spot(6, reclaim_every="1h", reclaim_notice="30s", replace_after="1m-5m")]
    play(story, RECOVERY, nodes=nodes, objects=queues({"cpu": 6}))
