"""What claims of devices cost, and which keep a workload out of its queue."""

from __future__ import annotations

import json
from typing import Any

import pytest
from engine_devices import GPUS, charged, device, device_class, pods, request, slices, source, template, world
from engine_world import World

from pykueue.api.objects import key_of
from pykueue.engine import Removed, workload_events
from pykueue.engine.dump import dump, load
from pykueue.engine.options import DeviceMapping
from pykueue.engine.quota.usage import to_quantity

MEMORY = DeviceMapping(
    "example.com/memory",
    ("gpu.example.com",),
    (source("counter", "memory", "device.attributes['gpu.example.com'].slice == true"),),
)
SHARED = DeviceMapping("example.com/memory", ("gpu.example.com",), (source("capacity", "memory"),))


GI = 2**30


def reason(made: World) -> tuple[str, str]:
    return made.engine.pending_reason("default/w")


def test_claims_are_counted_by_the_resource_of_their_class() -> None:
    made = world()
    template(made, "one", request(count=1))
    template(
        made, "three", request(count=2), request("big.example.com", 1), request(count=7, adminAccess=True)
    )
    made.workload("w", "q", template=pods("one", "three"), count=2)
    made.workload("small", "q", template=pods("one"), count=3)
    made.stable()
    assert charged(made) == {"example.com/gpus": 8}
    assert made.reserved() == {"small"}
    assert made.reasons["w"] == "ExceedsMaxQuota"


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (request("odd.example.com"), "DeviceClass odd.example.com is not mapped to a resource"),
        ({"firstAvailable": [{"name": "a", "deviceClassName": "c"}]}, "firstAvailable is not supported"),
        (request(allocationMode="All"), "All is not supported"),
        (request("gpu.example.com", 1, "device.driver =="), "CEL compilation failed"),
        (request("gpu.example.com", 1, "device.attributes['x'].y == 1"), "no such key: y"),
        (request("gpu.example.com", 3, "true"), "match in the cluster, 3 requested"),
    ],
    ids=["unmapped", "first available", "all", "syntax", "evaluation", "too few"],
)  # fmt: skip
def test_claim_that_cannot_be_counted_keeps_a_workload_out_of_its_queue(claim: Any, message: str) -> None:
    made = world()
    device_class(made, "gpu.example.com")
    slices(made, device("a"), device("b"))
    template(made, "t", claim)
    made.workload("w", "q", template=pods("t"))
    made.stable()
    assert made.engine.in_line("q") == ([], [])
    name, text = reason(made)
    assert name == "Misconfigured"
    assert message in text
    assert text.startswith("podSet main: spec.resourceClaims[0]: ResourceClaimTemplate t: ")
    # It enters its queue as soon as the template is another.
    template(made, "t", request())
    made.stable()
    assert made.reserved() == {"w"}


def test_a_claim_by_name_is_refused() -> None:
    made = world()
    made.workload("w", "q", template=pods("shared", by="resourceClaimName"))
    made.stable()
    assert reason(made)[0] == "Misconfigured"
    assert "a claim that several pods share is not counted" in reason(made)[1]


def test_templates_are_those_of_the_namespace_of_the_workload() -> None:
    made = world()
    template(made, "t", request(), namespace="other")
    made.workload("w", "q", template=pods("t"))
    made.stable()
    assert reason(made) == (
        "Misconfigured",
        "podSet main: spec.resourceClaims[0]: ResourceClaimTemplate t not found",
    )
    template(made, "t", request(count=3))
    made.stable()
    assert charged(made) == {"example.com/gpus": 3}
    made.driver.apply(Removed("ResourceClaimTemplate", "default", "t"))
    assert made.reserved() == {"w"}  # what was admitted stays


def test_devices_of_an_old_generation_or_an_incomplete_pool_do_not_count() -> None:
    made = world()
    device_class(made, "gpu.example.com", "device.driver == 'gpu.example.com'")
    slices(made, device("a"), device("b"), name="old")
    slices(made, device("a"), name="new", generation=2, count=2)
    template(
        made,
        "t",
        request(
            "gpu.example.com", 2, "quantity('1Gi').isLessThan(device.capacity['gpu.example.com'].memory)"
        ),
    )
    made.workload("w", "q", template=pods("t"))
    made.stable()
    assert "0 device(s)" in reason(made)[1]
    slices(made, device("c", memory="1Mi"), device("d"), name="new2", generation=2, count=2)
    made.stable()
    assert made.reserved() == {"w"}


