"""CustomResourceDefinitions of other projects' job kinds, generated from their descriptions and a table.

The schema has the fields that this project reads, with the defaults that the kind's own definition has, and
preserves all others. Names, columns and defaults: docs/reference/operators.md 1 and the parts on each kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pykueue.api.jobkinds import ALL, JobKind, Path
from pykueue.api.jobkinds.trainjob import CLUSTER_RUNTIMES, RUNTIMES, TRAIN_JOB
from pykueue.api.objects import Object, get
from pykueue.api.resources import Resource
from pykueue.embedded.objects.definitions import AGE, custom_resource_definition

#: The label of definitions that stand-in operators may serve. A real operator's definition does not have it.
LABEL = "sim.pykueue.io/stand-in-operator"

#: API servers require this in the groups of Kubernetes.
_UNAPPROVED = {"api-approved.kubernetes.io": "unapproved, definition of a stand-in operator"}


def _column(name: str, path: str, type_: str = "string", priority: int = 0) -> Object:
    return {"name": name, "type": type_, "jsonPath": path, "priority": priority}


_LAST_CONDITION = (_column("State", ".status.conditions[-1:].type"), AGE)


@dataclass(frozen=True)
class _Facts:
    """What the description of a kind does not say."""

    columns: tuple[Object, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    #: Further versions that are served.
    versions: tuple[str, ...] = ()
    #: Defaults of fields whose parent exists, by path.
    defaults: Mapping[Path, Any] = field(default_factory=dict)
    #: Paths of the replicas in spec and status, and of the selector.
    scale: tuple[str, str, str] | None = None


def _scaled(field: str) -> _Facts:
    status = ".status.replicaStatuses.Worker"
    return _Facts(
        _LAST_CONDITION, scale=(f".spec.{field}.Worker.replicas", f"{status}.active", f"{status}.selector")
    )


def _of_condition(name: str, type_: str) -> Object:
    return _column(name, f'.status.conditions[?(@.type=="{type_}")].status')


def _worker_group_defaults(spec: Path) -> dict[Path, Any]:
    group = (*spec, "workerGroupSpecs", ALL)
    counts = {"replicas": 0, "minReplicas": 0, "maxReplicas": 2147483647, "numOfHosts": 1}
    return {(*group, field): value for field, value in counts.items()}


_GROUPS = ("spec", "leaderWorkerTemplate")
_RAY_VERSIONS = ("v1alpha1",)
_FACTS: dict[str, _Facts] = {
    "PyTorchJob": _scaled("pytorchReplicaSpecs"),
    "PaddleJob": _scaled("paddleReplicaSpecs"),
    "JAXJob": _scaled("jaxReplicaSpecs"),
    "TFJob": _Facts(_LAST_CONDITION),
    "XGBoostJob": _Facts(_LAST_CONDITION),
    "MPIJob": _Facts(
        defaults={
            ("spec", "slotsPerWorker"): 1,
            ("spec", "runLauncherAsWorker"): False,
            ("spec", "sshAuthMountPath"): "/root/.ssh",
            ("spec", "launcherCreationPolicy"): "AtStartup",
            ("spec", "mpiImplementation"): "OpenMPI",
            ("spec", "runPolicy", "suspend"): False,
        }
    ),
    "TrainJob": _Facts(
        _LAST_CONDITION,
        defaults={
            ("spec", "runtimeRef", "apiGroup"): TRAIN_JOB.resource.group,
            ("spec", "runtimeRef", "kind"): CLUSTER_RUNTIMES.kind,
            ("spec", "suspend"): False,
            ("spec", "managedBy"): TRAIN_JOB.controller,
        },
    ),
    "RayCluster": _Facts(
        (
            _column("desired workers", ".status.desiredWorkerReplicas", "integer"),
            _column("available workers", ".status.availableWorkerReplicas", "integer"),
            _column("cpus", ".status.desiredCPU"),
            _column("memory", ".status.desiredMemory"),
            _column("gpus", ".status.desiredGPU"),
            _column("status", ".status.state"),
            {**AGE, "name": "age"},
            _column("head pod IP", ".status.head.podIP", priority=1),
            _column("head service IP", ".status.head.serviceIP", priority=1),
        ),
        categories=("all",),
        versions=_RAY_VERSIONS,
        defaults=_worker_group_defaults(("spec",)),
    ),
    "RayJob": _Facts(
        (
            _column("job status", ".status.jobStatus"),
            _column("deployment status", ".status.jobDeploymentStatus"),
            _column("ray cluster name", ".status.rayClusterName"),
            _column("start time", ".status.startTime"),
            _column("end time", ".status.endTime"),
            {**AGE, "name": "age"},
        ),
        categories=("all",),
        versions=_RAY_VERSIONS,
        defaults={
            **_worker_group_defaults(("spec", "rayClusterSpec")),
            ("spec", "submissionMode"): "K8sJobMode",
            ("spec", "ttlSecondsAfterFinished"): 0,
            ("spec", "backoffLimit"): 0,
        },
    ),
    "RayService": _Facts(
        (
            _column("service status", ".status.serviceStatus"),
            _column("num serve endpoints", ".status.numServeEndpoints"),
        ),
        categories=("all",),
        versions=_RAY_VERSIONS,
        defaults=_worker_group_defaults(("spec", "rayClusterConfig")),
    ),
    "LeaderWorkerSet": _Facts(
        (
            _column("Ready", ".status.readyReplicas", "integer"),
            _column("Desired", ".spec.replicas", "integer"),
            _column("Up-to-date", ".status.updatedReplicas", "integer"),
            AGE,
        ),
        short_names=("lws",),
        defaults={
            ("spec", "replicas"): 1,
            (*_GROUPS, "size"): 1,
            (*_GROUPS, "restartPolicy"): "RecreateGroupOnPodRestart",
            ("spec", "startupPolicy"): "LeaderCreated",
        },
        scale=(".spec.replicas", ".status.replicas", ".status.hpaPodSelector"),
    ),
    "AppWrapper": _Facts(
        (
            _column("Status", ".status.phase"),
            _of_condition("Quota Reserved", "QuotaReserved"),
            _of_condition("Resources Deployed", "ResourcesDeployed"),
            _of_condition("Unhealthy", "Unhealthy"),
            AGE,
        ),
        short_names=("aw",),
    ),
    "SparkApplication": _Facts(
        (
            _column("Suspend", ".spec.suspend", "boolean"),
            _column("Status", ".status.applicationState.state"),
            _column("Attempts", ".status.executionAttempts"),
            _column("Start", ".status.lastSubmissionAttemptTime"),
            _column("Finish", ".status.terminationTime"),
            AGE,
        ),
        short_names=("sparkapp",),
        # These are what the operator's webhook sets.
        defaults={
            ("spec", "mode"): "cluster",
            ("spec", "driver", "cores"): 1,
            ("spec", "driver", "memory"): "1g",
            ("spec", "executor", "cores"): 1,
            ("spec", "executor", "memory"): "1g",
            ("spec", "executor", "instances"): 1,
            ("spec", "restartPolicy", "type"): "Never",
        },
    ),
}

#: What a kind's jobs refer to; served with it.
_RUNTIMES = {TRAIN_JOB.framework: (RUNTIMES, CLUSTER_RUNTIMES)}


def is_ours(definition: Mapping[str, Any]) -> bool:
    """Whether a definition is one of these, so that a stand-in operator serves the kind."""
    return bool(get(definition, "metadata", "labels", LABEL) == "true")


def definitions(kinds: Iterable[JobKind]) -> list[Object]:
    """The definitions of these kinds, and of what their jobs refer to."""
    found = []
    for kind in kinds:
        facts = _FACTS.get(kind.resource.kind, _Facts())
        found.append(_definition(kind.resource, _schema(kind, facts), facts))
        for resource in _RUNTIMES.get(kind.framework, ()):
            found.append(_definition(resource, _root(), _Facts(), status=False))
    return found


def _definition(resource: Resource, schema: Object, facts: _Facts, status: bool = True) -> Object:
    subresources: Object = {"status": {}} if status else {}
    if facts.scale:
        names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        subresources["scale"] = dict(zip(names, facts.scale, strict=True))
    served = {
        "served": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
        "additionalPrinterColumns": list(facts.columns),
    }
    metadata: Object = {"labels": {LABEL: "true"}}
    if resource.group.endswith(".k8s.io"):
        metadata["annotations"] = _UNAPPROVED
    versions = [
        {"name": version, "storage": version == resource.version, **served}
        for version in (resource.version, *facts.versions)
    ]
    return custom_resource_definition(
        resource, versions, metadata, shortNames=facts.short_names, categories=facts.categories
    )


# Schemas


def _open() -> Object:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _root() -> Object:
    string = {"type": "string"}
    metadata = {"type": "object"}
    return {
        **_open(),
        "properties": {"apiVersion": string, "kind": string, "metadata": metadata, "spec": _open()},
    }


def _schema(kind: JobKind, facts: _Facts) -> Object:
    """The fields that are read of a job of this kind, and their defaults."""
    root = _root()
    root["properties"]["status"] = _open()
    condition = {**_open(), "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}
    root["properties"]["status"]["properties"] = {"conditions": {"type": "array", "items": condition}}
    if kind.suspend is not None:
        _field(root, kind.suspend, {"type": "boolean"})
    if kind.managed_by is not None:
        _field(root, kind.managed_by, {"type": "string"})
    for paths in kind.pod_sets:
        start = (*paths.each, ALL) if paths.each else ()
        _field(root, (*start, *paths.template), _open(), bool(paths.keys))
        for factor in paths.counts:
            for count in factor:
                _field(root, (*start, *count), {"type": "integer", "minimum": 0}, bool(paths.keys))
    for path, value in facts.defaults.items():
        _field(root, path, {"type": _TYPES[type(value)], "default": value})
    return root


_TYPES = {bool: "boolean", int: "integer", str: "string"}


def _field(node: Object, path: Path, leaf: Object, is_map: bool = False) -> None:
    """Add a field to a schema; `*` in the path stands for the values of a map, or the elements of a list."""
    for number, step in enumerate(path):
        if step == ALL:
            key = "additionalProperties" if is_map else "items"
            node = node.setdefault(key, _open())
            continue
        following = path[number + 1 : number + 2]
        if not following:
            new: Object = {}
        elif following == (ALL,):
            new = {"type": "object"} if is_map else {"type": "array"}
        else:
            new = _open()
        node = node.setdefault("properties", {}).setdefault(step, new)
    node.update(leaf)
