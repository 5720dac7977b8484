"""The kinds whose admission webhooks are compared, and what is changed in their manifests."""

from __future__ import annotations

import copy

from webhooks_manifests import (
    LABEL,
    NOTE,
    TEMPLATE,
    Change,
    D,
    Family,
    Object,
    Place,
    at,
    manifest,
    sample,
)


def _templates(*paths: str) -> tuple[Place, ...]:
    return tuple(at(path) for path in paths)


def _kubeflow(name: str, roles: str, *keys: str, extra: tuple[Change, ...] = ()) -> Family:
    places: list[Change] = [
        (at(f"spec.{roles}.{keys[-1]}.replicas"), (0, 1, 4)),
        (at(f"spec.{roles}.{keys[-1]}"), (None,)),
        (at("spec.runPolicy.schedulingPolicy"), ({"priorityClass": "urgent"}, {"minAvailable": 2})),
    ]
    status = {"replicaStatuses": {keys[-1]: {"active": 1}}, "conditions": []}
    return Family(
        sample(name),
        _templates(*(f"spec.{roles}.{key}.template" for key in keys)),
        suspend=at("spec.runPolicy.suspend"),
        managed_by=at("spec.runPolicy.managedBy"),
        controller="kubeflow.org/training-operator" if name != "mpijob" else "kubeflow.org/mpi-operator",
        changes=(*places, *extra),
        statuses=({}, status),
    )


def _ray_cluster(prefix: str) -> tuple[Change, ...]:
    group = copy.deepcopy(sample("raycluster")["spec"]["workerGroupSpecs"][0])

    def named(name: str) -> Object:
        return {**group, "groupName": name}

    many = [named(f"g{number}") for number in range(18)]
    return (
        (at(f"{prefix}.enableInTreeAutoscaling"), (True, True, False)),
        (at(f"{prefix}.workerGroupSpecs.0.groupName"), ("head", "HEAD", "other", "Other")),
        (at(f"{prefix}.workerGroupSpecs.0.replicas"), (0, 1, 7)),
        (at(f"{prefix}.workerGroupSpecs.0.numOfHosts"), (1, 2)),
        (at(f"{prefix}.workerGroupSpecs"), ([], many[:17], many, many[:1])),
        (at(f"{prefix}.gcsFaultToleranceOptions"), ({"redisAddress": "redis:6379"},)),
        (at(f"{NOTE}|{D}elastic-job"), ("true", "true", "false")),
    )


def _ray(name: str, prefix: str, suspend: str, status: Object, extra: tuple[Change, ...] = ()) -> Family:
    return Family(
        sample(name),
        _templates(f"{prefix}.headGroupSpec.template", f"{prefix}.workerGroupSpecs.0.template"),
        suspend=at(suspend),
        managed_by=at("spec.managedBy"),
        controller="ray.io/kuberay-operator",
        changes=(*_ray_cluster(prefix), *extra),
        statuses=({}, status),
    )


def _with_runtime(job: Object) -> Object:
    """With the defaults that its definition gives to the reference to the runtime."""
    job["spec"]["runtimeRef"] |= {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"}
    return job


_JOB = Family(
    manifest("batch/v1", "Job", {"parallelism": 3, "completions": 3, "template": TEMPLATE}),
    _templates("spec.template"),
    suspend=at("spec.suspend"),
    managed_by=at("spec.managedBy"),
    controller="kubernetes.io/job-controller",
    changes=(
        (at(f"{NOTE}|{D}job-min-parallelism"), ("1", "2", "3", "4", "0", "-1", "x", "+1", "", None)),
        (at(f"{NOTE}|{D}job-min-parallelism"), ("1", "2", None)),
        (
            at(f"{NOTE}|{D}job-completions-equal-parallelism"),
            ("true", "false", "1", "T", "yes", "", None),
        ),
        (at("spec.completionMode"), ("Indexed", "NonIndexed")),
        (at("spec.parallelism"), (0, 1, 2, 5)),
        (at("spec.completions"), (1, 2, 5, None)),
    ),
    statuses=({}, {"active": 3, "startTime": "2026-01-01T00:00:00Z"}),
)

_SET_JOBS = [
    {"name": "driver", "replicas": 1, "template": {"spec": {"parallelism": 1, "template": TEMPLATE}}},
    {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}},
]
_JOBSET = Family(
    manifest("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": _SET_JOBS}),
    _templates(*(f"spec.replicatedJobs.{index}.template.spec.template" for index in (0, 1))),
    suspend=at("spec.suspend"),
    managed_by=at("spec.managedBy"),
    controller="jobset.sigs.k8s.io/jobset-controller",
    changes=(
        (at("spec.replicatedJobs.1.replicas"), (0, 1, 3)),
        (at("spec.replicatedJobs.1.template.spec.parallelism"), (0, 1, 4)),
        (at("spec.replicatedJobs.1.template.spec.completions"), (1, 9)),
        (at("spec.replicatedJobs"), ([], _SET_JOBS[:1])),
    ),
    statuses=({}, {"replicatedJobsStatus": []}),
)

