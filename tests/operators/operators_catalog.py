"""The operators under test: accounts, flags and configuration as in the manifests of each project."""

from __future__ import annotations

from operators_programs import CERTIFICATES, Object, Operator, Ports
from operators_ray import dashboard
from operators_spark import spark_home


def _controller(api_version: str, ports: Ports) -> Object:
    """The part of a configuration that operators of the Kubernetes SIGs share."""
    return {
        "apiVersion": api_version,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports.health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": ports.webhooks, "host": "127.0.0.1"},
    }


JOB_SET = Operator(
    name="jobset",
    job_kinds=("JobSet", "TrainJob"),
    account=("jobset-system", "jobset-controller-manager"),
    configuration=lambda ports: {
        **_controller("config.jobset.x-k8s.io/v1alpha1", ports),
        "internalCertManagement": {"enable": True},
    },
    webhook_service="jobset-webhook-service",
    certificate_secret="jobset-webhook-server-cert",
)
TRAINING = Operator(
    name="training",
    job_kinds=("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"),
    account=("kubeflow", "training-operator"),
    arguments=lambda ports: [
        f"--health-probe-bind-address=127.0.0.1:{ports.health}",
        "--metrics-bind-address=0",
        f"--webhook-server-port={ports.webhooks}",
        *(f"--enable-scheme={kind}" for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")),
    ],
    # An older API of MPIJob: its definition has the name of that which the MPI operator brings.
    left_out=("mpijobs.kubeflow.org",),
    webhook_service="training-operator",
    certificate_secret="training-operator-webhook-cert",
)
MPI = Operator(
    name="mpi",
    job_kinds=("MPIJob",),
    account=("mpi-operator", "mpi-operator"),
    arguments=lambda ports: ["--lock-namespace=mpi-operator"],
    health="/healthz",
    health_port=8080,
)

LEADER_WORKER_SET = Operator(
    name="lws",
    job_kinds=("LeaderWorkerSet",),
    account=("lws-system", "lws-controller-manager"),
    configuration=lambda ports: {
        **_controller("config.lws.x-k8s.io/v1alpha1", ports),
        "internalCertManagement": {"enable": True},
    },
    webhook_service="lws-webhook-service",
    certificate_secret="lws-webhook-server-cert",
)
#: It runs with the JobSet controller of `pykueue up`: both operators read their certificate from one path.
TRAINER = Operator(
    name="trainer",
    job_kinds=("TrainJob",),
    account=("kubeflow-system", "kubeflow-trainer-controller-manager"),
    configuration=lambda ports: {
        **_controller("config.trainer.kubeflow.org/v1alpha1", ports),
        "certManagement": {
            "enable": True,
            "webhookServiceName": "kubeflow-trainer-controller-manager",
            "webhookSecretName": "kubeflow-trainer-webhook-cert",
        },
    },
    webhook_service="kubeflow-trainer-controller-manager",
    certificate_secret="kubeflow-trainer-webhook-cert",
)
RAY = Operator(
    name="ray",
    job_kinds=("RayCluster", "RayJob", "RayService"),
    account=("default", "kuberay-operator"),
    arguments=lambda ports: [
        f"--health-probe-bind-address=127.0.0.1:{ports.health}",
        "--metrics-addr=0",
        "--enable-leader-election=false",
    ],
    surroundings=dashboard,
)
APP_WRAPPER = Operator(
    name="appwrapper",
    job_kinds=("AppWrapper",),
    account=("appwrapper-system", "appwrapper-controller-manager"),
    settings=lambda ports: (
        "appwrapper-operator-config",
        "config.yaml",
        {
            "controllerManager": {
                "health": {"bindAddress": f"127.0.0.1:{ports.health}"},
                "metrics": {"bindAddress": "0"},
                "leaderElection": False,
            }
        },
    ),
    webhook_service="appwrapper-webhook-service",
    webhook_port=9443,
    certificate_secret="appwrapper-webhook-server-cert",
    environment={"NAMESPACE": "appwrapper-system"},
)
SPARK = Operator(
    name="spark",
    job_kinds=("SparkApplication",),
    account=("spark-operator", "spark-operator-controller"),
    arguments=lambda ports: [
        "controller",
        "start",
        "--namespaces=",
        f"--health-probe-bind-address=127.0.0.1:{ports.health}",
    ],
    webhook_process=(
        "spark-operator-webhook",
        lambda ports: [
            "webhook",
            "start",
            "--namespaces=",
            "--health-probe-bind-address=0",
            f"--webhook-port={ports.webhooks}",
            f"--webhook-cert-dir={CERTIFICATES}",
            "--webhook-secret-name=spark-operator-webhook-certs",
            "--webhook-secret-namespace=spark-operator",
            "--webhook-svc-name=spark-operator-webhook-svc",
            "--webhook-svc-namespace=spark-operator",
            "--mutating-webhook-name=mutating-webhook-configuration",
            "--validating-webhook-name=validating-webhook-configuration",
        ],
    ),
    webhook_service="spark-operator-webhook-svc",
    surroundings=spark_home,
)

OPERATORS = {
    one.name: one for one in (JOB_SET, TRAINING, MPI, LEADER_WORKER_SET, TRAINER, RAY, APP_WRAPPER, SPARK)
}
