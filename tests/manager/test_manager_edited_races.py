"""Statuses that other clients edit while writes of the manager are under way."""

from __future__ import annotations

from typing import Any

from edited_statuses import STOPPING, delay, forged, on_stored, replaced, running
from manager_stack import QUEUES, Stack, job, story

from pykueue.api.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS

Object = dict[str, Any]

LABELED = QUEUES.replace(
    "metadata: {name: default-flavor}", "metadata: {name: default-flavor}\nspec: {nodeLabels: {zone: a}}"
)
CHECKED = QUEUES.replace(
    "  resourceGroups:", "  admissionChecksStrategy: {admissionChecks: [{name: check}]}\n  resourceGroups:"
)


def _has_quota(workload: Object) -> bool:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    states = {c["type"]: c["status"] for c in conditions}
    return states.get("QuotaReserved") == "True" and states.get("Finished") != "True"


async def holders(s: Stack) -> list[set[str]]:
    """Which Workloads have quota, after each write of a Workload from now on."""
    found: list[set[str]] = []
    now = {w["metadata"]["name"] for w in await s.workloads() if _has_quota(w)}

    def see(workload: Object) -> None:
        (now.add if _has_quota(workload) else now.discard)(workload["metadata"]["name"])
        found.append(set(now))

    on_stored(s, "kueue.x-k8s.io/workloads", see)
    return found


async def forge(s: Stack, name: str, kind: str, status: str = "True", **others: Any) -> None:
    known = ((await s.get(WORKLOADS, name)).get("status") or {}).get("conditions") or ()
    conditions = replaced(known, forged(s, kind, status))
    await s.patch(WORKLOADS, name, {"status": {"conditions": conditions, **others}}, "status")


async def apply_check(s: Stack) -> None:
    """The active AdmissionCheck that the queue of `CHECKED` requires."""
    metadata = {"name": "check"}
    spec = {"controllerName": "example.com/check"}
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": metadata}
    await s.apply({**check, "spec": spec})
    await s.patch(ADMISSION_CHECKS, "check", {"status": {"conditions": [forged(s, "Active")]}}, "status")


def test_job_does_not_start_when_its_workload_claims_to_be_admitted_without_quota() -> None:
    async def life(s: Stack) -> None:
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await s.apply(job("a"))
        await s.settle()
        name = (await s.workload("a"))["metadata"]["name"]
        await s.stop_manager()
        s.server.admission.unregister("vworkload.kb.io")  # it cannot answer
        await forge(s, name, "Admitted")
        starts: list[bool] = []
        on_stored(s, "batch/jobs", lambda stored: starts.append(not stored["spec"].get("suspend")))
        await s.start_manager()
        delay(s, "PATCH", f"workloads/{name}/status", 5)
        await s.patch(JOBS, "a", {"metadata": {"annotations": {"x": "y"}}})
        await s.settle(30)
        assert starts
        assert not any(starts)
        assert (await s.conditions("a"))["Admitted"] == ("False", "NoReservation")

    story(life)


def test_quota_is_kept_while_a_status_is_written_back_and_its_job_stops_meanwhile() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.apply(job("b", 6))
        await s.settle()
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        seen = await holders(s)
        delay(s, "PATCH", f"workloads/{name}/status", 5)
        await s.patch(WORKLOADS, name, {"status": None}, "status")
        await s.settle(1)
        await s.stop_pods("a")
        await s.job_status("a", startTime=None)
        await s.patch(JOBS, "a", {"metadata": {"annotations": {STOPPING: None}}})
        await s.settle(60)
        assert seen
        assert all(len(names) <= 1 for names in seen)
        assert await s.suspended("a")
        assert not await s.suspended("b")

    story(life)


def test_admitted_job_marked_as_finished_before_it_starts_queues_again() -> None:
    async def life(s: Stack) -> None:
        delay(s, "PATCH", "jobs/a", 5)
        await s.apply(job("a", 6))
        await s.apply(job("b", 6))
        await s.settle()
        seen = await holders(s)
        name = (await s.workload("a"))["metadata"]["name"]
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")
        await s.patch(JOBS, "a", {"metadata": {"annotations": {"x": "y"}}})  # its start fails
        await forge(s, name, "Finished")
        await s.settle(60)
        assert seen
        assert all(len(names) <= 1 for names in seen)
        assert "Finished" not in await s.conditions("a")
        await s.finish_job("b" if await s.suspended("a") else "a")
        await s.settle(60)
        assert not await s.suspended("a")
        assert not await s.suspended("b")

    story(life)


