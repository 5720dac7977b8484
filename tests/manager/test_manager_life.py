"""The life of a job in a queue, from creation to its end, with the Job controller played by the test."""

from __future__ import annotations

import pytest
from manager_stack import Stack, job, story

from pykueue.api.meta import parse_time
from pykueue.api.resources import JOBS, WORKLOADS


def test_a_job_is_suspended_admitted_started_and_finished() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 3))
        assert await s.suspended("a")
        await s.settle()
        assert not await s.suspended("a")
        assert await s.conditions("a") == {
            "QuotaReserved": ("True", "QuotaReserved"),
            "Admitted": ("True", "Admitted"),
            "PodsReady": ("False", "WaitForStart"),
        }
        workload = await s.workload("a")
        assert workload["metadata"]["name"].startswith("job-a-")
        (assignment,) = workload["status"]["admission"]["podSetAssignments"]
        assert assignment["flavors"] == {"cpu": "default-flavor"}
        assert assignment["resourceUsage"] == {"cpu": "3"}
        await s.run_job("a")
        await s.settle()
        assert (await s.conditions("a"))["PodsReady"] == ("True", "Started")
        queue = await s.cluster_queue()
        (flavor,) = queue["status"]["flavorsReservation"]
        assert flavor["resources"] == [{"name": "cpu", "total": "3", "borrowed": "0"}]
        assert (queue["status"]["admittedWorkloads"], queue["status"]["pendingWorkloads"]) == (1, 0)
        await s.finish_job("a")
        await s.settle()
        assert (await s.conditions("a"))["Finished"] == ("True", "Succeeded")
        assert (await s.cluster_queue())["status"]["admittedWorkloads"] == 0
        assert await s.events("a") == ["CreatedWorkload", "Started", "FinishedWorkload"]

    story(life)


def test_the_writes_per_job_are_counted() -> None:
    async def life(s: Stack) -> None:
        s.transport.writes.clear()
        for number in range(5):
            await s.apply(job(f"j{number}"))
            await s.settle()
            await s.run_job(f"j{number}")
            await s.settle()
            await s.finish_job(f"j{number}")
            await s.settle()
        per_job = {name: count / 5 for name, count in s.transport.writes.items() if "queues" not in name}
        events = per_job.pop("POST events", 0) + per_job.pop("PATCH events", 0)
        assert per_job == {
            "POST workloads": 1,
            "PATCH workloads/status": 3,
            "PATCH jobs": 1,
            "PATCH workloads": 1,  # its finalizer, when it is finished
        }
        assert events <= 5

    story(life)


def test_the_writes_per_change_of_an_elastic_job_are_counted() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("e", 2, annotations={"kueue.x-k8s.io/elastic-job": "true"}))
        await s.settle()
        for size, expected in (
            (1, {"PATCH workloads": 1}),  # the size of its slice alone
            (
                3,
                {
                    "POST workloads": 1,
                    "PATCH workloads/status": 2,  # the admission, and the end of the former slice
                    "PATCH workloads": 1,  # its finalizer
                },
            ),
        ):
            s.transport.writes.clear()
            await s.patch(JOBS, "e", {"spec": {"parallelism": size}})
            await s.settle()
            writes = s.transport.writes.items()
            assert {k: n for k, n in writes if "queues" not in k and "events" not in k} == expected, size

    story(life)


@pytest.mark.parametrize("disabled", [True, False])
def test_gate_decides_whether_the_condition_pods_ready_costs_a_write(disabled: bool) -> None:
    async def life(s: Stack) -> None:
        s.transport.writes.clear()
        await s.apply(job("a"))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        await s.finish_job("a")
        await s.settle()
        writes = {
            name: n for name, n in s.transport.writes.items() if "queues" not in name and "events" not in name
        }
        assert writes == {
            "POST workloads": 1,
            "PATCH workloads/status": 2 if disabled else 3,
            "PATCH jobs": 1,
            "PATCH workloads": 1,
        }

    story(life, f"featureGates: {{DisableWaitForPodsReady: {str(disabled).lower()}}}")


def test_job_that_does_not_fit_is_pending_with_a_reason_and_starts_when_quota_is_released() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        await s.apply(job("b", 5))
        await s.settle()
        assert await s.suspended("b")
        assert (await s.conditions("b"))["QuotaReserved"] == ("False", "WaitingForQuota")
        assert "cpu" in await s.message("b")
        requests = (await s.workload("b"))["status"]["resourceRequests"]
        assert requests == [{"name": "main", "resources": {"cpu": "5"}}]
        assert (await s.cluster_queue())["status"]["pendingWorkloads"] == 1
        await s.finish_job("a")
        await s.settle()
        assert not await s.suspended("b")

    story(life)


