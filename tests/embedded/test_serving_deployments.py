"""Deployments and ReplicaSets on simulated nodes: pods made, replaced, renewed, scaled, paused."""

from __future__ import annotations

from typing import Any

import pytest
from jobset_world import World, tell
from serving_manifests import (
    DEPLOYMENTS,
    REPLICA_SETS,
    change,
    conditions,
    deployment,
    images,
    new_image,
    ready_names,
    replica_sets,
    status,
    template,
)

from pykueue.api.resources import AUTOSCALERS, PODS, RESOURCE_QUOTAS
from pykueue.kube.errors import ApiError

Object = dict[str, Any]


def test_a_deployment_gets_its_pods_and_says_so() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(3))
        await world.wait(20)
        assert len(await ready_names(world)) == 3
        found = await status(world)
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        assert [found[key] for key in counts] == [3, 3, 3, 3]
        assert found["observedGeneration"] == 1
        assert "unavailableReplicas" not in found
        assert await conditions(world) == {
            "Available": ("True", "MinimumReplicasAvailable"),
            "Progressing": ("True", "NewReplicaSetAvailable"),
        }
        (owner,) = (await world.client.list(REPLICA_SETS, "default")).items
        name = owner["metadata"]["name"]
        assert name == f"web-{owner['metadata']['labels']['pod-template-hash']}"
        events = [(reason, text) for _, reason, text in await world.events("web")]
        assert events == [("ScalingReplicaSet", f"Scaled up replica set {name} from 0 to 3")]
        made = [reason for _, reason, _ in await world.events(name)]
        assert made == ["SuccessfulCreate"] * 3
        pods = await world.pods()
        assert {pod["metadata"]["ownerReferences"][0]["name"] for pod in pods} == {name}

    tell(story)


def test_a_pod_that_goes_is_replaced() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(2))
        await world.wait(20)
        (first, _) = await ready_names(world)
        await world.client.delete(PODS, first, "default")
        await world.wait(40)
        names = await ready_names(world)
        assert len(names) == 2
        assert first not in names

    tell(story)


def test_a_rolling_update_stays_within_surge_and_availability() -> None:
    async def story(world: World) -> None:
        spec = {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}
        await world.client.create(DEPLOYMENTS, deployment(4, **spec))
        await world.wait(20)
        await new_image(world, DEPLOYMENTS, "web:2")
        for _ in range(300):
            await world.wait(0.2)
            assert len(await world.pods()) <= 5
            assert len(await ready_names(world)) >= 3
        assert await images(world) == ["web:2"] * 4
        assert await replica_sets(world) == [("1", 0), ("2", 4)]
        found = await world.client.get(DEPLOYMENTS, "web", "default")
        assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"

    tell(story)


def test_going_back_to_an_earlier_template_takes_its_replica_set() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(2))
        await world.wait(20)
        await new_image(world, DEPLOYMENTS, "web:2")
        await world.wait(60)
        await new_image(world, DEPLOYMENTS, "web:1")
        await world.wait(60)
        assert await images(world) == ["web:1"] * 2
        assert await replica_sets(world) == [("2", 0), ("3", 2)]
        sets = (await world.client.list(REPLICA_SETS, "default")).items
        histories = [
            one["metadata"]["annotations"].get("deployment.kubernetes.io/revision-history") for one in sets
        ]
        assert sorted(filter(None, histories)) == ["1"]

    tell(story)


def test_recreate_never_runs_two_versions_at_once() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(3, strategy={"type": "Recreate"}))
        await world.wait(20)
        await new_image(world, DEPLOYMENTS, "web:2")
        for _ in range(300):
            await world.wait(0.2)
            found = (await world.client.list(PODS, "default")).items
            assert len({pod["spec"]["containers"][0]["image"] for pod in found}) <= 1
        assert await images(world) == ["web:2"] * 3

    tell(story)


def test_old_versions_are_kept_as_far_as_the_history_goes() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(1, revisionHistoryLimit=2))
        await world.wait(20)
        for number in range(2, 6):
            await new_image(world, DEPLOYMENTS, f"web:{number}")
            await world.wait(60)
        assert await replica_sets(world) == [("3", 0), ("4", 0), ("5", 1)]

    tell(story)


