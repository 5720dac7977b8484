"""KubeRay's kinds: a head and worker groups (docs/reference/operators.md 6 to 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.objects import Object
from pykueue.api.resources import Resource

from .description import (
    AddedContainer,
    AllOf,
    ConditionIs,
    FieldIn,
    JobKind,
    Not,
    Path,
    PodSetPaths,
    Predicate,
    Rule,
    field_path,
    filled,
    value_at,
)

GROUP = "ray.io"
RAY_CLUSTERS = Resource(GROUP, "v1", "rayclusters", "RayCluster", True)
#: The label of the pods of a RayCluster with its name.
CLUSTER_LABEL = "ray.io/cluster"
#: "true": the cluster keeps its state in Redis (GCS fault tolerance), as does one with options for that.
FAULT_TOLERANCE_ANNOTATION = "ray.io/ft-enabled"
_GROUP_LABEL, _TYPE_LABEL = "ray.io/group", "ray.io/node-type"
#: The pod set of a RayJob whose pod is not one of its RayCluster.
SUBMITTER = "submitter"
#: What submitting a job takes, in a pod of its own or beside the head.
_SUBMITTER = (("cpu", "500m"), ("memory", "200Mi"))
_AUTOSCALER = (("cpu", "500m"), ("memory", "512Mi"))
#: What cleaning up after a cluster with an external store takes.
_CLEANUP = (("cpu", "200m"), ("memory", "256Mi"))
_SUBMISSION = ("spec", "submissionMode")
_IS_ELASTIC = FieldIn(("metadata", "annotations", names.ELASTIC_JOB_ANNOTATION), ("true",))


def _is_set(path: Path) -> Predicate:
    return Not(FieldIn(path, (None,)))


def _pod_sets(spec: Path, cluster: str, *added: AddedContainer) -> tuple[PodSetPaths, ...]:
    """The pod sets of the RayClusterSpec at `spec`; `cluster` is the cluster's name (`filled`)."""
    autoscaler = AddedContainer(
        "autoscaler",
        _AUTOSCALER,
        FieldIn((*spec, "enableInTreeAutoscaling"), (True,)),
        (*spec, "autoscalerOptions", "resources"),
    )
    cleanup = AddedContainer(
        "redis-cleanup", _CLEANUP, _is_set((*spec, "gcsFaultToleranceOptions")), apart=True
    )
    return (
        PodSetPaths(
            (*spec, "headGroupSpec", "template"),
            name="head",
            added=(autoscaler, cleanup, *added),
            pod_name=f"{cluster}-head-{{random}}",
            pod_labels=((_TYPE_LABEL, "head"), (_GROUP_LABEL, "headgroup")),
        ),
        PodSetPaths(
            ("template",),
            counts=((("replicas",),), (("numOfHosts",),)),
            each=(*spec, "workerGroupSpecs"),
            name="groupName",
            pod_name=f"{cluster}-{{written}}-worker-{{random}}",
            pod_labels=((_TYPE_LABEL, "worker"), (_GROUP_LABEL, "{written}")),
        ),
    )


def _rules(spec: Path) -> tuple[Rule, ...]:
    path = (*spec, "enableInTreeAutoscaling")
    text = f'a queued cluster is scaled only with the annotation {names.ELASTIC_JOB_ANNOTATION}: "true"'
    return (Rule(field_path(path), AllOf(FieldIn(path, (True,)), Not(_IS_ELASTIC)), text),)


def _kind(name: str, resource: Resource, **fields: Any) -> JobKind:
    managed_by, controller = ("spec", "managedBy"), "ray.io/kuberay-operator"
    return JobKind(
        f"{GROUP}/{name}", resource, managed_by=managed_by, controller=controller, elastic=True, **fields
    )


_IS_UP = FieldIn(("status", "state"), ("ready",))
RAY_CLUSTER = _kind(
    "raycluster",
    RAY_CLUSTERS,
    pod_sets=_pod_sets(("spec",), "{name}"),
    active=(_IS_UP,),
    ready=(_IS_UP,),
    rules=_rules(("spec",)),
    pod_labels=((CLUSTER_LABEL, "{name}"),),
)


