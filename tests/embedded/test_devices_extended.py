"""Extended resources of device classes on the embedded cluster: devices are allocated for them."""

from __future__ import annotations

import pytest
from nodes_stage import Flaky, play, pod
from test_devices_cluster import GPUS, PARTS, allocated, create, device_class

from pykueue.api.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS
from pykueue.embedded.podscheduler.extended import extended_claim

NAME = "example.com/gpu"
BACKED = device_class(extendedResourceName=NAME)


def requesting(name, count, *args, resource=NAME, **more):
    """A pod whose container requests so many of an extended resource."""
    made = pod(name, *args, **more)
    made["spec"]["containers"][0]["resources"] = {"requests": {resource: count}, "limits": {resource: count}}
    return made


@pytest.mark.parametrize("resource", [NAME, "deviceclass.resource.kubernetes.io/gpu.example.com"])
def test_pod_gets_devices_by_a_claim_that_its_status_names(resource):
    async def story(stage):
        await create(stage, BACKED, requesting("p", 2, "sleep", "20", resource=resource))
        await stage.until(10)
        placed = await stage.pod("p")
        shown = placed["status"]["extendedResourceClaimStatus"]
        (claim,) = (await stage.client.list(RESOURCE_CLAIMS)).items
        assert claim["metadata"]["name"] == shown["resourceClaimName"]
        assert claim["metadata"]["name"].startswith("p-extended-resources-")
        assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Pod", "p")
        (mapping,) = shown["requestMappings"]
        assert (mapping["containerName"], mapping["resourceName"]) == ("main", resource)
        results = claim["status"]["allocation"]["devices"]["results"]
        assert {one["request"] for one in results} == {mapping["requestName"]}
        node = placed["spec"]["nodeName"]
        assert await allocated(stage) == {"p": [(node, "gpu-0"), (node, "gpu-1")]}
        await stage.until(60)
        assert (await stage.pod("p"))["status"]["phase"] == "Succeeded"
        assert (await stage.client.list(RESOURCE_CLAIMS)).items == []

    play(story, pools=GPUS, parts=PARTS)


def test_pods_with_extended_resources_and_with_claims_share_the_devices():
    async def story(stage):
        await create(stage, BACKED)
        await create(stage, *(requesting(f"p{number}", 1, "sleep", "60") for number in range(5)))
        await stage.until(10)
        found = await allocated(stage)
        assert len({device for devices in found.values() for device in devices}) == len(found) == 4
        (waiting,) = {f"p{number}" for number in range(5)} - found.keys()
        condition = (await stage.pod(waiting))["status"]["conditions"][0]
        assert condition["message"].startswith("0/2 nodes are available: 2 cannot allocate all claims.")
        await stage.until(100)
        assert (await stage.pod(waiting))["status"]["phase"] == "Running"

    play(story, pools=GPUS, parts=PARTS)


def test_node_that_has_the_resource_itself_needs_no_devices():
    async def story(stage):
        await create(stage, BACKED, requesting("p", 3, "sleep", "60"))
        await stage.until(10)
        assert (await stage.pod("p"))["spec"]["nodeName"] == "n-0"
        assert (await stage.client.list(RESOURCE_CLAIMS)).items == []

    one = GPUS.replace("count: 2\n  allocatable", "count: 1\n  allocatable").replace(
        "pods: 110}", f"pods: 110, {NAME}: 3}}"
    )
    play(story, pools=one, parts=PARTS)


def test_pending_pod_is_placed_when_a_class_begins_to_stand_for_its_resource():
    async def story(stage):
        await create(stage, device_class(), requesting("p", 1, "sleep", "60"))
        await stage.until(10)
        condition = (await stage.pod("p"))["status"]["conditions"][0]
        assert f"Insufficient {NAME}" in condition["message"]
        await stage.client.patch(
            DEVICE_CLASSES, "gpu.example.com", None, {"spec": {"extendedResourceName": NAME}}
        )
        await stage.until(20)
        assert len((await allocated(stage))["p"]) == 1

    play(story, pools=GPUS, parts=PARTS)


def test_devices_are_free_again_when_the_pod_is_deleted():
    async def story(stage):
        await create(stage, BACKED, requesting("p", 2, "sleep", "1000"))
        await stage.until(10)
        await stage.client.delete(PODS, "p", "default", grace_period=0)
        await stage.until(20)
        assert (await stage.client.list(RESOURCE_CLAIMS)).items == []
        await create(stage, *(requesting(name, 2, "sleep", "1000") for name in ("q", "r")))
        await stage.until(30)
        assert len(await allocated(stage)) == 2

    play(story, pools=GPUS, parts=PARTS)


@pytest.mark.parametrize("fails", ["/binding", "/resourceclaims"])
def test_each_pod_has_one_claim_although_writes_fail(fails):
    async def story(stage):
        await create(stage, BACKED)
        await create(stage, *(requesting(f"p{number}", 1, "sleep", "1000") for number in range(4)))
        await stage.until(120)
        found = await allocated(stage)
        assert {name: len(devices) for name, devices in found.items()} == {f"p{n}": 1 for n in range(4)}
        assert len({device for devices in found.values() for device in devices}) == 4
        claims = (await stage.client.list(RESOURCE_CLAIMS)).items
        shown = [(await stage.pod(name))["status"]["extendedResourceClaimStatus"] for name in found]
        names = {one["resourceClaimName"] for one in shown}
        assert sorted(one["metadata"]["name"] for one in claims) == sorted(names)

    play(story, pools=GPUS, parts=PARTS, wrap=lambda inner: Flaky(inner, fails))


def container(name, count, **more):
    """A container that requests so many of the extended resource, besides cpu."""
    return {"name": name, "resources": {"requests": {"cpu": "1", NAME: count}}, **more}


@pytest.mark.parametrize(
    ("inits", "mains", "counts", "mappings"),
    [
        (
            [],
            [container("a", 2), container("b", 1)],
            {"container-0-request-1": 2, "container-1-request-1": 1},
            [("a", "container-0-request-1"), ("b", "container-1-request-1")],
        ),
        (
            [container("i", 1)],
            [container("a", 2)],
            {"container-1-request-1": 2},
            [("a", "container-1-request-1"), ("i", "container-1-request-1")],
        ),
        (
            [container("i", 5), container("j", 3)],
            [container("a", 2)],
            {"container-0-request-1": 3, "container-2-request-1": 2},
            [
                ("a", "container-2-request-1"),
                ("i", "container-2-request-1"),
                ("j", "container-2-request-1"),
                ("i", "container-0-request-1"),
                ("j", "container-0-request-1"),
            ],
        ),
        (
            [container("sidecar", 1, restartPolicy="Always"), container("i", 1)],
            [container("a", 1)],
            {"container-0-request-1": 1, "container-2-request-1": 1},
            [
                ("sidecar", "container-0-request-1"),
                ("a", "container-2-request-1"),
                ("i", "container-2-request-1"),
            ],
        ),
    ],
    ids=["containers", "init uses those after it", "largest init", "sidecar keeps its own"],
)
def test_requests_of_the_claim(inits, mains, counts, mappings):
    spec = {"initContainers": inits, "containers": mains}
    wanted = extended_claim(spec, {NAME: "gpu.example.com"})
    requests = {one["name"]: one["exactly"]["count"] for one in wanted.spec["devices"]["requests"]}
    assert requests == counts
    assert [(one["containerName"], one["requestName"]) for one in wanted.mappings] == mappings
