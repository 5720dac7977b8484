"""Kinds of dynamic resource allocation: device classes, claims, templates of claims, slices of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pykueue.api.objects import Key, Object, annotations_of
from pykueue.api.times import format_time
from pykueue.api.validation.syntax import dns_label, qualified_name, subdomain
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Context, Kind
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.errors import (
    Cause,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

GROUP: Final = "resource.k8s.io"

#: Keeps a claim whose devices are allocated until the controller has released them.
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
#: On a claim that the scheduler made for the extended resources of a pod: "true".
EXTENDED_CLAIM_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
#: Devices in a slice; fewer where any has taints or uses shared counters.
MAX_DEVICES: Final = 128
MAX_LARGE_DEVICES: Final = 64
#: Pods and other objects that a claim is reserved for.
MAX_RESERVED: Final = 256
#: Items that lists may have.
_MAX_REQUESTS: Final = 32
_MAX_SELECTORS: Final = 32
_MAX_ALTERNATIVES: Final = 8
_MAX_CONSTRAINTS: Final = 32
_MAX_ATTRIBUTES: Final = 32
_MAX_EXPRESSION: Final = 10 * 1024
_MODES: Final = ("All", "ExactCount")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_VALUE_TYPES: Final = ("bool", "int", "string", "version")


def claims_of(pod: Object) -> tuple[Key, ...] | None:
    """The claims of a pod; None while the controller has not created all of them."""
    claims = pod["spec"].get("resourceClaims")
    if not claims:
        return ()
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    namespace, found = pod["metadata"].get("namespace") or "", []
    for claim in claims:
        name = claim.get("resourceClaimName")
        if name is None:
            if claim["name"] not in made:
                return None
            name = made[claim["name"]]
            if name is None:
                continue  # the template needs no claim
        found.append((namespace, name))
    return tuple(found)


def extended_claim_of(pod: Object) -> Key | None:
    """The claim that the scheduler made for the extended resources of a pod."""
    shown = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return (pod["metadata"].get("namespace") or "", shown["resourceClaimName"]) if shown else None


def is_extended_claim(claim: Object | None) -> bool:
    """Whether the scheduler made a claim for the extended resources of a pod."""
    return claim is not None and annotations_of(claim).get(EXTENDED_CLAIM_ANNOTATION) == "true"


class DeviceClass(Kind):
    """resource.k8s.io/v1 DeviceClass."""

    group = GROUP
    kind = "DeviceClass"
    plural = "deviceclasses"
    namespaced = False

    def compile_ahead(self, obj: Object) -> Iterator[object]:
        yield from _compile_ahead((obj.get("spec") or {}).get("selectors") or ())

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj.get("spec") or {}
        causes = list(_selectors("spec.selectors", spec.get("selectors") or ()))
        name = spec.get("extendedResourceName")
        if name:
            fault = qualified_name(name)
            if not fault and ("/" not in name or name.startswith("requests.") or "kubernetes.io/" in name):
                fault = "must be the name of an extended resource"
            if fault:
                causes.append(invalid("spec.extendedResourceName", name, fault))
        return causes


class ResourceSlice(Kind):
    """resource.k8s.io/v1 ResourceSlice."""

    group = GROUP
    kind = "ResourceSlice"
    plural = "resourceslices"
    namespaced = False
    columns = (NAME_COLUMN, Column("Node"), Column("Driver"), Column("Pool"), AGE_COLUMN)
    field_selectors: Mapping[str, Callable[[Object], str]] = {
        "spec.driver": lambda obj: str((obj.get("spec") or {}).get("driver") or ""),
        "spec.nodeName": lambda obj: str((obj.get("spec") or {}).get("nodeName") or ""),
    }

    def prepare_create(self, obj: Object, context: Context) -> Object:
        return _with_times(obj, {}, context.now)

    def prepare_update(self, new: Object, old: Object, context: Context) -> Object:
        known = {each.get("name"): each for each in (old.get("spec") or {}).get("devices") or ()}
        return _with_times(new, known, context.now)

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj.get("spec") or {}
        causes: list[Cause] = []
        driver, pool = spec.get("driver") or "", spec.get("pool") or {}
        if not driver:
            causes.append(required("spec.driver"))
        elif fault := subdomain(driver):
            causes.append(invalid("spec.driver", driver, fault))
        elif len(driver) > 63:
            causes.append(too_long("spec.driver", 63))
        if not pool.get("name"):
            causes.append(required("spec.pool.name"))
        else:
            faults = [fault for part in pool["name"].split("/") if (fault := subdomain(part))]
            causes += [invalid("spec.pool.name", pool["name"], fault) for fault in faults]
        if (pool.get("resourceSliceCount") or 0) <= 0:
            count = pool.get("resourceSliceCount") or 0
            causes.append(invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
        if (pool.get("generation") or 0) < 0:
            causes.append(
                invalid("spec.pool.generation", pool["generation"], "must be greater than or equal to zero")
            )
        causes += _where(spec)
        causes += _devices(spec)
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        causes = []
        for path in (("driver",), ("pool", "name"), ("nodeName",)):
            before: Any = old.get("spec") or {}
            after: Any = new.get("spec") or {}
            for key in path:
                before, after = (before or {}).get(key), (after or {}).get(key)
            if before != after:
                causes.append(immutable(f"spec.{'.'.join(path)}", after))
        return causes

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec = obj.get("spec") or {}
        return [
            obj["metadata"]["name"],
            spec.get("nodeName") or "<unset>",
            spec.get("driver", ""),
            (spec.get("pool") or {}).get("name", ""),
            age_cell(obj, now),
        ]


class DeviceTaintRule(Kind):
    """resource.k8s.io/v1beta2 DeviceTaintRule."""

    group = GROUP
    version = "v1beta2"
    kind = "DeviceTaintRule"
    plural = "devicetaintrules"
    namespaced = False
    subresources = (STATUS,)

    def prepare_create(self, obj: Object, context: Context) -> Object:
        return self._with_time(obj, [], context.now)

    def prepare_update(self, new: Object, old: Object, context: Context) -> Object:
        return self._with_time(new, [(old.get("spec") or {}).get("taint") or {}], context.now)

    def _with_time(self, obj: Object, known: list[Object], now: float) -> Object:
        taint = obj["spec"].get("taint") or {}
        (timed,) = _timed([taint], known, now)
        return obj if timed is taint else {**obj, "spec": {**obj["spec"], "taint": timed}}

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj["spec"]
        causes = list(_taint("spec.taint", spec.get("taint") or {}))
        selector = spec.get("deviceSelector") or {}
        if selector.get("driver") and (fault := subdomain(selector["driver"])):
            causes.append(invalid("spec.deviceSelector.driver", selector["driver"], fault))
        return causes


class ResourceClaim(Kind):
    """resource.k8s.io/v1 ResourceClaim."""

    group = GROUP
    kind = "ResourceClaim"
    plural = "resourceclaims"
    subresources = (STATUS,)
    has_generation = False
    columns = (NAME_COLUMN, Column("State"), AGE_COLUMN)

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        filled = _with_defaults(spec)
        return obj if filled is spec else {**obj, "spec": filled}

    def compile_ahead(self, obj: Object) -> Iterator[object]:
        yield from _compile_claim(obj.get("spec") or {})

    def validate(self, obj: Object) -> list[Cause]:
        return list(_claim("spec", obj.get("spec") or {}))

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return [] if new.get("spec") == old.get("spec") else [immutable("spec", new.get("spec"))]

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        status, before = new.get("status") or {}, old.get("status") or {}
        causes: list[Cause] = []
        reserved = status.get("reservedFor") or []
        allocation = status.get("allocation")
        if reserved and allocation is None:
            causes.append(forbidden("status.reservedFor", "may not be specified when `allocated` is not set"))
        if len(reserved) > MAX_RESERVED:
            causes.append(too_many("status.reservedFor", len(reserved), MAX_RESERVED))
        users = [one.get("uid") for one in reserved]
        for number, uid in enumerate(users):
            if uid in users[:number]:
                causes.append(duplicate(f"status.reservedFor[{number}].uid", uid))
        known = {one.get("uid") for one in before.get("reservedFor") or ()}
        if new["metadata"].get("deletionTimestamp") and not known.issuperset(users):
            causes.append(forbidden("status.reservedFor", "new entries may not be added while being deleted"))
        previous = before.get("allocation")
        if previous is not None and allocation is not None and allocation != previous:
            causes.append(immutable("status.allocation", allocation))
        names = _request_names(new.get("spec") or {})
        results = ((allocation or {}).get("devices") or {}).get("results") or ()
        for number, result in enumerate(results):
            if previous is None and result.get("request") not in names:
                field = f"status.allocation.devices.results[{number}].request"
                detail = "must be the name of a request in the claim"
                causes.append(invalid(field, result.get("request"), detail))
        return causes

    def cells(self, obj: Object, now: float) -> list[Any]:
        status = obj.get("status") or {}
        states = ["deleted"] if obj["metadata"].get("deletionTimestamp") else []
        if status.get("allocation"):
            states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
        return [obj["metadata"]["name"], ",".join(states or ["pending"]), age_cell(obj, now)]


class ResourceClaimTemplate(Kind):
    """resource.k8s.io/v1 ResourceClaimTemplate."""

    group = GROUP
    kind = "ResourceClaimTemplate"
    plural = "resourceclaimtemplates"
    has_generation = False

    def default(self, obj: Object) -> Object:
        outer = obj.get("spec") or {}
        spec = outer.get("spec") or {}
        filled = _with_defaults(spec)
        return obj if filled is spec else {**obj, "spec": {**outer, "spec": filled}}

    def compile_ahead(self, obj: Object) -> Iterator[object]:
        yield from _compile_claim((obj.get("spec") or {}).get("spec") or {})

    def validate(self, obj: Object) -> list[Cause]:
        return list(_claim("spec.spec", (obj.get("spec") or {}).get("spec") or {}))

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return [] if new.get("spec") == old.get("spec") else [immutable("spec", new.get("spec"))]


# --- claims -------------------------------------------------------------------------------------------------


def _with_defaults(spec: Object) -> Object:
    """The spec of a claim with what its requests leave out; the very same where they leave out nothing."""
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or []
    filled = [_filled(request) for request in requests]
    if all(one is other for one, other in zip(filled, requests, strict=True)):
        return spec
    return {**spec, "devices": {**devices, "requests": filled}}


def _filled(request: Object) -> Object:
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if isinstance(exactly, Mapping):
        found = _filled_exact(dict(exactly))
        return request if found == exactly else {**request, "exactly": found}
    if alternatives:
        several = [_filled_exact(dict(each)) for each in alternatives]
        return request if several == alternatives else {**request, "firstAvailable": several}
    return request


def _filled_exact(request: Object) -> Object:
    mode = request.get("allocationMode") or "ExactCount"
    request["allocationMode"] = mode
    if mode == "ExactCount" and not request.get("count"):
        request["count"] = 1
    if request.get("tolerations"):
        request["tolerations"] = [{"operator": "Equal", **each} for each in request["tolerations"]]
    return request


def _request_names(spec: Object) -> set[str]:
    """The names of requests as results give them: alternatives after the name of their request."""
    found = set()
    for request in (spec.get("devices") or {}).get("requests") or ():
        found.add(request["name"])
        found |= {f"{request['name']}/{each['name']}" for each in request.get("firstAvailable") or ()}
    return found


def _claim(field: str, spec: Object) -> Iterator[Cause]:
    devices = spec.get("devices") or {}
    requests, at = devices.get("requests") or [], f"{field}.devices.requests"
    if len(requests) > _MAX_REQUESTS:
        yield too_many(at, len(requests), _MAX_REQUESTS)
    names: list[str] = []
    for number, request in enumerate(requests[:_MAX_REQUESTS]):
        path = f"{at}[{number}]"
        yield from _name(f"{path}.name", request.get("name"), names)
        exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
        if exactly is None and not alternatives:
            yield required(path, "exactly one of `exactly` or `firstAvailable` is required")
        elif exactly is not None and alternatives:
            yield invalid(path, request, "exactly one of `exactly` or `firstAvailable` is required")
        elif exactly is not None:
            yield from _request(f"{path}.exactly", exactly)
        else:
            if len(alternatives) > _MAX_ALTERNATIVES:
                yield too_many(f"{path}.firstAvailable", len(alternatives), _MAX_ALTERNATIVES)
            inner: list[str] = []
            for index, each in enumerate(alternatives[:_MAX_ALTERNATIVES]):
                yield from _name(f"{path}.firstAvailable[{index}].name", each.get("name"), inner)
                yield from _request(f"{path}.firstAvailable[{index}]", each)
    constraints = devices.get("constraints") or []
    if len(constraints) > _MAX_CONSTRAINTS:
        yield too_many(f"{field}.devices.constraints", len(constraints), _MAX_CONSTRAINTS)
    known = _request_names({"devices": {"requests": [one for one in requests if one.get("name")]}})
    for number, constraint in enumerate(constraints[:_MAX_CONSTRAINTS]):
        path = f"{field}.devices.constraints[{number}]"
        for index, name in enumerate(constraint.get("requests") or ()):
            if name not in known:
                yield invalid(f"{path}.requests[{index}]", name, "must be the name of a request in the claim")
        attributes = [key for key in ("matchAttribute", "distinctAttribute") if constraint.get(key)]
        if not attributes:
            yield required(path, 'exactly one of "matchAttribute" or "distinctAttribute" is required')
        for key in attributes:
            fault = qualified_name(constraint[key])
            if not fault and "/" not in constraint[key]:
                fault = "must include a domain"
            if fault:
                yield invalid(f"{path}.{key}", constraint[key], fault)


def _name(field: str, name: str | None, known: list[str]) -> Iterator[Cause]:
    if not name:
        yield required(field)
        return
    if fault := dns_label(name):
        yield invalid(field, name, fault)
    if name in known:
        yield duplicate(field, name)
    known.append(name)


def _present(field: str, value: str, fault_of: Callable[[str], str | None]) -> Iterator[Cause]:
    """A value that is required and has a syntax."""
    if not value:
        yield required(field)
    elif fault := fault_of(value):
        yield invalid(field, value, fault)


def _request(field: str, request: Object) -> Iterator[Cause]:
    yield from _present(f"{field}.deviceClassName", request.get("deviceClassName") or "", subdomain)
    yield from _selectors(f"{field}.selectors", request.get("selectors") or ())
    mode, count = request.get("allocationMode"), request.get("count") or 0
    if mode not in _MODES:
        yield not_supported(f"{field}.allocationMode", mode, _MODES)
    elif mode == "All" and count:
        yield invalid(f"{field}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{field}.count", count, "must be greater than zero")


def _selectors(field: str, selectors: Any) -> Iterator[Cause]:
    from pykueue.api.devices.selection import compile_error

    if len(selectors) > _MAX_SELECTORS:
        yield too_many(field, len(selectors), _MAX_SELECTORS)
    for number, selector in enumerate(selectors[:_MAX_SELECTORS]):
        path, cel = f"{field}[{number}].cel", selector.get("cel")
        if cel is None:
            yield required(path)
            continue
        text = cel.get("expression") or ""
        if len(text) > _MAX_EXPRESSION:
            yield too_long(f"{path}.expression", _MAX_EXPRESSION)
        elif fault := compile_error(text):
            yield invalid(f"{path}.expression", text, fault)


def _compile_claim(spec: Object) -> Iterator[object]:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for each in (request.get("exactly") or {}, *(request.get("firstAvailable") or ())):
            yield from _compile_ahead(each.get("selectors") or ())


def _compile_ahead(selectors: Any) -> Iterator[object]:
    # CEL is an extra, which a server has and a check of manifests may not have.
    from pykueue.api.devices.selection import compiled

    for selector in selectors[:_MAX_SELECTORS]:
        text = (selector.get("cel") or {}).get("expression") or ""
        if len(text) <= _MAX_EXPRESSION:
            yield compiled(text)


# --- slices -------------------------------------------------------------------------------------------------


def _where(spec: Object) -> Iterator[Cause]:
    known = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
    ways = [key for key in known if spec.get(key)]
    accepted = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not ways:
        yield required("spec", accepted)
    elif len(ways) > 1:
        yield invalid("spec", "{" + ", ".join(ways) + "}", accepted)
    name = spec.get("nodeName")
    if name and (fault := subdomain(name)):
        yield invalid("spec.nodeName", name, fault)


def _devices(spec: Object) -> Iterator[Cause]:
    devices, counters = spec.get("devices") or [], spec.get("sharedCounters") or []
    large = any(each.get("taints") or each.get("consumesCounters") for each in devices)
    most = MAX_LARGE_DEVICES if large else MAX_DEVICES
    if len(devices) > most:
        yield too_many("spec.devices", len(devices), most)
    names: list[str] = []
    for number, device in enumerate(devices[:most]):
        path = f"spec.devices[{number}]"
        yield from _name(f"{path}.name", device.get("name"), names)
        attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
        if len(attributes) + len(capacity) > _MAX_ATTRIBUTES:
            yield too_many(path, len(attributes) + len(capacity), _MAX_ATTRIBUTES)
        for key, value in attributes.items():
            if sum(value.get(kind) is not None for kind in _VALUE_TYPES) != 1:
                yield invalid(f"{path}.attributes[{key}]", value, "exactly one value must be specified")
        if bool(spec.get("perDeviceNodeSelection")) != any(
            device.get(key) for key in ("nodeName", "nodeSelector", "allNodes")
        ):
            fault = (
                "one of `nodeName`, `nodeSelector`, `allNodes` is required with `perDeviceNodeSelection` "
                "and not accepted without it"
            )
            yield invalid(path, device.get("name"), fault)
        for index, taint in enumerate(device.get("taints") or ()):
            yield from _taint(f"{path}.taints[{index}]", taint)
    known: list[str] = []
    for number, each in enumerate(counters):
        yield from _name(f"spec.sharedCounters[{number}].name", each.get("name"), known)
        if not each.get("counters"):
            yield required(f"spec.sharedCounters[{number}].counters")


def _taint(field: str, taint: Object) -> Iterator[Cause]:
    yield from _present(f"{field}.key", taint.get("key") or "", qualified_name)
    if taint.get("effect") not in _EFFECTS:
        yield not_supported(f"{field}.effect", taint.get("effect"), _EFFECTS)


def _with_times(obj: Object, known: Mapping[Any, Object], now: float) -> Object:
    """A slice whose taints all say since when they exist; `known` are the devices before, by name."""
    spec = obj.get("spec") or {}
    devices = spec.get("devices") or []
    timed = [
        {**each, "taints": _timed(each["taints"], known.get(each.get("name"), {}).get("taints") or [], now)}
        if each.get("taints")
        else each
        for each in devices
    ]
    return obj if timed == devices else {**obj, "spec": {**spec, "devices": timed}}


def _timed(taints: list[Object], known: list[Object], now: float) -> list[Object]:
    """The taints with the time at which they were added, in seconds since 1970 for those that say none."""
    times = {_identity(each): each.get("timeAdded") for each in known}
    return [
        each
        if each.get("timeAdded")
        else {**each, "timeAdded": times.get(_identity(each)) or format_time(now)}
        for each in taints
    ]


def _identity(taint: Object) -> tuple[Any, ...]:
    return taint.get("key"), taint.get("value"), taint.get("effect")
