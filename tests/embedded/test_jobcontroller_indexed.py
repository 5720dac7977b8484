"""Indexed Jobs: every index once, elastic size, limits per index, success policies."""

from __future__ import annotations

from typing import Any

import pytest
from jobcontroller_cluster import Cluster, Object, index_of, story

from pykueue.api.resources import PODS

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


async def indexes(cluster: Cluster) -> list[int]:
    """Indexes of the active pods."""
    return sorted(index_of(pod) for pod in await cluster.active())


async def pod_of(cluster: Cluster, index: int) -> Object:
    (found,) = [pod for pod in await cluster.active() if index_of(pod) == index]
    return found


async def create(cluster: Cluster, completions: int, parallelism: int, **spec: Any) -> Object:
    return await cluster.create_job(
        completionMode="Indexed", completions=completions, parallelism=parallelism, **spec
    )


def test_a_pod_knows_its_index_in_every_way_there_is() -> None:
    async def tell(cluster: Cluster) -> None:
        await create(cluster, 2, 2)
        await cluster.wait(2)
        for index in (0, 1):
            pod = await pod_of(cluster, index)
            metadata, spec = pod["metadata"], pod["spec"]
            assert metadata["name"].startswith(f"job-{index}-")
            assert metadata["labels"]["batch.kubernetes.io/job-completion-index"] == str(index)
            assert spec["hostname"] == f"job-{index}"
            (variable,) = spec["containers"][0]["env"]
            assert variable == {
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {
                    "fieldRef": {
                        "apiVersion": "v1",
                        "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']",
                    }
                },
            }

    story(tell)