def test_scaling_keeps_the_version_and_says_from_what_to_what() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(2))
        await world.wait(20)
        await world.client.patch(
            DEPLOYMENTS, "web", "default", {"spec": {"replicas": 5}}, subresource="scale"
        )
        await world.wait(20)
        assert len(await ready_names(world)) == 5
        await change(world, DEPLOYMENTS, replicas=0)
        await world.wait(60)
        assert await world.pods() == []
        texts = [text.partition(" from ")[2] for _, _, text in await world.events("web")]
        assert texts == ["0 to 2", "2 to 5", "5 to 0"]
        assert await replica_sets(world) == [("1", 0)]

    tell(story)


def test_a_larger_size_during_a_rollout_is_shared_in_proportion() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(4, strategy={"rollingUpdate": {"maxSurge": 2}}))
        await world.wait(20)
        pods = template("web:2", **{"sim.pykueue.io/ready-delay": "600"})
        await change(world, DEPLOYMENTS, template=pods)
        await world.wait(20)
        before = await replica_sets(world)
        await change(world, DEPLOYMENTS, replicas=8)
        await world.wait(20)
        after = await replica_sets(world)
        assert sum(size for _, size in before) == 6
        assert sum(size for _, size in after) == 10
        assert all(new[1] > old[1] for old, new in zip(before, after, strict=True))

    tell(story)


def test_a_paused_deployment_scales_but_does_not_roll_out() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(1))
        await world.wait(20)
        await change(world, DEPLOYMENTS, paused=True)
        await world.wait()
        assert (await conditions(world))["Progressing"] == ("Unknown", "DeploymentPaused")
        await new_image(world, DEPLOYMENTS, "web:2")
        await change(world, DEPLOYMENTS, replicas=2)
        await world.wait(30)
        assert await images(world) == ["web:1"] * 2
        await change(world, DEPLOYMENTS, paused=None)
        await world.wait(60)
        assert await images(world) == ["web:2"] * 2
        assert (await conditions(world))["Progressing"] == ("True", "NewReplicaSetAvailable")

    tell(story)


def test_a_rollout_that_stands_still_says_so_after_its_deadline() -> None:
    async def story(world: World) -> None:
        pods = template("web:1", **{"sim.pykueue.io/ready-delay": "9999"})
        await world.client.create(DEPLOYMENTS, deployment(2, pods=pods, progressDeadlineSeconds=60))
        await world.wait(50)
        assert (await conditions(world))["Progressing"][0] == "True"
        await world.wait(60)
        assert await conditions(world) == {
            "Available": ("False", "MinimumReplicasUnavailable"),
            "Progressing": ("False", "ProgressDeadlineExceeded"),
        }
        assert (await status(world))["unavailableReplicas"] == 2

    tell(story)


def test_pods_count_as_available_only_after_their_time() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(1, minReadySeconds=30))
        await world.wait(20)
        assert (await status(world)).get("readyReplicas") == 1
        assert (await status(world)).get("availableReplicas") is None
        await world.wait(30)
        assert (await status(world))["availableReplicas"] == 1

    tell(story)


def test_pods_that_may_not_be_created_show_on_the_deployment() -> None:
    async def story(world: World) -> None:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": "default"},
            "spec": {"hard": {"pods": "1"}},
        }
        await world.client.create(RESOURCE_QUOTAS, quota)
        await world.wait()
        await world.client.create(DEPLOYMENTS, deployment(2))
        await world.wait(20)
        assert (await conditions(world))["ReplicaFailure"] == ("True", "FailedCreate")
        await world.client.delete(RESOURCE_QUOTAS, "few", "default")
        await world.wait(120)
        assert "ReplicaFailure" not in await conditions(world)
        assert len(await ready_names(world)) == 2

    tell(story)


