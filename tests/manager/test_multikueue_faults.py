"""MultiKueue through restarts, races and rotated credentials."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from manager_stack import Stack, job
from multikueue_world import NAMESPACE, Clusters, cluster, dispatched, kubeconfig, secret

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import condition_of, key_of
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    SECRETS,
    WORKLOADS,
)
from pykueue.jobs.remote import remote_workload
from pykueue.jobs.slices import REPLACED, replaced_key
from pykueue.manager.multikueue.remote import PATIENCE


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


def test_restart_and_rotation_leave_conditions_as_they_are_until_the_outcome_is_known() -> None:
    """Otherwise each restart would make the check, and with it the ClusterQueue, inactive for a moment."""

    async def test(c: Clusters) -> None:
        seen: list[str] = []

        def stored(new: Any, old: Any) -> None:
            seen.extend(one["status"] for one in new.object["status"]["conditions"])

        c.lines["w1"].latency = 0.5
        for resource in (MULTIKUEUE_CLUSTERS, ADMISSION_CHECKS, CLUSTER_QUEUES):
            c.manager.server.core.on_stored(f"{resource.group}/{resource.plural}", stored)
        await c.manager.stop_manager()
        await c.manager.start_manager()
        await c.wait(20)
        rotated = secret("w1", kubeconfig("w1", user={"token": "other"}))
        await c.manager.client.patch(SECRETS, "w1-kubeconfig", NAMESPACE, {"data": rotated["data"]})
        await c.wait(20)
        assert "False" not in seen
        c.lines["w1"].cut()
        await c.manager.stop_manager()
        await c.manager.start_manager()
        await c.wait(20)
        assert (await c.active("w1"))[:2] == ("False", "ClientConnectionFailed")
        assert (await c.check_active())[:2] == ("False", "NoUsableClusters")

    dispatched(test, "w1")


def test_check_is_inactive_once_the_only_kubeconfig_cannot_be_used() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.client.delete(SECRETS, "w1-kubeconfig", NAMESPACE)
        await c.manager.stop_manager()
        await c.manager.start_manager()
        await c.wait(20)
        assert (await c.active("w1"))[0] == "False"
        assert (await c.check_active())[:2] == ("False", "NoUsableClusters")

    dispatched(test, "w1")


def dispatch_times(pace: float, hung: Sequence[str] = ()) -> list[float]:
    """Seconds of dispatch of 12 jobs to three workers; a request to a worker takes 50 ms."""
    times: list[float] = []

    async def test(c: Clusters) -> None:
        for name, line in c.lines.items():
            line.latency = 0.05
            if name in hung:
                line.hang()
        for number in range(12):
            await c.manager.apply(job(f"j{number}"))
            await c.wait(pace)
        await c.wait(20)
        placed = [(await c.status(f"j{number}")).get("clusterName") for number in range(12)]
        assert None not in placed
        assert not set(hung) & set(placed)
        times.extend(c.dispatch_times())

    dispatched(test, "w1", "w2", "w3", quota=40)
    assert len(times) == 12
    return times


def test_worker_that_does_not_answer_delays_no_job_of_others() -> None:
    usual = dispatch_times(pace=0.5)
    with_one = dispatch_times(pace=0.5, hung=["w1"])
    assert median(with_one) <= 1.1 * median(usual)
    # The first reconciliation waits for an answer; those of jobs that come at the same time wait with it.
    assert max(with_one) <= max(usual) + PATIENCE + 0.01
    at_once = dispatch_times(pace=0.0, hung=["w1"])
    assert max(at_once) <= max(dispatch_times(pace=0.0)) + PATIENCE + 0.01


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


def test_end_of_a_job_comes_back_that_was_started_again_while_its_worker_could_not_be_reached() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.apply(job("a"))
        await c.wait()
        worker = c.workers["w1"]
        await worker.run_job("a")
        await c.wait()
        started = (await c.manager.job("a"))["status"]["startTime"]
        c.lines["w1"].cut()
        name = (await c.manager.workload("a"))["metadata"]["name"]
        await worker.patch(WORKLOADS, name, {"spec": {"active": False}})
        await c.wait()
        suspended = {"type": "Suspended", "status": "True", "lastTransitionTime": worker.now()}
        await worker.job_status("a", active=0, ready=0, startTime=None, conditions=[suspended])
        await worker.patch(WORKLOADS, name, {"spec": {"active": True}})
        await c.wait()
        await worker.job_status("a", conditions=[{**suspended, "status": "False"}])
        await worker.finish_job("a")
        c.lines["w1"].restore()
        await c.wait(60)
        assert (await c.manager.conditions("a"))["Finished"] == ("True", "Succeeded")
        # The API server lets the start time of a Job that is not suspended stay as it is only.
        assert (await c.manager.job("a"))["status"]["startTime"] == started

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


async def run_on_w1(c: Clusters) -> None:
    """A job that runs on w1, beside w2 with all its quota free."""
    await c.make_busy("w2")
    await c.manager.apply(job("a"))
    await c.wait()
    await c.workers["w2"].finish_job("busy")


def test_worker_that_is_missing_long_after_a_restart_gets_its_whole_time() -> None:
    async def test(c: Clusters) -> None:
        await run_on_w1(c)
        await c.manager.stop_manager()
        await c.manager.start_manager()
        await c.wait(600)
        await c.manager.client.delete(MULTIKUEUE_CLUSTERS, "w1")
        await c.wait(600)
        assert (await c.status())["clusterName"] == "w1"
        assert await c.workers_of("a") == ["w1"]

    dispatched(test, "w1", "w2")


def test_worker_that_is_lost_under_another_name_counts_as_lost_from_then() -> None:
    async def test(c: Clusters) -> None:
        await run_on_w1(c)
        client = c.manager.client
        await client.delete(MULTIKUEUE_CLUSTERS, "w1")
        await client.create(MULTIKUEUE_CLUSTERS, cluster("new", "w1-kubeconfig"))
        await c.manager.patch(MULTIKUEUE_CONFIGS, "config", {"spec": {"clusters": ["new", "w2"]}})
        await c.wait(600)
        c.lines["w1"].cut()
        await c.workers["w1"].finish_job("a")
        await c.wait(600)
        assert await c.workers_of("a") == ["w1"]
        c.lines["w1"].restore()
        await c.wait(330)
        assert condition_of((await c.manager.job("a"))["status"], "Complete")
        assert await c.workers_of("a") == []

    dispatched(test, "w1", "w2")


def test_job_that_was_edited_is_not_given_to_another_worker_while_its_own_cannot_be_reached() -> None:
    async def test(c: Clusters) -> None:
        await c.make_busy("w2")
        await c.manager.apply(job("a", completions=4))
        await c.wait()
        await c.workers["w1"].run_job("a")
        await c.workers["w2"].finish_job("busy")
        await c.wait()
        c.lines["w1"].cut()
        await c.manager.stop_manager()
        await c.manager.patch(JOBS, "a", {"spec": {"parallelism": 2}})
        await c.manager.job_status("a", active=0, ready=0)
        await c.manager.start_manager()
        await c.wait(600)
        assert await c.workers_of("a") == ["w1"]
        assert await c.manager.suspended("a")
        c.lines["w1"].restore()
        await c.wait(400)
        assert (await c.copy("w1"))["spec"]["active"] is False
        await c.workers["w1"].stop_pods("a")
        await c.wait(60)
        workload = await c.manager.workload("a")
        assert [pods["count"] for pods in workload["spec"]["podSets"]] == [2]
        assert await c.workers_of("a") == [workload["status"]["clusterName"]]

    dispatched(test, "w1", "w2")


def test_deleted_workload_stays_until_its_worker_has_stopped_the_job() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.apply(job("a"))
        await c.wait()
        worker = c.workers["w1"]
        await worker.run_job("a")
        await c.wait()
        before = await c.manager.workload("a")
        await c.manager.delete(WORKLOADS, before["metadata"]["name"])
        await c.wait(60)
        assert (await c.manager.workload("a"))["metadata"]["uid"] == before["metadata"]["uid"]
        assert (await worker.job("a"))["spec"]["suspend"] is True
        await worker.stop_pods("a")
        await c.wait(60)
        after = await c.manager.workload("a")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["status"]["clusterName"] == "w1"

    dispatched(test, "w1")


ELASTIC = "featureGates: {ElasticJobsViaWorkloadSlices: true}\n"


async def run_elastic(c: Clusters) -> Stack:
    """An elastic job that runs on w1, which is returned."""
    await c.manager.apply(job("a", annotations={names.ELASTIC_JOB_ANNOTATION: "true"}, completions=4))
    await c.wait()
    await c.workers["w1"].run_job("a")
    await c.wait()
    return c.workers["w1"]


async def grow(c: Clusters) -> str:
    """Add a pod to the elastic job; the name of the slice for it."""
    await c.manager.patch(JOBS, "a", {"spec": {"parallelism": 2}})
    await c.wait()
    (name,) = [key_of(one)[1] for one in await c.manager.workloads() if replaced_key(one) is not None]
    return name


def test_end_of_an_elastic_job_counts_for_a_slice_that_was_stopped_before_it_got_to_the_worker() -> None:
    async def test(c: Clusters) -> None:
        worker = await run_elastic(c)
        c.lines["w1"].cut()
        await worker.finish_job("a")
        name = await grow(c)
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": False}})
        await c.wait()
        c.lines["w1"].restore()
        await c.wait(60)
        assert conditions.is_finished(await c.manager.get(WORKLOADS, name))
        assert condition_of((await c.manager.job("a"))["status"], "Complete")

    dispatched(test, "w1", configuration=ELASTIC)


def test_job_of_a_replaced_slice_is_not_changed_back_before_that_is_finished() -> None:
    async def test(c: Clusters) -> None:
        worker = await run_elastic(c)
        (old,) = await c.manager.workloads()
        c.manager.blocked.add(f"PATCH {old['metadata']['name']}")  # of its status
        before = c.writes()["w1"]["PATCH jobs"]
        name = await grow(c)
        await c.wait(60)
        assert not conditions.is_finished(await c.manager.get(WORKLOADS, old["metadata"]["name"]))
        copy = await worker.job("a")
        assert copy["metadata"]["labels"][names.PREBUILT_WORKLOAD_LABEL] == name
        assert copy["spec"]["parallelism"] == 2
        assert c.writes()["w1"]["PATCH jobs"] == before + 1
        c.manager.blocked.clear()
        await c.wait(60)
        assert (
            conditions.reason(await c.manager.get(WORKLOADS, old["metadata"]["name"]), "Finished") == REPLACED
        )

    dispatched(test, "w1", configuration=ELASTIC)


def test_end_of_an_elastic_job_counts_where_its_worker_has_another_name_meanwhile() -> None:
    async def test(c: Clusters) -> None:
        worker = await run_elastic(c)
        c.lines["w1"].cut()
        name = await grow(c)
        await worker.stop_manager()
        await worker.finish_job("a")  # its Workload there is not finished before a manager runs again
        await c.manager.client.delete(MULTIKUEUE_CLUSTERS, "w1")
        c.lines["w1"].restore()
        await c.manager.client.create(MULTIKUEUE_CLUSTERS, cluster("new", "w1-kubeconfig"))
        await c.manager.patch(MULTIKUEUE_CONFIGS, "config", {"spec": {"clusters": ["new"]}})
        await c.wait(1000)
        assert await c.workers_of("a") == ["w1"]
        await worker.start_manager()
        await c.wait(60)
        assert conditions.is_finished(await c.manager.get(WORKLOADS, name))
        assert condition_of((await c.manager.job("a"))["status"], "Complete")
        assert (await c.jobs(), await c.copies()) == ([], [])

    dispatched(test, "w1", configuration=ELASTIC)


def test_restored_worker_stops_a_job_of_another_worker_that_cannot_be_reached() -> None:
    async def test(c: Clusters) -> None:
        await c.make_busy("w2")
        await c.manager.apply(job("a"))
        await c.wait()
        await c.workers["w1"].run_job("a")
        await c.workers["w2"].finish_job("busy")
        await c.wait()
        c.lines["w1"].cut()
        workload = await c.manager.workload("a")
        # As if restored from a state in which it had admitted the job.
        await c.workers["w2"].client.create(WORKLOADS, remote_workload(workload, "multikueue"))
        assert await c.has_copy("w2")
        await c.wait(10)
        assert not await c.has_copy("w2")

    dispatched(test, "w1", "w2")
