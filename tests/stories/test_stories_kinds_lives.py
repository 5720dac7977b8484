"""The life of a job of each kind: created, queued, run, evicted, restarted beside it, run again, finished.

The manifests are those of examples/. Whenever a story looks, pods request no more than the quota.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kinds_world import KINDS, NODE_LABELS, TOLERATION, World, live, manifests, play
from stories_world import EXAMPLE, job

from pykueue.api.resources import JOBS, WORKLOADS
from pykueue.embedded.apiserver.webhooks.admission import Webhook

Object = dict[str, Any]

EXAMPLES = EXAMPLE.parent
#: CPUs of the queue: enough for each example, not for one and the urgent job.
QUOTA = 12

FINITE = [
    "kubeflow/pytorchjob",
    "kubeflow/tfjob",
    "kubeflow/xgboostjob",
    "kubeflow/paddlejob",
    "kubeflow/jaxjob",
    "mpi/mpijob",
    "ray/rayjob",
    "trainjob/trainjob",
    "appwrapper/appwrapper",
    "spark/sparkapplication",
]
ENDLESS = ["ray/raycluster", "ray/rayservice"]


def sample(name: str) -> tuple[list[Object], Object]:
    """What an example's job needs, and the job itself, with the lower priority in the queue `q`."""
    *others, made = manifests(EXAMPLES / f"{name}.yaml")
    labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "low"}
    return others, {**made, "metadata": {**made["metadata"], "labels": labels}}


def urgent() -> Object:
    """A Job of the higher priority that needs the whole queue for half a minute."""
    return job(
        "urgent",
        QUOTA,
        run_time="30s",
        labels={"kueue.x-k8s.io/priority-class": "high"},
    )


async def evict(world: World, made: Object, original: Object) -> None:
    """Let an urgent Job take the quota, restart everything while it runs, and let it finish."""
    blocker = urgent()
    await world.create(blocker)

    async def is_replaced() -> bool:
        return await world.admitted(blocker)

    await world.until(is_replaced, 120)
    evicted = await world.get(made)
    assert json.dumps(evicted["spec"]) == json.dumps(original["spec"])
    left = live(await world.pods())
    assert not [pod for pod in left if not pod["metadata"]["name"].startswith("urgent")]
    await world.restart()
    assert not await world.admitted(made)
    await world.wait_finished(blocker, 120)


async def runs(world: World, made: Object) -> None:
    """Wait until all its pods are ready; they have what the flavor gives."""

    await world.until(lambda: world.ready(made), 120)
    pods = [pod for pod in await world.pods() if not pod["metadata"]["name"].startswith("urgent")]
    running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    assert running
    for pod in running:
        assert pod["spec"]["nodeSelector"] == NODE_LABELS
        assert TOLERATION in pod["spec"]["tolerations"]


@pytest.mark.parametrize("name", FINITE)
def test_job_runs_is_evicted_and_finishes(name: str) -> None:
    others, made = sample(name)

    async def story(world: World) -> None:
        original = await world.client.create(KINDS[made["kind"]].resource, made)
        await runs(world, made)
        await evict(world, made, original)
        await runs(world, made)
        await world.wait_finished(made, 300)
        assert (await world.finished(made))["reason"] == "Succeeded"
        await world.wait(30)
        assert await world.used() == 0

    play(story, QUOTA, others)


@pytest.mark.parametrize("name", ENDLESS)
def test_serving_job_runs_is_evicted_and_serves_again(name: str) -> None:
    others, made = sample(name)

    async def story(world: World) -> None:
        original = await world.client.create(KINDS[made["kind"]].resource, made)
        await runs(world, made)
        await evict(world, made, original)
        await runs(world, made)
        await world.client.delete(
            KINDS[made["kind"]].resource, made["metadata"]["name"], "default", propagation="Background"
        )
        await world.wait(60)
        assert await world.used() == 0
        assert not [pod for pod in await world.pods() if not pod["metadata"]["name"].startswith("urgent")]

    play(story, QUOTA, others)


def test_groups_of_a_serving_set_are_evicted_and_serve_again() -> None:
    """A LeaderWorkerSet has no field to suspend it: its groups are admitted, and their pods gated."""
    _, made = sample("leaderworkerset/leaderworkerset")

    async def story(world: World) -> None:
        await world.client.create(KINDS[made["kind"]].resource, made)
        await runs(world, made)
        assert len(await world.workloads(made)) == 2
        pods = live(await world.pods())
        names = [f"chat-{group}{worker}" for group in (0, 1) for worker in ("", "-1", "-2")]
        assert [pod["metadata"]["name"] for pod in pods] == names
        blocker = urgent()
        await world.create(blocker)

        async def is_replaced() -> bool:
            return await world.admitted(blocker)

        await world.until(is_replaced, 120)
        await world.restart()
        await world.wait_finished(blocker, 120)
        await runs(world, made)
        assert (await world.get(made))["status"]["readyReplicas"] == 2

    play(story, QUOTA)


def test_finished_app_wrapper_does_not_get_quota_again_while_its_components_are_deleted() -> None:
    """Its phase is Terminating then and does not show any more how it ended."""
    _, made = sample("appwrapper/appwrapper")

    async def story(world: World) -> None:
        await world.create(made)
        await world.wait_finished(made, 300)
        held: Object = {"metadata": {"finalizers": ["example.com/keep"]}}
        name = made["metadata"]["name"]
        await world.client.patch(JOBS, name, "default", held)
        await world.client.delete(KINDS["AppWrapper"].resource, name, "default", propagation="Background")
        for _ in range(10):
            await world.wait(1)
            assert (await world.get(made))["status"]["phase"] == "Terminating"
            assert (await world.finished(made))["status"] == "True"
            assert await world.used() == 0
        await world.client.patch(JOBS, name, "default", {"metadata": {"finalizers": None}})
        await world.wait(30)
        assert not await world.all(WORKLOADS)

    play(story, QUOTA)


def test_quota_of_a_stopped_ray_job_returns_after_its_pods_when_the_manager_is_restarted() -> None:
    """KubeRay has deleted the cluster and cleared its name from the status, but its pods still run."""
    _, made = sample("ray/rayjob")

    async def story(world: World) -> None:
        keeps_pods = False

        async def review(review: Object) -> Object:
            return {"response": {"uid": review["request"]["uid"], "allowed": not keeps_pods}}

        rules = [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
        world.webhooks.append(Webhook("keep", False, rules, review))
        await world.restart()
        await world.create(made)
        await runs(world, made)
        keeps_pods = True
        name = (await world.workloads(made))[0]["metadata"]["name"]
        await world.client.patch(WORKLOADS, name, "default", {"spec": {"active": False}})
        await world.wait(10)
        stopped = await world.get(made)
        assert stopped["status"]["jobDeploymentStatus"] == "Suspended"
        assert "rayClusterName" not in stopped["status"]
        assert len(live(await world.pods())) == 4
        assert await world.used() > 0
        await world.restart()
        await world.wait(10)
        assert await world.used() > 0
        keeps_pods = False
        await world.wait(120)
        assert not live(await world.pods())
        assert await world.used() == 0

    play(story, QUOTA)
