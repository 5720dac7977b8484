"""Jobs at work: pods appear in batches, are counted once, and go with suspension, end or deletion."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jobcontroller_cluster import Cluster, Object, job, phase, story

from pykueue.api.resources import JOBS, NAMESPACES, PODS
from pykueue.embedded.apiserver.webhooks.admission import Webhook
from pykueue.embedded.controllers.jobs.pods import TRACKING_FINALIZER
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request


def test_a_job_runs_to_completion_and_says_so() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=5, parallelism=2)
        for done in (0, 2, 4):
            await cluster.wait(3)
            active = await cluster.active()
            assert len(active) == min(2, 5 - done)
            await cluster.run_pods(active)
            await cluster.wait(3)
            status = await cluster.status()
            assert (status.get("active"), status["ready"], status.get("succeeded", 0)) == (
                len(active),
                len(active),
                done,
            )
            await cluster.succeed(*active)
        await cluster.wait(3)
        status = await cluster.status()
        assert status["succeeded"] == 5
        assert status["ready"] == status["terminating"] == 0
        assert "active" not in status
        assert status["uncountedTerminatedPods"] == {}
        assert status["startTime"] == "2026-01-01T00:00:00Z"
        assert status["completionTime"] == "2026-01-01T00:00:19Z"
        assert await cluster.conditions() == {
            "SuccessCriteriaMet": ("True", "CompletionsReached"),
            "Complete": ("True", "CompletionsReached"),
        }
        pods = await cluster.pods("job")
        assert len(pods) == 5
        assert all("finalizers" not in pod["metadata"] or not pod["metadata"]["finalizers"] for pod in pods)
        assert (await cluster.events())[-1] == ("Normal", "Completed", "Job completed")

    story(tell)


def test_a_pod_is_made_from_the_template_and_belongs_to_the_job() -> None:
    async def tell(cluster: Cluster) -> None:
        manifest = job("job", labels={"app": "x"})
        manifest["spec"]["template"]["metadata"]["annotations"] = {"note": "y"}
        manifest["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "a"}
        created = await cluster.client.create(JOBS, manifest)
        await cluster.wait(1)
        (pod,) = await cluster.pods()
        metadata, uid = pod["metadata"], created["metadata"]["uid"]
        assert metadata["name"].startswith("job-")
        assert len(metadata["name"]) == len("job-") + 5
        assert metadata["labels"] == {
            "app": "x",
            "job-name": "job",
            "batch.kubernetes.io/job-name": "job",
            "controller-uid": uid,
            "batch.kubernetes.io/controller-uid": uid,
        }
        assert metadata["annotations"] == {"note": "y"}
        assert metadata["finalizers"] == [TRACKING_FINALIZER]
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "job",
                "uid": uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert pod["spec"]["nodeSelector"] == {"pool": "a"}
        assert pod["spec"]["restartPolicy"] == "Never"
        assert await cluster.events() == [("Normal", "SuccessfulCreate", f"Created pod: {metadata['name']}")]

    story(tell)


def test_pods_of_a_work_queue_run_until_the_first_success_and_are_then_left_alone() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(parallelism=3)
        await cluster.wait(3)
        first, *others = await cluster.active()
        await cluster.succeed(first)
        await cluster.wait(5)
        assert len(await cluster.active()) == 2
        assert "Complete" not in await cluster.conditions()
        await cluster.fail(others[0])
        await cluster.wait(30)
        assert len(await cluster.active()) == 1, "nothing is created after the first success"
        await cluster.succeed(others[1])
        await cluster.wait(3)
        assert (await cluster.conditions())["Complete"] == ("True", "CompletionsReached")

    story(tell)


# The shared request limit


class Through:
    """A transport that lets a test watch requests, delay them and lose answers."""

    def __init__(self, inner: Any, around: Callable[[Request, Callable[[], Awaitable[Any]]], Any]) -> None:
        self._inner = inner
        self._around = around

    async def call(self, request: Request) -> Any:
        return await self._around(request, lambda: self._inner.call(request))

    def watch(self, request: Request) -> Any:
        return self._inner.watch(request)

    async def close(self) -> None:
        await self._inner.close()


async def restart_through(
    cluster: Cluster, around: Callable[[Request, Callable[[], Awaitable[Any]]], Any]
) -> None:
    """Let the controllers' requests go through `around(request, send)`."""
    await cluster.stop_controllers()
    transport = cluster.server.transport
    cluster.server.transport = lambda *user: Through(transport(*user), around)  # type: ignore
    cluster.start_controllers()
    await cluster.wait(0)


