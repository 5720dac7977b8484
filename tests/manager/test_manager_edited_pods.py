"""Workloads of pods and pod groups whose status or owners another client edits."""

from __future__ import annotations

from typing import Any

import pytest
from edited_statuses import forged
from manager_stack import Stack, story
from pods_world import FLAVORED, PODS_ON, Pods, member

from pykueue.api.resources import CLUSTER_QUEUES, PODS, WORKLOADS

Object = dict[str, Any]


async def mark_finished(pods: Pods, reason: str = "ByHand") -> None:
    known = (await pods.workload())["status"]["conditions"]
    finished = {**forged(pods.stack, "Finished"), "reason": reason}
    await pods.stack.patch(WORKLOADS, "g", {"status": {"conditions": [*known, finished]}}, "status")
    await pods.stack.settle()


@pytest.mark.parametrize("reason", ["ByHand", "Succeeded"])
def test_pods_of_a_pending_group_marked_as_finished_still_run(reason: str) -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await pods.create(*(member(name, 2) for name in ("p0", "p1")))
        await mark_finished(pods, reason)
        assert await pods.gated() == ["p0", "p1"]
        assert "Finished" not in await pods.conditions()
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
        await s.settle()
        assert await pods.gated() == []
        assert (await pods.conditions())["Admitted"] == ("True", "Admitted")

    story(life, PODS_ON, FLAVORED)


def test_running_group_marked_as_finished_before_a_restart_keeps_its_quota() -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await pods.create(*(member(name, 2) for name in ("p0", "p1")))
        await pods.run("p0", "p1")
        await s.stop_manager()
        s.server.admission.unregister("vworkload.kb.io")  # it cannot answer
        await mark_finished(pods)
        await s.start_manager()
        await s.settle()
        assert "Finished" not in await pods.conditions()
        assert await pods.is_held("p0")
        await pods.end("p0", "p1")
        assert (await pods.conditions())["Finished"] == ("True", "Succeeded")

    story(life, PODS_ON, FLAVORED)


@pytest.mark.parametrize("restarts", [False, True])
def test_group_whose_workload_was_removed_goes_on_with_replacement_pods(restarts: bool) -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await pods.create(*(member(name, 3) for name in ("p0", "p1", "p2")))
        await pods.run("p0", "p1", "p2")
        await pods.end("p0")
        await s.patch(WORKLOADS, "g", {"metadata": {"finalizers": None}})
        await s.delete(WORKLOADS, "g")
        await s.settle()
        await pods.end("p1", "p2", phase="Failed")
        assert await pods.names() == ["p0"]
        assert await pods.is_held("p0")
        if restarts:
            await s.stop_manager()
            await s.start_manager()
        await pods.create(*(member(name, 3) for name in ("q1", "q2")))
        assert await pods.gated() == []
        (pod_set,) = (await pods.workload())["spec"]["podSets"]
        assert pod_set["count"] == 3
        assert "nodeSelector" not in pod_set["template"]["spec"]
        assert (await pods.workload())["status"]["reclaimablePods"][0]["count"] == 1
        await pods.run("q1", "q2")
        await pods.end("q1", "q2")
        assert (await pods.conditions())["Finished"] == ("True", "Succeeded")
        assert not await pods.is_held("p0")

    story(life, PODS_ON, FLAVORED)


def test_group_keeps_its_quota_when_the_owners_of_its_workload_are_removed_and_it_is_deleted() -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await pods.create(*(member(name, 4) for name in ("p0", "p1", "p2", "p3")))
        await pods.run("p0", "p1", "p2", "p3")
        await pods.create(member("q0", 1, group="h"))
        await s.patch(WORKLOADS, "g", {"metadata": {"ownerReferences": None}})
        await s.delete(WORKLOADS, "g")
        await s.settle(10)
        assert await pods.gated() == ["q0"]
        await pods.end("p0", "p1", "p2", "p3")
        await s.settle(60)
        assert await pods.gated() == []

    story(life, PODS_ON, FLAVORED)


def test_owners_of_the_workload_of_a_finished_group_are_written_back() -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await pods.create(*(member(name, 2) for name in ("p0", "p1")))
        await pods.run("p0", "p1")
        await pods.end("p0", "p1")
        await s.patch(WORKLOADS, "g", {"metadata": {"ownerReferences": None}})
        await s.settle()
        owners = (await pods.workload())["metadata"]["ownerReferences"]
        assert sorted(one["name"] for one in owners) == ["p0", "p1"]
        assert (await pods.conditions())["Finished"] == ("True", "Succeeded")

    story(life, PODS_ON, FLAVORED)


def test_owners_of_the_workload_of_a_group_whose_pods_are_deleted_are_written_back() -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await pods.create(*(member(name, 2) for name in ("p0", "p1")))
        await s.stop_manager()
        await s.patch(WORKLOADS, "g", {"metadata": {"ownerReferences": None}})
        await pods.delete("p0", "p1")
        await s.start_manager()
        await s.settle()
        owners = (await pods.workload())["metadata"]["ownerReferences"]
        assert sorted(one["name"] for one in owners) == ["p0", "p1"]

    story(life, PODS_ON, FLAVORED)


def test_pods_of_a_group_claimed_as_reclaimable_keep_their_quota_while_they_run() -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await pods.create(*(member(name, 2, cpu="2") for name in ("p0", "p1")))
        await pods.run("p0", "p1")
        await pods.create(member("q0", 1, group="h", cpu="2"))
        name = (await pods.workload())["spec"]["podSets"][0]["name"]
        claims = [{"name": name, "count": 1}]
        await s.patch(WORKLOADS, "g", {"status": {"reclaimablePods": claims}}, "status")
        await s.settle()
        assert await pods.gated() == ["q0"]
        assert "reclaimablePods" not in (await pods.workload())["status"]
        await pods.end("p0")
        assert await pods.gated() == []

    story(life, PODS_ON, FLAVORED)


@pytest.mark.parametrize("admitted", [False, True])
def test_workload_of_a_group_finishes_when_it_loses_its_owners_after_its_pods_are_gone(
    admitted: bool,
) -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        if not admitted:
            await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await pods.create(*(member(name, 2) for name in ("p0", "p1")))
        await s.stop_manager()
        await s.patch(WORKLOADS, "g", {"metadata": {"ownerReferences": None}})
        for name in ("p0", "p1"):
            await s.patch(PODS, name, {"metadata": {"finalizers": None}})
            await s.client.delete(PODS, name, "default", grace_period=0)
        await s.start_manager()
        await s.settle()
        assert (await pods.conditions())["Finished"] == ("True", "OwnerNotFound")
        assert not (await pods.workload())["metadata"].get("finalizers")
        assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 0
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
        await pods.create(*(member(name, 4, group="h") for name in ("q0", "q1", "q2", "q3")))
        assert await pods.gated() == []

    story(life, PODS_ON, FLAVORED)


def test_workload_that_was_made_ahead_of_its_pods_is_kept() -> None:
    async def life(s: Stack) -> None:
        pods = Pods(s)
        await pods.create(*(member(name, 2) for name in ("p0", "p1")))
        made = await pods.workload()
        metadata = {"name": "h", "namespace": "default", "annotations": made["metadata"]["annotations"]}
        await s.apply({**made, "metadata": metadata, "status": {}})
        await s.settle()
        assert "Finished" not in await pods.conditions("h")

    story(life, PODS_ON, FLAVORED)