_POD = Family(
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j"}, "spec": TEMPLATE["spec"]},
    ((),),
    changes=(
        (at(f"{LABEL}|{D}pod-group-name"), ("g", "g", "Not_A_Name", "", None)),
        (at(f"{NOTE}|{D}pod-group-name"), ("g", "h", "Not_A_Name")),
        (at(f"{NOTE}|{D}pod-group-total-count"), ("2", "2", "0", "-1", "x", "", None, "+2")),
        (at(f"{NOTE}|{D}retriable-in-group"), ("false", "true", "no", None)),
        (at(f"{NOTE}|{D}pod-group-fast-admission"), ("true", "false", "x")),
        (at(f"{LABEL}|{D}managed"), ("true", "false", "", None)),
        (at(f"{NOTE}|{D}pod-suspending-parent"), ("deployment", "statefulset", "other")),
        (at(f"{NOTE}|{D}pod-group-pod-index-label"), ("app", "missing")),
        (at(f"{NOTE}|{D}role-hash"), ("mine",)),
        (at("spec.schedulingGates"), ([{"name": f"{D}admission"}], [{"name": "example.com/g"}], None)),
        (at(LABEL), ({f"{D}queue-name": "lq", f"{D}pod-group-name": "g"},)),
        (at("spec.nodeSelector"), ({"disk": "fast"},)),
    ),
    statuses=({}, {"phase": "Running"}, {"phase": "Failed"}),
)

_GROUPED: Object = {
    "labels": {f"{D}pod-group-name": "g", f"{D}managed": "true"},
    "annotations": {f"{D}pod-group-total-count": "2"},
}


def _pod_group() -> Family:
    """Pods that belong to a group already."""
    obj = copy.deepcopy(_POD.sample)
    obj["metadata"] |= copy.deepcopy(_GROUPED)
    return Family(obj, _POD.templates, changes=_POD.changes, statuses=_POD.statuses)


def _serving(kind: str, spec: Object, changes: tuple[Change, ...], statuses: tuple[Object, ...]) -> Family:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": TEMPLATE["spec"]["containers"]}}
    whole = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return Family(
        manifest("apps/v1", kind, whole), _templates("spec.template"), changes=changes, statuses=statuses
    )


_READY = ({}, {"replicas": 3, "readyReplicas": 3}, {"replicas": 3, "readyReplicas": 0})
_REPLICAS: Change = (at("spec.replicas"), (0, 0, 1, 3, 5, None))
_LWS_TEMPLATE = {"spec": {"containers": TEMPLATE["spec"]["containers"]}}
_GROUP = "spec.leaderWorkerTemplate"

