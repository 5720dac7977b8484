"""The environment variables by which the processes of a training job find each other.

One function per framework. Source: docs/reference/operators.md 3.1 to 3.5.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pykueue.api.jobkinds import value_at


class Replicas(NamedTuple):
    """The pods of a job."""

    job: str
    namespace: str
    #: Number by role, in lower case.
    counts: Mapping[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def first(self) -> str:
        """The pod that the others connect to."""
        return f"{self.job}-{'master' if 'master' in self.counts else 'worker'}-0"


class _Pod(NamedTuple):
    """The pod that the variables are for."""

    replicas: Replicas
    role: str
    number: int
    port: int
    spec: Mapping[str, Any]

    @property
    def rank(self) -> int:
        """Its number in the job: the master is 0, workers follow."""
        return self.number + ("master" in self.replicas.counts and self.role != "master")


def _pytorch(pod: _Pod) -> dict[str, str]:
    replicas = pod.replicas
    processes = str(pod.spec.get("nprocPerNode") or "auto")
    found: dict[str, str] = {"PYTHONUNBUFFERED": "1"}
    if "master" in replicas.counts:
        world = replicas.total * (int(processes) if processes.isdecimal() else 1)
        for prefix in ("", "PET_"):
            found[f"{prefix}MASTER_ADDR"] = replicas.first()
            found[f"{prefix}MASTER_PORT"] = str(pod.port)
        found |= {"WORLD_SIZE": str(world), "RANK": str(pod.rank), "PET_NODE_RANK": str(pod.rank)}
    found["PET_NPROC_PER_NODE"] = processes
    elastic = value_at(pod.spec, ("elasticPolicy",))
    if not elastic:
        found["PET_NNODES"] = str(replicas.total)
        return found
    workers = replicas.counts.get("worker", 0)
    least = elastic.get("minReplicas") or elastic.get("maxReplicas") or workers
    most = elastic.get("maxReplicas") or least
    host, port = elastic.get("rdzvHost") or f"{replicas.job}-worker-0", elastic.get("rdzvPort") or pod.port
    found |= {"PET_NNODES": f"{least}:{most}", "PET_RDZV_ENDPOINT": f"{host}:{port}"}
    for field, name in (("rdzvBackend", "BACKEND"), ("rdzvId", "ID")):
        if elastic.get(field):
            found[f"PET_RDZV_{name}"] = str(elastic[field])
    if elastic.get("maxRestarts") is not None:
        found["PET_MAX_RESTARTS"] = str(elastic["maxRestarts"])
    return found


def _tensorflow(pod: _Pod) -> dict[str, str]:
    replicas = pod.replicas
    if replicas.total == 1:
        return {}
    domain = f"{replicas.namespace}.svc:{pod.port}"
    addresses = {
        role: [f"{replicas.job}-{role}-{index}.{domain}" for index in range(count)]
        for role, count in replicas.counts.items()
    }
    task = {"type": pod.role, "index": pod.number}
    if not pod.spec.get("enableDynamicWorker"):
        text = {"cluster": addresses, "task": task, "environment": "cloud"}
        return {"TF_CONFIG": json.dumps(text)}
    own = addresses[pod.role][pod.number]
    if pod.role == "ps":
        return {"TF_CONFIG": json.dumps({"cluster": {"ps": [own]}, "task": task})}
    cluster = {"worker": {str(pod.number): own}, "ps": addresses.get("ps", [])}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def _xgboost(pod: _Pod) -> dict[str, str]:
    replicas = pod.replicas
    found = {
        "MASTER_ADDR": f"{replicas.job}-master-0",
        "MASTER_PORT": str(pod.port),
        "WORLD_SIZE": str(replicas.total),
        "RANK": str(pod.rank),
        "PYTHONUNBUFFERED": "1",
    }
    if replicas.total > 1:
        workers = range(replicas.counts.get("worker", 0))
        found["WORKER_PORT"] = str(pod.port)
        found["WORKER_ADDRS"] = ",".join(f"{replicas.job}-worker-{index}" for index in workers)
    return found


def _paddle(pod: _Pod) -> dict[str, str]:
    replicas = pod.replicas
    found = {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_JOB_ID": replicas.job,
        "PADDLE_NNODES": str(replicas.total),
        "PADDLE_MASTER": f"{replicas.first()}:{pod.port}",
    }
    if "master" in replicas.counts:
        found["PADDLE_SERVER_NUM" if pod.role == "master" else "PADDLE_TRAINER_NUM"] = "1"
    return found


def _jax(pod: _Pod) -> dict[str, str]:
    return {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_ADDRESS": pod.replicas.first(),
        "COORDINATOR_PORT": str(pod.port),
        "NUM_PROCESSES": str(pod.replicas.total),
        "PROCESS_ID": str(pod.number),
    }


_BY_KIND: dict[str, Callable[[_Pod], dict[str, str]]] = {
    "PyTorchJob": _pytorch,
    "TFJob": _tensorflow,
    "XGBoostJob": _xgboost,
    "PaddleJob": _paddle,
    "JAXJob": _jax,
}


def variables(
    kind: str, spec: Mapping[str, Any], replicas: Replicas, role: str, index: int, port: int
) -> dict[str, str]:
    """The variables of one pod of a job of this kind."""
    return _BY_KIND[kind](_Pod(replicas, role, index, port, spec))
