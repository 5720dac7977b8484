"""A cluster with a real API server that Kueue or pykueue manages. Controllers and kubelets are played."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import yaml
from besidekueue_clusters import CONFIGURATION, Side, seconds
from besidekueue_manager import KueueManager
from realcluster_install import Installation, rendered
from realcluster_jobs import JobController, now
from realcluster_plane import Plane, assets, until

from pykueue.api.objects import get
from pykueue.api.resources import JOB_SETS, PODS, Resource
from pykueue.embedded.jobset.definition import definition as jobset_definition
from pykueue.embedded.operators.definitions import definitions
from pykueue.jobs.kinds import BUILT_IN

Object = dict[str, Any]
PYTORCH_JOBS = BUILT_IN.jobs["kubeflow.org/pytorchjob"].kind


class Controllers(JobController):
    """Runs Jobs, JobSets, PyTorchJobs and pods that may run, for the time that their annotation says."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane)
        #: When each was first seen running, by uid.
        self._since: dict[str, float] = {}

    def look(self) -> None:
        super().look()
        for resource, suspend in (
            (JOB_SETS, ("spec", "suspend")),
            (PYTORCH_JOBS.resource, ("spec", "runPolicy", "suspend")),
        ):
            for found in self._plane.call("GET", resource.path(None))["items"]:
                if not get(found, *suspend) and self._is_over(found):
                    reason = "Completed" if resource is JOB_SETS else "Succeeded"
                    self._end(resource, found, {"conditions": [_condition(reason)]})
        for pod in self._plane.call("GET", PODS.path("default"))["items"]:
            if pod["spec"].get("schedulingGates"):
                continue
            if pod["status"].get("phase") == "Pending":
                self._end(PODS, pod, {"phase": "Running", "conditions": [_condition("Ready")]})
            if pod["status"].get("phase") == "Running" and self._is_over(pod):
                self._end(PODS, pod, {"phase": "Succeeded"})

    def _status(self, found: Object) -> Object | None:
        wanted = super()._status(found)
        status = found.get("status", {})
        if wanted is None and status.get("active") and self._is_over(found):
            ended = [_condition("SuccessCriteriaMet"), _condition("Complete")]
            return {
                **status,
                "active": 0,
                "ready": 0,
                "succeeded": found["spec"]["completions"],
                "completionTime": now(),
                "conditions": [*status.get("conditions", ()), *ended],
            }
        return wanted

    def _is_over(self, found: Object) -> bool:
        since = self._since.setdefault(found["metadata"]["uid"], time.monotonic())
        return time.monotonic() - since > seconds(found)

    def _end(self, resource: Resource, found: Object, status: Object) -> None:
        kinds = {one["type"] for one in (found.get("status") or {}).get("conditions", ())}
        if kinds & {one["type"] for one in status.get("conditions", ())} - {"Ready"}:
            return  # it has ended already
        path = f"{resource.path('default', found['metadata']['name'])}/status"
        self._plane.call("PATCH", path, {"status": status}, "application/merge-patch+json")


def _condition(kind: str) -> Object:
    return {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now()}


class PlaneSide(Side):
    """etcd and kube-apiserver, with Kueue's manager or pykueue's, and, where jobs run, played controllers."""

    def __init__(self, folder: Path, kueue: Path | None, runs_jobs: bool) -> None:
        folder.mkdir()
        self._folder, self._kueue = folder, kueue
        # Kueue watches workers without naming a version. The API server takes that for a list by watching,
        # which fails with the etcd 3.4 of some distributions.
        self._plane = Plane(assets(), folder, "--feature-gates=WatchList=false")
        self._controllers = Controllers(self._plane) if runs_jobs else None
        self._manager: KueueManager | Installation | None = None
        self.kubectl = self._plane.kubectl
        self.kubeconfig = self._plane.kubeconfig("besides", certificate=self._plane.admin)

    def set_up(self) -> None:
        self._plane.start()
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.kubectl.apply(jobset_definition(), *definitions([PYTORCH_JOBS]), account)
        # Before their first condition is written, kubectl fails instead of waiting.
        wait = ("wait", "--for=condition=Established", "crds", "--all")
        until(lambda: self.kubectl.run(*wait).returncode == 0, "the definitions are served")
        if self._kueue is not None:
            self._manager = KueueManager(self._kueue, self.kubeconfig, self._folder, CONFIGURATION)
            self._manager.start()
        else:
            configuration = self._folder / "configuration.yaml"
            head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
            configuration.write_text(yaml.safe_dump({**head, **CONFIGURATION}))
            self._manager = Installation(self._plane, rendered("--config", str(configuration)))
            self._manager.start_replica()
        self.set_up_queues()
        if self._controllers is not None:
            self._controllers.start()

    def endpoint(self) -> tuple[str, str]:
        return self._plane.url, self._plane.authority.file.read_text()

    def kill(self) -> None:
        self._plane.apiserver.kill()

    def start(self) -> None:
        self._plane.apiserver.start()
        self._plane.wait_ready()
        if isinstance(self._manager, Installation):
            self._manager.keep()

    def stop(self) -> None:
        if self._controllers is not None:
            self._controllers.stop()
        if self._manager is not None:
            self._manager.stop()
        self._plane.stop()