def test_a_job_larger_than_the_quota_says_that_it_never_fits() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 11))
        await s.settle()
        assert (await s.conditions("a"))["QuotaReserved"] == ("False", "ExceedsMaxQuota")

    story(life)


def test_deleted_job_releases_its_quota_and_leaves_nothing() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 6))
        await s.settle()
        await s.delete(JOBS, "a")
        await s.settle()
        (left,) = await s.workloads()
        assert not left["metadata"].get("finalizers")
        await s.client.delete(WORKLOADS, left["metadata"]["name"], "default")
        await s.settle()
        assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 0

    story(life)


def test_a_job_edited_while_it_waits_is_queued_as_edited() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 20, completionMode="NonIndexed"))
        await s.settle()
        before = await s.workload("a")
        await s.patch(JOBS, "a", {"spec": {"parallelism": 5}})
        await s.settle()
        after = await s.workload("a")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"]["podSets"][0]["count"] == 5
        assert not await s.suspended("a")
        assert "UpdatedWorkload" in await s.events("a")

    story(life)


def test_deactivation_evicts_and_activation_lets_it_compete_again() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 3))
        await s.settle()
        await s.run_job("a")
        name = (await s.workload("a"))["metadata"]["name"]
        await s.patch(WORKLOADS, name, {"spec": {"active": False}})
        await s.settle()
        assert await s.suspended("a")
        assert (await s.conditions("a"))["QuotaReserved"][0] == "True"
        await s.stop_pods("a")
        await s.settle()
        found = await s.conditions("a")
        assert found["Evicted"] == ("True", "Deactivated")
        assert found["QuotaReserved"] == ("False", "Deactivated")
        assert found["Requeued"] == ("False", "Deactivated")
        assert (await s.cluster_queue())["status"]["reservingWorkloads"] == 0
        template = (await s.job("a"))["spec"]["template"]
        assert "kueue.x-k8s.io/podset" not in (template["metadata"].get("labels") or {})
        await s.patch(WORKLOADS, name, {"spec": {"active": True}})
        await s.settle()
        assert not await s.suspended("a")
        assert (await s.conditions("a"))["Requeued"] == ("True", "Reactivated")

    story(life)


def test_job_whose_pods_are_not_ready_in_time_is_evicted_and_backs_off() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 3))
        await s.settle()
        for count, wait in ((1, 60), (2, 120), (3, 240)):
            await s.run_job("a", ready=1)
            await s.settle(601)
            await s.stop_pods("a")
            await s.settle()
            status = (await s.workload("a"))["status"]
            evicted = next(c for c in status["conditions"] if c["type"] == "Evicted")
            assert (evicted["status"], evicted["reason"]) == ("True", "PodsReadyTimeout")
            assert status["requeueState"]["count"] == count
            ends = parse_time(status["requeueState"]["requeueAt"])
            assert ends - parse_time(evicted["lastTransitionTime"]) == wait
            await s.settle(ends - s.clock.time() - 1)
            assert await s.suspended("a")
            await s.settle(2)
            assert not await s.suspended("a")
        await s.settle(601)
        await s.stop_pods("a")
        await s.settle()
        found = await s.conditions("a")
        assert found["Evicted"] == ("True", "DeactivatedDueToRequeuingLimitExceeded")
        assert (await s.workload("a"))["spec"]["active"] is False
        assert "requeueState" not in (await s.workload("a"))["status"]

    story(life, "waitForPodsReady: {timeout: 10m, requeuingStrategy: {backoffLimitCount: 3}}")


def test_a_restart_changes_nothing() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("running", 6))
        await s.settle()
        await s.run_job("running")
        await s.apply(job("waiting", 6))
        await s.apply(job("done", 1))
        await s.settle()
        await s.finish_job("done")
        await s.settle()
        before = {w["metadata"]["name"]: w for w in await s.workloads()}
        await s.stop_manager()
        await s.start_manager()
        await s.settle(5)
        assert {w["metadata"]["name"]: w for w in await s.workloads()} == before
        assert sum(s.transport.writes.values()) == 0
        await s.finish_job("running")
        await s.settle()
        assert not await s.suspended("waiting")

    story(life)
