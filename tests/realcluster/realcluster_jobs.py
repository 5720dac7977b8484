"""The Job controller of a cluster without one: pods are numbers in a status, and end when a test says so."""

from __future__ import annotations

import datetime
import threading
import urllib.error
from typing import Any

from realcluster_plane import INTERVAL, Plane, until

from queue_manifests import cluster_queue, flavor, local_queue

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
#: Label of jobs whose pods start and never become ready.
NEVER_READY = "never-ready"

Object = dict[str, Any]


def job(name: str, queue: str, cpu: str = "1", pods: int = 1, **labels: str) -> Object:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {QUEUE_LABEL: queue, **labels}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


class JobController:
    """Gives jobs that may run their pods at once, and takes them from jobs that may not."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        #: What a bug in this class raised, for the test to see.
        self.error: BaseException | None = None

    def __enter__(self) -> JobController:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to look at jobs."""
        self._thread.start()

    def stop(self) -> None:
        """End, if it has begun. Raises what ended it before."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL):
            try:
                self.look()
            except (OSError, urllib.error.URLError):
                continue  # the API server is away, or another client wrote first: retry
            except BaseException as error:
                self.error = error
                return

    def look(self) -> None:
        """Bring the status of all jobs up to date once."""
        for found in self._plane.call("GET", "/apis/batch/v1/jobs")["items"]:
            wanted = self._status(found)
            if wanted is not None:
                self._write(found, wanted)

    def _status(self, found: Object) -> Object | None:
        status, pods = found.get("status", {}), found["spec"]["parallelism"]
        if any(one["type"] in ("Complete", "Failed") for one in status.get("conditions", ())):
            return None
        if found["spec"].get("suspend"):
            if not status.get("active"):
                return None
            return {**status, "active": 0, "ready": 0, "startTime": None}
        if status.get("startTime"):
            return None
        ready = 0 if NEVER_READY in found["metadata"]["labels"] else pods
        return {**status, "active": pods, "ready": ready, "startTime": now()}

    def _write(self, found: Object, status: Object) -> None:
        metadata = found["metadata"]
        path = f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}/status"
        self._plane.call("PUT", path, {**found, "status": status})

    def finish(self, name: str) -> None:
        """All its pods, once there are any, succeed."""

        def write() -> bool:
            found = self._plane.call("GET", f"/apis/batch/v1/namespaces/default/jobs/{name}")
            if not found.get("status", {}).get("startTime"):
                return False
            pods, at = found["spec"]["parallelism"], now()
            conditions = [
                {"type": one, "status": "True", "lastTransitionTime": at, "lastProbeTime": at}
                for one in ("SuccessCriteriaMet", "Complete")
            ]
            status = {
                **found["status"],
                "active": 0,
                "ready": 0,
                "succeeded": pods,
                "completionTime": at,
                "conditions": [*found["status"].get("conditions", ()), *conditions],
            }
            try:
                self._write(found, status)
            except urllib.error.HTTPError as error:
                if error.code != 409:
                    raise
                return False
            return True

        until(write, f"job {name} finished")


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Queues:
    """Queues of one test, and what the API says of the jobs in them."""

    def __init__(self, plane: Plane, name: str, cpu: str = "2", **spec: Any) -> None:
        self.plane = plane
        self.name = name
        plane.kubectl.apply(
            flavor("plain"), cluster_queue(name, {"plain": {"cpu": cpu}}, **spec), local_queue(name)
        )

    @classmethod
    def that_are_there(cls, plane: Plane, name: str) -> Queues:
        """Those that another client created."""
        found = cls.__new__(cls)
        found.plane, found.name = plane, name
        return found

    def submit(self, name: str, cpu: str = "1", pods: int = 1, **labels: str) -> None:
        self.plane.kubectl.apply(job(name, self.name, cpu, pods, **labels))

    def job(self, name: str) -> Object:
        found: Object = self.plane.call("GET", f"/apis/batch/v1/namespaces/default/jobs/{name}")
        return found

    def workload(self, name: str) -> Object | None:
        """The Workload of a job."""
        uid = self.job(name)["metadata"]["uid"]
        path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
        for found in self.plane.call("GET", path)["items"]:
            if any(owner["uid"] == uid for owner in found["metadata"].get("ownerReferences", ())):
                return dict(found)
        return None

    def condition(self, name: str, type: str) -> Object:
        """A condition of a job's Workload; empty where it has none of that type."""
        found = self.workload(name) or {}
        conditions = found.get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == type), {})

    def wait_for(self, name: str, type: str, status: str = "True", reason: str | None = None) -> Object:
        """Until a job's Workload has the condition."""

        def look() -> Object | None:
            found = self.condition(name, type)
            fits = found.get("status") == status and reason in (None, found.get("reason"))
            return found if fits else None

        try:
            return until(look, f"{name}: {type}={status}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.workload(name)}") from None

    def wait_running(self, name: str) -> None:
        until(lambda: self.job(name).get("status", {}).get("active"), f"pods of {name}")

    def wait_stopped(self, name: str) -> None:
        def stopped() -> bool:
            found = self.job(name)
            return bool(found["spec"].get("suspend")) and not found.get("status", {}).get("active")

        until(stopped, f"{name} without pods")

    def admitted(self) -> set[str]:
        """Names of the jobs whose Workloads are admitted and not finished."""
        path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
        found: set[str] = set()
        for workload in self.plane.call("GET", path)["items"]:
            conditions = {
                one["type"]: one["status"] for one in workload.get("status", {}).get("conditions", ())
            }
            holds = conditions.get("Admitted") == "True" and conditions.get("Finished") != "True"
            if holds and workload["spec"].get("queueName") == self.name:
                found |= {owner["name"] for owner in workload["metadata"].get("ownerReferences", ())}
        return found
