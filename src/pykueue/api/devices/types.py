# ruff: noqa: RUF012 - a Struct gives every instance its own copy of an empty list or dict
"""The kinds of resource.k8s.io/v1: device classes, claims, templates of claims, and slices of devices."""

from __future__ import annotations

from typing import Any, Final

from pykueue.api.meta import ObjectMeta
from pykueue.api.model import Model
from pykueue.api.quantity import Quantity

VERSION: Final = "resource.k8s.io/v1"

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"


class CelSelector(Model):
    """A CEL expression over `device`."""

    expression: str = ""


class DeviceSelector(Model):
    """One condition that a device must meet."""

    cel: CelSelector | None = None


class DeviceClassSpec(Model):
    """Which devices a class has; and the extended resource by which pods may request them."""

    selectors: list[DeviceSelector] = []
    extended_resource_name: str = ""


class DeviceClass(Model):
    """A DeviceClass: a kind of device that claims can request."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequests(Model):
    """How much of each capacity of a device is requested."""

    requests: dict[str, Quantity] = {}


class DeviceToleration(Model):
    """A taint of devices that a request tolerates."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    #: How long NoExecute is tolerated; None for good.
    toleration_seconds: int | None = None


class ExactDeviceRequest(Model):
    """A request for a number of devices of a class; as an alternative of `firstAvailable` it has a name."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequests | None = None


class DeviceRequest(Model):
    """One request of a claim: `exactly`, or the first of several that can be met."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: list[ExactDeviceRequest] = []


class DeviceConstraint(Model):
    """What the devices of several requests must have in common, or must differ in."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Model):
    """The requests of a claim."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[dict[str, Any]] = []


class ResourceClaimSpec(Model):
    """What a claim requests."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(Model):
    """A ResourceClaim: devices that pods use."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: dict[str, Any] = {}


class ClaimTemplateSpec(Model):
    """Metadata and spec of the claims that are created from a template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Model):
    """A ResourceClaimTemplate: each pod that names it gets its own claim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class CapacityRange(Model):
    """Amounts between two bounds, in steps from the lower one."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Model):
    """Which amounts of a capacity can be requested, and what a request without an amount gets."""

    default: Quantity | None = None
    valid_values: list[Quantity] = []
    valid_range: CapacityRange | None = None


class DeviceCapacity(Model):
    """An amount that a device has of something."""

    value: Quantity = Quantity(0)
    request_policy: CapacityRequestPolicy | None = None


class Counter(Model):
    """An amount of a counter."""

    value: Quantity = Quantity(0)


class CounterSet(Model):
    """Counters that devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = {}


class CounterConsumption(Model):
    """What a device uses of a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Model):
    """Keeps claims that do not tolerate it from a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    #: RFC 3339; set by the API server where it is left out.
    time_added: str = ""


class Device(Model):
    """A device of a slice. An attribute has one of the fields `int`, `bool`, `string` and `version`."""

    name: str = ""
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[CounterConsumption] = []
    node_name: str = ""
    node_selector: dict[str, Any] | None = None
    all_nodes: bool = False
    taints: list[DeviceTaint] = []
    allow_multiple_allocations: bool = False


class ResourcePool(Model):
    """The pool that a slice belongs to, and how many slices the pool has in this generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Model):
    """Devices of one driver, and the nodes that can use them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: dict[str, Any] | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(Model):
    """A ResourceSlice: devices that a driver offers."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(Model):
    """The devices that a DeviceTaintRule taints: those with all the names that are given."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Model):
    """A taint, and which devices get it; none without a selector."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Model):
    """A DeviceTaintRule of resource.k8s.io/v1beta2: a taint that an administrator gives to devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
