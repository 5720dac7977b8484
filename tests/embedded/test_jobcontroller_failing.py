"""Jobs whose pods fail: limits, delays, policies; and what survives a crash of the controller."""

from __future__ import annotations

import random
from typing import Any

import pytest
from jobcontroller_cluster import Cluster, Object, index_of, job, phase, story

from pykueue.api.resources import JOBS, PODS
from pykueue.kube.errors import ApiError


def test_failures_are_replaced_with_growing_delay_up_to_the_limit() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(backoffLimit=3)
        await cluster.wait(2)
        for delay in (10, 20, 40):
            (pod,) = await cluster.active()
            await cluster.fail(pod)
            await cluster.wait(delay - 2)
            assert await cluster.active() == []
            await cluster.wait(4)
            assert len(await cluster.active()) == 1
        await cluster.fail(*await cluster.active())
        await cluster.wait(3)
        status = await cluster.status()
        assert status["failed"] == 4
        assert await cluster.conditions() == {
            "FailureTarget": ("True", "BackoffLimitExceeded"),
            "Failed": ("True", "BackoffLimitExceeded"),
        }
        assert (await cluster.events())[-1] == (
            "Warning",
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        )
        assert len(await cluster.pods()) == 4

    story(tell)


def test_a_success_takes_the_delay_back() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=5, parallelism=2)
        await cluster.wait(2)
        first, second = await cluster.active()
        await cluster.fail(first)
        await cluster.wait(1)
        await cluster.succeed(second)
        await cluster.wait(3)
        assert len(await cluster.active()) == 2

    story(tell)


def test_pods_that_wait_for_their_delay_are_counted_as_they_are() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=3, parallelism=3)
        await cluster.wait(2)
        pods = await cluster.active()
        await cluster.run_pods(pods)
        await cluster.fail(pods[0])
        await cluster.wait(3)
        status = await cluster.status()
        assert (status["active"], status["ready"], status["failed"]) == (2, 2, 1)

    story(tell)


def test_restarts_in_place_count_towards_the_limit() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(restart_policy="OnFailure", backoffLimit=2)
        await cluster.wait(2)
        (pod,) = await cluster.active()
        for restarts in (1, 2):
            status = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": restarts}
            await cluster.set_pod(pod, phase="Running", containerStatuses=[status])
            await cluster.wait(3)
            failed = "Failed" in await cluster.conditions()
            assert failed == (restarts == 2)
        assert (await cluster.conditions())["Failed"] == ("True", "BackoffLimitExceeded")

    story(tell)


# The policy of scenario T2, in both orders


def rules(*, ignore_first: bool) -> list[Object]:
    fail = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [40, 41, 42]}}
    ignore = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    return [ignore, fail] if ignore_first else [fail, ignore]


@pytest.mark.parametrize(
    ("ignore_first", "exit_code", "conditions", "ends", "counted"),
    [
        (False, 42, [], False, 1),
        (False, 1, [], True, 1),
        (False, 143, ["DisruptionTarget"], True, 1),
        (True, 143, ["DisruptionTarget"], False, 0),
        (True, 1, [], True, 1),
    ],
)
def test_the_first_rule_that_matches_decides(
    ignore_first: bool, exit_code: int, conditions: list[str], ends: bool, counted: int
) -> None:
    async def tell(cluster: Cluster) -> None:
        policy = {"rules": rules(ignore_first=ignore_first)}
        await cluster.create_job(completions=2, parallelism=2, podFailurePolicy=policy)
        await cluster.wait(2)
        pod, other = await cluster.active()
        await cluster.run_pods([pod, other])
        await cluster.fail(pod, exit_code=exit_code, conditions=conditions)
        await cluster.wait(14)
        status = await cluster.status()
        if ends:
            assert (await cluster.conditions())["FailureTarget"] == ("True", "PodFailurePolicy")
            (condition,) = status["conditions"]
            rule = 1 if ignore_first else 0
            assert condition["message"] == (
                f"Container main for pod default/{pod['metadata']['name']} failed with exit code {exit_code} "
                f"matching FailJob rule at index {rule}"
            )
            assert status["terminating"] == 1
            assert status["failed"] == 2
        else:
            assert await cluster.conditions() == {}
            assert status.get("failed", 0) == counted
            assert len(await cluster.active()) == 2

    story(tell)


def test_with_a_policy_a_pod_is_judged_only_once_it_has_failed() -> None:
    async def tell(cluster: Cluster) -> None:
        policy = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
        await cluster.create_job(podFailurePolicy=policy)
        await cluster.wait(2)
        (pod,) = await cluster.active()
        await cluster.run_pods([pod])
        await cluster.client.delete(PODS, pod["metadata"]["name"], "default")
        condition = {"type": "DisruptionTarget", "status": "True"}
        await cluster.set_pod(pod, conditions=[condition])
        await cluster.wait(5)
        assert await cluster.conditions() == {}
        await cluster.fail(pod, exit_code=143, conditions=["DisruptionTarget"])
        await cluster.wait(3)
        assert (await cluster.conditions())["Failed"] == ("True", "PodFailurePolicy")
        message = (await cluster.status())["conditions"][0]["message"]
        assert message.endswith("has condition DisruptionTarget matching FailJob rule at index 0")

    story(tell)


# Crashes


def test_the_delay_after_failures_survives_a_restart() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job()
        await cluster.wait(2)
        await cluster.fail(*await cluster.active())
        await cluster.wait(12)
        await cluster.fail(*await cluster.active())
        await cluster.wait(3)
        await cluster.stop_controllers()
        cluster.start_controllers()
        await cluster.wait(14)
        assert await cluster.active() == []
        await cluster.wait(5)
        assert len(await cluster.active()) == 1

    story(tell)