def test_two_requests_do_not_count_on_the_same_device() -> None:
    made = world()
    device_class(made, "gpu.example.com")
    slices(made, device("a", fast=True), device("b", fast=False))
    fast = request("gpu.example.com", 1, "device.attributes['gpu.example.com'].fast")
    template(made, "t", request("gpu.example.com", 1, "true"), fast)
    made.workload("w", "q", template=pods("t"))
    template(made, "twice", fast, fast)
    made.workload("other", "q", template=pods("twice"))
    made.stable()
    assert made.reserved() == {"w"}
    assert made.engine.in_line("q") == ([], [])


# --- gates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("integration", "reject", "expected"),
    [(True, True, {"example.com/gpus": 1}), (False, True, None), (False, False, {})],
)
def test_gates_of_the_integration(integration: bool, reject: bool, expected: dict[str, int] | None) -> None:
    gates = {"KueueDRAIntegration": integration, "KueueDRARejectWorkloadsWhenDRADisabled": reject}
    made = world(**gates)
    template(made, "t", request())
    made.workload("w", "q", template=pods("t"))
    made.stable()
    assert made.reserved() == (set() if expected is None else {"w"})
    if expected is None:
        assert reason(made)[0] == "Misconfigured"
    else:
        assert charged(made) == expected


@pytest.mark.parametrize("on", [True, False])
def test_gate_of_counters(on: bool) -> None:
    """KueueDRAIntegrationPartitionableDevices: the largest amount of a device that matches, or the number."""
    made = world(
        MEMORY, quota={"cpu": 9, "example.com/memory": "100Gi"}, KueueDRAIntegrationPartitionableDevices=on
    )
    device_class(made, "gpu.example.com")
    slices(
        made,
        *(partition(name, memory) for name, memory in (("a", "10Gi"), ("b", "20Gi"))),
        device("c", slice=False),
    )
    template(made, "t", request(count=2))
    made.workload("w", "q", template=pods("t"))
    made.stable()
    assert charged(made) == {"example.com/memory": 40 * GI if on else 2}
    template(made, "t", request(count=3))
    made.workload("more", "q", template=pods("t"))
    made.stable()
    assert ("more" in made.reserved()) is not on  # the third device is no partition


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("example.com/memory", 40 * GI, "40Gi"),
        ("example.com/memory", 3 * GI // 2, "1536Mi"),
        ("example.com/memory", 1000, "1k"),
        ("example.com/gpus", 2, "2"),
        ("example.com/gpus", 0, "0"),
    ],
)
def test_amounts_of_counters_are_shown_as_sizes(resource: str, amount: int, shown: str) -> None:
    assert str(to_quantity(resource, amount)) == shown


def partition(name: str, memory: str) -> dict[str, Any]:
    consumes = [{"counterSet": "gpu0", "counters": {"memory": {"value": memory}}}]
    return {**device(name, slice=True), "consumesCounters": consumes}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize(
    ("policy", "requested", "expected"),
    [
        (None, None, 80),
        (None, "3Gi", 6),
        ({"default": "4Gi", "validValues": ["4Gi", "8Gi"]}, None, 8),
        ({"validValues": ["4Gi", "8Gi"]}, "5Gi", 16),
        ({"validRange": {"min": "2Gi", "step": "2Gi", "max": "10Gi"}}, "5Gi", 12),
        ({"validRange": {"min": "2Gi", "step": "2Gi", "max": "10Gi"}}, "11Gi", None),
    ],
)
def test_gate_of_capacity(on: bool, policy: Any, requested: str | None, expected: int | None) -> None:
    """KueueDRAIntegrationConsumableCapacity: the amount that devices give to requests, or the number."""
    quota = {"cpu": 9, "example.com/memory": "100Gi"}
    made = world(SHARED, quota=quota, KueueDRAIntegrationConsumableCapacity=on)
    device_class(made, "gpu.example.com")
    shared = device("a")
    if policy:
        shared["capacity"]["memory"]["requestPolicy"] = policy
    slices(made, shared, {**shared, "name": "b"})
    more = {"capacity": {"requests": {"memory": requested}}} if requested else {}
    template(made, "t", request(count=2, **more))
    made.workload("w", "q", template=pods("t"))
    made.stable()
    if on and expected is None:
        assert "no matching device allows the requested amount of memory" in reason(made)[1]
    else:
        assert charged(made) == {"example.com/memory": (expected or 0) * GI if on else 2}


