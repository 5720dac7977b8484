"""Jobs that must not stop because the status of their Workload was edited."""

from __future__ import annotations

from edited_statuses import STOPPING, delay, running
from manager_stack import QUEUES, Stack, job, story

from pykueue.api.resources import WORKLOADS

TOLERATED = QUEUES.replace(
    "metadata: {name: default-flavor}",
    "metadata: {name: default-flavor}\nspec: {tolerations: [{key: spot, operator: Exists}]}",
)


def test_job_with_tolerations_of_its_flavor_runs_on_while_a_cleared_status_is_restored() -> None:
    async def life(s: Stack) -> None:
        name = await running(s)
        assert (await s.job("a"))["spec"]["template"]["spec"]["tolerations"]
        delay(s, "GET", "jobs/a", 5)
        await s.patch(WORKLOADS, name, {"status": None}, "status")
        for _ in range(20):
            await s.settle(1)
            assert not await s.suspended("a")
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")

    story(life, queues=TOLERATED)


def test_job_admitted_with_fewer_pods_runs_on_while_a_cleared_status_is_restored() -> None:
    async def life(s: Stack) -> None:
        await running(s, "other", 6)
        await s.apply(job("a", 6, annotations={"kueue.x-k8s.io/job-min-parallelism": "2"}))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        assert (await s.job("a"))["spec"]["parallelism"] == 4
        delay(s, "GET", "jobs/a", 5)
        await s.patch(WORKLOADS, (await s.workload("a"))["metadata"]["name"], {"status": None}, "status")
        for _ in range(20):
            await s.settle(1)
            assert not await s.suspended("a")
        assert (await s.conditions("a"))["Admitted"] == ("True", "Admitted")

    story(life)


def test_job_runs_on_when_its_status_is_cleared_while_its_readiness_is_written() -> None:
    async def life(s: Stack) -> None:
        await s.apply(job("a", 2))
        await s.settle()
        name = (await s.workload("a"))["metadata"]["name"]
        delay(s, "PATCH", f"workloads/{name}/status", 1)
        await s.run_job("a")
        await s.settle(0.5)
        await s.patch(WORKLOADS, name, {"status": None}, "status")
        for _ in range(40):
            await s.settle(0.5)
            assert not await s.suspended("a")
        assert (await s.conditions("a"))["PodsReady"] == ("True", "Started")

    story(life, "waitForPodsReady: {timeout: 10m}")


def test_job_that_ends_during_its_stop_with_fewer_pods_than_its_minimum_loses_the_annotation() -> None:
    async def life(s: Stack) -> None:
        await running(s, "other", 9)
        await s.apply(job("a", 2, annotations={"kueue.x-k8s.io/job-min-parallelism": "1"}))
        await s.settle()
        await s.run_job("a")
        await s.settle()
        assert (await s.job("a"))["spec"]["parallelism"] == 1
        name = (await s.workload("a"))["metadata"]["name"]
        await s.patch(WORKLOADS, name, {"metadata": {"finalizers": None}})
        await s.delete(WORKLOADS, name)
        await s.settle()
        assert await s.suspended("a")
        assert STOPPING in (await s.job("a"))["metadata"]["annotations"]
        await s.finish_job("a")
        await s.settle(60)
        assert STOPPING not in (await s.job("a"))["metadata"]["annotations"]

    story(life)
