"""AppWrapper: objects of other kinds that run and stop together (docs/reference/operators.md 10)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pykueue.api.resources import DEPLOYMENTS, JOB_SETS, JOBS, PODS, STATEFUL_SETS, Resource

from .description import AllOf, ConditionIs, FieldIn, JobKind, Not, Place, value_at
from .kubeflow import PYTORCH_JOB
from .ray import RAY_CLUSTER, RAY_JOB

_PHASE = ("status", "phase")
#: The label of all pods that are made from the wrapped pod templates.
WRAPPER_LABEL = "workload.codeflare.dev/appwrapper"
_PREFIX = "workload.codeflare.dev.appwrapper"
#: Annotations of a declared pod set: how topology-aware scheduling ranks its pods.
INDEX_ANNOTATION = f"{_PREFIX}/tas-pod-index-label"
GROUP_INDEX_ANNOTATION = f"{_PREFIX}/tas-sub-group-index-label"
GROUP_COUNT_ANNOTATION = f"{_PREFIX}/tas-sub-group-count"

APP_WRAPPER = JobKind(
    framework="workload.codeflare.dev/appwrapper",
    resource=Resource("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper", True),
    managed_by=("spec", "managedBy"),
    controller="workload.codeflare.dev/appwrapper-controller",
    succeeded=(FieldIn(_PHASE, ("Succeeded",)),),
    failed=(AllOf(FieldIn(_PHASE, ("Failed",)), Not(ConditionIs("ResourcesDeployed"))),),
    active=(ConditionIs("QuotaReserved"),),
    ready=(ConditionIs("PodsReady"),),
    pod_labels=((WRAPPER_LABEL, "{name}"),),
)


@dataclass(frozen=True)
class WrappedPodSet:
    """A pod template inside a component."""

    component: int
    #: Where the template is, from the component.
    at: Place
    count: int
    annotations: Mapping[str, str]


_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]+)\]")


def parse_path(text: Any) -> Place | None:
    """A path such as `template.spec.jobs[0].template`; None for what does not lead into the template."""
    if not isinstance(text, str) or not text.startswith("template"):
        return None
    place: list[str | int] = ["template"]
    position = len("template")
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            return None
        place.append(step[1] if step[1] is not None else int(step[2]))
        position = step.end()
    return tuple(place)


def wrapped_pod_sets(wrapper: Mapping[str, Any]) -> list[WrappedPodSet]:
    """The pod sets of all components, declared or inferred, in order."""
    components = value_at(wrapper, ("spec", "components"))
    return [
        WrappedPodSet(number, at, count, annotations)
        for number, component in enumerate(components if isinstance(components, list) else ())
        for at, count, annotations in _of_component(component)
    ]


_Found = tuple[Place, int, Mapping[str, str]]


def _of_component(component: Any) -> Iterator[_Found]:
    declared = value_at(component, ("podSets",))
    if not isinstance(declared, list) or not declared:
        yield from ((at, count, {}) for at, count in inferred(value_at(component, ("template",))))
        return
    for one in declared:
        at = parse_path(value_at(one, ("path",)))
        if at is not None:
            yield at, _number(value_at(one, ("replicas",))), value_at(one, ("annotations",)) or {}


def inferred(template: Any) -> Iterator[tuple[Place, int]]:
    """The pod templates of a component of a known kind, with the number of their pods."""
    version, kind = value_at(template, ("apiVersion",)), value_at(template, ("kind",))
    spec: Place = ("template", "spec")
    inside = value_at(template, ("spec",))
    if (version, kind) == (PODS.api_version, PODS.kind):
        yield ("template",), 1
    elif (version, kind) in _names(DEPLOYMENTS, STATEFUL_SETS):
        yield (*spec, "template"), _number(value_at(inside, ("replicas",)))
    elif (version, kind) in _names(JOBS):
        yield (*spec, "template"), _pods_of_job(inside)
    elif (version, kind) in _names(JOB_SETS):
        for n, job in enumerate(_list(value_at(inside, ("replicatedJobs",)))):
            count = _number(value_at(job, ("replicas",))) * _pods_of_job(value_at(job, ("template", "spec")))
            yield (*spec, "replicatedJobs", n, "template", "spec", "template"), count
    elif (version, kind) in _names(PYTORCH_JOB.resource):
        for role in ("Master", "Worker"):
            replicas = ("pytorchReplicaSpecs", role)
            if value_at(inside, replicas) is not None:
                yield (*spec, *replicas, "template"), _number(value_at(inside, (*replicas, "replicas")))
    elif (version, kind) in _names(RAY_CLUSTER.resource, RAY_JOB.resource):
        at = spec if kind == RAY_CLUSTER.resource.kind else (*spec, "rayClusterSpec")
        yield (*at, "headGroupSpec", "template"), 1
        for n, group in enumerate(_list(value_at({"template": template}, (*at, "workerGroupSpecs")))):
            yield (*at, "workerGroupSpecs", n, "template"), _number(value_at(group, ("replicas",)))


def _names(*resources: Resource) -> list[tuple[str, str]]:
    return [(one.api_version, one.kind) for one in resources]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _pods_of_job(spec: Any) -> int:
    parallelism = _number(value_at(spec, ("parallelism",)))
    return min(parallelism, _number(value_at(spec, ("completions",)), parallelism))


def _number(value: Any, default: int = 1) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