def creates_pod(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/pods")


def test_pods_come_in_batches_of_doubling_size_each_awaited_before_the_next() -> None:
    async def tell(cluster: Cluster) -> None:
        moments: list[float] = []

        async def slow(request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
            if creates_pod(request):
                moments.append(round(cluster.clock.time(), 3))
                await cluster.wait(0.01)
            return await send()

        await restart_through(cluster, slow)
        await cluster.create_job(completions=60, parallelism=60)
        await cluster.wait(5)
        assert [len(list(batch)) for _, batch in itertools.groupby(moments)] == [1, 2, 4, 8, 16, 29]

    story(tell, pace=None)


def test_everything_the_controller_sends_shares_one_limit() -> None:
    async def tell(cluster: Cluster) -> None:
        moments: list[float] = []

        async def note(request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
            if request.method != "GET":
                moments.append(cluster.clock.time())
            return await send()

        await restart_through(cluster, note)
        start = cluster.clock.time()
        for name in "abcdef":
            await cluster.create_job(name, completions=20, parallelism=20)
        await cluster.wait(60)
        assert len(await cluster.pods()) == 120
        assert len(moments) >= 120 + 6 * 12, "pods, events and statuses"
        for sent, at in enumerate(moments, 1):
            assert sent <= 30 + 20 * (at - start) + 0.001

    story(tell)


@pytest.mark.parametrize("seed", range(5))
def test_jobs_started_half_a_second_apart_get_their_pods_interleaved_behind_a_busy_client(seed: int) -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job("quick", completions=50, parallelism=50)
        await cluster.wait(0.5)
        await cluster.create_job("a", completions=20, parallelism=20)
        await cluster.wait(0.5)
        await cluster.create_job("b", completions=20, parallelism=20)
        await cluster.wait(60)
        pods = [*await cluster.pods("a"), *await cluster.pods("b")]
        pods.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        first = [pod["metadata"]["labels"]["job-name"] for pod in pods[:26]]
        assert len(pods) == 40
        assert first.count("b") >= 7, "neither would have all its pods where 26 fit"

    story(tell, seed)


def test_one_job_alone_has_all_its_pods_before_one_that_starts_later() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job("a", completions=20, parallelism=20)
        await cluster.wait(0.5)
        await cluster.create_job("b", completions=20, parallelism=20)
        await cluster.wait(60)
        pods = [*await cluster.pods("a"), *await cluster.pods("b")]
        pods.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        assert [pod["metadata"]["labels"]["job-name"] for pod in pods[:20]] == ["a"] * 20

    story(tell)


def test_without_a_limit_pods_are_there_at_once() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=300, parallelism=300)
        await cluster.wait(0.5)
        assert len(await cluster.pods()) == 300

    story(tell, pace=None)


def test_at_most_500_pods_are_created_in_one_go_and_the_rest_follows() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=1100, parallelism=1100)
        await cluster.wait(0.5)
        assert len(await cluster.pods()) == 500
        await cluster.wait(5)
        assert len(await cluster.pods()) == 1100
        await cluster.succeed(*await cluster.pods())
        await cluster.wait(10)
        status = await cluster.status()
        assert (status["succeeded"], "active" in status) == (1100, False)
        assert (await cluster.conditions())["Complete"][0] == "True"

    story(tell, pace=None)


# Suspending


def test_a_job_created_suspended_has_no_pods_until_it_is_resumed() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(suspend=True, completions=3, parallelism=3)
        await cluster.wait(10)
        status = await cluster.status()
        assert await cluster.pods() == []
        assert await cluster.conditions() == {"Suspended": ("True", "JobSuspended")}
        assert "startTime" not in status
        assert await cluster.events() == [("Normal", "Suspended", "Job suspended")]
        await cluster.patch_job(suspend=False)
        await cluster.wait(3)
        assert len(await cluster.active()) == 3
        assert await cluster.conditions() == {"Suspended": ("False", "JobResumed")}
        assert (await cluster.status())["startTime"] == "2026-01-01T00:00:10Z"
        assert ("Normal", "Resumed", "Job resumed") in await cluster.events()

    story(tell)


def test_suspending_takes_the_active_pods_away_and_counts_none_of_them() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=4, parallelism=4)
        await cluster.wait(3)
        pods = await cluster.active()
        await cluster.run_pods(pods)
        await cluster.succeed(pods[0])
        await cluster.wait(3)
        await cluster.patch_job(suspend=True)
        await cluster.wait(3)
        status = await cluster.status()
        assert await cluster.conditions() == {"Suspended": ("True", "JobSuspended")}
        assert (status.get("active", 0), status["ready"], status["succeeded"]) == (0, 0, 1)
        assert status["terminating"] == 3, "they have their grace time"
        assert "failed" not in status
        assert "startTime" not in status
        going = [pod for pod in await cluster.pods() if "deletionTimestamp" in pod["metadata"]]
        assert len(going) == 3
        for pod in going:
            assert not pod["metadata"].get("finalizers")
            await cluster.fail(pod, exit_code=137)
            await cluster.remove(pod)
        await cluster.wait(5)
        assert "failed" not in await cluster.status()
        await cluster.patch_job(suspend=False)
        await cluster.wait(3)
        assert len(await cluster.active()) == 3
        deleted = [note for _, reason, note in await cluster.events() if reason == "SuccessfulDelete"]
        assert sorted(deleted) == sorted(f"Deleted pod: {pod['metadata']['name']}" for pod in going)

    story(tell)


