"""Taints of devices on the embedded cluster: what they keep away, and which pods they end."""

from __future__ import annotations

import pytest
from nodes_stage import play
from test_devices_cluster import GPUS, PARTS, allocated, claiming, create, device_class, template

from pykueue.api.resources import DEVICE_TAINT_RULES, EVENTS, RESOURCE_SLICES
from pykueue.kube.errors import ApiError

DRIVER = "gpu.example.com"
ONE = GPUS.replace("count: 2\n  allocatable", "count: 1\n  allocatable")


def rule(name="r", effect="NoExecute", **selector):
    """A DeviceTaintRule; without names of the selector it taints no device."""
    spec = {"taint": {"key": "example.com/broken", "value": "yes", "effect": effect}}
    if selector:
        spec["deviceSelector"] = selector
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": spec,
    }


def toleration(**more):
    """One that tolerates the taint of the rule."""
    return {"key": "example.com/broken", "operator": "Exists", **more}


async def phases(stage, *names):
    """The phases of pods; None for those that are gone."""
    known = {one["metadata"]["name"]: one["status"]["phase"] for one in await stage.pods()}
    return {name: known.get(name) for name in names}


async def condition(stage, name="r"):
    """(status, reason, message) of the condition of a rule."""
    stored = await stage.client.get(DEVICE_TAINT_RULES, name)
    (found,) = stored["status"]["conditions"]
    assert found["type"] == "EvictionInProgress"
    return found["status"], found["reason"], found.get("message", "")


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_tainted_device_is_allocated_only_to_requests_that_tolerate_it(effect):
    async def story(stage):
        await stage.client.create(DEVICE_TAINT_RULES, rule(effect=effect, device="gpu-0"))
        await create(
            stage,
            device_class(),
            template("plain", 2),
            template("tolerant", 2, tolerations=[toleration(effect=effect)]),
            claiming("plain", "plain", "sleep", "5"),
        )
        await stage.until(20)
        assert (await phases(stage, "plain")) == {"plain": "Pending"}
        await create(stage, claiming("tolerant", "tolerant", "sleep", "1000"))
        await stage.until(30)
        assert len((await allocated(stage))["tolerant"]) == 2

    play(story, pools=ONE, parts=PARTS)


def test_rule_ends_the_pods_on_its_devices_and_shows_its_progress():
    async def story(stage):
        await create(
            stage,
            device_class(),
            template("plain"),
            template("short", tolerations=[toleration(effect="NoExecute", tolerationSeconds=60)]),
            template("good", tolerations=[toleration(effect="NoExecute")]),
            *(claiming(name, name, "sleep", "1000") for name in ("plain", "short", "good")),
        )
        await stage.until(10)
        assert set(await allocated(stage)) == {"plain", "short", "good"}
        await stage.client.create(DEVICE_TAINT_RULES, rule(driver=DRIVER))
        await stage.until(20)
        assert await phases(stage, "plain", "short", "good") == {
            "plain": None,
            "short": "Running",
            "good": "Running",
        }
        reasons = [one["reason"] for one in (await stage.client.list(EVENTS)).items]
        assert reasons.count("DeviceTaintManagerEviction") == 1
        await stage.until(40)
        status, reason, message = await condition(stage)
        assert (status, reason) == ("True", "PodsPendingEviction")
        assert message.startswith("1 pod needs to be evicted in 1 namespace. 1 pod evicted since")
        await stage.until(200)
        assert await phases(stage, "short", "good") == {"short": None, "good": "Running"}
        assert await condition(stage) == (
            "False",
            "Completed",
            "2 pods evicted since starting the controller.",
        )

    play(story, pools=GPUS, parts=PARTS)


def test_taint_without_effect_changes_nothing():
    async def story(stage):
        await stage.client.create(DEVICE_TAINT_RULES, rule(effect="None", driver=DRIVER))
        await create(stage, device_class(), template("plain"), claiming("p", "plain", "sleep", "1000"))
        await stage.until(20)
        assert await phases(stage, "p") == {"p": "Running"}
        assert (await condition(stage))[:2] == ("False", "NoEffect")

    play(story, pools=ONE, parts=PARTS)


def test_pod_stays_if_the_rule_is_deleted_in_time():
    async def story(stage):
        short = template("short", tolerations=[toleration(effect="NoExecute", tolerationSeconds=60)])
        await create(stage, device_class(), short, claiming("p", "short", "sleep", "1000"))
        await stage.until(10)
        await stage.client.create(DEVICE_TAINT_RULES, rule(pool="n-0"))
        await stage.until(30)
        await stage.client.delete(DEVICE_TAINT_RULES, "r")
        await stage.until(200)
        assert await phases(stage, "p") == {"p": "Running"}
        messages = [one["message"] for one in (await stage.client.list(EVENTS)).items]
        assert "Cancelling deletion" in messages

    play(story, pools=ONE, parts=PARTS)


def test_taint_of_a_slice_ends_the_pod_with_a_condition():
    async def story(stage):
        await create(stage, device_class(), template("plain", 2), claiming("p", "plain", "sleep", "1000"))
        await stage.until(10)
        (published,) = (await stage.client.list(RESOURCE_SLICES)).items
        published["spec"]["devices"][1]["taints"] = [{"key": "example.com/broken", "effect": "NoExecute"}]
        published["metadata"]["ownerReferences"] = []  # the simulated driver leaves this slice alone
        stored = await stage.client.update(RESOURCE_SLICES, published)
        assert stored["spec"]["devices"][1]["taints"][0]["timeAdded"]
        seen = await stage.pod("p")
        while seen is not None and not any(
            one["type"] == "DisruptionTarget" for one in seen["status"]["conditions"]
        ):
            await stage.clock.sleep(0.01)
            seen = await stage.pod("p")
        (found,) = [one for one in seen["status"]["conditions"] if one["type"] == "DisruptionTarget"]
        assert found["reason"] == "DeletionByDeviceTaintManager"

    play(story, pools=ONE, parts=PARTS)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (rule(effect="Never", driver=DRIVER), "spec.taint.effect"),
        (rule(driver="No Driver"), "spec.deviceSelector.driver"),
    ],
)
def test_rule_is_validated(wrong, field):
    async def story(stage):
        with pytest.raises(ApiError, match=field):
            await stage.client.create(DEVICE_TAINT_RULES, wrong)

    play(story, pools=ONE, parts=PARTS)
