"""Finding the scheduling class of a workload: most workloads ask for what others asked for before.

Source of the rules: docs/reference/kueue-semantics.md 2.3 to 2.9 and 4.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from msgspec.structs import replace

from pykueue.api.core import PodSpec, RuntimeClass
from pykueue.api.decoding import DecodeError
from pykueue.api.kueue import PodSet, WorkloadSpec
from pykueue.api.quantity import MAX_INT64
from pykueue.engine.flavors.devices import Dependency, Devices
from pykueue.engine.flavors.requests import (
    Limits,
    extended_requests,
    in_units,
    quota_requests,
    template_requests,
)
from pykueue.engine.flavors.scheduling_class import AllowedFlavors, Environment, PodSetClass, SchedulingClass
from pykueue.engine.flavors.templates import (
    ask_the_same,
    hybrid_text,
    template_content,
    template_text,
    topology_text,
)
from pykueue.engine.options import Options

#: Pod sets that are known by their identity.
SEEN_MAX: Final = 256
#: Scheduling classes with whose pod sets those of a workload are compared first.
LAST_MAX: Final = 4
#: Specs of workloads that are kept once.
SPECS_MAX: Final = 1024

_NO_DEPENDENCIES: Final[frozenset[Dependency]] = frozenset()


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
        #: Specs with the pod sets of a class, by these, the queue and the priority.
        self._specs: dict[tuple[int, str, int | None], WorkloadSpec] = {}
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
        if before is not None and _are_same(before[0], pod_sets):
            known = before[1]
            if self.is_current(known, counts, limits, namespace, allowed):
                return known
        last = self._last
        for at, known in enumerate(last):
            equal = known.source == pod_sets or ask_the_same(known.source, pod_sets)
            if equal and self.is_current(known, counts, limits, namespace, allowed):
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

    def shared_spec(self, known: SchedulingClass, spec: WorkloadSpec) -> WorkloadSpec:
        """The spec with the pod sets of its class: the same object for workloads whose specs say the same."""
        spec = replace(spec, pod_sets=known.source)
        specs, key = self._specs, (id(known.source), spec.queue_name, spec.priority)
        same = specs.get(key)
        if same is not None and same == spec:
            return same
        if same is None and len(specs) >= SPECS_MAX:
            del specs[next(iter(specs))]
        specs[key] = spec
        return spec

    def is_current(
        self,
        known: SchedulingClass,
        counts: Sequence[int],
        limits: Limits,
        namespace: str,
        allowed: AllowedFlavors = None,
    ) -> bool:
        """Whether the pod templates that a scheduling class was made from still mean it with so many pods."""
        if known.allowed != allowed or not self.is_read_now(known, limits, namespace):
            return False
        pod_sets = known.pod_sets
        return len(pod_sets) == len(counts) and all(
            pods.count == count for pods, count in zip(pod_sets, counts, strict=True)
        )

    def is_read_now(self, known: SchedulingClass, limits: Limits, namespace: str) -> bool:
        """Whether all that its pod templates were read under is still the same."""
        environment = known.environment
        if known.dependencies:
            return environment == self.under(limits, namespace, known.dependencies)
        return environment.classes == self.environment and environment.limits == limits.number

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
            requests, trouble = template_requests(spec, limits, self.runtime_classes)
            charge = self.devices.charge(
                environment.namespace, spec, partial(extended_requests, spec, limits)
            )
            per_pod, out_of_range = quota_requests(requests, charge, self._options)
            trouble = trouble or out_of_range
            of_node = {name: amount for name, amount in requests.items() if name not in charge.replaced}
            scheduling_class = PodSetClass(pods, count, spec, per_pod, in_units(of_node))
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


def _are_same(before: list[PodSet], pod_sets: list[PodSet]) -> bool:
    """Whether these are the same objects."""
    return len(before) == len(pod_sets) and all(
        old is pods for old, pods in zip(before, pod_sets, strict=True)
    )


def _claim_templates(template: Mapping[str, Any]) -> list[str]:
    """The templates of claims that a pod template names, as far as it is valid."""
    claims = (template.get("spec") or {}).get("resourceClaims")
    if not claims:
        return []
    names = [each.get("resourceClaimTemplateName") for each in claims if isinstance(each, Mapping)]
    return [name for name in names if isinstance(name, str)]
