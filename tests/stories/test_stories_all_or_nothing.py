"""The two acts of the example `all-or-nothing` (docs/reference/cluster-workloads.md 5.2, rows W4 to W12)."""

from __future__ import annotations

import pytest
from stories_world import EXAMPLE, Story, condition, play

from pykueue.api.resources import CLUSTER_QUEUES, EVENTS, JOBS
from pykueue.simulate.submit import read

WORKERS = 20
FIT = 26
SCHEDULE = {"quick-job": 0.0, "job1": 0.5, "job2": 1.0}
BLOCKING = (EXAMPLE / "wait-for-pods-ready.yaml").read_text()
BLOCKING_V1BETA1 = """
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
waitForPodsReady:
  enable: true
  timeout: 10m
"""


async def submit(story: Story) -> None:
    await story.submitter.create(read(EXAMPLE / "queues.yaml"))
    await story.submitter.create_at((at, read(EXAMPLE / f"{name}.yaml")) for name, at in SCHEDULE.items())


def running(story: Story, job: str) -> int:
    return sum(pod.is_ready for pod in story.history.pods_of(job))


def admitted(story: Story) -> set[str]:
    return {
        workload["metadata"]["ownerReferences"][0]["name"]
        for workload in story.history.workloads.values()
        if condition(workload, "Admitted").get("status") == "True"
    }


def workload_of(story: Story, job: str) -> dict[str, object]:
    return next(
        workload
        for workload in story.history.workloads.values()
        if workload["metadata"]["ownerReferences"][0]["name"] == job
    )


def test_default_configuration_deadlocks_two_jobs() -> None:
    async def story(story: Story) -> None:
        await submit(story)
        await story.clock.sleep(1.0)
        assert {"job1", "job2"} <= admitted(story)
        await story.history.until_finished("quick-job")
        await story.history.until_still(60)
        seen = {job: running(story, job) for job in ("job1", "job2")}
        assert sum(seen.values()) == FIT, seen
        assert all(0 < n < WORKERS for n in seen.values()), seen
        pods = story.history.pods_of("job1") + story.history.pods_of("job2")
        assert [pod.phase for pod in pods].count("Pending") == 2 * WORKERS - FIT
        queue = await story.client.get(CLUSTER_QUEUES, "cluster-queue")
        assert queue["status"]["flavorsReservation"][0]["resources"][0]["total"] == "12640Mi"

        await story.clock.sleep(28 * 60 - story.clock.time() % 60)
        later = story.history.pods_of("job1") + story.history.pods_of("job2")
        assert [pod.name for pod in later] == [pod.name for pod in pods]
        assert not story.history.jobs["job1"].finished
        assert not story.history.jobs["job2"].finished

    play(story)


def test_a_pod_that_does_not_fit_says_so() -> None:
    async def story(story: Story) -> None:
        await submit(story)
        await story.history.until_finished("quick-job")
        await story.history.until_still(60)
        waiting = next(pod for pod in story.history.pods_of("job2") if pod.phase == "Pending")
        scheduled = condition(waiting.object, "PodScheduled")
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
        events = await story.client.list(
            EVENTS, "default", field_selector=f"involvedObject.name={waiting.name}"
        )
        notes = [event["message"] for event in events.items if event["reason"] == "FailedScheduling"]
        assert notes[0].startswith("0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes")

    play(story)


def test_default_configuration_evicts_both_deadlocked_jobs_after_30_minutes() -> None:
    """Ready-wait is on by default, without blocking: both jobs are evicted when 30 minutes have passed."""

    async def story(story: Story) -> None:
        await submit(story)
        await story.clock.sleep(30.5 * 60)
        for job in ("job1", "job2"):
            evicted = condition(workload_of(story, job), "Evicted")
            assert (evicted["status"], evicted["reason"]) == ("True", "PodsReadyTimeout")
        assert not story.history.pods_of("job1") + story.history.pods_of("job2")

    play(story)


@pytest.mark.parametrize("configuration", [BLOCKING, BLOCKING_V1BETA1], ids=["v1beta2", "v1beta1"])
def test_ready_wait_starts_one_whole_job_after_the_other(configuration: str) -> None:
    async def story(story: Story) -> None:
        await submit(story)
        history = story.history
        await history.until(
            lambda: len(history.pods_of("job1")) == WORKERS and running(story, "job1") < WORKERS
        )
        assert not history.pods_of("job2")
        assert history.jobs["job2"].suspended
        waiting = condition(workload_of(story, "job2"), "QuotaReserved")
        assert (waiting["status"], waiting["reason"]) == ("False", "WaitingForPodsReady")
        starting = condition(workload_of(story, "job1"), "PodsReady")
        assert (starting["status"], starting["reason"]) == ("False", "WaitForStart")

        await history.until(lambda: running(story, "job1") == WORKERS)
        await story.clock.sleep(3.0)
        ready = condition(workload_of(story, "job1"), "PodsReady")
        assert (ready["status"], ready["reason"]) == ("True", "Started")
        assert not history.jobs["job2"].suspended
        assert running(story, "job2") <= FIT - WORKERS

        await history.until_finished(*SCHEDULE)
        assert {job.finished for job in history.jobs.values()} == {"Complete"}
        for job in ("job1", "job2"):
            status = (await story.client.get(JOBS, job, "default"))["status"]
            assert status["succeeded"] == WORKERS
            assert not status.get("failed")
        whole, first = history.all_ready("job1", WORKERS), history.first_pod("job2")
        assert whole is not None
        assert first is not None
        assert whole < first

    play(story, configuration)


def test_deleting_the_jobs_releases_everything() -> None:
    async def story(story: Story) -> None:
        await submit(story)
        await story.history.until_finished("quick-job")
        await story.history.until_still(60)
        for name in SCHEDULE:
            await story.submitter.delete(read(EXAMPLE / f"{name}.yaml"))
        await story.history.until_gone()
        await story.clock.sleep(5)
        status = (await story.client.get(CLUSTER_QUEUES, "cluster-queue"))["status"]
        assert status["flavorsReservation"][0]["resources"][0]["total"] == "0"
        assert status.get("admittedWorkloads", 0) == 0

    play(story)
