"""Claims of devices on the embedded cluster: made of templates, allocated by the scheduler, released."""

from __future__ import annotations

import pytest
from nodes_stage import play, pod

from pykueue.api.resources import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from pykueue.kube.errors import ApiError

PARTS = ("nodes", "scheduler", "controllers")
VERSION = "resource.k8s.io/v1"
GPUS = """
pools:
- name: n
  count: 2
  allocatable: {cpu: 8, pods: 110}
  simulation: {startDelay: 1s}
  devices:
  - {driver: gpu.example.com, name: gpu, count: 2, attributes: {model: a100}, capacity: {memory: 80Gi}}
"""


def device_class(name="gpu.example.com", expression="device.driver == 'gpu.example.com'", **spec):
    """A DeviceClass."""
    selectors = [{"cel": {"expression": expression}}]
    return {
        "apiVersion": VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def claim_spec(count=1, *expressions, of="gpu.example.com", constraints=(), **more):
    """The spec of a claim of so many devices."""
    exactly = {"deviceClassName": of, **({"count": count} if count else {}), **more}
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in expressions]
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    return {"devices": {**devices, **({"constraints": list(constraints)} if constraints else {})}}


def template(name, *args, **more):
    """A ResourceClaimTemplate."""
    return {
        "apiVersion": VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": claim_spec(*args, **more)},
    }


def claim(name, *args, **more):
    """A ResourceClaim that pods name directly."""
    return {
        "apiVersion": VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": claim_spec(*args, **more),
    }


def claiming(name, source, *args, by="resourceClaimTemplateName", **more):
    """A pod with one claim."""
    made = pod(name, *args, **more)
    made["spec"]["resourceClaims"] = [{"name": "gpu", by: source}]
    return made


async def allocated(stage):
    """(node's pool, device) of each claim, by the pod that it is reserved for first."""
    found = {}
    for item in (await stage.client.list(RESOURCE_CLAIMS)).items:
        status = item.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        for user in status.get("reservedFor") or ():
            found.setdefault(user["name"], []).extend((one["pool"], one["device"]) for one in results)
    return found


async def create(stage, *objects):
    for one in objects:
        kind = {
            "DeviceClass": DEVICE_CLASSES,
            "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES,
            "ResourceClaim": RESOURCE_CLAIMS,
            "Pod": PODS,
        }[one["kind"]]
        await stage.client.create(kind, one)


def test_the_driver_publishes_the_devices_of_its_nodes():
    async def story(stage):
        await stage.until(1)
        slices = (await stage.client.list(RESOURCE_SLICES)).items
        assert [one["metadata"]["name"] for one in slices] == ["n-0-gpu.example.com", "n-1-gpu.example.com"]
        spec = slices[0]["spec"]
        assert (spec["nodeName"], spec["pool"]["name"]) == ("n-0", "n-0")
        assert [one["name"] for one in spec["devices"]] == ["gpu-0", "gpu-1"]
        # Another annotation is another generation of the pool.
        text = '[{"driver": "gpu.example.com", "name": "gpu", "count": 1}]'
        patch = {"metadata": {"annotations": {"sim.pykueue.io/devices": text}}}
        await stage.client.patch(NODES, "n-0", None, patch)
        await stage.until(2)
        changed = await stage.client.get(RESOURCE_SLICES, "n-0-gpu.example.com")
        assert (changed["spec"]["pool"]["generation"], len(changed["spec"]["devices"])) == (2, 1)
        await stage.client.delete(NODES, "n-1")
        await stage.until(30)
        (left,) = (await stage.client.list(RESOURCE_SLICES)).items
        assert left["spec"]["nodeName"] == "n-0"

    play(story, pools=GPUS, parts=PARTS)


def test_pods_get_devices_and_wait_for_those_of_others():
    async def story(stage):
        await create(stage, device_class(), template("one"))
        await create(stage, *(claiming(f"p{number}", "one", "sleep", "60") for number in range(5)))
        await stage.until(10)
        found = await allocated(stage)
        assert sorted(device for devices in found.values() for device in devices) == [
            ("n-0", "gpu-0"),
            ("n-0", "gpu-1"),
            ("n-1", "gpu-0"),
            ("n-1", "gpu-1"),
        ]
        for name, ((pool, _),) in found.items():
            assert (await stage.pod(name))["spec"]["nodeName"] == pool
        (waiting,) = {f"p{number}" for number in range(5)} - found.keys()
        condition = (await stage.pod(waiting))["status"]["conditions"][0]
        assert condition["message"].startswith("0/2 nodes are available: 2 cannot allocate all claims.")
        await stage.until(100)
        assert (await stage.pod(waiting))["status"]["phase"] == "Running"
        await stage.until(200)
        # Claims of pods that have ended are deleted.
        assert (await stage.client.list(RESOURCE_CLAIMS)).items == []

    play(story, pools=GPUS, parts=PARTS)


