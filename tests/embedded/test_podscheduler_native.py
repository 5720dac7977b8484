"""Kubernetes' own groups of pods, behind their feature gate."""

import pytest
from gangs_stage import EIGHT, bound, group, native, play, serve
from nodes_stage import condition, pod

from pykueue.embedded.podgroups.admission import webhooks
from pykueue.embedded.podgroups.definitions import NATIVE_POD_GROUPS, NATIVE_WORKLOADS
from pykueue.kube.errors import ApiError


def test_native_group_has_a_condition_for_scheduling():
    async def story(stage):
        await serve(stage)
        resource = NATIVE_POD_GROUPS
        await stage.create(*(pod(f"other-{i}", "sleep", "20", cpu="1") for i in range(5)))
        await stage.clock.sleep(1)
        await stage.client.create(resource, group(resource, "a", minMember=4))
        await stage.create(*native("a", 4))
        await stage.clock.sleep(3)
        waiting = await stage.client.get(resource, "a", "default")
        assert condition(waiting, "PodGroupScheduled") == ("False", "Unschedulable")
        await stage.clock.sleep(30)
        assert await bound(stage, "a") == 4
        placed = await stage.client.get(resource, "a", "default")
        assert condition(placed, "PodGroupScheduled") == ("True", "Scheduled")

    play(story, pools=EIGHT)


def test_a_native_group_stays_as_long_as_a_pod_uses_it():
    async def story(stage):
        await serve(stage)
        resource = NATIVE_POD_GROUPS
        await stage.client.create(resource, group(resource, "a", minMember=2))
        await stage.create(*native("a", 2, "sleep", "20"))
        await stage.clock.sleep(5)
        await stage.client.delete(resource, "a", "default")
        await stage.clock.sleep(5)
        leaving = await stage.client.get(resource, "a", "default")
        assert leaving["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
        await stage.clock.sleep(20)
        with pytest.raises(ApiError, match="not found"):
            await stage.client.get(resource, "a", "default")

    play(story, pools=EIGHT)


def test_a_native_group_is_made_from_a_template_that_is_there():
    async def story(stage):
        for webhook in webhooks(stage.server):
            stage.server.admission.register(webhook)
        resource = NATIVE_POD_GROUPS
        reference = {"workloadName": "w", "podGroupTemplateName": "t"}
        made = group(resource, "a", minMember=2)
        made["spec"]["podGroupTemplateRef"] = {"workload": reference}
        with pytest.raises(ApiError, match="workload w does not exist"):
            await stage.client.create(resource, made)
        workload = {
            "apiVersion": NATIVE_WORKLOADS.api_version,
            "kind": "Workload",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}]},
        }
        await stage.client.create(NATIVE_WORKLOADS, workload)
        await stage.client.create(resource, made)
        reference["podGroupTemplateName"] = "other"
        made["metadata"]["name"] = "b"
        with pytest.raises(ApiError, match="workload w has no pod group template other"):
            await stage.client.create(resource, made)
        grown = {"spec": {"podGroupTemplates": [{"name": "u", "schedulingPolicy": {"basic": {}}}]}}
        with pytest.raises(ApiError, match="immutable"):
            await stage.client.patch(NATIVE_WORKLOADS, "w", "default", grown)

    play(story, pools=EIGHT)


def test_a_basic_native_group_is_placed_pod_by_pod():
    async def story(stage):
        await serve(stage)
        loose = group(NATIVE_POD_GROUPS, "a", minMember=1)
        loose["spec"]["schedulingPolicy"] = {"basic": {}}
        await stage.client.create(NATIVE_POD_GROUPS, loose)
        await stage.create(*native("a", 10))
        await stage.clock.sleep(5)
        assert await bound(stage, "a") == 8

    play(story, pools=EIGHT)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({}, "must specify one of"),
        ({"basic": {}, "gang": {"minCount": 1}}, "must specify exactly one of"),
        ({"gang": {"minCount": 0}}, "must be greater than zero"),
    ],
)
def test_a_native_group_has_one_policy(policy, message):
    async def story(stage):
        wrong = group(NATIVE_POD_GROUPS, "a", minMember=1)
        wrong["spec"]["schedulingPolicy"] = policy
        with pytest.raises(ApiError, match=message):
            await stage.client.create(NATIVE_POD_GROUPS, wrong)
        template = {"name": "t", "schedulingPolicy": policy}
        workload = {"apiVersion": NATIVE_WORKLOADS.api_version, "kind": "Workload"}
        spec = {"podGroupTemplates": [template]}
        with pytest.raises(ApiError, match=message):
            await stage.client.create(
                NATIVE_WORKLOADS,
                {**workload, "metadata": {"name": "w", "namespace": "default"}, "spec": spec},
            )

    play(story, pools=EIGHT)