def test_workload_whose_admission_was_cleared_after_a_check_asked_for_a_retry_is_admitted() -> None:
    async def life(s: Stack) -> None:
        await apply_check(s)
        await s.apply(job("a"))
        await s.settle()
        assert (await s.conditions("a"))["QuotaReserved"] == ("True", "QuotaReserved")
        name = (await s.workload("a"))["metadata"]["name"]
        await s.stop_manager()
        s.server.admission.unregister("vworkload.kb.io")  # it cannot answer
        answer = {"name": "check", "state": "Retry", "message": "", "lastTransitionTime": s.now()}
        await forge(s, name, "QuotaReserved", "False", admission=None, admissionChecks=[answer])
        await s.start_manager()
        await s.settle(60)
        assert (await s.workload("a"))["status"]["admissionChecks"][0]["state"] == "Pending"
        assert (await s.conditions("a"))["QuotaReserved"] == ("True", "QuotaReserved")

    story(life, queues=CHECKED)


def test_template_of_a_job_is_restored_when_its_workload_is_removed() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        assert (await s.job("a"))["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await s.patch(WORKLOADS, name, {"metadata": {"finalizers": None}})
        await s.delete(WORKLOADS, name)
        await s.settle()
        await s.stop_pods("a")
        await s.settle(30)
        assert "nodeSelector" not in (await s.job("a"))["spec"]["template"]["spec"]
        (pod_set,) = (await s.workload("a"))["spec"]["podSets"]
        assert "nodeSelector" not in pod_set["template"]["spec"]

    story(life, queues=LABELED)


def test_template_of_a_job_is_restored_when_its_workload_is_removed_while_the_start_is_written() -> None:
    async def life(s: Stack) -> None:
        delay(s, "PATCH", "jobs/a", 5)
        await s.apply(job("a"))
        await s.settle(1)
        name = (await s.workload("a"))["metadata"]["name"]
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await s.patch(WORKLOADS, name, {"metadata": {"finalizers": None}})
        await s.delete(WORKLOADS, name)
        await s.settle(30)
        assert await s.suspended("a")
        assert "nodeSelector" not in (await s.job("a"))["spec"]["template"]["spec"]
        (pod_set,) = (await s.workload("a"))["spec"]["podSets"]
        assert "nodeSelector" not in pod_set["template"]["spec"]

    story(life, queues=LABELED)


def test_quota_under_way_back_is_not_restored_when_the_stopped_job_is_annotated() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        delay(s, "PATCH", f"workloads/{name}/status", 5)
        await s.stop_pods("a")
        await s.settle(1)
        await s.patch(JOBS, "a", {"metadata": {"annotations": {STOPPING: "true"}}})
        await s.settle(60)
        assert "StatusRestored" not in await s.events(name)
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Deactivated")
        assert STOPPING not in (await s.job("a"))["metadata"].get("annotations", {})

    story(life)


def test_workload_moved_while_its_admission_is_written_counts_in_its_new_queue() -> None:
    async def life(s: Stack) -> None:
        metadata = {"name": "other", "namespace": "default"}
        queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata}
        await s.apply({**queue, "spec": {"clusterQueue": "missing"}})
        await s.settle()
        delay(s, "PATCH", "/status", 2)
        await s.apply(job("a"))
        await s.settle(1)
        labels = {"kueue.x-k8s.io/queue-name": "other"}
        await s.patch(JOBS, "a", {"metadata": {"labels": labels}})
        await s.settle(30)
        assert await s.suspended("a")
        assert (await s.local_queue())["status"]["pendingWorkloads"] == 0
        assert (await s.local_queue("other"))["status"]["pendingWorkloads"] == 1

    story(life)


def test_job_marked_as_finished_before_a_restart_keeps_its_quota() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.apply(job("b", 6))
        await s.settle()
        await s.stop_manager()
        s.server.admission.unregister("vworkload.kb.io")  # it cannot answer
        await forge(s, name, "Finished")
        seen = await holders(s)
        await s.start_manager()
        await s.settle(60)
        assert seen
        assert all(len(names) <= 1 for names in seen)
        assert "Finished" not in await s.conditions("a")
        assert not await s.suspended("a")
        assert await s.suspended("b")

    story(life)


def test_quota_returns_after_the_job_has_stopped_when_owner_references_vanish_during_an_eviction() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.apply(job("b", 6))
        await s.settle()
        seen = await holders(s)
        delay(s, "PATCH", f"workloads/{name}/status", 2)
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle(1)
        await s.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}})
        await s.settle(60)
        assert await s.suspended("a")
        assert all(name in names for names in seen)
        await s.stop_pods("a")
        await s.settle(60)
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Deactivated")
        assert not await s.suspended("b")

    story(life)


