"""StatefulSets on simulated nodes: names, order, versions, claims."""

from __future__ import annotations

from typing import Any

import pytest
from jobset_world import World, tell
from serving_manifests import (
    STATEFUL_SETS,
    change,
    images,
    new_image,
    ready_names,
    stateful_set,
    status,
    template,
)

from pykueue.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import STRATEGIC_PATCH

Object = dict[str, Any]

CLAIMS = [
    {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
]


async def revisions(world: World) -> list[int]:
    found = (await world.client.list(CONTROLLER_REVISIONS, "default")).items
    return sorted(one["revision"] for one in found)


async def claims(world: World) -> list[str]:
    found = (await world.client.list(PERSISTENT_VOLUME_CLAIMS, "default")).items
    return sorted(one["metadata"]["name"] for one in found if not one["metadata"].get("deletionTimestamp"))


async def fail(world: World, name: str) -> None:
    """The kubelet's word that the pod has failed."""
    await world.client.patch(PODS, name, "default", {"status": {"phase": "Failed"}}, subresource="status")


def test_pods_come_one_after_the_other_under_their_own_names() -> None:
    async def story(world: World) -> None:
        await world.client.create(STATEFUL_SETS, stateful_set(3))
        seen: list[list[str]] = []
        for _ in range(200):
            await world.wait(0.1)
            names = [pod["metadata"]["name"] for pod in await world.pods()]
            assert set(names[:-1]) <= set(await ready_names(world))
            if not seen or seen[-1] != names:
                seen.append(names)
        assert seen[-1] == ["web-0", "web-1", "web-2"]
        pod = (await world.pods())[1]
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-1", "web")
        labels = pod["metadata"]["labels"]
        assert labels["apps.kubernetes.io/pod-index"] == "1"
        assert labels["statefulset.kubernetes.io/pod-name"] == "web-1"
        found = await status(world, STATEFUL_SETS)
        counts = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
        assert [found[key] for key in counts] == [3] * 5
        assert found["currentRevision"] == found["updateRevision"] == labels["controller-revision-hash"]
        first = (await world.events("web"))[0]
        assert first[1:] == ("SuccessfulCreate", "create Pod web-0 in StatefulSet web successful")

    tell(story)


def test_parallel_sets_do_not_wait() -> None:
    async def story(world: World) -> None:
        pods = template("web:1", **{"sim.pykueue.io/ready-delay": "600"})
        await world.client.create(STATEFUL_SETS, stateful_set(3, pods=pods, podManagementPolicy="Parallel"))
        await world.wait()
        assert len(await world.pods()) == 3

    tell(story)


def test_an_ordered_set_waits_for_the_pod_before() -> None:
    async def story(world: World) -> None:
        pods = template("web:1", **{"sim.pykueue.io/ready-delay": "600"})
        await world.client.create(STATEFUL_SETS, stateful_set(3, pods=pods))
        await world.wait(30)
        assert [pod["metadata"]["name"] for pod in await world.pods()] == ["web-0"]

    tell(story)


def test_the_highest_pods_go_first() -> None:
    async def story(world: World) -> None:
        await world.client.create(STATEFUL_SETS, stateful_set(3, ordinals={"start": 5}))
        await world.wait(30)
        assert await ready_names(world) == ["web-5", "web-6", "web-7"]
        await change(world, STATEFUL_SETS, replicas=1)
        await world.wait(90)
        assert await ready_names(world) == ["web-5"]
        gone = [text for _, reason, text in await world.events("web") if reason == "SuccessfulDelete"]
        assert [text.split()[2] for text in gone] == ["web-7", "web-6"]

    tell(story)


def test_failed_pod_is_replaced_under_its_name() -> None:
    async def story(world: World) -> None:
        await world.client.create(STATEFUL_SETS, stateful_set(2))
        await world.wait(30)
        before = (await world.client.get(PODS, "web-0", "default"))["metadata"]["uid"]
        await fail(world, "web-0")
        await world.wait(60)
        after = await world.client.get(PODS, "web-0", "default")
        assert after["metadata"]["uid"] != before
        assert await ready_names(world) == ["web-0", "web-1"]
        assert "RecreatingFailedPod" in [reason for _, reason, _ in await world.events("web")]

    tell(story)


def test_a_rolling_update_goes_from_the_highest_pod_to_the_partition() -> None:
    async def story(world: World) -> None:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
        await world.client.create(STATEFUL_SETS, stateful_set(3, updateStrategy=rolling))
        await world.wait(30)
        await new_image(world, STATEFUL_SETS, "web:2")
        for _ in range(400):
            await world.wait(0.3)
            assert len(await ready_names(world)) >= 2
        assert await images(world) == ["web:1", "web:2", "web:2"]
        found = await status(world, STATEFUL_SETS)
        assert found["currentRevision"] != found["updateRevision"]
        assert (found["currentReplicas"], found["updatedReplicas"]) == (1, 2)
        await world.client.delete(PODS, "web-0", "default")
        await world.wait(60)
        assert await images(world) == ["web:1", "web:2", "web:2"]
        await change(world, STATEFUL_SETS, updateStrategy={"rollingUpdate": {"partition": 0}})
        await world.wait(90)
        assert await images(world) == ["web:2"] * 3
        found = await status(world, STATEFUL_SETS)
        assert found["currentRevision"] == found["updateRevision"]
        assert await revisions(world) == [1, 2]

    tell(story)


def test_on_delete_leaves_the_renewal_to_the_user() -> None:
    async def story(world: World) -> None:
        await world.client.create(STATEFUL_SETS, stateful_set(2, updateStrategy={"type": "OnDelete"}))
        await world.wait(30)
        await new_image(world, STATEFUL_SETS, "web:2")
        await world.wait(60)
        assert await images(world) == ["web:1"] * 2
        await world.client.delete(PODS, "web-0", "default")
        await world.wait(60)
        assert await images(world) == ["web:2", "web:1"]

    tell(story)


def test_a_revision_can_be_taken_back_by_its_own_patch() -> None:
    async def story(world: World) -> None:
        await world.client.create(STATEFUL_SETS, stateful_set(2))
        await world.wait(30)
        await new_image(world, STATEFUL_SETS, "web:2")
        await world.wait(120)
        found = (await world.client.list(CONTROLLER_REVISIONS, "default")).items
        first = next(one for one in found if one["revision"] == 1)
        await world.client.patch(STATEFUL_SETS, "web", "default", first["data"], content_type=STRATEGIC_PATCH)
        await world.wait(120)
        assert await images(world) == ["web:1"] * 2
        assert await revisions(world) == [2, 3]

    tell(story)


@pytest.mark.parametrize(("policy", "left"), [("Retain", ["data-web-0", "data-web-1"]), ("Delete", [])])
def test_claims_are_made_and_kept_as_the_set_says(policy: str, left: list[str]) -> None:
    async def story(world: World) -> None:
        retention = {"whenDeleted": policy, "whenScaled": policy}
        await world.client.create(
            STATEFUL_SETS,
            stateful_set(2, volumeClaimTemplates=CLAIMS, persistentVolumeClaimRetentionPolicy=retention),
        )
        await world.wait(30)
        assert await claims(world) == ["data-web-0", "data-web-1"]
        pod = await world.client.get(PODS, "web-1", "default")
        volumes = {one["name"]: one.get("persistentVolumeClaim") for one in pod["spec"]["volumes"]}
        assert volumes["data"] == {"claimName": "data-web-1"}
        await change(world, STATEFUL_SETS, replicas=1)
        await world.wait(60)
        assert await claims(world) == (left or ["data-web-0"])
        await world.client.delete(STATEFUL_SETS, "web", "default")
        await world.wait(60)
        assert await claims(world) == left
        assert await world.pods() == []

    tell(story)


def test_a_crash_in_the_middle_changes_nothing_about_the_end() -> None:
    async def story(world: World) -> None:
        await world.client.create(STATEFUL_SETS, stateful_set(3))
        for _ in range(5):
            await world.wait(0.7)
            await world.restart()
        await world.wait(60)
        assert await ready_names(world) == ["web-0", "web-1", "web-2"]
        assert await revisions(world) == [1]

    tell(story)


def test_only_some_fields_may_change() -> None:
    async def story(world: World) -> None:
        await world.client.create(STATEFUL_SETS, stateful_set(1))
        with pytest.raises(ApiError, match="updates to statefulset spec for fields other than 'replicas'"):
            await change(world, STATEFUL_SETS, serviceName="other")
        for wrong in ({"podManagementPolicy": "Any"}, {"updateStrategy": {"type": "Now"}}):
            other = stateful_set(1, **wrong)
            other["metadata"]["name"] = "other"
            with pytest.raises(ApiError, match="Unsupported value"):
                await world.client.create(STATEFUL_SETS, other)

    tell(story, pools=[])
