"""The failure table of MultiKueue row by row (docs/reference/admission-checks.md 17.1)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import test_multikueue as life
import test_multikueue_cases as cases
import test_multikueue_faults as faults
from manager_stack import Stack, job
from multikueue_world import Clusters, dispatched

from pykueue.api.resources import CLUSTER_QUEUES, JOBS, WORKLOADS
from queue_manifests import priority

REFERENCE = Path(__file__).parents[2] / "docs/reference/admission-checks.md"
LOST = 920.0


async def free(worker: Stack) -> None:
    """Give back the quota that `make_busy` took."""
    await worker.delete(JOBS, "busy")
    for workload in await worker.workloads():
        await worker.delete(WORKLOADS, workload["metadata"]["name"])


async def returns_without_reservation(c: Clusters) -> None:
    """It gives its copy up."""
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


async def returns_before_another_has_admitted(c: Clusters) -> None:
    """It goes on with the job."""
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


async def lost_before_admission(c: Clusters) -> None:
    """It is not waited for: another worker runs the job."""
    await c.make_busy("w1", "w2")
    await c.manager.apply(job("a"))
    await c.wait()
    c.lines["w1"].cut()
    await c.wait()
    await free(c.workers["w2"])
    await c.wait()
    assert ((await c.status())["clusterName"], await c.state()) == ("w2", "Ready")


async def preempted_on_the_worker(c: Clusters) -> None:
    """The job is dispatched again, to the other worker."""
    await c.make_busy("w2")
    await c.workers["w1"].apply([priority("high", 5)])
    await c.workers["w1"].patch(CLUSTER_QUEUES, "cq", {"spec": cases.LOWER_PRIORITY})
    await c.manager.apply(job("a"))
    await c.wait()
    await c.workers["w1"].run_job("a")
    await free(c.workers["w2"])
    high = {"kueue.x-k8s.io/priority-class": "high"}
    await c.workers["w1"].apply(job("urgent", cpu="10", labels=high))
    await c.wait(10)
    assert (await c.manager.conditions("a"))["Evicted"] == ("True", "AdmissionCheck")
    assert 'evicted on worker cluster: "w1": Preempted' in await c.manager.message("a", "Evicted")
    await c.workers["w1"].stop_pods("a")
    await c.wait(15)
    assert ((await c.status())["clusterName"], await c.state()) == ("w2", "Ready")
    assert await c.workers_of("a") == ["w2"]


async def deleted_while_its_worker_is_away(c: Clusters) -> None:
    """The copies are removed when the worker returns."""
    await c.make_busy("w2")
    await c.manager.apply(job("a"))
    await c.wait()
    c.lines["w1"].cut()
    await c.manager.delete(JOBS, "a")
    await c.wait(30)
    assert await c.workers_of("a") == ["w1"]
    c.lines["w1"].restore()
    await c.wait(120)
    assert await c.workers_of("a") == []
    assert await c.copies() == ["w2"]  # of the job that makes it busy


async def evicted_before_a_status_came_back(c: Clusters) -> None:
    """The quota is kept until the worker, reached again, shows that no pod runs."""
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


#: What the rows of the table lead to, in their order: the tests of this module and those of others, which are
#: the worked cases, whole lives of jobs, and restarts.
ROWS: dict[str, tuple[Callable[[Clusters], Awaitable[None]] | Callable[..., None], ...]] = {
    "Worker connection lost, check Ready": (
        cases.TestLostWorkers.test_38_worker_that_stays_away_loses_the_job_and_its_copy_is_removed_when_it_returns,
    ),
    "Worker returns in time": (cases.TestLostWorkers.test_37_worker_that_returns_in_time_changes_nothing,),
    "Worker returns later, local without reservation": (returns_without_reservation,),
    "Worker returns later, local reserved again but not yet admitted elsewhere": (
        returns_before_another_has_admitted,
    ),
    "Worker returns later, another worker has admitted meanwhile": (
        cases.TestLostWorkers.test_38_worker_that_stays_away_loses_the_job_and_its_copy_is_removed_when_it_returns,
    ),
    "Worker lost before admission": (lost_before_admission,),
    "Manager evicts (preemption, stop, PodsReady)": (
        evicted_before_a_status_came_back,
        life.TestLife.test_eviction_on_the_manager_stops_the_job_on_the_worker_first,
    ),
    "Worker preempts the remote": (
        preempted_on_the_worker,
        life.TestLife.test_eviction_on_the_worker_dispatches_the_job_again,
    ),
    "Worker deletes the remote Workload": (cases.TestCopies.test_39_deleted_copy_is_dispatched_again,),
    "Local job deleted": (
        deleted_while_its_worker_is_away,
        life.TestLife.test_deleting_the_job_deletes_its_copies,
    ),
    "Manager restarts while a Workload deletion was in flight": (
        faults.test_restarted_manager_goes_on_with_the_job_and_removes_what_was_deleted_meanwhile,
    ),
    "Remote job fails": (cases.TestCopies.test_44_failure_of_the_job_is_that_of_the_workload,),
}
_OWN = [
    pytest.param(scenario, id=f"{row}: {scenario.__name__}")
    for row, scenarios in ROWS.items()
    for scenario in scenarios
    if scenario.__module__ == __name__
]


def test_every_row_of_the_reference_has_a_test() -> None:
    section = REFERENCE.read_text().partition("\n### 17.1 Failure table")[2].partition("\n#")[0]
    assert re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:] == list(ROWS)


@pytest.mark.parametrize("scenario", _OWN)
def test_row(scenario: Callable[[Clusters], Awaitable[None]]) -> None:
    dispatched(scenario, "w1", "w2")