def test_job_suspended_by_its_user_starts_on_another_flavor_when_its_status_is_cleared() -> None:
    async def life(s: Stack) -> None:
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
        await s.apply({**flavor, "metadata": {"name": "b"}, "spec": {"nodeLabels": {"zone": "b"}}})
        name = await running(s)
        delay(s, "PATCH", "jobs/a", 5)
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        await s.patch(JOBS, "a", {"spec": {"suspend": True}})
        await s.settle(1)
        await s.stop_pods("a")  # so that its start, which is under way, fails
        await s.job_status("a", startTime=None)
        await s.patch(WORKLOADS, name, {"status": None}, "status")
        await s.settle(30)
        assert await s.suspended("a")
        assert (await s.job("a"))["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}
        flavors = [{"name": "b", "resources": [{"name": "cpu", "nominalQuota": 10}]}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "None", "resourceGroups": groups}})
        await s.settle(60)
        assert "Finished" not in await s.conditions("a")
        assert not await s.suspended("a")
        assert (await s.job("a"))["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "b"}

    story(life, queues=LABELED)


def test_edited_job_gets_a_workload_again_when_the_last_one_lost_its_owner_references() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        await s.patch(JOBS, "a", {"spec": {"parallelism": 3}})
        await s.settle(5)
        await s.patch(WORKLOADS, name, {"metadata": {"ownerReferences": None}})
        await s.stop_pods("a")
        await s.settle(60)
        (workload,) = await s.workloads()
        assert workload["metadata"]["ownerReferences"][0]["name"] == "a"
        assert workload["spec"]["podSets"][0]["count"] == 3
        assert not await s.suspended("a")

    story(life)


def test_quota_is_kept_when_the_admission_is_denied_while_the_drain_of_its_queue_is_written() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        seen = await holders(s)
        delay(s, "PATCH", f"workloads/{name}/status", 2)
        await s.patch(LOCAL_QUEUES, "lq", {"spec": {"stopPolicy": "HoldAndDrain"}})
        await s.settle(1)
        await forge(s, name, "Admitted", "False")
        await s.settle(60)
        assert seen
        assert all(name in names for names in seen)
        assert await s.suspended("a")
        await s.stop_pods("a")
        await s.settle(60)
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Suspended")

    story(life)


def test_quota_is_kept_until_the_job_stops_when_a_check_is_pending_again_and_the_queue_is_gone() -> None:
    async def life(s: Stack) -> None:
        await apply_check(s)
        await s.apply(job("a"))
        await s.settle()
        name = (await s.workload("a"))["metadata"]["name"]
        answer = {"name": "check", "state": "Ready", "message": "", "lastTransitionTime": s.now()}
        await s.patch(WORKLOADS, name, {"status": {"admissionChecks": [answer]}}, "status")
        await s.settle()
        await s.run_job("a")
        await s.delete(LOCAL_QUEUES, "lq")
        await s.settle()
        seen = await holders(s)
        await forge(s, name, "Admitted", "False", admissionChecks=[{**answer, "state": "Pending"}])
        await s.settle(30)
        assert seen
        assert all(name in names for names in seen)
        assert await s.suspended("a")
        await s.stop_pods("a")
        await s.settle(30)
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "Misconfigured")

    story(life, queues=CHECKED)


def test_manager_that_starts_restores_the_template_of_a_job_that_its_user_suspended_before() -> None:
    async def life(s: Stack) -> None:
        flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor"}
        await s.apply({**flavor, "metadata": {"name": "b"}, "spec": {"nodeLabels": {"zone": "b"}}})
        name = await running(s)
        await s.stop_manager()
        s.unregister_webhooks()
        await s.patch(JOBS, "a", {"spec": {"suspend": True}})
        await s.stop_pods("a")
        await s.job_status("a", startTime=None)
        await s.patch(WORKLOADS, name, {"status": None}, "status")
        flavors = [{"name": "b", "resources": [{"name": "cpu", "nominalQuota": 10}]}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        await s.patch(CLUSTER_QUEUES, "cq", {"spec": {"resourceGroups": groups}})
        await s.start_manager()
        await s.settle(60)
        assert "Finished" not in await s.conditions("a")
        assert not await s.suspended("a")
        assert (await s.job("a"))["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "b"}

    story(life, queues=LABELED)
