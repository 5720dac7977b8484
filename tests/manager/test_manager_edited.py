"""Statuses, annotations and finalizers that other clients edit, clear or forge while jobs run."""

from __future__ import annotations

from typing import Any

import pytest
from edited_statuses import STOPPING, forged, replaced, running
from manager_stack import Stack, job, story

from pykueue.api.resources import CLUSTER_QUEUES, JOBS, PODS, WORKLOADS

Object = dict[str, Any]


async def edit_status(s: Stack, name: str, edit: str) -> None:
    """One of the edits of a Workload's status that take its quota."""
    known = (await s.get(WORKLOADS, name))["status"]["conditions"]

    def conditions(kind: str, status: str) -> list[Object]:
        return replaced(known, forged(s, kind, status))

    patch: dict[str, Any] = {
        "status cleared": None,
        "admission cleared": {"admission": None},
        "conditions cleared": {"conditions": None},
        "reservation denied": {"conditions": conditions("QuotaReserved", "False")},
        "admission denied": {"conditions": conditions("Admitted", "False")},
        "marked finished": {"conditions": conditions("Finished", "True")},
    }
    if edit == "admission cleared":
        s.server.admission.unregister("vworkload.kb.io")  # it refuses this one
    await s.patch(WORKLOADS, name, {"status": patch[edit]}, "status")


EDITS = (
    "status cleared",
    "admission cleared",
    "conditions cleared",
    "reservation denied",
    "admission denied",
    "marked finished",
)


@pytest.mark.parametrize("edit", EDITS)
def test_running_job_keeps_its_quota_when_its_workload_status_is_edited(edit: str) -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        before = (await s.workload("a"))["status"]
        await s.apply(job("b", 6))
        await s.settle()
        for _ in range(3):
            await edit_status(s, name, edit)
            await s.settle()
            assert (await s.workload("a"))["status"] == before
            assert not await s.suspended("a")
            assert await s.suspended("b")
        assert STOPPING not in (await s.job("a"))["metadata"].get("annotations", {})
        await s.finish_job("a")
        await s.settle()
        assert (await s.conditions("a"))["Finished"] == ("True", "Succeeded")
        assert not await s.suspended("b")

    story(life)


@pytest.mark.parametrize("edit", EDITS)
def test_quota_returns_after_the_pods_of_an_evicted_job_when_its_status_is_edited(edit: str) -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.apply(job("b", 6))
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        assert await s.suspended("a")
        await edit_status(s, name, edit)
        await s.settle(30)
        assert await s.suspended("b")
        await s.stop_pods("a")
        await s.settle(30)
        assert not await s.suspended("b")
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Deactivated")
        assert STOPPING not in (await s.job("a"))["metadata"].get("annotations", {})

    story(life)


@pytest.mark.parametrize("edit", EDITS)
def test_job_whose_workload_status_was_edited_before_a_restart_runs_again(edit: str) -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.stop_manager()
        s.server.admission.unregister("vworkload.kb.io")  # it cannot answer
        await edit_status(s, name, edit)
        await s.start_manager()
        await s.settle()
        if await s.suspended("a"):
            assert not (await s.workload("a")).get("status", {}).get("admission")
            await s.stop_pods("a")
            await s.settle(30)
        assert not await s.suspended("a")
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")
        assert "Finished" not in await s.conditions("a")
        assert STOPPING not in (await s.job("a"))["metadata"].get("annotations", {})

    story(life)


def test_running_job_keeps_its_quota_until_it_has_stopped_when_its_workload_is_removed() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.apply(job("b", 6))
        await s.patch(WORKLOADS, name, {"metadata": {"finalizers": None}})
        await s.delete(WORKLOADS, name)
        await s.settle()
        assert await s.suspended("a")
        assert await s.suspended("b")
        await s.stop_pods("a")
        await s.settle(30)
        assert not await s.suspended("b")
        assert (await s.workload("a"))["metadata"]["name"] == name

    story(life)


@pytest.mark.parametrize("active", [True, False])
def test_stopping_annotation_that_a_user_sets_is_removed(active: bool) -> None:
    async def life(s: Stack) -> None:
        if active:
            await running(s)
        else:
            await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
            await s.apply(job("a"))
            await s.settle()
        await s.patch(JOBS, "a", {"metadata": {"annotations": {STOPPING: "true"}}})
        await s.settle(30)
        assert STOPPING not in (await s.job("a"))["metadata"].get("annotations", {})
        assert await s.suspended("a") is not active

    story(life)


def test_job_that_its_user_starts_is_stopped_before_it_gets_quota() -> None:
    async def life(s: Stack) -> None:
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await s.apply(job("a"))
        await s.settle()
        await s.patch(JOBS, "a", {"spec": {"suspend": False}})
        await s.job_status("a", active=1, ready=1, startTime=s.now())
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None"}})
        await s.settle(30)
        assert await s.suspended("a")
        assert not (await s.workload("a"))["status"].get("admission")
        await s.stop_pods("a")
        await s.settle(30)
        assert not await s.suspended("a")
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")

    story(life)


async def start_pod(s: Stack, name: str) -> str:
    """A pod of the Job runs; returns its name."""
    owner = await s.job(name)
    uid = owner["metadata"]["uid"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    metadata = {
        "name": f"{name}-0",
        "namespace": "default",
        "labels": {"batch.kubernetes.io/controller-uid": uid},
        "ownerReferences": [reference],
    }
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}
    await s.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    await s.patch(PODS, f"{name}-0", {"status": {"phase": "Running"}}, "status")
    return f"{name}-0"