FAMILIES: dict[str, Family] = {
    "job": _JOB,
    "jobset": _JOBSET,
    "pytorchjob": _kubeflow("pytorchjob", "pytorchReplicaSpecs", "Master", "Worker"),
    "tfjob": _kubeflow("tfjob", "tfReplicaSpecs", "Chief", "PS", "Evaluator", "Worker"),
    "xgboostjob": _kubeflow("xgboostjob", "xgbReplicaSpecs", "Master", "Worker"),
    "paddlejob": _kubeflow("paddlejob", "paddleReplicaSpecs", "Worker"),
    "jaxjob": _kubeflow("jaxjob", "jaxReplicaSpecs", "Worker"),
    "mpijob": _kubeflow(
        "mpijob",
        "mpiReplicaSpecs",
        "Launcher",
        "Worker",
        extra=(
            (at("spec.runLauncherAsWorker"), (True, True, False)),
            (
                at(f"spec.mpiReplicaSpecs.Worker.template.metadata.annotations|{D}pod-index-offset"),
                ("1", "0", "3"),
            ),
        ),
    ),
    "trainjob": Family(
        _with_runtime(sample("trainjob")),
        (),
        suspend=at("spec.suspend"),
        managed_by=at("spec.managedBy"),
        controller="trainer.kubeflow.org/trainjob-controller",
        changes=(
            (at("spec.trainer.numNodes"), (1, 8)),
            (at("spec.trainer.image"), ("i:2",)),
            (at("spec.runtimePatches"), ([{"manager": "example.com/a"}], [{"manager": f"{D}manager"}], [])),
        ),
        statuses=({}, {"jobsStatus": []}),
    ),
    "raycluster": _ray("raycluster", "spec", "spec.suspend", {"state": "ready"}),
    "rayjob": _ray(
        "rayjob",
        "spec.rayClusterSpec",
        "spec.suspend",
        {"jobDeploymentStatus": "Running", "rayClusterName": "tune-abcde"},
        extra=(
            (at("spec.clusterSelector"), ({"ray.io/cluster": "shared"}, {})),
            (at("spec.rayClusterSpec"), (None,)),
            (at("spec.shutdownAfterJobFinishes"), (False, True, None)),
            (at("spec.submissionMode"), ("K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode")),
            (at("spec.submitterPodTemplate"), (TEMPLATE,)),
            (at("spec.backoffLimit"), (2,)),
        ),
    ),
    "rayservice": _ray(
        "rayservice",
        "spec.rayClusterConfig",
        "spec.rayClusterConfig.suspend",
        {"conditions": []},
        extra=((at("spec.serveConfigV2"), ("applications: []",)),),
    ),
    "appwrapper": Family(
        sample("appwrapper"),
        (),
        suspend=at("spec.suspend"),
        managed_by=at("spec.managedBy"),
        controller="workload.codeflare.dev/appwrapper",
        changes=(
            (at("spec.components.1.template.spec.parallelism"), (1, 9)),
            (at("spec.components.2.podSets.0.replicas"), (0, 1, 5)),
        ),
        statuses=({}, {"phase": "Running"}),
    ),
    "sparkapplication": Family(
        sample("sparkapplication"),
        _templates("spec.driver.template", "spec.executor.template"),
        suspend=at("spec.suspend"),
        changes=(
            (at("spec.mode"), ("client", "in-cluster-client", "cluster")),
            (at("spec.dynamicAllocation"), ({"enabled": True}, {"enabled": False})),
            (at("spec.executor.instances"), (0, 1, 5, None)),
            (at("spec.executor.memory"), ("2g", "512m")),
            (at("spec.driver.annotations"), ({f"{D}podset-required-topology": "not a label"}, {"a": "b"})),
        ),
        statuses=({}, {"applicationState": {"state": "RUNNING"}}),
    ),
    "pod": _POD,
    "podgroup": _pod_group(),
    "deployment": _serving("Deployment", {"replicas": 3}, (_REPLICAS,), _READY),
    "statefulset": _serving(
        "StatefulSet", {"replicas": 3, "serviceName": "s"}, (_REPLICAS, _REPLICAS), _READY
    ),
    "leaderworkerset": Family(
        sample("leaderworkerset"),
        _templates(f"{_GROUP}.leaderTemplate", f"{_GROUP}.workerTemplate"),
        changes=(
            (at(f"{_GROUP}.size"), (1, 2, 3, 4, None)),
            (at(f"{_GROUP}.leaderTemplate"), (None, _LWS_TEMPLATE)),
            (at("spec.replicas"), (0, 1, 4, None, 2_000_000)),
        ),
        statuses=_READY,
    ),
}