def test_a_variable_of_the_users_own_is_left_alone() -> None:
    async def tell(cluster: Cluster) -> None:
        mine = [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]
        template: Object = {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "x", "env": mine}],
                "initContainers": [{"name": "init", "image": "x"}],
            }
        }
        await create(cluster, 1, 1, template=template)
        await cluster.wait(2)
        spec = (await pod_of(cluster, 0))["spec"]
        assert spec["containers"][0]["env"] == mine
        assert spec["initContainers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"

    story(tell)


def test_a_long_name_is_cut_for_the_pods() -> None:
    async def tell(cluster: Cluster) -> None:
        await cluster.create_job("x" * 60, completionMode="Indexed", completions=1)
        await cluster.wait(2)
        (pod,) = await cluster.pods()
        assert pod["metadata"]["generateName"] == "x" * 55 + "-0-"
        assert len(pod["metadata"]["name"]) == 63

    story(tell)


def test_the_lowest_free_indexes_run_first_and_none_runs_twice() -> None:
    async def tell(cluster: Cluster) -> None:
        await create(cluster, 7, 3)
        await cluster.wait(2)
        assert await indexes(cluster) == [0, 1, 2]
        await cluster.succeed(await pod_of(cluster, 1))
        await cluster.wait(3)
        assert await indexes(cluster) == [0, 2, 3]
        await cluster.succeed(await pod_of(cluster, 3), await pod_of(cluster, 2))
        await cluster.wait(3)
        assert await indexes(cluster) == [0, 4, 5]
        status = await cluster.status()
        assert (status["completedIndexes"], status["succeeded"]) == ("1-3", 3)
        assert status["uncountedTerminatedPods"] == {}
        await cluster.patch_job(suspend=True)
        await cluster.wait(3)
        await cluster.patch_job(suspend=False)
        await cluster.wait(3)
        assert await indexes(cluster) == [0, 4, 5], "completed ones stay completed"
        await cluster.succeed(*await cluster.active())
        await cluster.wait(3)
        await cluster.succeed(*await cluster.active())
        await cluster.wait(3)
        status = await cluster.status()
        assert (status["completedIndexes"], status["succeeded"]) == ("0-6", 7)
        assert (await cluster.conditions())["Complete"] == ("True", "CompletionsReached")

    story(tell)


def test_a_failed_index_is_run_again_after_a_delay() -> None:
    async def tell(cluster: Cluster) -> None:
        await create(cluster, 2, 2)
        await cluster.wait(2)
        await cluster.fail(await pod_of(cluster, 1))
        await cluster.wait(8)
        assert await indexes(cluster) == [0]
        await cluster.wait(5)
        assert await indexes(cluster) == [0, 1]
        assert (await cluster.status())["failed"] == 1

    story(tell)


def test_pods_without_a_place_of_their_own_are_removed() -> None:
    async def tell(cluster: Cluster) -> None:
        await create(cluster, 3, 3)
        await cluster.wait(2)
        pods = await cluster.active()
        running = await pod_of(cluster, 1)
        await cluster.run_pods([running])
        for name, index in (("twin", "1"), ("beyond", "7"), ("none", None)):
            metadata = {key: pods[0]["metadata"][key] for key in ("labels", "ownerReferences", "finalizers")}
            annotations = {"batch.kubernetes.io/job-completion-index": index} if index else {}
            copy = {**metadata, "name": name, "namespace": "default", "annotations": annotations}
            await cluster.client.create(PODS, {**pods[0], "metadata": copy})
        await cluster.wait(5)
        assert await indexes(cluster) == [0, 1, 2]
        assert (await pod_of(cluster, 1))["metadata"]["name"] == running["metadata"]["name"]
        assert "failed" not in await cluster.status()

    story(tell)


def test_an_elastic_job_grows_at_the_top_and_forgets_what_it_shrinks_below() -> None:
    async def tell(cluster: Cluster) -> None:
        await create(cluster, 3, 3)
        await cluster.wait(2)
        await cluster.patch_job(completions=5, parallelism=5)
        await cluster.wait(3)
        assert await indexes(cluster) == [0, 1, 2, 3, 4]
        await cluster.succeed(await pod_of(cluster, 0), await pod_of(cluster, 4))
        await cluster.wait(3)
        assert (await cluster.status())["completedIndexes"] == "0,4"
        await cluster.patch_job(completions=2, parallelism=2)
        await cluster.wait(3)
        status = await cluster.status()
        assert await indexes(cluster) == [1]
        assert (status["completedIndexes"], status["succeeded"]) == ("0", 1)
        await cluster.succeed(await pod_of(cluster, 1))
        await cluster.wait(3)
        assert (await cluster.conditions())["Complete"] == ("True", "CompletionsReached")
        assert "failed" not in await cluster.status()

    story(tell)


# Limits per index


def test_an_index_has_failures_of_its_own_and_the_others_go_on() -> None:
    async def tell(cluster: Cluster) -> None:
        created = await create(cluster, 3, 3, backoffLimitPerIndex=1)
        assert created["spec"]["backoffLimit"] == 2147483647
        await cluster.wait(2)
        first = await pod_of(cluster, 1)
        assert first["metadata"]["annotations"][FAILURES] == "0"
        await cluster.fail(first)
        await cluster.wait(3)
        held = await cluster.client.get(PODS, first["metadata"]["name"], "default")
        assert held["metadata"]["finalizers"], "its count is needed until the replacement carries it"
        assert "failed" not in await cluster.status()
        await cluster.wait(10)
        second = await pod_of(cluster, 1)
        assert second["metadata"]["annotations"][FAILURES] == "1"
        await cluster.wait(3)
        held = await cluster.client.get(PODS, first["metadata"]["name"], "default")
        assert not held["metadata"].get("finalizers")
        assert (await cluster.status())["failed"] == 1
        await cluster.fail(second)
        await cluster.wait(30)
        status = await cluster.status()
        assert (status["failedIndexes"], status["failed"]) == ("1", 2)
        assert await indexes(cluster) == [0, 2]
        await cluster.succeed(*await cluster.active())
        await cluster.wait(3)
        status = await cluster.status()
        assert status["completedIndexes"] == "0,2"
        assert await cluster.conditions() == {
            "FailureTarget": ("True", "FailedIndexes"),
            "Failed": ("True", "FailedIndexes"),
        }

    story(tell)


def test_the_delay_of_an_index_grows_with_its_own_failures_only() -> None:
    async def tell(cluster: Cluster) -> None:
        await create(cluster, 2, 2, backoffLimitPerIndex=5)
        await cluster.wait(2)
        for delay in (10, 20, 40):
            await cluster.fail(await pod_of(cluster, 0))
            await cluster.wait(delay - 2)
            assert await indexes(cluster) == [1]
            await cluster.wait(4)
            assert await indexes(cluster) == [0, 1]
        await cluster.fail(await pod_of(cluster, 1))
        await cluster.wait(12)
        assert await indexes(cluster) == [0, 1]

    story(tell)


def test_too_many_failed_indexes_end_the_job_early() -> None:
    async def tell(cluster: Cluster) -> None:
        await create(cluster, 10, 4, backoffLimitPerIndex=0, maxFailedIndexes=1)
        await cluster.wait(2)
        await cluster.fail(await pod_of(cluster, 0))
        await cluster.wait(3)
        assert await indexes(cluster) == [1, 2, 3, 4]
        await cluster.fail(await pod_of(cluster, 2))
        await cluster.wait(5)
        assert await cluster.active() == []
        assert (await cluster.conditions())["Failed"] == ("True", "MaxFailedIndexesExceeded")
        status = await cluster.status()
        assert status["failedIndexes"] == "0,2"
        assert status["failed"] == 5, "those that were still running have failed with the Job"

    story(tell)


def test_a_policy_can_give_up_an_index_or_forgive_it() -> None:
    rules = [
        {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]

    async def tell(cluster: Cluster) -> None:
        await create(cluster, 3, 3, backoffLimitPerIndex=2, podFailurePolicy={"rules": rules})
        await cluster.wait(2)
        await cluster.fail(await pod_of(cluster, 0), exit_code=42)
        await cluster.fail(await pod_of(cluster, 1), exit_code=143, conditions=["DisruptionTarget"])
        await cluster.wait(3)
        assert (await cluster.status())["failedIndexes"] == "0"
        await cluster.wait(10)
        replacement = await pod_of(cluster, 1)
        assert replacement["metadata"]["annotations"][FAILURES] == "0"
        assert replacement["metadata"]["annotations"][IGNORED] == "1"
        await cluster.wait(3)
        assert (await cluster.status())["failed"] == 1, "the forgiven one is not counted"
        assert await indexes(cluster) == [1, 2]

    story(tell)


# Success policy


@pytest.mark.parametrize(
    ("rules", "succeed", "matched"),
    [
        ([{"succeededIndexes": "0"}], [0], 0),
        ([{"succeededIndexes": "0"}], [1, 2, 3], None),
        ([{"succeededIndexes": "1-3", "succeededCount": 2}], [1, 3], 0),
        ([{"succeededIndexes": "1-3", "succeededCount": 2}], [0, 3], None),
        ([{"succeededCount": 3}], [0, 2, 4], 0),
        ([{"succeededIndexes": "0,1"}, {"succeededCount": 2}], [3, 4], 1),
    ],
)
def test_a_success_policy_ends_the_job_when_a_rule_is_met(
    rules: list[Object], succeed: list[int], matched: int | None
) -> None:
    async def tell(cluster: Cluster) -> None:
        await create(cluster, 5, 5, successPolicy={"rules": rules})
        await cluster.wait(2)
        await cluster.run_pods(await cluster.active())
        await cluster.succeed(*[await pod_of(cluster, index) for index in succeed])
        await cluster.wait(3)
        conditions = await cluster.conditions()
        if matched is None:
            assert conditions == {}
            assert len(await cluster.active()) == 5 - len(succeed)
            return
        assert conditions == {"SuccessCriteriaMet": ("True", "SuccessPolicy")}
        (condition,) = (await cluster.status())["conditions"]
        assert condition["message"] == f"Matched rules at index {matched}"
        assert await cluster.active() == []
        assert (await cluster.status())["terminating"] == 5 - len(succeed)
        for pod in await cluster.pods():
            if "deletionTimestamp" in pod["metadata"]:
                await cluster.remove(pod)
        await cluster.wait(3)
        assert (await cluster.conditions())["Complete"] == ("True", "SuccessPolicy")
        status = await cluster.status()
        assert status["succeeded"] == len(succeed)
        assert "failed" not in status, "those that were not needed have not failed"

    story(tell)


def test_a_job_that_has_failed_is_not_saved_by_a_success_rule() -> None:
    async def tell(cluster: Cluster) -> None:
        policy = {"rules": [{"succeededIndexes": "0"}]}
        await create(cluster, 2, 2, successPolicy=policy, backoffLimit=0)
        await cluster.wait(2)
        await cluster.fail(await pod_of(cluster, 1))
        await cluster.succeed(await pod_of(cluster, 0))
        await cluster.wait(5)
        assert (await cluster.conditions())["Failed"] == ("True", "BackoffLimitExceeded")
        assert "Complete" not in await cluster.conditions()

    story(tell)