def test_a_finished_job_cannot_be_suspended() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job()
        await cluster.wait(1)
        await cluster.succeed(*await cluster.active())
        await cluster.wait(3)
        await cluster.patch_job(suspend=True)
        await cluster.wait(3)
        assert "Suspended" not in await cluster.conditions()

    story(tell)


def test_a_job_that_was_never_suspended_never_says_so() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job()
        await cluster.wait(3)
        assert await cluster.conditions() == {}

    story(tell)


# Changing and deleting


def test_less_parallelism_takes_pods_away_those_first_that_did_least() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=10, parallelism=5)
        await cluster.wait(3)
        pods = await cluster.active()
        await cluster.run_pods(pods[:2])
        await cluster.bind(pods[2])
        await cluster.patch_job(parallelism=3)
        await cluster.wait(3)
        assert [pod["metadata"]["name"] for pod in await cluster.active()] == [
            pod["metadata"]["name"] for pod in pods[:3]
        ]
        await cluster.patch_job(parallelism=0)
        await cluster.wait(3)
        assert await cluster.active() == []
        assert "failed" not in await cluster.status()
        await cluster.patch_job(parallelism=4)
        await cluster.wait(3)
        assert len(await cluster.active()) == 4

    story(tell)


def test_deleting_a_job_by_hand_takes_its_pods_along_and_orphaning_leaves_them() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=2, parallelism=2)
        await cluster.create_job("other", completions=2, parallelism=2)
        await cluster.wait(3)
        await cluster.client.delete(JOBS, "job", "default", propagation="Background")
        await cluster.client.delete(JOBS, "other", "default")
        await cluster.wait(3)
        assert not await cluster.exists(JOBS, "job")
        assert not await cluster.exists(JOBS, "other")
        assert await cluster.pods("job") == []
        left = await cluster.pods("other")
        assert len(left) == 2, "the raw API's default is to orphan"
        assert all(not pod["metadata"].get("ownerReferences") for pod in left)
        assert all(not pod["metadata"].get("finalizers") for pod in left), "they could not be deleted else"

    story(tell)


def test_deleting_in_the_foreground_removes_the_pods_first() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=2, parallelism=2)
        await cluster.wait(3)
        pods = await cluster.active()
        await cluster.run_pods(pods)
        await cluster.client.delete(JOBS, "job", "default", propagation="Foreground")
        await cluster.wait(3)
        assert await cluster.exists(JOBS, "job")
        assert await cluster.active() == []
        assert len(await cluster.pods()) == 2, "nothing new is created meanwhile"
        for pod in await cluster.pods():
            await cluster.remove(pod)
        await cluster.wait(3)
        assert await cluster.pods() == []
        assert not await cluster.exists(JOBS, "job")

    story(tell)


