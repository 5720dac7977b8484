"""A sample manifest for each job kind, and what is expected of it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykueue.api.jobkinds import JobKind
from pykueue.api.resources import Resource
from pykueue.api.yaml import load_documents
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.kinds import BUILT_IN

Object = dict[str, Any]
FOLDER = Path(__file__).parent / "samples"


def runtime() -> Object:
    """The runtime that the sample of a TrainJob refers to."""
    (found,) = load_documents((FOLDER / "trainingruntime.yaml").read_text())
    return found


def _read(resource: Resource, namespace: str, name: str) -> Object | None:
    return runtime() if (resource.kind, name) == ("ClusterTrainingRuntime", "torch") else None


KINDS = BUILT_IN.bound(_read)


@dataclass(frozen=True)
class Sample:
    """One kind: its sample, its pod sets, and what its status looks like in the phases of its life."""

    framework: str
    #: Name, count and CPU request of each pod set.
    pod_sets: list[tuple[str, int, str]]
    #: Where the templates are, in the same order.
    templates: list[str]
    running: Object
    stopped: Object
    succeeded: Object
    #: None: the kind never ends.
    failed: Object | None
    suspend: str = "spec.suspend"
    message: str = ""
    failure_message: str = "exit code 1"
    ends: bool = True
    #: Whether its status says that pods run; otherwise only the pods do.
    reports_pods: bool = True

    @property
    def integration(self) -> JobIntegration:
        return KINDS.jobs[self.framework]

    @property
    def kind(self) -> JobKind:
        return self.integration.kind

    @property
    def name(self) -> str:
        name: str = self.job()["metadata"]["name"]
        return name

    def job(self) -> Object:
        """The manifest, read again each time."""
        (found,) = load_documents((FOLDER / f"{self.framework.rpartition('/')[2]}.yaml").read_text())
        return found


def with_status(job: Object, status: Object) -> Object:
    return {**copy.deepcopy(job), "status": status}


def condition(*types: str, message: str = "", status: str = "True") -> list[Object]:
    return [
        {
            "type": each,
            "status": status,
            "reason": "R",
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for each in types
    ]


def _kubeflow(name: str, field_name: str, pod_sets: list[tuple[str, int, str]], keys: list[str]) -> Sample:
    active = {key: {"active": 1} for key in keys}
    return Sample(
        framework=f"kubeflow.org/{name}",
        pod_sets=pod_sets,
        templates=[f"spec.{field_name}.{key}.template" for key in keys],
        running={"conditions": condition("Created", "Running"), "replicaStatuses": active},
        stopped={
            "conditions": condition("Created", "Suspended"),
            "replicaStatuses": {key: {"active": 0} for key in keys},
        },
        succeeded={"conditions": condition("Succeeded", message="done")},
        failed={"conditions": condition("Failed", message="exit code 1")},
        suspend="spec.runPolicy.suspend",
        message="done",
    )


_RAY = "rayClusterStatus"
SAMPLES = {
    sample.framework.rpartition("/")[2]: sample
    for sample in (
        _kubeflow(
            "pytorchjob",
            "pytorchReplicaSpecs",
            [("master", 1, "1"), ("worker", 3, "2")],
            ["Master", "Worker"],
        ),
        _kubeflow(
            "tfjob",
            "tfReplicaSpecs",
            [("chief", 1, "1"), ("ps", 2, "500m"), ("worker", 2, "1"), ("evaluator", 1, "500m")],
            ["Chief", "PS", "Worker", "Evaluator"],
        ),
        _kubeflow(
            "xgboostjob", "xgbReplicaSpecs", [("master", 1, "1"), ("worker", 2, "1")], ["Master", "Worker"]
        ),
        _kubeflow("paddlejob", "paddleReplicaSpecs", [("worker", 4, "1")], ["Worker"]),
        _kubeflow("jaxjob", "jaxReplicaSpecs", [("worker", 2, "3")], ["Worker"]),
        _kubeflow(
            "mpijob",
            "mpiReplicaSpecs",
            [("launcher", 1, "500m"), ("worker", 2, "2")],
            ["Launcher", "Worker"],
        ),
        Sample(
            framework="ray.io/raycluster",
            pod_sets=[("head", 1, "1"), ("small", 4, "500m"), ("slice", 2, "1")],
            templates=[
                "spec.headGroupSpec.template",
                "spec.workerGroupSpecs[0].template",
                "spec.workerGroupSpecs[1].template",
            ],
            running={"state": "ready"},
            stopped={"state": "suspended"},
            succeeded={"state": "ready"},
            failed=None,
            ends=False,
        ),
        Sample(
            framework="ray.io/rayjob",
            pod_sets=[("head", 1, "1"), ("workers", 2, "2"), ("submitter", 1, "500m")],
            templates=[
                "spec.rayClusterSpec.headGroupSpec.template",
                "spec.rayClusterSpec.workerGroupSpecs[0].template",
                "spec.submitterPodTemplate",
            ],
            running={
                "jobDeploymentStatus": "Running",
                "jobStatus": "RUNNING",
                "rayClusterName": "tune-abcde",
                _RAY: {"state": "ready"},
            },
            stopped={"jobDeploymentStatus": "Suspended"},
            succeeded={"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"},
            failed={"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "exit code 1"},
            message="done",
        ),
        Sample(
            framework="ray.io/rayservice",
            pod_sets=[("head", 1, "1"), ("gpu", 1, "2")],
            templates=[
                "spec.rayClusterConfig.headGroupSpec.template",
                "spec.rayClusterConfig.workerGroupSpecs[0].template",
            ],
            running={"conditions": condition("Ready")},
            stopped={"conditions": condition("Ready", status="False")},
            succeeded={"conditions": condition("Ready")},
            failed=None,
            suspend="spec.rayClusterConfig.suspend",
            ends=False,
            reports_pods=False,
        ),
        Sample(
            framework="workload.codeflare.dev/appwrapper",
            pod_sets=[("render-0", 4, "1"), ("render-1", 2, "500m")],
            templates=[],
            running={"phase": "Running", "conditions": condition("QuotaReserved", "PodsReady")},
            stopped={"phase": "Suspended", "conditions": condition("QuotaReserved", status="False")},
            succeeded={"phase": "Succeeded"},
            failed={"phase": "Failed", "conditions": condition("ResourcesDeployed", status="False")},
            failure_message="",
        ),
        Sample(
            framework="sparkoperator.k8s.io/sparkapplication",
            pod_sets=[("driver", 1, "1"), ("executor", 3, "1500m")],
            templates=["spec.driver.template", "spec.executor.template"],
            running={
                "applicationState": {"state": "RUNNING"},
                "executorState": {f"sessions-exec-{n}": "RUNNING" for n in (1, 2, 3)},
            },
            stopped={"applicationState": {"state": "SUSPENDED"}},
            succeeded={"applicationState": {"state": "COMPLETED"}},
            failed={"applicationState": {"state": "FAILED", "errorMessage": "exit code 1"}},
        ),
        Sample(
            framework="trainer.kubeflow.org/trainjob",
            pod_sets=[("model-initializer", 1, "500m"), ("node", 4, "2")],
            templates=[],
            running={
                "conditions": condition("Suspended", status="False"),
                "jobsStatus": [
                    {"name": "model-initializer", "active": 0, "ready": 0, "succeeded": 1},
                    {"name": "node", "active": 1, "ready": 1, "succeeded": 0},
                ],
            },
            stopped={
                "conditions": condition("Suspended"),
                "jobsStatus": [{"name": "node", "active": 0, "ready": 0, "succeeded": 0}],
            },
            succeeded={"conditions": condition("Complete", message="done")},
            failed={"conditions": condition("Failed", message="exit code 1")},
            message="done",
        ),
    )
}


def place(text: str) -> tuple[str | int, ...]:
    """A field path such as `spec.groups[0].template` as a place."""
    parts = text.replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts)
