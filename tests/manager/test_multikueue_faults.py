"""MultiKueue through restarts, races and rotated credentials."""

from __future__ import annotations

import pytest
from manager_stack import job
from multikueue_world import NAMESPACE, Clusters, dispatched, kubeconfig, secret

from pykueue.api.resources import JOBS, SECRETS, WORKLOADS


def test_of_workers_that_admit_at_the_same_time_one_runs_the_job() -> None:
    async def test(c: Clusters) -> None:
        for number in range(5):
            await c.manager.apply(job(f"j{number}"))
        await c.wait()
        owners = {name: await c.workers[name].client.list(JOBS) for name in c.workers}
        found = [one["metadata"]["name"] for jobs in owners.values() for one in jobs.items]
        assert sorted(found) == [f"j{number}" for number in range(5)]

    dispatched(test, "w1", "w2", "w3")


def test_restarted_manager_goes_on_with_the_job_and_removes_what_was_deleted_meanwhile() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.apply([job("a"), job("b")])
        await c.wait()
        await c.manager.stop_manager()
        await c.workers["w1"].finish_job("a")
        await c.manager.delete(JOBS, "b")
        await c.wait()
        await c.manager.start_manager()
        await c.wait(90)
        assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")
        assert (await c.copies(), await c.jobs()) == ([], [])

    dispatched(test, "w1")


def test_rotated_secret_is_used_and_running_jobs_stay() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.apply(job("a"))
        await c.wait()
        rotated = secret("w1", kubeconfig("w1", user={"token": "other"}))
        await c.manager.client.patch(SECRETS, "w1-kubeconfig", NAMESPACE, {"data": rotated["data"]})
        await c.wait()
        assert (await c.active("w1"))[:2] == ("True", "Active")
        assert (await c.status())["clusterName"] == "w1"
        await c.workers["w1"].finish_job("a")
        await c.wait()
        assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")

    dispatched(test, "w1")


@pytest.mark.parametrize("hung", [[], ["w1"]], ids=["none", "one of three"])
def test_worker_that_does_not_answer_delays_no_job_of_others(hung: list[str]) -> None:
    async def test(c: Clusters) -> None:
        for name in hung:
            c.lines[name].hang()
        await c.manager.apply([job(f"j{number}") for number in range(30)])
        await c.wait(20)
        placed = [(await c.status(f"j{number}")).get("clusterName") for number in range(30)]
        assert None not in placed
        assert not set(hung) & set(placed)
        durations = [await c.dispatched_after(f"j{number}") for number in range(30)]
        # One second is how long the first reconciliations wait for an answer.
        assert sorted(durations)[15] <= 1
        assert max(durations) <= 3

    dispatched(test, "w1", "w2", "w3", quota=40)


def test_status_that_is_written_after_the_quota_was_released_does_not_hold_the_job_back() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.apply(job("a"))
        await c.wait()
        name = (await c.manager.workload("a"))["metadata"]["name"]
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": False}})
        await c.wait()
        assert await c.copies() == []
        # The last status of the worker, delayed.
        await c.manager.job_status("a", active=1, ready=1)
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": True}})
        await c.wait()
        assert (await c.status())["clusterName"] == "w1"

    dispatched(test, "w1")


def test_job_that_a_worker_got_before_its_connection_broke_is_given_to_no_other() -> None:
    async def test(c: Clusters) -> None:
        await c.make_busy("w2")
        c.lines["w1"].cut_after = ("POST", "/jobs")
        await c.manager.apply(job("a"))
        await c.wait()
        assert c.lines["w1"].is_cut
        await c.workers["w2"].finish_job("busy")
        await c.wait(600)
        assert await c.workers_of("a") == ["w1"]
        assert ((await c.status())["clusterName"], await c.state()) == ("w1", "Pending")
        # Lost for good, it is given to another one after the timeout.
        await c.wait(330)
        assert (await c.status())["clusterName"] == "w2"
        c.lines["w1"].cut_after = ("", "")
        c.lines["w1"].restore()
        await c.wait(330)
        assert await c.workers_of("a") == ["w2"]

    dispatched(test, "w1", "w2")
