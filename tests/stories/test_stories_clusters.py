"""Pods, groups of pods and serving sets on worker clusters (docs/reference/admission-checks.md 18)."""

from __future__ import annotations

from typing import Any

from clusters_world import Clusters, play
from stories_world import template

from pykueue.api.conditions import is_finished
from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.resources import CLUSTER_QUEUES, PODS, STATEFUL_SETS, WORKLOADS, Resource

Object = dict[str, Any]

QUEUE = "kueue.x-k8s.io/queue-name"
GATE = {"name": "kueue.x-k8s.io/admission"}
_ADMISSION = "admissionregistration.k8s.io"
POLICIES = Resource(_ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False)
BINDINGS = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)


def pod(name: str, run_time: str = "10s", **metadata: Any) -> Object:
    """A pod in the queue `q` that asks for one CPU."""
    made = template({"cpu": 1}, run_time=run_time)
    labels = {QUEUE: "q", **metadata.pop("labels", {})}
    annotations = {**made["metadata"]["annotations"], **metadata.pop("annotations", {})}
    metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


def group(name: str, count: int, run_time: str = "10s") -> list[Object]:
    """The pods of a group."""
    labels = {"kueue.x-k8s.io/pod-group-name": name}
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(count)}
    return [
        pod(f"{name}-{number}", run_time, labels=labels, annotations=annotations) for number in range(count)
    ]


def reason(found: Object, kind: str) -> tuple[str, str]:
    """Status and reason of a condition."""
    for one in found["status"].get("conditions") or ():
        if one["type"] == kind:
            return one["status"], one.get("reason") or ""
    return "", ""


def is_gated(found: Object) -> bool:
    return GATE in (found["spec"].get("schedulingGates") or ())