def test_a_pod_that_is_deleted_is_replaced_and_counts_as_failed_at_once() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job()
        await cluster.wait(1)
        (pod,) = await cluster.active()
        await cluster.run_pods([pod])
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default")
        await cluster.wait(3)
        status = await cluster.status()
        assert (status["failed"], status["terminating"]) == (1, 1)
        await cluster.wait(12)
        assert len(await cluster.active()) == 1

    story(tell)


def test_with_replacement_policy_failed_the_replacement_waits_until_the_pod_has_really_failed() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(podReplacementPolicy="Failed")
        await cluster.wait(1)
        (pod,) = await cluster.active()
        await cluster.run_pods([pod])
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default")
        await cluster.wait(25)
        status = await cluster.status()
        assert await cluster.active() == []
        assert ("failed" in status, status["terminating"], status.get("active", 0)) == (False, 1, 0)
        await cluster.fail(pod, exit_code=143)
        await cluster.wait(20)
        assert len(await cluster.active()) == 1
        status = await cluster.status()
        assert (status["failed"], status["terminating"]) == (1, 0)

    story(tell)


def test_job_managed_by_another_controller_is_not_reconciled() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(managedBy="kueue.x-k8s.io/multikueue")
        await cluster.create_job("mine", managedBy="kubernetes.io/job-controller")
        await cluster.wait(5)
        assert await cluster.status() == {}
        assert await cluster.pods("job") == []
        assert len(await cluster.active("mine")) == 1

    story(tell)


# Errors


def test_a_refused_pod_shows_as_an_event_and_is_tried_again_with_growing_delay() -> None:
    async def tell(cluster: Cluster) -> None:
        moments: list[float] = []

        async def refuse(review: Object) -> Object:
            moments.append(cluster.clock.time())
            answer = {"uid": review["request"]["uid"], "allowed": False, "status": {"message": "not today"}}
            return {**review, "response": answer}

        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]
        cluster.server.admission.register(Webhook("test", False, rules, refuse))
        await cluster.create_job(completions=8, parallelism=8)
        await cluster.wait(200)
        gaps = [round(after - before) for before, after in itertools.pairwise(moments)]
        assert gaps[:7] == [1, 2, 4, 8, 16, 32, 60], "one try each: later batches are skipped"
        assert await cluster.pods() == []
        events = await cluster.events()
        assert events[0][:2] == ("Warning", "FailedCreate")
        assert events[0][2].startswith("Error creating: ")
        assert "not today" in events[0][2]

    story(tell)