def test_replica_set_adopts_matching_pods_and_releases_others() -> None:
    async def story(world: World) -> None:
        loose = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "loose", "namespace": "default", **template()["metadata"]},
            "spec": template()["spec"],
        }
        await world.client.create(PODS, loose)
        await world.client.create(REPLICA_SETS, {**deployment(2), "kind": "ReplicaSet"})
        await world.wait(20)
        assert len(await world.pods()) == 2
        pod = await world.client.get(PODS, "loose", "default")
        assert pod["metadata"]["ownerReferences"][0]["name"] == "web"
        await world.client.patch(PODS, "loose", "default", {"metadata": {"labels": {"app": "other"}}})
        await world.wait(20)
        assert len(await world.pods()) == 3
        pod = await world.client.get(PODS, "loose", "default")
        assert not pod["metadata"].get("ownerReferences")

    tell(story)


def test_an_autoscaler_keeps_the_bounds_and_says_why_it_does_no_more() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(1))
        autoscaler = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "bounds", "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2,
                "maxReplicas": 3,
            },
        }
        await world.client.create(AUTOSCALERS, autoscaler)
        await world.wait(30)
        assert len(await ready_names(world)) == 2
        await change(world, DEPLOYMENTS, replicas=6)
        await world.wait(60)
        assert len(await ready_names(world)) == 3
        found = await world.client.get(AUTOSCALERS, "bounds", "default")
        reasons = {one["type"]: (one["status"], one["reason"]) for one in found["status"]["conditions"]}
        assert reasons == {
            "AbleToScale": ("True", "SucceededGetScale"),
            "ScalingActive": ("False", "FailedGetResourceMetric"),
        }
        told = [reason for _, reason, _ in await world.events("bounds")]
        assert sorted(told) == ["FailedGetResourceMetric", "SuccessfulRescale", "SuccessfulRescale"]

    tell(story)


def test_deleting_a_deployment_takes_everything_along() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(2))
        await world.wait(20)
        await world.client.delete(DEPLOYMENTS, "web", "default")
        await world.wait(60)
        assert (await world.client.list(REPLICA_SETS, "default")).items == []
        assert (await world.client.list(PODS, "default")).items == []

    tell(story)


def test_a_crash_in_the_middle_of_a_rollout_changes_nothing_about_its_end() -> None:
    async def story(world: World) -> None:
        await world.client.create(DEPLOYMENTS, deployment(4))
        await world.wait(20)
        await new_image(world, DEPLOYMENTS, "web:2")
        for _ in range(5):
            await world.wait(0.3)
            await world.restart()
        await world.wait(90)
        assert await images(world) == ["web:2"] * 4
        assert await replica_sets(world) == [("1", 0), ("2", 4)]

    tell(story)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"selector": {"matchLabels": {"app": "x"}}}, "spec.template.metadata.labels"),
        ({"selector": {}}, "spec.selector"),
        ({"strategy": {"type": "Now"}}, "spec.strategy.type"),
        ({"strategy": {"type": "Recreate", "rollingUpdate": {}}}, "spec.strategy.rollingUpdate"),
        ({"strategy": {"rollingUpdate": {"maxSurge": "x%"}}}, "spec.strategy.rollingUpdate.maxSurge"),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
        ),
        ({"replicas": -1}, "spec.replicas"),
        ({"progressDeadlineSeconds": 5, "minReadySeconds": 5}, "spec.progressDeadlineSeconds"),
    ],
)
def test_what_a_deployment_may_not_say(change: Object, cause: str) -> None:
    async def story(world: World) -> None:
        with pytest.raises(ApiError) as caught:
            await world.client.create(DEPLOYMENTS, deployment(**change))
        assert caught.value.code == 422
        assert cause in [one["field"] for one in caught.value.details["causes"]]

    tell(story, pools=[])


def test_pods_of_a_deployment_restart_always() -> None:
    async def story(world: World) -> None:
        pods = template()
        pods["spec"]["restartPolicy"] = "Never"
        with pytest.raises(ApiError, match='supported values: "Always"'):
            await world.client.create(DEPLOYMENTS, deployment(pods=pods))

    tell(story, pools=[])
