"""Kubeflow's training jobs: a map of replica specs by role (docs/reference/operators.md 2 to 4)."""

from __future__ import annotations

from pykueue.api.resources import Resource

from .description import ALL, ConditionIs, JobKind, Path, PodSetPaths

GROUP = "kubeflow.org"
_RUN_POLICY = ("spec", "runPolicy")
#: Labels of the pods of all these kinds.
OPERATOR_LABEL, JOB_LABEL = "training.kubeflow.org/operator-name", "training.kubeflow.org/job-name"
ROLE_LABEL, INDEX_LABEL = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
#: On the pods of an MPIJob, in place of the replica type.
JOB_ROLE_LABEL = "training.kubeflow.org/job-role"


def _replicas(
    field: str, *roles: str, name: str = "{name}-{role}-{index}", role: str = ROLE_LABEL
) -> PodSetPaths:
    return PodSetPaths(
        ("template",),
        counts=((("replicas",),),),
        each=("spec", field),
        keys=roles,
        index_label=INDEX_LABEL,
        pod_name=name,
        pod_labels=((role, "{role}"), (INDEX_LABEL, "{index}")),
    )


def _kind(
    resource: Resource, pod_sets: PodSetPaths, controller: str, operator: str, prebuilt: bool = True
) -> JobKind:
    return JobKind(
        framework=f"{GROUP}/{resource.kind.lower()}",
        resource=resource,
        pod_sets=(pod_sets,),
        suspend=(*_RUN_POLICY, "suspend"),
        managed_by=(*_RUN_POLICY, "managedBy"),
        controller=controller,
        succeeded=("Succeeded",),
        failed=("Failed",),
        active=(_ACTIVE,),
        ready=(ConditionIs("Running"),),
        priority_class=((*_RUN_POLICY, "schedulingPolicy", "priorityClass"),),
        prebuilt=prebuilt,
        pod_labels=((OPERATOR_LABEL, operator), (JOB_LABEL, "{name}")),
    )


_ACTIVE: Path = ("status", "replicaStatuses", ALL, "active")


def _training_job(kind: str, field: str, *roles: str, prebuilt: bool = True) -> JobKind:
    """A kind of the training operator."""
    resource = Resource(GROUP, "v1", f"{kind.lower()}s", kind, True)
    operator = f"{kind.lower()}-controller"
    return _kind(resource, _replicas(field, *roles), "kubeflow.org/training-operator", operator, prebuilt)


PYTORCH_JOB = _training_job("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker")
TF_JOB = _training_job("TFJob", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator")
XGBOOST_JOB = _training_job("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker")
PADDLE_JOB = _training_job("PaddleJob", "paddleReplicaSpecs", "Master", "Worker")
JAX_JOB = _training_job("JAXJob", "jaxReplicaSpecs", "Worker", prebuilt=False)

#: The launcher's pod is made by a Job of its own, `<job>-launcher`.
MPI_JOB = _kind(
    Resource(GROUP, "v2beta1", "mpijobs", "MPIJob", True),
    _replicas("mpiReplicaSpecs", "Launcher", "Worker", role=JOB_ROLE_LABEL),
    "kubeflow.org/mpi-operator",
    "mpi-operator",
)

KUBEFLOW_KINDS = (MPI_JOB, PYTORCH_JOB, PADDLE_JOB, XGBOOST_JOB, TF_JOB, JAX_JOB)