@pytest.mark.parametrize("failed", [False, True])
def test_quota_of_a_job_marked_as_ended_returns_after_its_last_pod(failed: bool) -> None:
    async def life(s: Stack) -> None:
        await running(s)
        pod = await start_pod(s, "a")
        await s.apply(job("b", 6))
        await s.finish_job("a", failed=failed)
        await s.settle(600)
        assert "Finished" not in await s.conditions("a")
        assert await s.suspended("b")
        await s.patch(PODS, pod, {"status": {"phase": "Succeeded"}}, "status")
        await s.settle()
        assert (await s.conditions("a"))["Finished"] == ("True", "Failed" if failed else "Succeeded")
        assert not await s.suspended("b")

    story(life)


def test_quota_of_an_evicted_job_that_says_it_has_no_pods_returns_after_its_last_pod() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        pod = await start_pod(s, "a")
        await s.apply(job("b", 6))
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        await s.stop_pods("a")
        await s.settle(600)
        assert await s.suspended("b")
        await s.delete(PODS, pod)
        await s.settle(60)
        assert not await s.suspended("b")

    story(life)


def test_workload_of_a_job_marked_as_ended_keeps_its_quota_when_it_is_marked_as_finished() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await start_pod(s, "a")
        await s.apply(job("b", 6))
        await s.finish_job("a")
        await edit_status(s, name, "marked finished")
        await s.settle(60)
        assert "Finished" not in await s.conditions("a")
        assert await s.suspended("b")

    story(life)


async def forge_reclaimable(s: Stack, name: str, count: int) -> None:
    entries = [{"name": "main", "count": count}]
    await s.patch(WORKLOADS, name, {"status": {"reclaimablePods": entries}}, "status")


def test_pods_that_a_status_claims_as_reclaimable_keep_their_quota_while_they_run() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.apply(job("b", 6))
        await s.settle()
        await forge_reclaimable(s, name, 5)
        await s.settle()
        assert await s.suspended("b")
        assert "reclaimablePods" not in (await s.workload("a"))["status"]
        await s.job_status("a", active=2, ready=2, succeeded=4)
        await s.settle()
        assert (await s.workload("a"))["status"]["reclaimablePods"] == [{"name": "main", "count": 4}]
        assert not await s.suspended("b")

    story(life)


def test_pods_claimed_as_reclaimable_before_a_restart_keep_their_quota() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.apply(job("b", 6))
        await s.settle()
        await s.stop_manager()
        s.server.admission.unregister("vworkload.kb.io")  # it cannot answer
        await forge_reclaimable(s, name, 5)
        await s.start_manager()
        await s.settle()
        assert await s.suspended("b")
        assert "reclaimablePods" not in (await s.workload("a"))["status"]

    story(life)


def test_pending_workload_that_claims_reclaimable_pods_is_admitted_for_all_its_pods() -> None:
    async def life(s: Stack) -> None:
        await running(s)
        await s.apply(job("b", 6))
        await s.settle()
        await forge_reclaimable(s, (await s.workload("b"))["metadata"]["name"], 5)
        await s.settle()
        assert await s.suspended("b")
        await s.finish_job("a")
        await s.settle()
        assert not await s.suspended("b")
        assignment = (await s.workload("b"))["status"]["admission"]["podSetAssignments"][0]
        assert assignment["count"] == 6

    story(life)


def test_workload_without_owner_references_gets_its_job_back() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        before = await s.workload("a")
        await s.apply(job("b", 6))
        await s.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}})
        await s.settle()
        after = await s.get(WORKLOADS, name)
        assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
        assert after["status"] == before["status"]
        assert not await s.suspended("a")
        assert await s.suspended("b")
        await s.finish_job("a")
        await s.settle()
        assert (await s.conditions("a"))["Finished"] == ("True", "Succeeded")
        assert not await s.suspended("b")

    story(life)


@pytest.mark.parametrize("edit", EDITS)
def test_workload_whose_owner_references_and_status_are_edited_keeps_its_quota(edit: str) -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        before = (await s.workload("a"))["status"]
        await s.apply(job("b", 6))
        await s.settle()
        await s.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}})
        await edit_status(s, name, edit)
        await s.settle()
        assert (await s.workload("a"))["status"] == before
        assert not await s.suspended("a")
        assert await s.suspended("b")

    story(life)


@pytest.mark.parametrize("edit", [None, *EDITS])
def test_quota_of_a_job_deleted_without_its_pods_returns_after_the_last_of_them(edit: str | None) -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        pod = await start_pod(s, "a")
        await s.apply(job("b", 6))
        # What the garbage collector does for --cascade=orphan.
        await s.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}})
        await s.patch(PODS, pod, {"metadata": {"ownerReferences": None}})
        await s.delete(JOBS, "a")
        await s.settle(60)
        if edit is not None:
            await edit_status(s, name, edit)
            await s.settle(60)
        assert await s.suspended("b")
        assert "Finished" not in await s.conditions(name)
        await s.patch(PODS, pod, {"status": {"phase": "Succeeded"}}, "status")
        await s.settle(60)
        assert not await s.suspended("b")
        finished = await s.get(WORKLOADS, name)
        assert (await s.conditions(name))["Finished"] == ("True", "OwnerNotFound")
        assert "finalizers" not in finished["metadata"]

    story(life)


def test_pods_of_another_namespace_that_name_a_job_keep_no_quota_for_it() -> None:
    async def life(s: Stack) -> None:
        await running(s)
        pod = await start_pod(s, "a")
        found = await s.get(PODS, pod)
        await s.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        metadata = {"name": "p", "namespace": "other", "labels": found["metadata"]["labels"]}
        spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}
        await s.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        await s.patch(PODS, pod, {"status": {"phase": "Succeeded"}}, "status")
        await s.apply(job("b", 6))
        await s.finish_job("a")
        await s.settle()
        assert (await s.conditions("a"))["Finished"] == ("True", "Succeeded")
        assert not await s.suspended("b")

    story(life)