def test_pod_runs_on_a_worker_and_its_status_comes_back() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(pod("p", "60s"))
        await c.wait(10)
        (worker,) = await c.placed("p")
        copy, local = await c.workers[worker].get(PODS, "p"), await c.manager.get(PODS, "p")
        assert await c.having(PODS, "p") == [worker]
        assert copy["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "multikueue"
        assert copy["metadata"]["labels"]["kueue.x-k8s.io/multikueue-worker-workload-pod"] == "true"
        assert not is_gated(copy)
        # Here it stays gated, with the status of its copy.
        assert is_gated(local)
        assert (copy["status"]["phase"], local["status"]["phase"]) == ("Running", "Running")
        assert reason(local, "PodScheduled")[0] == "True"
        await c.wait(70)
        assert (await c.manager.get(PODS, "p"))["status"]["phase"] == "Succeeded"
        assert reason(await c.manager.workload("p"), "Finished") == ("True", "Succeeded")
        assert (await c.having(PODS, "p"), await c.left()) == ([], [])

    play(story, "w1", "w2")


def test_pod_without_a_node_on_the_worker_is_shown_as_gated() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(pod("p"))
        await c.wait(20)
        copy, local = await c.workers["w1"].get(PODS, "p"), await c.manager.get(PODS, "p")
        assert reason(copy, "PodScheduled") == ("False", "Unschedulable")
        assert reason(local, "PodScheduled") == ("False", "SchedulingGated")

    play(story, "w1", pools=[])


def test_pod_that_is_deleted_is_deleted_on_its_worker() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(pod("p", "1000s"))
        await c.wait(10)
        await c.manager.delete(PODS, "p")
        await c.wait(60)
        assert await c.manager.find(PODS, "p") is None
        assert (await c.having(PODS, "p"), await c.left()) == ([], [])

    play(story, "w1")


def test_evicted_pod_is_stopped_on_its_worker_before_it_is_dispatched_again() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(pod("p", "1000s"))
        await c.wait(10)
        uid = (await c.workers["w1"].get(PODS, "p"))["metadata"]["uid"]
        name = (await c.manager.workload("p"))["metadata"]["name"]
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": False}})
        await c.wait(2)
        # The copy is being stopped, which takes five seconds here: the quota is kept.
        assert (await c.workers["w1"].get(PODS, "p"))["metadata"]["deletionTimestamp"]
        assert reason(await c.manager.workload("p"), "QuotaReserved")[0] == "True"
        await c.wait(10)
        assert await c.having(PODS, "p") == []
        local = await c.manager.get(PODS, "p")
        assert (local["status"]["phase"], is_gated(local)) == ("Pending", True)
        assert reason(await c.manager.workload("p"), "QuotaReserved")[0] == "False"
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": True}})
        await c.wait(10)
        again = await c.workers["w1"].get(PODS, "p")
        assert (again["status"]["phase"], again["metadata"]["uid"] != uid) == ("Running", True)

    play(story, "w1")


def test_group_runs_on_one_worker_and_ends_there() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(*group("g", 3, "30s"))
        await c.wait(15)
        (worker,) = await c.placed("g")
        assert await c.workers[worker].phases("g-") == ["Running"] * 3
        assert await c.manager.phases("g-") == ["Running"] * 3
        assert all(map(is_gated, await c.manager.pods("g-")))
        await c.wait(40)
        assert await c.manager.phases("g-") == ["Succeeded"] * 3
        assert reason(await c.manager.workload("g"), "Finished") == ("True", "Succeeded")
        assert (await c.left(), [await w.pods("g-") for w in c.workers.values()]) == ([], [[], []])

    play(story, "w1", "w2")


def test_group_that_its_worker_evicts_runs_on_another_one() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(*group("g", 2, "1000s"))
        await c.wait(15)
        (first,) = await c.placed("g")
        (other,) = set(c.workers) - {first}
        await c.workers[first].patch(CLUSTER_QUEUES, "q", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await c.wait(30)
        assert await c.placed("g") == {other}
        assert (await c.workers[first].pods("g-"), await c.workers[other].phases("g-")) == (
            [],
            ["Running"] * 2,
        )
        assert await c.manager.phases("g-") == ["Running"] * 2

    play(story, "w1", "w2")


def test_pods_that_succeed_while_they_are_stopped_are_not_run_again() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(*group("g", 2, "30s"))
        await c.wait(28)
        (worker,) = await c.placed("g")
        assert await c.workers[worker].phases("g-") == ["Running"] * 2
        name = (await c.manager.workload("g"))["metadata"]["name"]
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": False}})
        await c.wait(1)
        assert all(one["metadata"]["deletionTimestamp"] for one in await c.workers[worker].pods("g-"))
        await c.wait(10)
        assert await c.manager.phases("g-") == ["Succeeded"] * 2
        assert reason(await c.manager.workload("g"), "Finished") == ("True", "Succeeded")
        assert (await c.left(), [await w.pods("g-") for w in c.workers.values()]) == ([], [[], []])

    play(story, "w1", "w2")


def test_group_that_ends_on_its_worker_before_all_of_its_pods_are_there_is_not_finished() -> None:
    async def story(c: Clusters) -> None:
        worker = c.workers["w1"]
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
        }
        policy = {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "object.metadata.name != 'g-1'"}],
        }
        binding = {"policyName": "refuse", "validationActions": ["Deny"]}
        for resource, spec in ((POLICIES, policy), (BINDINGS, binding)):
            named = {"apiVersion": resource.api_version, "kind": resource.kind}
            await worker.client.create(resource, {**named, "metadata": {"name": "refuse"}, "spec": spec})
        pods = group("g", 2, "10s")
        for one in pods:
            one["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = "false"
        finished = []

        def stored(new: Any, old: Any) -> None:
            if new is not None and is_finished(new.object):
                finished.append(new.object)

        c.manager.cluster.server.core.on_stored(f"{WORKLOADS.group}/{WORKLOADS.plural}", stored)
        await c.manager.create(*pods)
        await c.wait(60)
        # The worker has seen a group of one pod, and says that it failed.
        assert await c.manager.phases("g-") == ["Succeeded", "Pending"]
        assert finished == []
        await worker.delete(BINDINGS, "refuse")
        await c.wait(400)
        assert await c.manager.phases("g-") == ["Succeeded"] * 2
        assert reason(await c.manager.workload("g"), "Finished")[0] == "True"
        assert (await c.left(), await worker.pods("g-")) == ([], [])

    play(story, "w1")


def test_evicted_group_ends_where_a_pod_has_failed_that_is_not_to_be_retried() -> None:
    async def story(c: Clusters) -> None:
        pods = group("g", 2, "1000s")
        pods[0]["metadata"]["annotations"] |= {
            "sim.pykueue.io/run-time": "10s",
            "sim.pykueue.io/exit-code": "1",
        }
        for one in pods:
            one["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = "false"
        await c.manager.create(*pods)
        await c.wait(30)
        assert await c.manager.phases("g-") == ["Failed", "Running"]
        await c.manager.patch(WORKLOADS, "g", {"spec": {"active": False}})
        await c.wait(60)
        assert reason(await c.manager.workload("g"), "Finished") == ("True", "Failed")
        assert await c.manager.phases("g-") == ["Failed"]
        assert await c.left() == []

    play(story, "w1")


def test_failed_pod_of_a_group_is_replaced_on_its_worker() -> None:
    async def story(c: Clusters) -> None:
        first, second = group("g", 2, "1000s")
        first["metadata"]["annotations"] |= {
            "sim.pykueue.io/run-time": "10s",
            "sim.pykueue.io/exit-code": "1",
        }
        await c.manager.create(first, second)
        await c.wait(30)
        assert await c.manager.phases("g-") == ["Failed", "Running"]
        replacement = {**second, "metadata": {**second["metadata"], "name": "g-new"}}
        await c.manager.create(replacement)
        await c.wait(15)
        assert (await c.manager.get(PODS, "g-new"))["status"]["phase"] == "Running"
        assert (await c.workers["w1"].get(PODS, "g-new"))["status"]["phase"] == "Running"

    play(story, "w1")


def stateful_set(name: str, replicas: int) -> Object:
    made = template({"cpu": 1}, run_time="forever")
    made["metadata"]["labels"] = {"app": name}
    del made["spec"]["restartPolicy"]
    spec = {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default", "labels": {QUEUE: "q"}},
        "spec": {**spec, "template": made},
    }


def leader_worker_set(name: str, replicas: int) -> Object:
    made = {"spec": {k: v for k, v in template({"cpu": 1})["spec"].items() if k != "restartPolicy"}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": "default", "labels": {QUEUE: "q"}},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {"size": 2, "leaderTemplate": made, "workerTemplate": made},
        },
    }


def test_stateful_set_serves_on_a_worker() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(stateful_set("s", 2))
        await c.wait(40)
        (worker,) = await c.placed("s")
        copy = await c.workers[worker].get(STATEFUL_SETS, "s")
        local = await c.manager.get(STATEFUL_SETS, "s")
        uid = local["metadata"]["uid"]
        assert copy["metadata"]["annotations"]["kueue.x-k8s.io/multikueue-origin-uid"] == uid
        assert copy["status"]["readyReplicas"] == 2
        assert not local["status"].get("readyReplicas")
        assert all(map(is_gated, await c.manager.pods("s-")))
        # One Workload for both clusters, which goes with the set there.
        name = (await c.manager.workload("s"))["metadata"]["name"]
        assert [w["metadata"]["name"] for w in await c.workers[worker].workloads("s")] == [name]
        await c.manager.delete(STATEFUL_SETS, "s")
        await c.wait(60)
        assert (await c.having(STATEFUL_SETS, "s"), await c.left()) == ([], [])
        assert await c.workers[worker].pods("s-") == []

    play(story, "w1", "w2")


def test_stateful_set_on_a_worker_is_not_evicted_for_pods_that_are_not_ready_here() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(stateful_set("s", 2))
        await c.wait(300)
        assert await c.placed("s") == {"w1"}
        assert await c.workers["w1"].phases("s-") == ["Running"] * 2
        assert "schedulingStats" not in (await c.manager.workload("s"))["status"]

    play(story, "w1", configuration="waitForPodsReady: {timeout: 1m}\n")


def test_49_groups_of_a_leader_worker_set_run_on_the_cluster_of_the_first() -> None:
    resource = LEADER_WORKER_SET.resource

    async def story(c: Clusters) -> None:
        await c.manager.create(leader_worker_set("l", 3))
        await c.wait(40)
        assert len(await c.manager.workloads("l")) == 3
        (worker,) = await c.placed("l")
        assert await c.having(resource, "l") == [worker]
        assert await c.workers[worker].phases("l-") == ["Running"] * 6
        assert len(await c.workers[worker].all(WORKLOADS)) == 3
        assert len(await c.left()) == 3
        # A group that goes takes nothing from the others.
        await c.manager.patch(resource, "l", {"spec": {"replicas": 2}})
        await c.wait(40)
        assert await c.workers[worker].phases("l-") == ["Running"] * 4
        assert len(await c.left()) == 2
        await c.manager.delete(resource, "l")
        await c.wait(60)
        assert (await c.having(resource, "l"), await c.left()) == ([], [])

    play(story, "w1", "w2", job_kinds=["LeaderWorkerSet"])


def test_evicted_group_of_a_leader_worker_set_returns_to_the_others() -> None:
    async def story(c: Clusters) -> None:
        await c.manager.create(leader_worker_set("l", 2))
        await c.wait(40)
        (worker,) = await c.placed("l")
        second = (await c.manager.workloads("l"))[1]["metadata"]["name"]
        await c.manager.patch(WORKLOADS, second, {"spec": {"active": False}})
        await c.wait(40)
        running = [p["metadata"]["name"] for p in await c.workers[worker].pods("l-") if not is_gated(p)]
        assert running == ["l-0", "l-0-1"]
        assert len(await c.left()) == 1
        await c.manager.patch(WORKLOADS, second, {"spec": {"active": True}})
        await c.wait(40)
        assert await c.workers[worker].phases("l-") == ["Running"] * 4
        assert await c.placed("l") == {worker}

    play(story, "w1", "w2", job_kinds=["LeaderWorkerSet"])
