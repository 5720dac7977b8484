"""Jobs of every kind, with as many pods and as much cpu as a run asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pykueue.api.jobkinds import PodSetPaths, with_value
from pykueue.api.objects import Object, get
from pykueue.embedded.operators.pods import RUN_TIME

from .jobkinds import OPERATED, QUEUED
from .runtimes import runtime_name
from .scenario import NAMESPACE, job, jobset

#: What jobs of a kind need besides their pods.
_SPECS: dict[str, Object] = {
    "RayJob": {"entrypoint": "main", "shutdownAfterJobFinishes": True},
    "RayService": {"serveConfigV2": "applications: []"},
}


def manifest(kind: str, name: str, labels: Mapping[str, str], size: int, cpu: int) -> Object:
    """A job of a kind: one pod for each of its pod sets, the rest of `size` in the last."""
    if kind == "Job":
        return job(name, dict(labels), {}, size, cpu, size)
    if kind == "JobSet":
        return jobset(name, dict(labels), size, cpu)
    if kind in _SPECIAL:
        return {**_named(kind, name, labels), "spec": _SPECIAL[kind](size, cpu)}
    made = {**_named(kind, name, labels), "spec": dict(_SPECS.get(kind, {}))}
    pod_sets = OPERATED[kind].pod_sets
    left = size - sum(not paths.each for paths in pod_sets)
    for paths in pod_sets:
        made = _with_pods(made, paths, left, cpu)
    return made


def _named(kind: str, name: str, labels: Mapping[str, str]) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": dict(labels)}
    return {"apiVersion": QUEUED[kind].api_version, "kind": kind, "metadata": metadata}


def _train_spec(size: int, cpu: int) -> Object:
    """With several pods, one of them is the initializer's."""
    trainer = {"numNodes": max(1, size - 1), "resourcesPerNode": {"requests": {"cpu": str(cpu)}}}
    return {"runtimeRef": {"name": runtime_name(size, cpu)}, "trainer": trainer}


def _spark_spec(size: int, cpu: int) -> Object:
    """There is at least one executor; half of the shapes have their own pod templates."""
    driver: Object = {"cores": cpu, "memory": "512m"}
    executor: Object = {**driver, "instances": max(1, size - 1)}
    if size % 2:
        template = {"spec": {"containers": [{"name": "spark", "image": "i"}]}}
        driver, executor = {**driver, "template": template}, {**executor, "template": template}
    return {
        "type": "Scala",
        "sparkVersion": "3.5.5",
        "image": "i",
        "driver": driver,
        "executor": executor,
    }


def _wrapper_spec(size: int, cpu: int) -> Object:
    """A pod, and a Job or JobSet with the others."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, **_template(cpu)}
    pod["spec"]["restartPolicy"] = "Never"
    if size == 1:
        return {"components": [{"template": pod}]}
    made = jobset("", {}, size - 1, cpu) if size > 2 else job("", {}, {}, 1, cpu, 1)
    others = {**made, "metadata": {}}
    return {"components": [{"template": pod}, {"template": others}]}


def _serving_spec(size: int, cpu: int) -> Object:
    """One group or two; half of the shapes have a separate leader template, and pods that never end."""
    groups = 2 if size % 2 == 0 else 1
    template = _template(cpu)
    made: Object = {"size": size // groups, "workerTemplate": template}
    if groups > 1:
        template["metadata"] = {"annotations": {RUN_TIME: "forever"}}
        made["leaderTemplate"] = template
    return {"replicas": groups, "leaderWorkerTemplate": made}


#: The specifications that do not follow from the description of the kind.
_SPECIAL: dict[str, Callable[[int, int], Object]] = {
    "TrainJob": _train_spec,
    "SparkApplication": _spark_spec,
    "AppWrapper": _wrapper_spec,
    "LeaderWorkerSet": _serving_spec,
}


def _with_pods(made: Object, paths: PodSetPaths, size: int, cpu: int) -> Object:
    """The job with the pods of one pod set, or of a collection of pod sets."""
    if not paths.each:
        return dict(with_value(made, paths.template, _template(cpu)))
    if not paths.keys:
        if size < 1:
            return made
        element = _element(paths, size, cpu)
        return dict(with_value(made, paths.each, [with_value(element, (paths.name,), "workers")]))
    first, *others = paths.keys
    counts = {first: size if not others else 1}
    if size > 1 and others:
        counts["Worker"] = size - 1
    elements = {key: _element(paths, count, cpu) for key, count in counts.items()}
    return dict(with_value(made, paths.each, elements))


def _element(paths: PodSetPaths, count: int, cpu: int) -> Object:
    element: Any = with_value({}, paths.template, _template(cpu))
    for number, factor in enumerate(paths.counts):
        element = with_value(element, factor[0], 1 if number else count)
    return dict(element)


def _template(cpu: int) -> Object:
    """What `job` gives to pods of Jobs."""
    made = job("", {}, {}, 1, cpu, 1)
    containers: list[Object] = get(made, "spec", "template", "spec", "containers")
    return {"spec": {"containers": containers}}
