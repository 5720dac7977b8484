"""Kubeflow Trainer: a TrainJob is its runtime's JobSet, filled in (docs/reference/operators.md 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykueue.api.objects import Object
from pykueue.api.resources import JOB_SETS, Resource

from .description import ALL, JobKind, value_at, with_value

GROUP = "trainer.kubeflow.org"
TRAIN_JOBS = Resource(GROUP, "v1alpha1", "trainjobs", "TrainJob", True)
RUNTIMES = Resource(GROUP, "v1alpha1", "trainingruntimes", "TrainingRuntime", True)
CLUSTER_RUNTIMES = Resource(
    GROUP, "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
#: The entry of `spec.runtimePatches` that is the queueing system's.
PATCH_MANAGER = "kueue.x-k8s.io/manager"
#: The label of a replicated job's Job template that says which part of the TrainJob it runs.
STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
_TRAINER, _NODE = "trainer", "node"
_INITIALIZERS = {"dataset-initializer": "dataset", "model-initializer": "model"}
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"

TRAIN_JOB = JobKind(
    framework=f"{GROUP}/trainjob",
    resource=TRAIN_JOBS,
    managed_by=("spec", "managedBy"),
    controller=f"{GROUP}/trainjob-controller",
    succeeded=("Complete",),
    failed=("Failed",),
    active=(("status", "jobsStatus", ALL, "active"),),
    references=(RUNTIMES, CLUSTER_RUNTIMES),
    pod_labels=(("jobset.sigs.k8s.io/jobset-name", "{name}"),),
)


def runtime_reference(job: Mapping[str, Any]) -> tuple[Resource, str, str] | None:
    """Resource, namespace and name of the runtime; None where the reference names no known kind."""
    reference = value_at(job, ("spec", "runtimeRef"))
    group = value_at(reference, ("apiGroup",)) or GROUP
    kind = value_at(reference, ("kind",)) or CLUSTER_RUNTIMES.kind
    name = value_at(reference, ("name",))
    for resource in (RUNTIMES, CLUSTER_RUNTIMES):
        if (group, kind) == resource.group_kind and name:
            namespace = value_at(job, ("metadata", "namespace")) or ""
            return resource, namespace if resource.namespaced else "", str(name)
    return None


def expanded(job: Mapping[str, Any], runtime: Mapping[str, Any]) -> Object:
    """The JobSet that the trainer makes of a TrainJob, without what only the training program needs.

    Sizes, images, commands, environment and requests are the pods'; the variables by which frameworks find
    each other are not part of it. The queueing system's own patch is left out.
    """
    template = value_at(runtime, ("spec", "template"))
    spec: Object = dict(_map(value_at(template, ("spec",))))
    policy = _map(value_at(runtime, ("spec", "mlPolicy")))
    jobs = [dict(one) for one in _list(spec.get("replicatedJobs")) if isinstance(one, dict)]
    for patch in _list(value_at(job, ("spec", "runtimePatches"))):
        if value_at(patch, ("manager",)) != PATCH_MANAGER:
            jobs = [patched(one, patch) for one in jobs]
    spec["replicatedJobs"] = [_filled(one, job, policy) for one in jobs]
    metadata = {"name": value_at(job, ("metadata", "name"))}
    return {"apiVersion": JOB_SETS.api_version, "kind": JOB_SETS.kind, "metadata": metadata, "spec": spec}


# Parts of the expansion


def _map(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_POD = ("template", "spec", "template", "spec")


def _filled(replicated: Object, job: Mapping[str, Any], policy: Mapping[str, Any]) -> Object:
    step = value_at(replicated, ("template", "metadata", "labels", STEP_LABEL))
    trainer = _map(value_at(job, ("spec", "trainer")))
    mpi = value_at(policy, ("mpi",))
    result = replicated
    if step in (_TRAINER, *_INITIALIZERS):
        result = {**result, "replicas": 1}
    # With MPI the trainer step is the launcher, and the replicated job `node` has the nodes.
    has_nodes = result.get("name") == _NODE if mpi is not None else step == _TRAINER
    if has_nodes:
        nodes = trainer.get("numNodes") or policy.get("numNodes")
        if nodes is not None or policy:
            count = nodes if isinstance(nodes, int) and nodes > 0 else 1
            if mpi is not None and mpi.get("runLauncherAsNode"):
                count = max(1, count - 1)
            result = with_value(result, ("template", "spec", "parallelism"), count)
            result = with_value(result, ("template", "spec", "completions"), count)
    if step == _TRAINER or (has_nodes and mpi is not None):
        resources = trainer.get("resourcesPerNode")
        works = mpi is None or has_nodes or mpi.get("runLauncherAsNode")
        fields = ("image", "command", "args") if step == _TRAINER else ()
        result = _with_container(
            result,
            _NODE,
            {
                **{field: trainer[field] for field in fields if trainer.get(field)},
                **({"resources": resources} if resources and works else {}),
            },
            trainer.get("env") if step == _TRAINER else None,
        )
    elif step in _INITIALIZERS:
        initializer = _map(value_at(job, ("spec", "initializer", _INITIALIZERS[step])))
        uri = initializer.get("storageUri")
        added = [{"name": "STORAGE_URI", "value": uri}] if uri else []
        result = _with_container(result, step, {}, [*added, *(initializer.get("env") or ())])
    return result


def _with_container(replicated: Object, name: str, fields: Object, env: Iterable[Object] | None) -> Object:
    """The replicated job with fields and variables of one container replaced."""
    changed = []
    for container in _list(value_at(replicated, (*_POD, "containers"))):
        if value_at(container, ("name",)) == name:
            container = {**container, **fields}
            if env:
                container["env"] = _by_key(container.get("env"), env, "name")
        changed.append(container)
    result: Object = with_value(replicated, (*_POD, "containers"), changed)
    return result


def patched(replicated: Object, patch: Mapping[str, Any]) -> Object:
    """The replicated job with what one manager's runtime patch says about it."""
    place = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
    for one in _list(value_at(patch, place)):
        if value_at(one, ("name",)) == replicated.get("name"):
            replicated = {**replicated, "template": _merged(replicated.get("template"), one.get("template"))}
    return replicated


#: Lists that merge by a key; all others are replaced.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}


def _merged(old: Any, new: Any) -> Any:
    """A strategic merge of the fields that patches may have."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old if new is None else new
    result = dict(old)
    for field, value in new.items():
        if isinstance(value, list) and field in _KEYS:
            result[field] = _by_key(old.get(field), value, _KEYS[field], _merged)
        else:
            result[field] = _merged(old.get(field), value)
    return result


def _by_key(
    old: Any, new: Iterable[Any], key: str, merge: Callable[[Any, Any], Any] = lambda old, new: new
) -> list[Any]:
    """The old elements, those with the key of a new one merged with it, and then the other new ones."""
    elements = {one.get(key): one for one in old or () if isinstance(one, dict)}
    for one in new:
        if isinstance(one, dict):
            name = one.get(key)
            elements[name] = merge(elements[name], one) if name in elements else one
    return list(elements.values())
