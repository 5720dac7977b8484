"""A manager cluster and a worker, one of which Kueue manages and the other one pykueue."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import yaml
from besidekueue_cluster import condition_of, workload_of
from besidekueue_manager import KueueManager
from cli_processes import PATIENCE, Up
from realcluster_plane import Kubectl, free_port, until

from pykueue.clock import Clock
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.client import Client
from pykueue.kube.config import load
from pykueue.manager import configuration
from pykueue.manager.multikueue.access import Endpoint, WorkerAccess, configure_check, worker_rules
from queue_manifests import QUEUES

Object = dict[str, Any]
WORKER = "w"
FRAMEWORKS = ["batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob", "pod"]
CONFIGURATION = {"integrations": {"frameworks": FRAMEWORKS}}


class Side(ABC):
    """One of the clusters."""

    #: An administrator's.
    kubectl: Kubectl
    kubeconfig: Path

    @abstractmethod
    def set_up(self) -> None:
        """Start everything, and create the queues."""

    @abstractmethod
    def endpoint(self) -> tuple[str, str]:
        """URL and certificate authority of its API server."""

    @abstractmethod
    def kill(self) -> None:
        """End its API server, as the machine's power switch would."""

    @abstractmethod
    def start(self) -> None:
        """Start its API server again."""

    @abstractmethod
    def stop(self) -> None:
        """End everything."""

    def set_up_queues(self) -> None:
        self.kubectl.apply(*yaml.safe_load_all(QUEUES))

    def workload(self, name: str) -> Object | None:
        """The Workload of a job."""
        return workload_of(self.kubectl, name)

    def condition(self, name: str, type: str) -> Object:
        return condition_of(self.workload(name), type)

    def edit(self, kind: str, name: str, patch: Object) -> None:
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(patch))


class EmbeddedSide(Side):
    """Of Kueue only its manager runs; API server and pods are those of `pykueue up`."""

    def __init__(self, folder: Path, kueue: Path | None) -> None:
        folder.mkdir()
        self._folder, self._kueue = folder, kueue
        self.kueue: KueueManager | None = None
        # It is killed and started again on the same port.
        options = ["--port", str(free_port())]
        if kueue is None:
            configuration = folder / "configuration.yaml"
            head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
            configuration.write_text(yaml.safe_dump({**head, **CONFIGURATION}))
            options += ["--config", str(configuration)]
        else:
            options += ["--only", "apiserver,kube"]
        self.up = Up(folder / "up", *options)

    def set_up(self) -> None:
        self.up.start()
        self.kubeconfig = self.up.kubeconfig
        self.kubectl = Kubectl(self.kubeconfig, self._folder)
        if self._kueue is not None:
            self.kueue = KueueManager(self._kueue, self.kubeconfig, self._folder, CONFIGURATION)
            self.kueue.start()
        self.set_up_queues()

    def endpoint(self) -> tuple[str, str]:
        document = yaml.safe_load(self.kubeconfig.read_text())
        (cluster,) = (one["cluster"] for one in document["clusters"])
        return cluster["server"], base64.b64decode(cluster["certificate-authority-data"]).decode()

    def kill(self) -> None:
        self.up.kill()

    def start(self) -> None:
        self.up.start()

    def stop(self) -> None:
        if self.kueue is not None:
            self.kueue.stop()
        self.up.stop()


class Clusters:
    """The two of them, connected."""

    def __init__(self, manager: Side, worker: Side, kueue_manages: str) -> None:
        self.manager, self.worker = manager, worker
        asyncio.run(self._connect(all_rights=kueue_manages == "manager"))
        strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]}}
        self.manager.edit("clusterqueue", "cq", {"spec": strategy})
        self.manager.kubectl("wait", "--for=condition=Active", "clusterqueue/cq", f"--timeout={PATIENCE}s")

    async def _connect(self, all_rights: bool) -> None:
        """A kubeconfig of the account of `pykueue up --clusters`, or, for Kueue's manager, of an admin."""
        transports = [await load(side.kubeconfig) for side in (self.worker, self.manager)]
        worker, manager = (Client(transport, clock=Clock()) for transport in transports)
        endpoint = Endpoint(*self.worker.endpoint())
        access = WorkerAccess(
            WORKER, endpoint, worker, manager, worker_rules(BUILT_IN, configuration.load(None))
        )
        await access.grant()
        await access.renew()
        if all_rights:
            binding = ("--clusterrole=cluster-admin", "--serviceaccount=kueue-system:pykueue-multikueue")
            self.worker.kubectl("create", "clusterrolebinding", "mk-admin", *binding)
        await access.register()
        await configure_check(manager, "mk", [WORKER])
        for transport in transports:
            await transport.close()

    # What is seen

    def placed(self, name: str) -> str:
        """The worker that the Workload of a job runs on."""
        return str(((self.manager.workload(name) or {}).get("status") or {}).get("clusterName") or "")

    def wait_placed(self, name: str) -> None:
        until(lambda: self.placed(name) == WORKER, f"{name} is admitted on the worker", PATIENCE)

    def wait_running(self, name: str) -> None:
        def active() -> bool:
            status = (self.worker.kubectl.get("jobs", name) or {}).get("status") or {}
            return bool(status.get("active"))

        until(active, f"pods of {name} run on the worker")

    def wait_finished(self, name: str) -> Object:
        until(
            lambda: self.manager.condition(name, "Finished").get("status") == "True", f"{name} has finished"
        )
        return self.manager.condition(name, "Finished")

    def wait_cleaned(self, name: str) -> None:
        until(lambda: self.worker.workload(name) is None, f"the copy of {name} is removed")


def template(run_time: str, kind: str = "c") -> Object:
    container = {"name": kind, "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"annotations": {"sim.pykueue.io/run-time": run_time}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def seconds(obj: Object) -> float:
    """How long the pods of a manifest of this module run."""
    return float(next(iter(re.findall(r"'sim.pykueue.io/run-time': '(\d+)s'", str(obj))), 1))


def job(name: str, run_time: str = "1s") -> Object:
    spec = {"parallelism": 2, "completions": 2, "suspend": True, "template": template(run_time)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(name), "spec": spec}


def jobset(name: str, run_time: str = "1s") -> Object:
    spec = {"parallelism": 2, "completions": 2, "template": template(run_time)}
    replicated = [{"name": "w", "replicas": 1, "template": {"spec": spec}}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(name),
        "spec": {"suspend": True, "replicatedJobs": replicated},
    }


def pytorch_job(name: str, run_time: str = "1s") -> Object:
    role = {"replicas": 1, "restartPolicy": "Never", "template": template(run_time, "pytorch")}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _metadata(name),
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": role, "Worker": role}},
    }


def pod_group(name: str, pods: int, run_time: str = "3s") -> list[Object]:
    """The pods NAME-0, NAME-1, ... of a group."""
    made = template(run_time)
    found = []
    for number in range(pods):
        metadata = _metadata(f"{name}-{number}")
        metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = name
        count = {"kueue.x-k8s.io/pod-group-total-count": str(pods)}
        metadata["annotations"] = {**made["metadata"]["annotations"], **count}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]})
    return found


def _metadata(name: str) -> Object:
    return {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}