@pytest.mark.parametrize("on", [True, False])
def test_gate_of_extended_resources(on: bool) -> None:
    """KueueDRAIntegrationExtendedResource: charged as the resource of the newest class that backs it."""
    gate = {"KueueDRAIntegrationExtendedResource": on}
    made = world(quota={"cpu": 9, "example.com/gpus": 4, "example.com/gpu": 9, "other.com/nic": 2}, **gate)
    made.workload("w", "q", template=pods(**{"example.com/gpu": "2", "other.com/nic": "1"}))
    assert charged(made) == {"example.com/gpu": 2, "other.com/nic": 1}
    device_class(made, "old.example.com", extended="example.com/gpu")
    device_class(made, "gpu.example.com", extended="example.com/gpu", created=5)
    device_class(made, "nic", extended="other.com/nic")
    made.stable()
    assert charged(made) == (
        {"example.com/gpus": 2, "other.com/nic": 1} if on else {"example.com/gpu": 2, "other.com/nic": 1}
    )


def test_extended_resources_are_whole_and_not_counted_by_sources() -> None:
    made = world(MEMORY, quota={"cpu": 9, "example.com/memory": 9, "other.com/nic": 9})
    device_class(made, "gpu.example.com", extended="example.com/gpu")
    device_class(made, "nic", extended="other.com/nic")
    made.workload("w", "q", template=pods(**{"example.com/gpu": "1"}))
    assert "its DeviceClass gpu.example.com is counted by counter" in reason(made)[1]
    made.workload("half", "q", template=pods(**{"other.com/nic": "500m"}))
    _, text = made.engine.pending_reason("default/half")
    assert "500m of other.com/nic is not a whole number of devices" in text


def test_init_containers_use_devices_one_after_the_other() -> None:
    made = world()
    device_class(made, "gpu.example.com", extended="example.com/gpu")
    spec = pods(**{"example.com/gpu": "1"})
    (container,) = spec["containers"]
    init = {**container, "resources": {"requests": {"example.com/gpu": "3"}}}
    made.workload(
        "w", "q", template={**spec, "containers": [container, container], "initContainers": [init, init]}
    )
    made.stable()
    assert charged(made) == {"example.com/gpus": 3}


def test_a_fork_forgets_devices() -> None:
    made = world()
    template(made, "t", request())
    made.workload("w", "q", template=pods("t"))
    with made.engine.fork():
        template(made, "t", request(count=9))
        assert charged(made) == {"example.com/gpus": 9}
    assert charged(made) == {"example.com/gpus": 1}
    made.stable()
    assert made.reserved() == {"w"}


# --- dumps ----------------------------------------------------------------------------------------------


def test_engine_loaded_from_a_dump_knows_the_devices_and_decides_the_same() -> None:
    made = world()
    device_class(made, "gpu.example.com")
    slices(made, device("a"), device("b"))
    template(made, "t", request(count=2))
    for name, claim in (("fits", "t"), ("lost", "missing")):
        made.workload(name, "q", template=pods(claim))
    for moment in range(2):  # before and after the cycle that says why a workload is kept out
        text = json.dumps(dump(made.engine))
        keys = [(each["kind"], *key_of(each)) for each in json.loads(text)["items"]]
        assert len(keys) == len(set(keys))
        other = load(json.loads(text))
        assert json.dumps(dump(other)) == text
        decisions = made.driver.cycle()
        assert other.cycle(made.driver.now) == decisions
        assert {each.key for each in decisions} == (
            {"default/fits", "default/lost"} if moment == 0 else set()
        )
        made.driver.carry_out()


@pytest.mark.interpreted
def test_only_workloads_are_read_again_whose_devices_a_slice_may_change(monkeypatch: Any) -> None:
    made = world(GPUS, DeviceMapping("example.com/nics", ("nic.example.com",)))
    device_class(made, "gpu.example.com", "device.driver == 'gpu.example.com'")
    device_class(made, "nic.example.com", "device.driver == 'nic.example.com'")
    template(made, "counted", request("gpu.example.com"))
    template(made, "selected", request("gpu.example.com", 1, "true"))
    template(made, "nic", request("nic.example.com", 1, "true"))
    for name in ("counted", "selected", "nic"):
        made.workload(name, "q", template=pods(name), count=20)
    made.workload("none", "q", count=20)
    made.stable()
    read: list[str] = []
    original = workload_events.read_again

    def counting(state: Any, info: Any) -> None:
        read.append(info.obj.metadata.name)
        original(state, info)

    monkeypatch.setattr(workload_events, "read_again", counting)
    slices(made, device("a"), driver="gpu.example.com")
    assert read == ["selected"]
    slices(made, device("a"), name="nics", driver="nic.example.com")
    assert read == ["selected", "nic"]
    slices(made, device("a"), name="others", driver="other.example.com")
    assert read == ["selected", "nic"]
    template(made, "counted", request("gpu.example.com", 2))
    assert read == ["selected", "nic", "counted"]
    device_class(made, "gpu.example.com", "device.driver == 'other.example.com'")
    assert sorted(read[3:]) == ["counted", "selected"]