def test_pods_whose_creation_was_never_answered_are_not_created_twice() -> None:
    async def tell(cluster: Cluster) -> None:
        lost: list[str] = []

        async def lose(request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
            answer = await send()
            if creates_pod(request) and len(lost) < 3:
                lost.append(answer["metadata"]["name"])
                raise ConnectionResetError("lost")
            return answer

        await restart_through(cluster, lose)
        await cluster.create_job(completions=10, parallelism=10)
        await cluster.wait(20)
        assert len(lost) == 3
        assert len(await cluster.pods()) == 10

    story(tell)


# Ownership


def test_matching_pods_are_adopted_and_others_released() -> None:
    async def tell(cluster: Cluster) -> None:
        manual = {"manualSelector": True, "selector": {"matchLabels": {"app": "x"}}, "labels": {"app": "x"}}
        stray: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "stray", "namespace": "default", "labels": {"app": "x"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
        }
        await cluster.client.create(PODS, stray)
        created = await cluster.create_job(completions=2, parallelism=2, **manual)
        await cluster.wait(3)
        pods = await cluster.pods()
        assert len(pods) == 2
        adopted = await cluster.client.get(PODS, "stray", "default")
        assert adopted["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
        assert adopted["metadata"]["finalizers"] == [TRACKING_FINALIZER]
        await cluster.client.patch(PODS, "stray", "default", {"metadata": {"labels": {"app": None}}})
        await cluster.wait(3)
        free = await cluster.client.get(PODS, "stray", "default")
        assert not free["metadata"].get("ownerReferences")
        assert not free["metadata"].get("finalizers")
        assert len(await cluster.pods()) == 3

    story(tell)


def test_jobs_in_a_namespace_of_their_own_do_not_meet() -> None:
    async def tell(cluster: Cluster) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await cluster.client.create(NAMESPACES, namespace)
        await cluster.create_job(completions=2, parallelism=2)
        await cluster.create_job("job", "team", completions=3, parallelism=3)
        await cluster.wait(3)
        assert len(await cluster.pods("job")) == 2
        assert len(await cluster.pods("job", "team")) == 3

    story(tell)


# Deadline and time to live


def test_the_deadline_ends_a_job_at_the_very_second_and_does_not_run_while_suspended() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(activeDeadlineSeconds=30)
        await cluster.wait(20)
        await cluster.patch_job(suspend=True)
        await cluster.wait(100)
        for pod in await cluster.pods():
            await cluster.remove(pod)
        await cluster.patch_job(suspend=False)
        await cluster.wait(29.5)
        assert len(await cluster.active()) == 1
        assert "Failed" not in await cluster.conditions()
        await cluster.wait(1.6)
        assert await cluster.active() == []
        assert (await cluster.conditions())["FailureTarget"] == ("True", "DeadlineExceeded")
        await cluster.wait(3)
        status = await cluster.status()
        assert (await cluster.conditions())["Failed"] == ("True", "DeadlineExceeded")
        assert status["failed"] == 1
        assert "completionTime" not in status
        assert (await cluster.events())[-1] == (
            "Warning",
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        )

    story(tell)


def test_the_terminal_condition_waits_for_pods_that_are_still_terminating() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(activeDeadlineSeconds=5)
        await cluster.wait(2)
        pods = await cluster.active()
        await cluster.run_pods(pods)
        await cluster.wait(20)
        status = await cluster.status()
        assert list(await cluster.conditions()) == ["FailureTarget"]
        assert (status["terminating"], status["failed"]) == (1, 1)
        await cluster.fail(*pods, exit_code=137)
        await cluster.wait(3)
        assert list(await cluster.conditions()) == ["FailureTarget", "Failed"]
        assert (await cluster.status())["failed"] == 1

    story(tell)


@pytest.mark.parametrize("ttl", [0, 60])
def test_a_finished_job_goes_when_its_time_to_live_is_over(ttl: int) -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(ttlSecondsAfterFinished=ttl)
        await cluster.wait(1)
        await cluster.succeed(*await cluster.active())
        await cluster.wait(3)
        assert await cluster.exists(JOBS, "job") == (ttl > 0)
        await cluster.wait(ttl)
        assert not await cluster.exists(JOBS, "job")
        assert await cluster.pods() == []

    story(tell)


def test_the_time_to_live_may_be_set_or_changed_after_the_end() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job()
        await cluster.wait(1)
        await cluster.succeed(*await cluster.active())
        await cluster.wait(100)
        await cluster.patch_job(ttlSecondsAfterFinished=1000)
        await cluster.wait(100)
        assert await cluster.exists(JOBS, "job")
        await cluster.patch_job(ttlSecondsAfterFinished=10)
        await cluster.wait(1)
        assert not await cluster.exists(JOBS, "job")

    story(tell)


def test_more_successes_than_completions_are_reported() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=2, parallelism=2)
        await cluster.wait(3)
        pods = await cluster.active()
        template = {key: pods[0]["metadata"][key] for key in ("labels", "ownerReferences", "finalizers")}
        extra = {**pods[0], "metadata": {**template, "name": "extra", "namespace": "default"}}
        await cluster.client.create(PODS, extra)
        await cluster.succeed(*pods, extra)
        await cluster.wait(5)
        assert (await cluster.status())["succeeded"] == 3
        reasons = [reason for _, reason, _ in await cluster.events()]
        assert reasons[-2:] == ["TooManySucceededPods", "Completed"]
        assert {phase(pod) for pod in await cluster.pods()} == {"Succeeded"}

    story(tell)


def test_nothing_can_be_done_to_a_job_that_is_not_there() -> None:
    async def tell(cluster: Cluster) -> None:
        with pytest.raises(ApiError, match=r'jobs\.batch "job" not found'):
            await cluster.job()

    story(tell)