def test_a_pod_that_vanishes_before_it_was_counted_is_still_counted() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=2, parallelism=2)
        await cluster.wait(2)
        await cluster.stop_controllers()
        first, second = await cluster.active()
        await cluster.succeed(first)
        await cluster.client.delete(PODS, first["metadata"]["name"], "default", grace_period=0)
        assert await cluster.exists(PODS, first["metadata"]["name"]), "the finalizer holds it"
        cluster.start_controllers()
        await cluster.wait(3)
        assert not await cluster.exists(PODS, first["metadata"]["name"])
        assert (await cluster.status())["succeeded"] == 1
        assert len(await cluster.active()) == 1
        await cluster.succeed(second)
        await cluster.wait(3)
        assert (await cluster.conditions())["Complete"][0] == "True"

    story(tell)


class Watcher:
    """Checks what must hold at all times of a Job's life, whatever crashes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.last: Object = {}

    async def check(self) -> None:
        cluster = self.cluster
        stored = await cluster.job()
        status: Object = stored.get("status") or {}
        spec = stored["spec"]
        for field in ("succeeded", "failed"):
            assert status.get(field, 0) >= self.last.get(field, 0), f"{field} went back"
        true = {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
        before = {one["type"] for one in self.last.get("conditions") or () if one["status"] == "True"}
        lasting = {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"}
        assert before & lasting <= true
        assert not {"Complete", "Failed"} <= true
        self.last = status
        pods = await cluster.pods("job")
        active = [
            pod
            for pod in pods
            if phase(pod) in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
        ]
        assert len(active) <= spec["parallelism"]
        if spec["completionMode"] == "Indexed":
            held = [index_of(pod) for pod in active]
            assert len(held) == len(set(held)), "two pods with one index"


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@pytest.mark.parametrize("seed", range(12))
def test_every_pod_is_counted_exactly_once_whatever_crashes_whenever(seed: int, mode: str) -> None:
    """The controller is stopped at random moments, also between any two of its requests."""

    async def tell(cluster: Cluster) -> None:
        rng = random.Random(seed)
        requests_left = 0
        transport = cluster.server.transport

        class Dying:
            """A transport that dies with its controller after some requests, before or after the last one."""

            def __init__(self, inner: Any) -> None:
                self.inner = inner

            async def call(self, request: Any) -> Any:
                nonlocal requests_left
                if request.method == "GET":
                    return await self.inner.call(request)
                requests_left -= 1
                if requests_left == 0 and rng.random() < 0.5:
                    await self.inner.call(request)
                if requests_left <= 0:
                    raise ConnectionResetError("crashed")
                return await self.inner.call(request)

            def watch(self, request: Any) -> Any:
                return self.inner.watch(request)

            async def close(self) -> None:
                await self.inner.close()

        cluster.server.transport = lambda *user: Dying(transport(*user))  # type: ignore
        client_side = {"succeeded": 0, "failed": 0}
        requests_left = rng.randint(1, 40)
        await cluster.stop_controllers()
        cluster.start_controllers()
        spec: Object = {"completions": 12, "parallelism": 5, "backoffLimit": 1000, "completionMode": mode}
        await cluster.client.create(JOBS, job("job", **spec))
        watcher = Watcher(cluster)
        for _ in range(400):
            await watcher.check()
            if requests_left <= 0:
                await cluster.stop_controllers()
                await cluster.wait(rng.random())
                requests_left = rng.randint(1, 40)
                cluster.start_controllers()
            for pod in await cluster.active():
                if rng.random() < 0.3:
                    failing = rng.random() < 0.2
                    await (cluster.fail(pod) if failing else cluster.succeed(pod))
                    client_side["failed" if failing else "succeeded"] += 1
            await cluster.wait(rng.choice([0.0, 0.3, 1.0, 5.0]))
            if "Complete" in await cluster.conditions():
                break
        requests_left = 10**9
        await cluster.wait(700)
        await watcher.check()
        status = await cluster.status()
        conditions = await cluster.conditions()
        assert conditions["Complete"] == ("True", "CompletionsReached")
        assert status["uncountedTerminatedPods"] == {}
        assert status.get("failed", 0) == client_side["failed"]
        if mode == "Indexed":
            assert (status["succeeded"], status["completedIndexes"]) == (12, "0-11")
            assert client_side["succeeded"] == 12
        else:
            assert status["succeeded"] == client_side["succeeded"] >= 12
        for pod in await cluster.pods():
            assert not pod["metadata"].get("finalizers")

    story(tell, seed, pace=None)


def test_concurrent_change_of_another_client_is_not_overwritten() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job(completions=40, parallelism=40)
        await cluster.wait(0.5)
        await cluster.client.patch(JOBS, "job", "default", {"metadata": {"labels": {"mine": "yes"}}})
        await cluster.patch_job(parallelism=35)
        await cluster.wait(30)
        stored = await cluster.job()
        assert stored["metadata"]["labels"]["mine"] == "yes"
        assert stored["spec"]["parallelism"] == 35
        assert stored["status"]["active"] == 35

    story(tell)


def test_a_missing_namespace_is_no_place_for_a_job() -> None:
    async def tell(cluster: Cluster) -> None:
        with pytest.raises(ApiError, match='namespaces "nowhere" not found'):
            await cluster.create_job("job", "nowhere")

    story(tell)
