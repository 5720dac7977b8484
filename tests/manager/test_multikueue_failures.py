"""Rows of the failure table of MultiKueue (docs/reference/admission-checks.md 17.1) that are no worked case.

Connection lost and back in time: case 37; back after another worker has admitted: 38; the copy is deleted:
39; the remote job fails: 44; deletion while a worker is away: 50.
"""

from __future__ import annotations

from manager_stack import Stack, job
from multikueue_world import Clusters, dispatched

from pykueue.api.resources import CLUSTER_QUEUES, JOBS, WORKLOADS

LOST = 920.0


async def free(worker: Stack) -> None:
    """Give back the quota that `make_busy` took."""
    await worker.delete(JOBS, "busy")
    for workload in await worker.workloads():
        await worker.delete(WORKLOADS, workload["metadata"]["name"])


def test_worker_that_returns_to_a_workload_without_reservation_gives_its_copy_up() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.apply(job("a"))
        await c.wait()
        await c.workers["w1"].run_job("a")
        await c.wait()
        await c.manager.patch(CLUSTER_QUEUES, "cq", {"spec": {"stopPolicy": "Hold"}})
        c.lines["w1"].cut()
        await c.wait(LOST)
        assert (await c.manager.conditions("a"))["QuotaReserved"][0] == "False"
        c.lines["w1"].restore()
        await c.wait(400)
        assert (await c.copies(), await c.jobs()) == ([], [])

    dispatched(test, "w1")


def test_worker_that_returns_before_another_has_admitted_goes_on_with_the_job() -> None:
    async def test(c: Clusters) -> None:
        await c.make_busy("w2")
        await c.manager.apply(job("a"))
        await c.wait()
        await c.workers["w1"].run_job("a")
        await c.wait()
        uid = (await c.workers["w1"].job("a"))["metadata"]["uid"]
        c.lines["w1"].cut()
        await c.wait(LOST)
        assert (await c.manager.conditions("a"))["QuotaReserved"][0] == "True"
        assert (await c.status()).get("nominatedClusterNames") == ["w2"]
        c.lines["w1"].restore()
        await c.wait(400)
        assert ((await c.status())["clusterName"], await c.state()) == ("w1", "Ready")
        assert (await c.workers["w1"].job("a"))["metadata"]["uid"] == uid
        assert await c.workers_of("a") == ["w1"]

    dispatched(test, "w1", "w2")


def test_worker_that_is_lost_before_it_has_admitted_is_not_waited_for() -> None:
    async def test(c: Clusters) -> None:
        await c.make_busy("w1", "w2")
        await c.manager.apply(job("a"))
        await c.wait()
        c.lines["w1"].cut()
        await c.wait()
        await free(c.workers["w2"])
        await c.wait()
        assert ((await c.status())["clusterName"], await c.state()) == ("w2", "Ready")

    dispatched(test, "w1", "w2")


def test_eviction_before_a_status_came_back_keeps_the_quota_until_the_worker_has_stopped() -> None:
    async def test(c: Clusters) -> None:
        await c.manager.apply(job("a"))
        await c.wait()
        worker = str((await c.status())["clusterName"])
        other = "w2" if worker == "w1" else "w1"
        # Its pods start while the worker cannot be reached: nothing here says that they run.
        c.lines[worker].cut()
        await c.workers[worker].run_job("a")
        name = (await c.manager.workload("a"))["metadata"]["name"]
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": False}})
        await c.wait(30)
        assert (await c.manager.conditions("a"))["Evicted"][0] == "True"
        assert (await c.manager.conditions("a"))["QuotaReserved"][0] == "True"
        assert (await c.status())["clusterName"] == worker
        c.lines[worker].restore()
        await c.wait(30)
        assert await c.workers[worker].suspended("a")
        await c.manager.patch(WORKLOADS, name, {"spec": {"active": True}})
        await c.wait(30)
        assert await c.jobs() == [worker], "its pods have not stopped"
        await c.workers[worker].stop_pods("a")
        await c.wait(30)
        assert (await c.status())["clusterName"] in (worker, other)
        assert len(await c.jobs()) == 1

    dispatched(test, "w1", "w2")
