"""From pod templates to the amounts a workload asks for.

Workloads that ask for the same thing share one `SchedulingClass`, computed once: requests per pod,
constraints on nodes, and whatever queues remember about it. Source of the rules:
docs/reference/kueue-semantics.md 2.3 to 2.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from operator import is_
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from pykueue.api.core import Affinity, Container, LimitRange, PodSpec, RuntimeClass, Toleration
from pykueue.api.decoding import DecodeError
from pykueue.api.hybrid import HybridRequest, parse_request
from pykueue.api.kueue import PodSet
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.api.quantity import MAX_INT64, Quantity
from pykueue.engine.flavors.devices import Charge, Dependency, Devices, Extended
from pykueue.engine.flavors.host_ports import host_port_amounts
from pykueue.engine.flavors.templates import hybrid_text, template_content, template_text, topology_text
from pykueue.engine.options import Options, Transformation
from pykueue.engine.quota.usage import units

#: Exact amounts by resource, in nanos.
Nanos = dict[str, int]
#: The flavors that a workload may use; None: all.
AllowedFlavors = tuple[str, ...] | None

#: Pod sets that are known by their identity.
SEEN_MAX: Final = 256
#: Scheduling classes with whose pod sets those of a workload are compared first.
LAST_MAX: Final = 4


class Environment(NamedTuple):
    """What pod templates were read under: numbers that are never the same again after a change."""

    classes: int
    """Of RuntimeClasses, and of the DeviceClasses that back extended resources."""
    limits: int
    """Of LimitRanges."""
    devices: int = 0
    """Of templates of claims, their DeviceClasses and devices; 0 for pods that name no template."""
    namespace: str = ""
    """Whose templates of claims; empty for pods that name none."""


class PodSetClass:
    """What every pod of a pod set asks for, and how many of them there are."""

    __slots__ = (
        "affinity",
        "count",
        "full_count",
        "group",
        "host_ports",
        "hybrid",
        "hybrid_problem",
        "min_count",
        "name",
        "node_requests",
        "node_selector",
        "per_pod",
        "tolerations",
        "topology",
        "total",
        "wants_topology",
    )

    def __init__(
        self,
        pod_set: PodSet,
        count: int,
        spec: PodSpec,
        per_pod: dict[str, int],
        node_requests: dict[str, int],
    ) -> None:
        self.name = pod_set.name
        #: Pods that need quota.
        self.count = count
        #: Pods in the spec, those no longer needed included.
        self.full_count = pod_set.count
        self.min_count = pod_set.min_count
        topology = self.topology = pod_set.topology_request
        #: Pod sets of one group get the same flavors.
        self.group = topology.pod_set_group_name if topology is not None else None
        self.wants_topology = topology is not None and topology.explicit
        #: The flavors that its pods may be split over; None: it gets one flavor.
        self.hybrid: HybridRequest | None = None
        #: What is wrong with its request for several flavors, or empty.
        self.hybrid_problem = ""
        text = hybrid_text(pod_set.template)
        if text:
            try:
                self.hybrid = parse_request(text)
            except ValueError as error:
                self.hybrid_problem = f"annotation {HYBRID_ASSIGNMENT_ANNOTATION}: {error}"
        #: Of quota.
        self.per_pod = per_pod
        #: Of a node: what the template requests itself.
        self.node_requests = node_requests
        self.total = {resource: amount * count for resource, amount in per_pod.items()}
        #: Of its host: amounts by port.
        self.host_ports: Mapping[str, int] = host_port_amounts(spec)
        self.node_selector: Mapping[str, str] = spec.node_selector
        self.affinity: Affinity | None = spec.affinity
        self.tolerations: Sequence[Toleration] = spec.tolerations


class SchedulingClass:
    """What a workload asks for, the same object for all workloads that ask for the same."""

    __slots__ = (
        "__weakref__",
        "allowed",
        "dependencies",
        "environment",
        "kept_out",
        "node_request",
        "plans",
        "pod_sets",
        "problem",
        "shrinkable",
        "source",
    )

    def __init__(
        self,
        pod_sets: tuple[PodSetClass, ...],
        problem: str,
        kept_out: bool,
        source: list[PodSet],
        environment: Environment,
        allowed: AllowedFlavors,
        dependencies: frozenset[Dependency],
    ) -> None:
        self.pod_sets = pod_sets
        #: The flavors that it may use; None: all.
        self.allowed = allowed
        #: What it was read under.
        self.environment = environment
        #: The pod sets it was made from: to the engine as good as those of any workload of this class.
        self.source = source
        #: Why it can never be admitted as it is (2.9, 3 and 4), or empty.
        self.problem = problem
        #: Whether the problem is one of its claims: then it does not enter a queue (2.10).
        self.kept_out = kept_out
        #: What decides the cost of its claims of devices; empty without claims of templates.
        self.dependencies = dependencies
        self.shrinkable = any(
            pods.min_count is not None and pods.min_count < pods.full_count for pods in pod_sets
        )
        #: By name of ClusterQueue: how its flavors serve this scheduling class (see plan.Plan).
        self.plans: dict[str, Any] = {}
        #: What it requests of nodes, once that was asked for (see engine.topology).
        self.node_request: Any = None


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
_NO_DEPENDENCIES: frozenset[Dependency] = frozenset()


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


class SchedulingClasses:
    """All scheduling classes in use."""

    def __init__(self, options: Options) -> None:
        self._options = options
        #: By name; `environment` must change with them.
        self.runtime_classes: dict[str, RuntimeClass] = {}
        self.environment = 0
        self.devices = Devices(options)
        #: The classes of the pod sets that came last, by the id of the first one: clients that make many
        #: workloads from the same template objects do not have it read again.
        self._seen: dict[int, tuple[list[PodSet], SchedulingClass]] = {}
        #: The classes that were asked for last, the newest first; equal pod sets have the same class.
        self._last: list[SchedulingClass] = []
        self._by_text: WeakValueDictionary[Any, SchedulingClass] = WeakValueDictionary()
        self._by_content: WeakValueDictionary[Any, SchedulingClass] = WeakValueDictionary()

    def under(self, limits: Limits, namespace: str, dependencies: frozenset[Dependency]) -> Environment:
        """What a pod template of that namespace, whose claims depend on this, is read under now."""
        if dependencies:
            revision = self.devices.revision(dependencies)
            return Environment(self.environment, limits.number, revision, namespace)
        return Environment(self.environment, limits.number)

    def of(
        self,
        pod_sets: list[PodSet],
        counts: Sequence[int],
        limits: Limits,
        namespace: str,
        allowed: AllowedFlavors = None,
    ) -> SchedulingClass:
        """The scheduling class of these pod sets, of which `counts` pods need quota of `allowed` flavors."""
        before = self._seen.get(id(pod_sets[0])) if pod_sets else None
        if before is not None and len(before[0]) == len(pod_sets) and all(map(is_, before[0], pod_sets)):
            known = before[1]
            if self.is_current(known, counts, limits, namespace, allowed):
                return known
        last = self._last
        for at, known in enumerate(last):
            if known.source == pod_sets and self.is_current(known, counts, limits, namespace, allowed):
                if at:
                    last.insert(0, last.pop(at))
                return known
        # What the templates say about requests and nodes, as text: cheap, and equal text, equal class.
        templates = {name for pods in pod_sets for name in _claim_templates(pods.template)}
        dependencies = self.devices.dependencies(namespace, templates) if templates else _NO_DEPENDENCIES
        environment = self.under(limits, namespace, dependencies)
        text = (
            environment,
            allowed,
            tuple(
                [
                    (
                        pods.name,
                        count,
                        pods.count,
                        pods.min_count,
                        topology_text(pods),
                        template_text(pods.template),
                    )
                    for pods, count in zip(pod_sets, counts, strict=True)
                ]
            ),
        )
        scheduling_class = self._by_text.get(text)
        if scheduling_class is None:
            scheduling_class = self._by_text[text] = self._make(
                pod_sets, counts, limits, environment, allowed, dependencies
            )
        if pod_sets:
            seen = self._seen
            if len(seen) >= SEEN_MAX:
                del seen[next(iter(seen))]
            seen[id(pod_sets[0])] = list(pod_sets), scheduling_class
        if scheduling_class not in last:
            last.insert(0, scheduling_class)
            del last[LAST_MAX:]
        return scheduling_class

    def is_current(
        self,
        known: SchedulingClass,
        counts: Sequence[int],
        limits: Limits,
        namespace: str,
        allowed: AllowedFlavors = None,
    ) -> bool:
        """Whether the pod templates that a scheduling class was made from still mean it with so many pods."""
        if known.allowed != allowed or known.environment != self.under(limits, namespace, known.dependencies):
            return False
        return [pods.count for pods in known.pod_sets] == counts

    def _make(
        self,
        pod_sets: list[PodSet],
        counts: Sequence[int],
        limits: Limits,
        environment: Environment,
        allowed: AllowedFlavors,
        dependencies: frozenset[Dependency],
    ) -> SchedulingClass:
        scheduling_classes: list[PodSetClass] = []
        # Of two states of the devices under which pods cost the same, the class is the same.
        contents: list[Any] = [environment[:2], allowed, sorted(dependencies)]
        problem, kept_out = "", False
        for pods, count in zip(pod_sets, counts, strict=True):
            try:
                spec = pods.pod_template.spec
            except DecodeError as error:
                problem = problem or f"podSet {pods.name}: {error.why}"
                spec = PodSpec()
            requests, trouble = _template_requests(spec, limits, self.runtime_classes)
            charge = self.devices.charge(environment.namespace, spec, partial(_extended, spec, limits))
            per_pod, out_of_range = self._quota_requests(requests, charge)
            trouble = trouble or out_of_range
            of_node = {name: amount for name, amount in requests.items() if name not in charge.replaced}
            scheduling_class = PodSetClass(pods, count, spec, per_pod, _in_units(of_node))
            if not trouble and any(amount > MAX_INT64 for amount in scheduling_class.total.values()):
                trouble = "the total request exceeds the largest amount that can be counted"
            if charge.problem and not kept_out:
                problem, kept_out = f"podSet {pods.name}: {charge.problem}", True
            if trouble and not problem:
                problem = f"podSet {pods.name}: {trouble}"
            scheduling_classes.append(scheduling_class)
            contents.append(
                (pods.name, count, pods.count, pods.min_count, topology_text(pods), template_content(spec))
            )
            contents.append((sorted(charge.amounts.items()), sorted(charge.replaced), charge.problem))
            contents.append(hybrid_text(pods.template))
        key = repr(contents)
        found = self._by_content.get(key)
        if found is None:
            found = self._by_content[key] = SchedulingClass(
                tuple(scheduling_classes), problem, kept_out, pod_sets, environment, allowed, dependencies
            )
        elif found.dependencies:
            found.environment = environment
        return found

    def _quota_requests(self, requests: Nanos, charge: Charge) -> tuple[dict[str, int], str]:
        """What a pod requests of quota, in quota units, and what is wrong with that (2.5, 2.10)."""
        excluded = self._options.exclude_resource_prefixes
        if excluded:
            requests = {name: amount for name, amount in requests.items() if not name.startswith(excluded)}
        if self._options.transformations:
            exact = _transform(requests, self._options.transformations)
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


def _claim_templates(template: Mapping[str, Any]) -> list[str]:
    """The templates of claims that a pod template names, as far as it is valid."""
    claims = (template.get("spec") or {}).get("resourceClaims")
    if not claims:
        return []
    names = [each.get("resourceClaimTemplateName") for each in claims if isinstance(each, Mapping)]
    return [name for name in names if isinstance(name, str)]


def _template_requests(
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


def _extended(spec: PodSpec, limits: Limits) -> Extended:
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


def is_extended(resource: str) -> bool:
    """Whether a resource is an extended one, such as a device plugin offers."""
    domain, slash, _ = resource.rpartition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not native and not resource.startswith("requests.")


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """What a pod that exists requests of its node, in quota units."""
    return _in_units(_template_requests(spec, NO_LIMITS, {})[0])


def _in_units(requests: Nanos) -> dict[str, int]:
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
