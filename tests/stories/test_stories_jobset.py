"""JobSets, from submission to their end, on the whole stack (docs/reference/cluster-workloads.md 5.5 to 5.7).

Rows T4, F15, B3 to B6, B11 to B13, B15 and H3. B3 to B5 start from `LISTING`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import stories_world
from stories_world import Story

from pykueue.api.resources import CLUSTER_QUEUES, JOB_SETS, JOBS, PODS, SERVICES
from pykueue.api.times import parse_time
from pykueue.api.yaml import load_documents
from pykueue.embedded.nodes.pool import NodePool
from queue_manifests import BOOKSTORE_QUEUES, priority

Object = dict[str, Any]

LISTING = (
    BOOKSTORE_QUEUES
    + """\
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: recommender-train
  namespace: bookstore-ml
  labels: { kueue.x-k8s.io/queue-name: bookstore-ml-lq }
spec:
  replicatedJobs:
    - name: worker
      replicas: 1
      template:
        spec:
          parallelism: 2
          completions: 2
          template:
            spec: { restartPolicy: Never, containers: [ { name: train, image: <img> } ] }
"""
)

NAMESPACE = "bookstore-ml"
QUEUE = "bookstore-ml-cq"
NODES = [
    NodePool(
        name="node",
        count=2,
        allocatable={"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"},
        labels={"kind": "spot"},
    ),
    NodePool(
        name="fixed",
        count=1,
        allocatable={"cpu": "16", "memory": "64Gi", "pods": "110"},
        labels={"kind": "fixed"},
    ),
]


def listing() -> list[Object]:
    return load_documents(LISTING, "LISTING")


def play(story: Callable[[Story], Awaitable[None]], configuration: str = "") -> None:
    """Run a story on the queues of the listing."""
    queues = [obj for obj in listing() if obj["kind"] != "JobSet"]
    stories_world.play(story, configuration, nodes=NODES, objects=queues, namespace=NAMESPACE)


async def state(world: Story, name: str) -> str:
    return str((await world.get(JOB_SETS, name)).get("status", {}).get("terminalState", ""))


async def suspended(world: Story, name: str) -> bool:
    return await world.suspended(name, JOB_SETS)


def recommender(run_time: str = "20s", cpu: str = "500m", component: str = "recommender-train") -> Object:
    """The JobSet of the listing, with the requests without which no quota could hold it back."""
    found = copy.deepcopy(next(obj for obj in listing() if obj["kind"] == "JobSet"))
    template = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {
        "labels": {"app.kubernetes.io/component": component},
        "annotations": {"sim.pykueue.io/run-time": run_time},
    }
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return found


def replicated(
    name: str,
    pods: int = 1,
    *,
    run_time: str = "forever",
    requests: dict[str, str] | None = None,
    ready_delay: str | None = None,
    depends_on: list[Object] | None = None,
    **pod: Any,
) -> Object:
    simulation = {"sim.pykueue.io/run-time": run_time}
    if ready_delay:
        simulation["sim.pykueue.io/ready-delay"] = ready_delay
    wanted = requests or {"cpu": "500m"}
    resources = {"requests": wanted, "limits": wanted}
    container = {"name": "main", "image": "i", "resources": resources}
    found: Object = {
        "name": name,
        "template": {
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "template": {
                    "metadata": {"annotations": simulation},
                    "spec": {"containers": [container], **pod},
                },
            }
        },
    }
    return found if depends_on is None else {**found, "dependsOn": depends_on}


def jobset(name: str, *jobs: Object, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    queued = {"kueue.x-k8s.io/queue-name": "bookstore-ml-lq", **(labels or {})}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": queued},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def gpus(name: str, pods: int, run_time: str = "30s", **options: Any) -> Object:
    one = replicated("w", pods, run_time=run_time, requests={"cpu": "100m", "nvidia.com/gpu": "1"})
    return jobset(name, one, **options)


def test_b3_gang_starts_together_and_releases_its_quota() -> None:
    async def story(world: Story) -> None:
        await world.create(recommender())
        assert await suspended(world, "recommender-train")
        await world.wait()
        workload = await world.workload("recommender-train")
        assert re.fullmatch(r"jobset-recommender-train-[0-9a-f]{5}", workload["metadata"]["name"])
        assert (await world.condition("recommender-train", "Admitted"))["status"] == "True"
        job = await world.client.get(JOBS, "recommender-train-worker-0", NAMESPACE)
        assert (job["spec"]["completionMode"], job["spec"]["completions"]) == ("Indexed", 2)
        service = await world.client.get(SERVICES, "recommender-train", NAMESPACE)
        assert service["spec"]["clusterIP"] == "None"
        found = await world.client.list(
            PODS, NAMESPACE, label_selector="app.kubernetes.io/component=recommender-train"
        )
        names = sorted(pod["metadata"]["name"] for pod in found.items)
        assert [name.rpartition("-")[0] for name in names] == [
            "recommender-train-worker-0-0",
            "recommender-train-worker-0-1",
        ]
        born = [parse_time(pod["metadata"]["creationTimestamp"]) for pod in found.items]
        assert max(born) - min(born) <= 2.0
        queue = await world.cluster_queue(QUEUE)
        assert queue["flavorsReservation"][0]["resources"][0]["total"] == "1"
        await world.wait(30)
        assert await state(world, "recommender-train") == "Completed"
        assert (await world.condition("recommender-train", "Finished"))["reason"] == "Succeeded"
        queue = await world.cluster_queue(QUEUE)
        assert queue["flavorsReservation"][0]["resources"][0]["total"] == "0"

    play(story)


def test_b4_and_b5_no_quota_no_pods_and_quota_again_starts_the_gang() -> None:
    async def story(world: Story) -> None:
        await world.create(recommender("forever"))
        await world.wait()
        assert await world.running() == 2
        await world.delete(JOB_SETS, "recommender-train")
        await world.wait(60)
        await world.set_quota(QUEUE, "0")
        await world.create(recommender())
        await world.wait(30)
        reserved = await world.condition("recommender-train", "QuotaReserved")
        assert reserved["status"] == "False"
        assert "insufficient quota for cpu" in reserved["message"]
        assert "maximum capacity (0)" in reserved["message"]
        assert await suspended(world, "recommender-train")
        job = await world.client.get(JOBS, "recommender-train-worker-0", NAMESPACE)
        assert job["spec"]["suspend"] is True
        assert await world.pods() == []
        assert (await world.cluster_queue(QUEUE))["pendingWorkloads"] == 1
        await world.set_quota(QUEUE, "4")
        await world.wait(1.5)
        assert not await suspended(world, "recommender-train")
        await world.wait(5)
        assert await world.running() == 2

    play(story)


def test_b4a_lowering_quota_evicts_no_workload_and_admits_none() -> None:
    async def story(world: Story) -> None:
        await world.create(recommender("forever"))
        await world.wait()
        await world.set_quota(QUEUE, "0")
        await world.create(jobset("next", replicated("w")))
        await world.wait(30)
        assert await world.running("recommender-train-") == 2
        assert await suspended(world, "next")
        queue = await world.cluster_queue(QUEUE)
        assert queue["flavorsUsage"][0]["resources"][0]["total"] == "1"

    play(story)


def test_b11_jobset_above_the_total_quota_stays_pending_with_the_reason() -> None:
    async def story(world: Story) -> None:
        await world.set_quota(QUEUE, "2", resource=2)
        await world.create(gpus("four", 4))
        await world.wait(600)
        reserved = await world.condition("four", "QuotaReserved")
        assert "insufficient quota for nvidia.com/gpu" in reserved["message"]
        assert "maximum capacity (2)" in reserved["message"]
        assert await world.pods() == []
        await world.set_quota(QUEUE, "4", resource=2)
        await world.wait()
        assert await world.running() == 4

    play(story)


def test_b12_the_second_gang_starts_when_the_first_is_done() -> None:
    async def story(world: Story) -> None:
        await world.set_quota(QUEUE, "2", resource=2)
        await world.create(gpus("first", 2))
        await world.wait(1)
        await world.create(gpus("second", 2))
        await world.wait(20)
        assert (await world.running("first-"), await world.running("second-")) == (2, 0)
        message = (await world.condition("second", "QuotaReserved"))["message"]
        assert "insufficient unused quota for nvidia.com/gpu" in message
        assert "2 more needed" in message
        while await state(world, "first") != "Completed":
            await world.wait(0.1)
        await world.wait(1.5)
        assert not await suspended(world, "second")
        await world.wait(60)
        assert await state(world, "second") == "Completed"

    play(story)


def test_b13_gang_of_higher_priority_preempts_another_which_runs_later() -> None:
    async def story(world: Story) -> None:
        await world.client.patch(
            CLUSTER_QUEUES,
            "bookstore-ml-cq",
            None,
            {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}},
        )
        await world.create(priority("high", 100), gpus("low", 4, "60s"))
        await world.wait()
        assert await world.running("low-") == 4
        await world.create(gpus("high", 2, "30s", labels={"kueue.x-k8s.io/priority-class": "high"}))
        await world.wait(10)
        assert (await world.condition("low", "Evicted"))["reason"] == "Preempted"
        assert (await world.condition("low", "Preempted"))["reason"] == "InClusterQueue"
        most = 0
        for _ in range(40):
            await world.wait(1)
            busy = [pod for pod in await world.pods() if pod["status"].get("phase") == "Running"]
            most = max(most, len(busy))
        assert most <= 4
        await world.wait(120)
        assert (await state(world, "high"), await state(world, "low")) == ("Completed", "Completed")

    play(story)


def test_b15_workers_start_when_the_parameter_server_is_ready() -> None:
    async def story(world: Story) -> None:
        await world.create(
            jobset(
                "ordered",
                replicated("server", ready_delay="20s"),
                replicated("workers", 2, run_time="20s", depends_on=[{"name": "server", "status": "Ready"}]),
                successPolicy={"operator": "All", "targetReplicatedJobs": ["workers"]},
            )
        )
        await world.wait(15)
        assert [pod["metadata"]["name"][:15] for pod in await world.pods()] == ["ordered-server-"]
        assert (await world.condition("ordered", "PodsReady"))["status"] == "False"
        await world.wait(15)
        assert await world.running("ordered-workers-") == 2
        assert (await world.condition("ordered", "PodsReady"))["status"] == "True"
        await world.wait(60)
        assert await state(world, "ordered") == "Completed"
        assert await world.running() == 0

    play(story)


@pytest.mark.parametrize("first", ["workers", "leader"])
def test_t4_the_success_policys_target_decides(first: str) -> None:
    async def story(world: Story) -> None:
        times = {"workers": "90s", "leader": "90s", first: "10s"}
        await world.create(
            jobset(
                "success-policy",
                replicated("leader", run_time=times["leader"]),
                replicated("workers", 2, run_time=times["workers"]),
                successPolicy={"operator": "All", "targetReplicatedJobs": ["workers"]},
            )
        )
        await world.wait(20)
        (job,) = (
            one
            for one in (await world.client.list(JOBS, NAMESPACE)).items
            if one["metadata"]["name"] == "success-policy-workers-0"
        )
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
        if first == "leader":
            assert await state(world, "success-policy") == ""
            assert await world.running("success-policy-workers-") == 2
            await world.wait(100)
        assert await state(world, "success-policy") == "Completed"
        await world.wait(40)
        left = {job["metadata"]["name"] for job in (await world.client.list(JOBS, NAMESPACE)).items}
        assert "success-policy-workers-0" in left
        assert ("success-policy-leader-0" in left) is (first == "leader")

    play(story)


def test_f15_followers_do_not_outlive_the_leader() -> None:
    async def story(world: Story) -> None:
        await world.create(
            jobset(
                "gang",
                replicated("leader", run_time="20s"),
                replicated("followers", 3),
                successPolicy={"operator": "All", "targetReplicatedJobs": ["leader"]},
            )
        )
        await world.wait(10)
        assert await world.running() == 4
        await world.wait(60)
        assert await state(world, "gang") == "Completed"
        assert await world.running() == 0
        assert (await world.condition("gang", "Finished"))["status"] == "True"

    play(story)


def test_b6_resource_quota_beside_the_queue_is_a_hard_limit() -> None:
    async def story(world: Story) -> None:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpu-quota", "namespace": NAMESPACE},
            "spec": {"hard": {"requests.nvidia.com/gpu": "2"}},
        }
        await world.create(quota, gpus("four", 4, "forever"))
        await world.wait(30)
        assert (await world.condition("four", "Admitted"))["status"] == "True"
        assert await world.running() == 2
        assert (await world.condition("four", "PodsReady"))["status"] == "False"

    play(story)


def test_h3_driver_and_workers_on_different_kinds_of_capacity() -> None:
    async def story(world: Story) -> None:
        for name in ("spot", "fixed"):
            flavor = {"metadata": {"name": name}, "spec": {"nodeLabels": {"kind": name}}}
            await world.create({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", **flavor})
        flavors = [
            {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "2"}]},
            {"name": "fixed", "resources": [{"name": "cpu", "nominalQuota": "2"}]},
        ]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        await world.client.patch(
            CLUSTER_QUEUES, "bookstore-ml-cq", None, {"spec": {"resourceGroups": groups}}
        )
        await world.create(
            jobset(
                "hybrid",
                replicated("driver", requests={"cpu": "1"}, nodeSelector={"kind": "fixed"}),
                replicated("workers", 2, requests={"cpu": "1"}),
            )
        )
        await world.wait(10)
        status = (await world.workload("hybrid"))["status"]
        assigned = {one["name"]: one["flavors"]["cpu"] for one in status["admission"]["podSetAssignments"]}
        assert assigned == {"driver": "fixed", "workers": "spot"}
        nodes = {pod["metadata"]["name"][:9]: pod["spec"]["nodeName"] for pod in await world.pods()}
        assert nodes["hybrid-dr"].startswith("fixed-")
        assert nodes["hybrid-wo"].startswith("node-")

    play(story)


def test_a_gang_that_does_not_become_ready_is_stopped_whole_and_tried_again() -> None:
    async def story(world: Story) -> None:
        await world.set_quota(QUEUE, "100")
        await world.create(
            jobset(
                "stuck", replicated("a", 2, requests={"cpu": "16"}), replicated("b", 2, requests={"cpu": "9"})
            )
        )
        await world.wait(50)
        assert 0 < await world.running() < 4
        await world.wait(60)
        evicted = await world.condition("stuck", "Evicted")
        assert evicted["reason"] == "PodsReadyTimeout"
        assert await world.pods() == []
        assert await suspended(world, "stuck")

    play(story, "waitForPodsReady: {timeout: 1m}\n")
