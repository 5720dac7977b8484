"""From claims of devices to amounts of quota.

Source of the rules: docs/reference/kueue-semantics.md 2.10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from pykueue.api.core import PodSpec
from pykueue.api.devices.capacities import consumed
from pykueue.api.devices.selection import Candidate, SelectorError, candidates, compile_error, newest_pools
from pykueue.api.devices.types import (
    ALL,
    EXACT_COUNT,
    DeviceClass,
    ExactDeviceRequest,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceSlice,
)
from pykueue.api.quantity import MAX_INT64, Quantity
from pykueue.engine.options import DeviceMapping, DeviceSource, Options

_UNIT: Final = 10**9


class Charge(NamedTuple):
    """What the claims of a pod cost."""

    amounts: Mapping[str, int] = {}
    """Nanos by resource of quota."""
    replaced: frozenset[str] = frozenset()
    """Extended resources that the amounts stand for."""
    problem: str = ""
    """Why the pods cannot be admitted; then the other fields are empty."""


NO_CHARGE: Final = Charge()
#: An object that decides what claims cost: its kind, or `Devices` for those of a DeviceClass, and its name or
#: `namespace/name`.
Dependency = tuple[str, str]
#: By resource: what each container requests, as (path of the container, nanos); init containers, then others.
Extended = Mapping[str, tuple[list[tuple[str, int]], list[tuple[str, int]]]]


class _Unmet(Exception):
    """Why a pod cannot be charged."""


class Devices:
    """The device classes, templates of claims and slices of a cluster, and what claims cost there."""

    def __init__(self, options: Options) -> None:
        self._integration = options.enabled("KueueDRAIntegration")
        self._rejects = options.enabled("KueueDRARejectWorkloadsWhenDRADisabled")
        self._extended = self._integration and options.enabled("KueueDRAIntegrationExtendedResource")
        kinds = {
            "counter": options.enabled("KueueDRAIntegrationPartitionableDevices"),
            "capacity": options.enabled("KueueDRAIntegrationConsumableCapacity"),
        }
        #: By class: the resource of its first mapping.
        self._resources: dict[str, str] = {}
        #: By class: the sources of its amounts, with the resource each is charged as; of gates that are on.
        self._sources: dict[str, list[tuple[str, DeviceSource]]] = {}
        for mapping in options.device_mappings:
            self._add(mapping, kinds)
        self.classes: dict[str, DeviceClass] = {}
        #: By `namespace/name`.
        self.templates: dict[str, ResourceClaimTemplate] = {}
        self.slices: dict[str, ResourceSlice] = {}
        #: Changes of the objects so far; never the same again, except after a fork.
        self.number = 0
        #: By dependency: the number of its last change.
        self.revisions: dict[Dependency, int] = {}
        self._devices: tuple[int, list[Candidate]] = (-1, [])

    def _add(self, mapping: DeviceMapping, kinds: Mapping[str, bool]) -> None:
        for name in mapping.classes:
            self._resources.setdefault(name, mapping.resource)
            for source in mapping.sources:
                if kinds[source.kind]:
                    # Amounts of capacity have the resource of the first mapping, counters have their own.
                    resource = mapping.resource if source.kind == "counter" else self._resources[name]
                    self._sources.setdefault(name, []).append((resource, source))

    def backs_extended_resources(self) -> bool:
        """Whether any extended resource is backed by a device class."""
        return self._extended and any(found.spec.extended_resource_name for found in self.classes.values())

    # --- what a charge depends on -----------------------------------------------------------------------

    def dependencies(self, namespace: str, templates: Collection[str]) -> frozenset[Dependency]:
        """What decides the cost of claims made of these templates."""
        if not self._integration:
            return frozenset()
        found: set[Dependency] = set()
        for name in templates:
            key = f"{namespace}/{name}"
            found.add(("ResourceClaimTemplate", key))
            template = self.templates.get(key)
            for request in template.spec.spec.devices.requests if template is not None else ():
                if (exactly := request.exactly) is not None:
                    found.add(("DeviceClass", exactly.device_class_name))
                    if exactly.selectors or exactly.device_class_name in self._sources:
                        found.add(("Devices", exactly.device_class_name))
        return frozenset(found)

    def revision(self, dependencies: Iterable[Dependency]) -> int:
        """The number of the last change of any of them; 0 before the first one."""
        return max((self.revisions.get(each, 0) for each in dependencies), default=0)

    def of_pools(self, *slices: ResourceSlice | None) -> set[Dependency]:
        """The devices of classes that the pools of these slices, as they are now, may belong to."""
        pools = {(each.spec.driver, each.spec.pool.name) for each in slices if each is not None}
        drivers = {driver for driver, _ in pools}
        devices = [
            Candidate(device, each)
            for each in self.slices.values()
            if (each.spec.driver, each.spec.pool.name) in pools
            for device in each.spec.devices
        ]
        return {
            ("Devices", name)
            for name, found in self.classes.items()
            if name in self._resources
            and (
                any(source.driver in drivers for _, source in self._sources.get(name, ()))
                or any(_may_match(device, found) for device in devices)
            )
        }

    # --- what claims cost -------------------------------------------------------------------------------

    def charge(self, namespace: str, spec: PodSpec, extended: Callable[[], Extended]) -> Charge:
        """What the claims of a pod cost, `extended` giving what its containers request."""
        if not self._integration:
            if self._rejects and spec.resource_claims:
                return Charge(problem="spec.resourceClaims: the feature gate KueueDRAIntegration is off")
            return NO_CHARGE
        amounts: dict[str, int] = {}
        replaced: list[str] = []
        try:
            if spec.resource_claims and not self._resources:
                raise _Unmet(
                    "spec.resourceClaims: no DeviceClass is mapped to a resource "
                    "(resources.deviceClassMappings in the configuration)"
                )
            self._claims(namespace, spec, amounts)
            if self.backs_extended_resources():
                for resource, containers in sorted(extended().items()):
                    found = self.class_of(resource)
                    if found is not None:
                        name, nanos = self._extended_amount(resource, found.metadata.name, *containers)
                        amounts[name] = amounts.get(name, 0) + nanos
                        replaced.append(resource)
        except _Unmet as error:
            return Charge(problem=str(error))
        return Charge(amounts, frozenset(replaced)) if amounts or replaced else NO_CHARGE

    # --- claims from templates --------------------------------------------------------------------------

    def _claims(self, namespace: str, spec: PodSpec, amounts: dict[str, int]) -> None:
        for index, claim in enumerate(spec.resource_claims):
            path = f"spec.resourceClaims[{index}]"
            name = claim.get("resourceClaimTemplateName")
            if not name:
                if claim.get("resourceClaimName"):
                    raise _Unmet(
                        f"{path}.resourceClaimName: a claim that several pods share is not counted against "
                        "quota; use resourceClaimTemplateName"
                    )
                continue
            template = self.templates.get(f"{namespace}/{name}")
            if template is None:
                raise _Unmet(f"{path}: ResourceClaimTemplate {name} not found")
            try:
                self._claim(template.spec.spec, amounts)
            except _Unmet as error:
                raise _Unmet(f"{path}: ResourceClaimTemplate {name}: {error}") from None

    def _claim(self, claim: ResourceClaimSpec, amounts: dict[str, int]) -> None:
        requests: list[tuple[str, ExactDeviceRequest]] = []
        for index, request in enumerate(claim.devices.requests):
            path = f"devices.requests[{index}]"
            exactly = request.exactly
            if exactly is None:
                raise _Unmet(f"{path}: firstAvailable is not supported by quota; use exactly")
            for selector in exactly.selectors:
                fault = compile_error(selector.cel.expression) if selector.cel is not None else ""
                if fault:
                    raise _Unmet(f"{path}.exactly.selectors: CEL compilation failed: {fault}")
            if exactly.admin_access:
                continue
            if exactly.allocation_mode == ALL:
                raise _Unmet(f"{path}.exactly.allocationMode: All is not supported by quota; use ExactCount")
            if exactly.allocation_mode != EXACT_COUNT:
                raise _Unmet(f"{path}.exactly.allocationMode: {exactly.allocation_mode} is not known")
            if exactly.device_class_name not in self._resources:
                raise _Unmet(
                    f"DeviceClass {exactly.device_class_name} is not mapped to a resource "
                    "(resources.deviceClassMappings in the configuration)"
                )
            requests.append((path, exactly))
        self._find_devices(requests)
        for path, exactly in requests:
            sources = self._sources.get(exactly.device_class_name)
            if sources is None:
                resource = self._resources[exactly.device_class_name]
                amounts[resource] = amounts.get(resource, 0) + exactly.count * _UNIT
                continue
            for resource, source in sources:
                try:
                    nanos = self._source_amount(source, exactly)
                except _Unmet as error:
                    raise _Unmet(f"{path}: {error}") from None
                amounts[resource] = amounts.get(resource, 0) + nanos

    def _find_devices(self, requests: Iterable[tuple[str, ExactDeviceRequest]]) -> None:
        """Raises _Unmet unless the cluster has enough devices for the requests with selectors."""
        found = [(path, exactly, self._matching(exactly)) for path, exactly in requests if exactly.selectors]
        taken: set[tuple[str, str, str]] = set()
        for path, exactly, devices in sorted(found, key=lambda each: len(each[2])):
            free = [device.id for device in devices if device.id not in taken]
            if len(free) < exactly.count:
                raise _Unmet(
                    f"{path}.exactly.selectors: {len(free)} device(s) of DeviceClass "
                    f"{exactly.device_class_name} match in the cluster, {exactly.count} requested"
                )
            taken.update(free[: exactly.count])

    def _matching(self, exactly: ExactDeviceRequest, source: DeviceSource | None = None) -> list[Candidate]:
        found = self.classes.get(exactly.device_class_name)
        if found is None:
            raise _Unmet(f"DeviceClass {exactly.device_class_name} not found")
        try:
            return [
                device
                for device in self._all()
                if (source is None or device.driver == source.driver)
                and (source is None or not source.selector or device.satisfies(source.selector))
                and device.matches(found.spec.selectors)
                and device.matches(exactly.selectors)
            ]
        except SelectorError as error:
            raise _Unmet(str(error)) from None

    def _all(self) -> list[Candidate]:
        number, found = self._devices
        if number != self.number:
            found = candidates(newest_pools(self.slices.values()))
            self._devices = self.number, found
        return found

    def _source_amount(self, source: DeviceSource, exactly: ExactDeviceRequest) -> int:
        """What a request costs by a counter or a capacity: the largest amount of a device that it may get."""
        matching = self._matching(exactly, source)
        if len(matching) < exactly.count:
            raise _Unmet(
                f"{len(matching)} device(s) of driver {source.driver} match, {exactly.count} requested"
            )
        read = _counters if source.kind == "counter" else _capacities
        amounts = read(source.name, matching, exactly)
        largest = max(0, max(amount.nanos for amount in amounts))
        return min(largest * exactly.count, MAX_INT64 * _UNIT)

    # --- extended resources -----------------------------------------------------------------------------

    def _extended_amount(
        self, resource: str, chosen: str, inits: list[tuple[str, int]], others: list[tuple[str, int]]
    ) -> tuple[str, int]:
        """(resource of quota, nanos): one init container runs at a time, all others together."""
        if chosen in self._sources:
            raise _Unmet(
                f"{resource}: its DeviceClass {chosen} is counted by {self._sources[chosen][0][1].kind}, "
                "which only claims from a ResourceClaimTemplate can request"
            )
        for path, nanos in [*inits, *others]:
            if nanos % _UNIT:
                raise _Unmet(f"{path}: {Quantity(nanos)} of {resource} is not a whole number of devices")
        amount = max(max((nanos for _, nanos in inits), default=0), sum(nanos for _, nanos in others))
        return self._resources.get(chosen, resource), amount

    def class_of(self, resource: str) -> DeviceClass | None:
        """The class that backs an extended resource: the newest, of equally new ones the first by name."""
        found = [one for one in self.classes.values() if one.spec.extended_resource_name == resource]
        newest = max((one.metadata.created for one in found), default=0.0)
        return min(
            (one for one in found if one.metadata.created == newest),
            key=lambda one: one.metadata.name,
            default=None,
        )


def _may_match(device: Candidate, device_class: DeviceClass) -> bool:
    """Whether a class has a device, or that cannot be said."""
    try:
        return device.matches(device_class.spec.selectors)
    except SelectorError:
        return True


def _counters(name: str, devices: list[Candidate], exactly: ExactDeviceRequest) -> list[Quantity]:
    found = [
        consumption.counters[name].value
        for candidate in devices
        for consumption in candidate.device.consumes_counters
        if name in consumption.counters
    ]
    if not found:
        raise _Unmet(f"the matching devices use no counter {name}")
    return found


def _capacities(name: str, devices: list[Candidate], exactly: ExactDeviceRequest) -> list[Quantity]:
    having = [found for candidate in devices if (found := candidate.device.capacity.get(name)) is not None]
    if not having:
        raise _Unmet(f"the matching devices have no capacity {name}")
    requested = exactly.capacity.requests.get(name) if exactly.capacity is not None else None
    amounts = [amount for each in having if (amount := consumed(each, requested)) is not None]
    if not amounts:
        raise _Unmet(f"no matching device allows the requested amount of {name}")
    return amounts