def submitter_template(job: Mapping[str, Any]) -> Object:
    """The template of the pod that submits a RayJob, as the operator makes it for a job without one."""
    head = ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "containers", 0, "image")
    limits = {"cpu": "1", "memory": "1Gi"}
    container = {
        "name": "ray-job-submitter",
        "image": value_at(job, head) or "",
        "resources": {"limits": limits, "requests": dict(_SUBMITTER)},
    }
    return {"spec": {"containers": [container], "restartPolicy": "Never"}}


_CLUSTER_SPEC, _SELECTOR = ("spec", "rayClusterSpec"), ("spec", "clusterSelector")
_PHASE, _RESULT = ("status", "jobDeploymentStatus"), ("status", "jobStatus")
_HAS_ENDED = FieldIn(_PHASE, ("Complete", "Failed"))
_HAS_SELECTOR = Not(FieldIn(_SELECTOR, (None, {})))
_SHUTDOWN = ("spec", "shutdownAfterJobFinishes")
RAY_JOB = _kind(
    "rayjob",
    Resource(GROUP, "v1", "rayjobs", "RayJob", True),
    pod_sets=(
        *_pod_sets(
            _CLUSTER_SPEC,
            "{status.rayClusterName}",
            AddedContainer("ray-job-submitter", _SUBMITTER, FieldIn(_SUBMISSION, ("SidecarMode",))),
        ),
        PodSetPaths(
            ("spec", "submitterPodTemplate"),
            name=SUBMITTER,
            when=FieldIn(_SUBMISSION, (None, "", "K8sJobMode")),
            default_template=submitter_template,
            pod_name="{name}-{random}",
        ),
    ),
    succeeded=(AllOf(_HAS_ENDED, FieldIn(_RESULT, ("SUCCEEDED",))),),
    failed=(_HAS_ENDED,),
    message=("status", "message"),
    active=(Not(FieldIn(_PHASE, (None, "", "New", "Suspended", "ValidationFailed"))),),
    ready=(FieldIn(("status", "rayClusterStatus", "state"), ("ready",)),),
    on_hold=FieldIn(_PHASE, ("ValidationFailed",)),
    exempt=AllOf(_HAS_SELECTOR, Not(_is_set(_CLUSTER_SPEC))),
    rules=(
        Rule(field_path(_SHUTDOWN), Not(FieldIn(_SHUTDOWN, (True,))), "must be true for a queued job"),
        Rule(
            field_path(_SELECTOR),
            AllOf(_HAS_SELECTOR, _is_set(_CLUSTER_SPEC)),
            "cannot be combined with spec.rayClusterSpec",
        ),
        *_rules(_CLUSTER_SPEC),
    ),
    pod_labels=((CLUSTER_LABEL, "{status.rayClusterName}"),),
)

_CONFIG = ("spec", "rayClusterConfig")
RAY_SERVICE = _kind(
    "rayservice",
    Resource(GROUP, "v1", "rayservices", "RayService", True),
    pod_sets=_pod_sets(_CONFIG, "{status.activeServiceStatus.rayClusterName}"),
    suspend=(*_CONFIG, "suspend"),
    passed_on=(("spec", "serveConfigV2"),),
    # Not the condition Ready: KubeRay leaves it as it was when it finds no head pod
    # (docs/reference/operators.md 8). Whether the service runs is known from its pods.
    active=(),
    ready=(ConditionIs("Ready"),),
    rules=_rules(_CONFIG),
    pod_labels=((CLUSTER_LABEL, "{status.activeServiceStatus.rayClusterName}"),),
    other_pod_labels=((CLUSTER_LABEL, "{status.pendingServiceStatus.rayClusterName}"),),
)


def ray_cluster_names(job: Mapping[str, Any], kind: JobKind) -> list[str]:
    """The RayClusters whose pods are those of a job: the one that serves, and one that is to replace it."""
    texts = (text for key, text in (*kind.pod_labels, *kind.other_pod_labels) if key == CLUSTER_LABEL)
    return [name for text in texts if (name := filled(text, job))]


RAY_KINDS = (RAY_CLUSTER, RAY_JOB, RAY_SERVICE)