def test_claims_of_a_deleted_pod_are_released():
    async def story(stage):
        await create(stage, device_class(), template("both", 2), claiming("first", "both", "sleep", "1000"))
        await stage.until(5)
        (made,) = (await stage.client.list(RESOURCE_CLAIMS)).items
        assert made["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
        assert made["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        assert (await stage.pod("first"))["status"]["resourceClaimStatuses"] == [
            {"name": "gpu", "resourceClaimName": made["metadata"]["name"]}
        ]
        await stage.client.delete(PODS, "first", "default")
        await stage.until(60)
        assert (await stage.client.list(RESOURCE_CLAIMS)).items == []

    play(story, pools=GPUS, parts=PARTS)


def test_several_pods_share_a_claim_and_its_node():
    async def story(stage):
        await create(stage, device_class(), claim("shared"))
        names = [f"p{number}" for number in range(3)]
        await create(
            stage, *(claiming(name, "shared", "sleep", "60", by="resourceClaimName") for name in names)
        )
        await stage.until(10)
        nodes = {(await stage.pod(name))["spec"]["nodeName"] for name in names}
        assert len(nodes) == 1
        (made,) = (await stage.client.list(RESOURCE_CLAIMS)).items
        assert sorted(one["name"] for one in made["status"]["reservedFor"]) == names
        await stage.until(100)
        (made,) = (await stage.client.list(RESOURCE_CLAIMS)).items
        assert made.get("status", {}).get("allocation") is None

    play(story, pools=GPUS, parts=PARTS)


def test_a_pod_waits_for_the_template_it_names():
    async def story(stage):
        await create(stage, device_class(), claiming("p", "late", "sleep", "60"))
        await stage.until(5)
        (reason, text) = (await stage.events("p"))[0]
        assert reason == "FailedResourceClaimCreation"
        assert "resource claim template late not found" in text
        await create(stage, template("late"))
        await stage.until(40)
        assert (await stage.pod("p"))["status"]["phase"] == "Running"

    play(story, pools=GPUS, parts=PARTS)


def test_claim_of_a_pod_that_a_user_deletes_is_made_again():
    async def story(stage):
        await create(stage, device_class(), template("t", 3), claiming("p", "t", "sleep", "60"))
        await stage.until(5)
        (made,) = (await stage.client.list(RESOURCE_CLAIMS)).items
        await stage.client.delete(RESOURCE_CLAIM_TEMPLATES, "t", "default")
        await create(stage, template("t", 2))
        await stage.client.delete(RESOURCE_CLAIMS, made["metadata"]["name"], "default")
        await stage.until(40)
        assert len((await allocated(stage))["p"]) == 2
        assert (await stage.pod("p"))["status"]["phase"] == "Running"

    play(story, pools=GPUS, parts=PARTS)


PARTITIONED = """
pools:
- name: n
  allocatable: {cpu: 8, pods: 110}
  simulation: {startDelay: 1s}
  devices:
  - driver: gpu.example.com
    name: gpu
    capacity: {memory: 80Gi}
    partitions:
    - {name: half, count: 2, capacity: {memory: 40Gi}}
    - {name: small, count: 4, capacity: {memory: 20Gi}}
"""


def test_partitions_of_a_device_use_its_counters():
    async def story(stage):
        part = "device.attributes['gpu.example.com'].?partition.orValue('') == '{}'"
        await create(
            stage,
            device_class(),
            *(template(name, 1, part.format(name)) for name in ("half", "small")),
            template("whole", 1, part.format("")),
        )
        await create(stage, *(claiming(f"{name}-0", name, "sleep", "1000") for name in ("half", "small")))
        await stage.until(3)
        await create(stage, claiming("small-1", "small", "sleep", "1000"))
        await stage.until(6)
        assert sorted(await allocated(stage)) == ["half-0", "small-0", "small-1"]
        await create(stage, *(claiming(f"{name}-9", name) for name in ("half", "small", "whole")))
        await stage.until(20)
        assert sorted(await allocated(stage)) == ["half-0", "small-0", "small-1"]

    play(story, pools=PARTITIONED, parts=PARTS)


SHARED = GPUS.replace("capacity: {memory: 80Gi}", "capacity: {memory: 80Gi}, shared: true")


def test_claims_share_the_capacity_of_a_device():
    async def story(stage):
        capacity = {"requests": {"memory": "30Gi"}}
        await create(stage, device_class(), template("some", 1, capacity=capacity))
        await create(stage, *(claiming(f"p{number}", "some", "sleep", "1000") for number in range(9)))
        await stage.until(10)
        found = await allocated(stage)
        assert len(found) == 8  # two on each of the four devices
        made = (await stage.client.list(RESOURCE_CLAIMS)).items
        results = [
            one["status"]["allocation"]["devices"]["results"][0]
            for one in made
            if (one.get("status") or {}).get("allocation")
        ]
        assert {one["consumedCapacity"]["memory"] for one in results} == {"30Gi"}
        assert len({one["shareID"] for one in results}) == 8

    play(story, pools=SHARED, parts=PARTS)


@pytest.mark.parametrize(
    ("spec", "devices"),
    [
        (claim_spec(0, allocationMode="All"), 2),
        (claim_spec(1, "device.attributes['gpu.example.com'].index == 1"), 1),
        (claim_spec(2, constraints=[{"matchAttribute": "gpu.example.com/model"}]), 2),
        (claim_spec(2, constraints=[{"matchAttribute": "gpu.example.com/index"}]), 0),
        (claim_spec(2, constraints=[{"distinctAttribute": "gpu.example.com/index"}]), 2),
        (claim_spec(1, adminAccess=True), 1),
        (claim_spec(1, "device.capacity['gpu.example.com'].memory.isLessThan(quantity('1Gi'))"), 0),
        (claim_spec(1, of="missing.example.com"), 0),
        (claim_spec(1, capacity={"requests": {"memory": "90Gi"}}), 0),
    ],
    ids=["all", "selector", "match", "no match", "distinct", "admin", "capacity", "class", "amount"],
)  # fmt: skip
def test_what_a_claim_may_request(spec, devices):
    async def story(stage):
        made = {**claim("c"), "spec": spec}
        await create(stage, device_class(), made, claiming("p", "c", by="resourceClaimName"))
        await stage.until(10)
        found = await allocated(stage)
        assert len(found.get("p", ())) == devices

    play(story, pools=GPUS, parts=PARTS)


def test_the_first_alternative_that_is_available_is_taken():
    async def story(stage):
        few = {"name": "few", "deviceClassName": "gpu.example.com", "count": 1}
        many = {"name": "many", "deviceClassName": "gpu.example.com", "count": 3}
        made = claim("c")
        made["spec"] = {"devices": {"requests": [{"name": "gpu", "firstAvailable": [many, few]}]}}
        await create(stage, device_class(), made, claiming("p", "c", by="resourceClaimName"))
        await stage.until(10)
        stored = await stage.client.get(RESOURCE_CLAIMS, "c", "default")
        (result,) = stored["status"]["allocation"]["devices"]["results"]
        assert result["request"] == "gpu/few"

    play(story, pools=GPUS, parts=PARTS)


@pytest.mark.parametrize(
    ("obj", "field"),
    [
        (device_class(expression="device.driver =="), "spec.selectors[0].cel.expression"),
        (claim("c", -1), "spec.devices.requests[0].exactly.count"),
        (claim("c", 1, allocationMode="Some"), "spec.devices.requests[0].exactly.allocationMode"),
        (claim("c", 1, of=""), "spec.devices.requests[0].exactly.deviceClassName"),
        (template("t", 2, allocationMode="All"), "spec.spec.devices.requests[0].exactly.count"),
        (claim("c", constraints=[{"requests": ["x"]}]), "spec.devices.constraints[0].requests[0]"),
    ],
)
def test_invalid_objects_are_refused(obj, field):
    async def story(stage):
        with pytest.raises(ApiError) as caught:
            await create(stage, obj)
        assert caught.value.reason == "Invalid"
        assert field in str(caught.value)

    play(story, pools=GPUS, parts=PARTS)


def test_specs_of_claims_and_templates_cannot_change():
    async def story(stage):
        await create(stage, claim("c"), template("t"))
        stored = await stage.client.get(RESOURCE_CLAIMS, "c", "default")
        (request,) = stored["spec"]["devices"]["requests"]
        assert request["exactly"]["allocationMode"] == "ExactCount"
        assert request["exactly"]["count"] == 1
        for kind, obj in ((RESOURCE_CLAIMS, claim("c", 2)), (RESOURCE_CLAIM_TEMPLATES, template("t", 2))):
            with pytest.raises(ApiError, match="immutable"):
                await stage.client.patch(kind, obj["metadata"]["name"], "default", {"spec": obj["spec"]})

    play(story, pools=GPUS, parts=PARTS)
