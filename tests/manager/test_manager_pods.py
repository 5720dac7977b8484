"""Plain pods in queues: gated, admitted, evicted, finished (docs/reference/kueue-integrations.md 9.4,
"Pod")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from manager_stack import QUEUES, Manifests, Stack, job, story
from pods_world import FLAVORED, GATE, PODS_ON, D, Pods, member, pod

from pykueue.api.resources import CLUSTER_QUEUES, JOBS, PODS, WORKLOADS
from pykueue.kube.errors import ApiError

Object = dict[str, Any]


def play(
    test: Callable[[Pods], Awaitable[None]], configuration: str = PODS_ON, queues: Manifests = FLAVORED
) -> None:
    async def run(stack: Stack) -> None:
        await test(Pods(stack))

    story(run, configuration, queues)


def test_a_pod_waits_behind_its_gate_and_runs_as_admitted() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("big", "4"), pod("p", "2"))
        waiting = await pods.get("p")
        assert waiting["spec"]["schedulingGates"] == [GATE, {"name": f"{D}topology"}]
        assert waiting["metadata"]["labels"][f"{D}managed"] == "true"
        assert waiting["metadata"]["finalizers"] == [f"{D}managed"]
        assert waiting["metadata"]["annotations"][f"{D}role-hash"]
        workload = await pods.stack.workload("p")
        assert workload["metadata"]["name"].startswith("pod-p-")
        assert workload["metadata"]["ownerReferences"][0]["controller"] is True
        assert [(one["name"], one["count"]) for one in workload["spec"]["podSets"]] == [("main", 1)]
        await pods.run("big")
        await pods.end("big")
        running = await pods.get("p")
        assert not running["spec"].get("schedulingGates")
        assert running["spec"]["nodeSelector"] == {"disk": "fast"}
        assert {"key": "fast", "operator": "Exists"} in running["spec"]["tolerations"]
        assert running["metadata"]["labels"][f"{D}podset"] == "main"
        assert running["metadata"]["labels"][f"{D}cluster-queue-name"] == "cq"
        assert "Started" in await pods.stack.events("p")

    play(test)


def test_a_pod_that_kueue_gave_a_topology_gate_runs_without_it() -> None:
    """Its pod set has no topology assignment; other gates belong to their owners."""

    async def test(pods: Pods) -> None:
        foreign = {"name": "example.com/licence"}
        gates = [{"name": f"{D}topology"}, GATE, foreign]
        await pods.create(
            pod("p", schedulingGates=gates), *(member(n, 2, schedulingGates=gates) for n in "ab")
        )
        for name in ("p", "a", "b"):
            assert (await pods.get(name))["spec"]["schedulingGates"] == [foreign]

    play(test)


@pytest.mark.parametrize("queue", [None, "lq"])
def test_what_a_pod_makes_is_queued_by_its_own_label_unless_that_pod_is_queued(queue: str | None) -> None:
    """So a Spark driver that is in no queue does not take its executors out of theirs."""

    async def test(pods: Pods) -> None:
        await pods.create(pod("driver", queue=queue))
        uid = (await pods.get("driver"))["metadata"]["uid"]
        executor = pod("executor")
        executor["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": uid, "controller": True}
        ]
        await pods.create(executor)
        queued = [one["metadata"]["ownerReferences"][0]["name"] for one in await pods.stack.workloads()]
        assert queued == (["executor"] if queue is None else ["driver"])

    play(test)


@pytest.mark.parametrize(("phase", "reason"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
def test_workload_of_a_pod_finishes_with_the_pod(phase: str, reason: str) -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("p"))
        await pods.run("p")
        assert await pods.is_held("p")
        await pods.end("p", phase=phase)
        assert (await pods.stack.conditions("p"))["Finished"] == ("True", reason)
        assert not await pods.is_held("p")
        assert (await pods.stack.cluster_queue())["status"]["admittedWorkloads"] == 0

    play(test)


def test_preempted_pod_is_deleted_with_the_reason_in_its_conditions() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("low", "4"))
        await pods.run("low")
        await pods.create(pod("high", "4", labels={f"{D}priority-class": "high"}))
        low = await pods.get("low")
        assert low["metadata"]["deletionTimestamp"]
        target = next(one for one in low["status"]["conditions"] if one["type"] == "TerminationTarget")
        assert (target["status"], target["reason"]) == ("True", "StoppedByKueue")
        assert "Preempted to accommodate a workload" in target["message"]
        conditions = await pods.stack.conditions("low")
        assert conditions["Evicted"] == ("True", "Preempted")
        assert conditions["Requeued"] == ("False", "Preempted")
        assert conditions["QuotaReserved"][0] == "False"
        assert not await pods.is_gated("high")
        await pods.end("low", phase="Failed")
        assert await pods.names() == ["high"]

    play(test)


def test_finalizers_of_a_deleted_pod_and_its_workload_are_removed() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("running", "4"), pod("waiting", "4"))
        await pods.run("running")
        await pods.delete("waiting")
        assert await pods.names() == ["running"]
        await pods.delete("running")
        assert not await pods.is_held("running")
        await pods.end("running", phase="Failed")
        assert await pods.names() == []
        for workload in await pods.stack.workloads():
            # No garbage collector runs here; the finalizers are gone.
            assert not workload["metadata"].get("finalizers")

    play(test)


def test_pods_without_a_queue_and_pods_of_jobs_are_left_alone() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("free", queue=None))
        assert not await pods.gated()
        await pods.stack.client.create(JOBS, job("j"))
        await pods.stack.settle()
        owner = await pods.stack.job("j")
        reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        child = pod("child", labels={f"{D}managed": "true"})
        child["metadata"]["ownerReferences"] = [reference]
        await pods.create(child)
        assert not await pods.gated()
        assert len(await pods.stack.workloads()) == 1

    play(test)


def test_the_default_queue_takes_pods_too() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("p", queue=None))
        assert (await pods.get("p"))["metadata"]["labels"][f"{D}queue-name"] == "default"
        assert (await pods.stack.conditions("p"))["Admitted"][0] == "True"

    play(test, queues=QUEUES.replace("name: lq", "name: default"))


def test_namespaces_outside_the_selector_are_left_alone() -> None:
    configuration = PODS_ON + "managedJobsNamespaceSelector: {matchLabels: {team: a}}\n"

    async def test(pods: Pods) -> None:
        await pods.create(pod("p"))
        assert not await pods.gated()
        assert await pods.stack.workloads() == []

    play(test, configuration)


def test_pods_are_not_gated_without_the_pod_integration() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("p"))
        assert not await pods.gated()
        assert await pods.stack.workloads() == []

    play(test, "")


def test_a_pod_whose_workload_is_deleted_is_stopped() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("p"))
        await pods.run("p")
        workload = await pods.stack.workload("p")
        await pods.stack.delete(WORKLOADS, workload["metadata"]["name"])
        await pods.stack.settle()
        assert (await pods.get("p"))["metadata"]["deletionTimestamp"]
        await pods.end("p", phase="Failed")
        assert await pods.names() == []
        assert await pods.stack.workloads() == []

    play(test)


def test_readiness_is_waited_for() -> None:
    configuration = PODS_ON + "waitForPodsReady: {timeout: 30s}\n"

    async def test(pods: Pods) -> None:
        await pods.create(pod("good"), pod("bad"))
        await pods.run("good")
        assert (await pods.stack.conditions("good"))["PodsReady"] == ("True", "Started")
        await pods.stack.settle(40)
        assert await pods.names() == ["good"]
        assert not (await pods.get("good"))["metadata"].get("deletionTimestamp")

    play(test, configuration)


def test_stopping_the_queue_deletes_its_pods() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("p"))
        await pods.run("p")
        await pods.stack.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await pods.stack.settle()
        assert (await pods.get("p"))["metadata"]["deletionTimestamp"]

    play(test)


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (pod("p", labels={f"{D}pod-group-name": "g"}), f"metadata.annotations[{D}pod-group-total-count]"),
        (pod("p", annotations={f"{D}pod-group-total-count": "2"}), f"metadata.labels[{D}pod-group-name]"),
        (member("p", 0), f"metadata.annotations[{D}pod-group-total-count]"),
        (member("p", 1, group="Gx"), f"metadata.labels[{D}pod-group-name]"),
        (
            member("p", 1, labels={f"{D}prebuilt-workload-name": "other"}),
            f"metadata.labels[{D}prebuilt-workload-name]",
        ),
        (pod("p", queue="Bad"), f"metadata.labels[{D}queue-name]"),
    ],
)
def test_invalid_labels_and_annotations_of_a_pod_are_rejected(manifest: Object, field: str) -> None:
    async def test(pods: Pods) -> None:
        with pytest.raises(ApiError) as caught:
            await pods.stack.client.create(PODS, manifest)
        assert field in [cause["field"] for cause in caught.value.details["causes"]]

    play(test)


def test_immutable_fields_of_a_queued_pod_cannot_change() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(member("p", 2, annotations={f"{D}retriable-in-group": "false"}), pod("q"))
        for patch in (
            {"metadata": {"labels": {f"{D}pod-group-name": "other"}}},
            {"metadata": {"labels": {f"{D}managed": "no"}}},
            {"metadata": {"annotations": {f"{D}retriable-in-group": "true"}}},
        ):
            with pytest.raises(ApiError) as caught:
                await pods.stack.patch(PODS, "p", patch)
            assert caught.value.code == 403
        with pytest.raises(ApiError):
            await pods.stack.patch(PODS, "q", {"metadata": {"labels": {f"{D}queue-name": "other"}}})

    play(test)


def test_a_manager_that_starts_late_goes_on() -> None:
    async def test(pods: Pods) -> None:
        await pods.create(pod("p"))
        await pods.run("p")
        await pods.stack.stop_manager()
        await pods.stack.patch(PODS, "p", {"status": {"phase": "Succeeded"}}, "status")
        await pods.stack.start_manager()
        await pods.stack.settle()
        assert (await pods.stack.conditions("p"))["Finished"] == ("True", "Succeeded")
        assert not await pods.is_held("p")

    play(test)
