"""From pod templates to the amounts that a pod asks for.

Source of the rules: docs/reference/kueue-semantics.md 2.3 to 2.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from pykueue.api.core import Container, LimitRange, PodSpec, RuntimeClass
from pykueue.api.quantity import MAX_INT64, Quantity
from pykueue.engine.flavors.devices import Charge, Extended
from pykueue.engine.options import Options, Transformation
from pykueue.engine.quota.usage import units

#: Exact amounts by resource, in nanos.
Nanos = dict[str, int]


class Limits:
    """The LimitRanges of a namespace, merged: the first default wins, the narrowest bounds hold (2.3)."""

    __slots__ = ("default", "default_request", "max", "min", "number")

    def __init__(self, ranges: Iterable[LimitRange], number: int) -> None:
        #: Tells apart what was computed under different limits.
        self.number = number
        kinds = ("Container", "Pod")
        self.default: dict[str, Nanos] = {kind: {} for kind in kinds}
        self.default_request: dict[str, Nanos] = {kind: {} for kind in kinds}
        self.max: dict[str, Nanos] = {kind: {} for kind in kinds}
        self.min: dict[str, Nanos] = {kind: {} for kind in kinds}
        for item in (item for limit_range in ranges for item in limit_range.spec.limits):
            if item.type not in kinds:
                continue
            for source, target in (
                (item.default, self.default[item.type]),
                (item.default_request, self.default_request[item.type]),
            ):
                for resource, quantity in source.items():
                    target.setdefault(resource, quantity.nanos)
            for source, target, choose in (
                (item.max, self.max[item.type], min),
                (item.min, self.min[item.type], max),
            ):
                for resource, quantity in source.items():
                    old = target.get(resource)
                    target[resource] = quantity.nanos if old is None else choose(old, quantity.nanos)


NO_LIMITS = Limits((), 0)


class _Needs:
    """Requests and limits of a container or of the pod-level block, defaults filled in."""

    __slots__ = ("limits", "name", "requests")

    def __init__(
        self,
        name: str,
        requests: Mapping[str, Quantity],
        limits: Mapping[str, Quantity],
        ranges: Limits,
        kind: str,
    ) -> None:
        self.name = name
        self.limits = {resource: quantity.nanos for resource, quantity in limits.items()}
        self.requests = {resource: quantity.nanos for resource, quantity in requests.items()}
        for resource, amount in ranges.default[kind].items():
            self.limits.setdefault(resource, amount)
        for resource, amount in ranges.default_request[kind].items():
            self.requests.setdefault(resource, amount)
        for resource, amount in self.limits.items():
            self.requests.setdefault(resource, amount)

    def problem(self, ranges: Limits) -> str:
        for resource, amount in sorted(self.requests.items()):
            limit = self.limits.get(resource)
            if limit is not None and amount > limit:
                return (
                    f"{self.name}: request {_shown(amount)} of {resource} exceeds its limit {_shown(limit)}"
                )
        bounds_max, bounds_min = ranges.max["Container"], ranges.min["Container"]
        for resource in sorted({*self.requests, *self.limits}):
            present = [side[resource] for side in (self.requests, self.limits) if resource in side]
            if resource in bounds_max and max(present) > bounds_max[resource]:
                return (
                    f"{self.name}: {_shown(max(present))} of {resource} exceeds the maximum "
                    f"{_shown(bounds_max[resource])} of the namespace's LimitRange"
                )
            if resource in bounds_min and min(present) < bounds_min[resource]:
                return (
                    f"{self.name}: {_shown(min(present))} of {resource} is below the minimum "
                    f"{_shown(bounds_min[resource])} of the namespace's LimitRange"
                )
        return ""


def _shown(nanos: int) -> str:
    return str(Quantity(nanos))


def _sum(into: Nanos, more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        into[resource] = into.get(resource, 0) + amount


def _pod_requests(
    containers: list[_Needs], inits: list[tuple[_Needs, bool]], spec_level: _Needs | None
) -> Nanos:
    """Requests of a pod without overhead, by the Kubernetes rule (2.4 step 1)."""
    running: Nanos = {}
    for needs in containers:
        _sum(running, needs.requests)
    sidecars: Nanos = {}
    peak: Nanos = {}
    for needs, stays in inits:
        moment = dict(sidecars)
        _sum(moment, needs.requests)
        if stays:
            sidecars = moment
        for resource, amount in moment.items():
            peak[resource] = max(peak.get(resource, 0), amount)
    _sum(running, sidecars)
    for resource, amount in peak.items():
        running[resource] = max(running.get(resource, 0), amount)
    if spec_level is not None:
        running.update(spec_level.requests)
    return running


def _transform(requests: Nanos, transformations: tuple[Transformation, ...]) -> dict[str, Fraction]:
    """Applies resource transformations; exact (2.5)."""
    generated: dict[str, Fraction] = {}
    kept = {resource: Fraction(amount, 10**9) for resource, amount in requests.items()}
    for rule in transformations:
        if rule.input not in requests:
            continue
        value = Fraction(requests[rule.input], 10**9)
        if rule.multiply_by in requests:
            value *= Fraction(requests[rule.multiply_by], 10**9)
        for resource, factor in rule.outputs.items():
            generated[resource] = generated.get(resource, Fraction()) + value * Fraction(factor.nanos, 10**9)
        if rule.strategy == "Replace":
            kept.pop(rule.input, None)
    for resource, amount in generated.items():
        kept[resource] = kept.get(resource, Fraction()) + max(amount, Fraction())
    return kept


def template_requests(
    spec: PodSpec, limits: Limits, runtime_classes: Mapping[str, RuntimeClass]
) -> tuple[Nanos, str]:
    """What a pod requests of its node, in nanos, and what is wrong with that (2.4, 2.9)."""
    containers = [_needs(container, limits) for container in spec.containers]
    inits = [
        (_needs(container, limits), container.restart_policy == "Always")
        for container in spec.init_containers
    ]
    whole = None
    if spec.resources is not None:
        whole = _Needs("pod", spec.resources.requests, spec.resources.limits, limits, "Pod")
    requests = _pod_requests(containers, inits, whole)
    overhead: Mapping[str, Quantity] = spec.overhead
    if not overhead and spec.runtime_class_name:
        runtime = runtime_classes.get(spec.runtime_class_name)
        if runtime is not None and runtime.overhead is not None:
            overhead = runtime.overhead.pod_fixed
    _sum(requests, {resource: quantity.nanos for resource, quantity in overhead.items()})
    problem = next((found for needs in containers if (found := needs.problem(limits))), "")
    problem = problem or next((found for needs, _ in inits if (found := needs.problem(limits))), "")
    if whole is not None and not problem:
        problem = whole.problem(NO_LIMITS)
    return requests, problem or _pod_problem(requests, limits)


def extended_requests(spec: PodSpec, limits: Limits) -> Extended:
    """The extended resources that containers request."""
    found: dict[str, tuple[list[tuple[str, int]], list[tuple[str, int]]]] = {}
    groups = ("initContainers", spec.init_containers), ("containers", spec.containers)
    for place, (field, containers) in enumerate(groups):
        for index, container in enumerate(containers):
            for resource, amount in _needs(container, limits).requests.items():
                if amount > 0 and is_extended(resource):
                    path = f"spec.{field}[{index}].resources.requests"
                    found.setdefault(resource, ([], []))[place].append((path, amount))
    return found


def quota_requests(requests: Nanos, charge: Charge, options: Options) -> tuple[dict[str, int], str]:
    """What a pod requests of quota, in quota units, and what is wrong with that (2.5, 2.10)."""
    excluded = options.exclude_resource_prefixes
    if excluded:
        requests = {name: amount for name, amount in requests.items() if not name.startswith(excluded)}
    if options.transformations:
        exact = _transform(requests, options.transformations)
        quantities = {name: _ceiling(value) for name, value in exact.items()}
    else:
        quantities = {name: Quantity(amount) for name, amount in requests.items()}
    for name in charge.replaced:
        quantities.pop(name, None)
    for name, amount in charge.amounts.items():
        own = quantities.get(name)
        quantities[name] = Quantity(amount if own is None else own.nanos + amount)
    problem = _range_problem(quantities)
    amounts = {name: units(name, quantity) for name, quantity in quantities.items()}
    return {name: max(0, amount) for name, amount in sorted(amounts.items())}, problem


def is_extended(resource: str) -> bool:
    """Whether a resource is an extended one, such as a device plugin offers."""
    domain, slash, _ = resource.rpartition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not native and not resource.startswith("requests.")


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """What a pod that exists requests of its node, in quota units."""
    return in_units(template_requests(spec, NO_LIMITS, {})[0])


def in_units(requests: Nanos) -> dict[str, int]:
    return {name: max(0, units(name, Quantity(amount))) for name, amount in sorted(requests.items())}


def _ceiling(value: Fraction) -> Quantity:
    nanos = value * 10**9
    return Quantity(-(-nanos.numerator // nanos.denominator))


def _needs(container: Container, limits: Limits) -> _Needs:
    resources = container.resources
    return _Needs(f"container {container.name}", resources.requests, resources.limits, limits, "Container")


def _range_problem(requests: Mapping[str, Quantity]) -> str:
    """Which request is out of range.

    Larger quantities are read as the largest one, so that one is out of range itself
    (docs/reference/kueue-semantics.md 2.1).
    """
    for resource, quantity in sorted(requests.items()):
        if quantity.value() >= MAX_INT64:
            return f"the request for {resource} is out of range: must be less than {MAX_INT64}"
    return ""


def _pod_problem(requests: Nanos, limits: Limits) -> str:
    """What the LimitRange bounds of type Pod say about a pod's total (2.9, step 4)."""
    for resource, amount in sorted(requests.items()):
        most, least = limits.max["Pod"].get(resource), limits.min["Pod"].get(resource)
        if most is not None and amount > most:
            return (
                f"pod: {_shown(amount)} of {resource} exceeds the maximum {_shown(most)} "
                "of the namespace's LimitRange"
            )
        if least is not None and amount < least:
            return (
                f"pod: {_shown(amount)} of {resource} is below the minimum {_shown(least)} "
                "of the namespace's LimitRange"
            )
    return ""
