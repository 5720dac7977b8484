"""Queues for the jobs of real operators, and the state of these jobs in the API."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import yaml
from cli_processes import ROOT, Kubectl
from operators_programs import RunningOperator
from realcluster_plane import until

from pykueue.api.objects import condition_of, is_deleting
from pykueue.api.pods import is_terminal
from queue_manifests import cluster_queue, flavor, local_queue, priority

Object = dict[str, Any]

#: A bound on how long a step may take before the test gives up; nothing is asserted about it.
PATIENCE = 120.0
#: CPUs of each queue: enough for each example, not for one and the urgent job.
QUOTA = 12
#: What the flavor adds to every pod.
NODE_LABELS = {"pool": "batch"}
TOLERATION = {"key": "batch", "operator": "Exists", "effect": "NoSchedule"}
RUN_TIME = "sim.pykueue.io/run-time"
_TAINT = {"key": "batch", "effect": "NoSchedule"}

NODES = yaml.safe_dump(
    {
        "pools": [
            {
                "name": "batch",
                "count": 4,
                "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
                "labels": NODE_LABELS,
                "taints": [_TAINT],
                "simulation": {"runTime": "2s"},
            }
        ]
    }
)
QUEUES = yaml.safe_dump_all(
    [
        flavor("batch", nodeLabels=NODE_LABELS, nodeTaints=[_TAINT], tolerations=[TOLERATION]),
        priority("low", 1),
        priority("high", 10),
    ]
)


class Stage:
    """A cluster in which an operator runs."""

    def __init__(self, kubectl: Kubectl, operator: RunningOperator) -> None:
        self.kubectl = kubectl
        self._operator = operator

    def check(self) -> None:
        """Fail when the operator has ended."""
        self._operator.process.check()

    def logs(self) -> str:
        """The end of the operator's log, for the message of a failure."""
        return "\n".join(self._operator.process.text().splitlines()[-20:])


class Team:
    """A namespace with a queue `q`, and the job of one test in it."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage, self.name = stage, name
        self.kubectl = stage.kubectl
        quota: dict[str, dict[str, str | int]] = {"batch": {"cpu": QUOTA, "memory": "1Ti"}}
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            cluster_queue(name, quota, preemption={"withinClusterQueue": "LowerPriority"}),
            local_queue("q", of=name, namespace=name),
        )

    def apply(self, *objects: Object) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def submit(self, example: str, run_time: str) -> Object:
        """Create the objects of an example, its pods running that long; the job, the last of them."""
        documents = yaml.safe_load_all((ROOT / example).read_text())
        return self.create([copy.deepcopy(one) for one in documents if one], run_time)

    def create(self, manifests: list[Object], run_time: str) -> Object:
        """Create the objects, the last of which is the job: queued in `q` with the lower priority."""
        for template in _pod_templates(manifests):
            annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
            # A Ray cluster runs as long as its job: of that, only the submitter's pod has a run time.
            endless = manifests[-1]["kind"] == "RayJob" and RUN_TIME not in annotations
            annotations[RUN_TIME] = "forever" if endless else run_time
        if manifests[-1]["kind"] == "SparkApplication":
            for role in ("driver", "executor"):
                manifests[-1]["spec"][role]["annotations"] = {RUN_TIME: run_time}
        for one in manifests:
            if not one["kind"].startswith("Cluster"):
                one["metadata"]["namespace"] = self.name
        labels = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "low"}
        manifests[-1]["metadata"]["labels"] = labels
        *others, job = manifests
        if others:
            self.apply(*others)
        created: Object = json.loads(self.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(job)))
        return created

    def get(self, job: Object) -> Object:
        found: Object = json.loads(self.kubectl("get", _of(job), "-n", self.name, "-o", "json"))
        return found

    def delete(self, job: Object) -> None:
        self.kubectl("delete", _of(job), "-n", self.name, "--wait=false")

    def drain(self) -> None:
        """Evict what is admitted, and admit nothing."""
        spec = {"spec": {"stopPolicy": "HoldAndDrain"}}
        self.kubectl("patch", "clusterqueue", self.name, "--type=merge", "-p", json.dumps(spec))

    def all(self, kind: str) -> list[Object]:
        found: list[Object] = json.loads(self.kubectl("get", kind, "-n", self.name, "-o", "json"))["items"]
        return found

    def workloads(self, job: Object) -> list[Object]:
        """The Workloads whose owner is the job."""
        uid = job["metadata"]["uid"]
        return [
            one
            for one in self.all("workloads.kueue.x-k8s.io")
            if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", ()))
        ]

    def pods(self) -> list[Object]:
        """Pods of the job, not those of the urgent one."""
        pods = self.all("pods")
        return [pod for pod in pods if not pod["metadata"]["name"].startswith("urgent")]

    def wait(self, job: Object, type: str, status: str = "True", reason: str | None = None) -> None:
        """Until every Workload of the job has the condition, and there is one."""
        what = f"{type}={status} {reason or ''}"
        self._until(job, lambda: self.holds(job, type, status, reason), what)

    def _until(self, job: Object, true: Callable[[], bool], what: str) -> None:
        """Wait as long as the operator runs; a failure shows the state of the job."""

        def look() -> bool:
            self._stage.check()
            return true()

        try:
            until(look, f"{job['kind']}: {what}", PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.state(job)}") from None

    def holds(self, job: Object, type: str, status: str = "True", reason: str | None = None) -> bool:
        """Whether the job has Workloads, and all of them have the condition."""
        found = self.workloads(job)
        return bool(found) and all(_holds(one, type, status, reason) for one in found)

    def state(self, job: Object) -> str:
        """Status, pods, Workloads, events and logs, for the message of a failure."""
        parts: list[Any] = [
            self.get(job).get("status"),
            self.kubectl("get", "pods,workloads", "-n", self.name),
        ]
        parts += [one.get("status") for one in self.workloads(job)]
        parts.append(self.kubectl("get", "events", "-n", self.name))
        parts.append(self._stage.logs())
        return "\n".join(map(str, parts))

    def wait_until_free(self, job: Object) -> None:
        """Until the queue has no quota reserved."""

        def is_free() -> bool:
            found = json.loads(self.kubectl("get", "clusterqueue", self.name, "-o", "json"))["status"]
            totals = [r["total"] for one in found.get("flavorsReservation", ()) for r in one["resources"]]
            return all(str(total) == "0" for total in totals)

        self._until(job, is_free, "quota released")

    def submit_urgent(self) -> Object:
        """A Job of the higher priority that needs the whole queue for a moment."""
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": str(QUOTA)}}}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "urgent",
                "namespace": self.name,
                "labels": {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "high"},
            },
            "spec": {
                "template": {
                    "metadata": {"annotations": {RUN_TIME: "2s"}},
                    "spec": {"restartPolicy": "Never", "containers": [container]},
                }
            },
        }
        self.apply(job)
        return self.get(job)


def live(pods: list[Object]) -> list[Object]:
    """Those that are neither terminated nor terminating."""
    return [pod for pod in pods if not is_terminal(pod) and not is_deleting(pod)]


def _of(job: Object) -> str:
    """The job as an argument of kubectl."""
    kind, group = job["kind"].lower(), job["apiVersion"].partition("/")[0]
    return f"{kind}.{group}/{job['metadata']['name']}"


def _holds(workload: Object, type: str, status: str, reason: str | None) -> bool:
    found = condition_of(workload.get("status"), type)
    return found is not None and found["status"] == status and reason in (None, found["reason"])


def templates(job: Object) -> list[Object]:
    """What describes the pods of a job."""
    spec = job["spec"]
    if job["kind"] == "SparkApplication":
        return [spec["driver"], spec["executor"]]
    if job["kind"] == "TrainJob":
        # Trainer's webhook dates an entry whenever it changes.
        patches = [{**one, "time": None} for one in spec.get("runtimePatches", ())]
        return [{**spec, "runtimePatches": patches}]
    return list(_pod_templates(spec))


def _pod_templates(value: Any) -> Iterator[Object]:
    """Everything in a manifest that is a template of pods."""
    if isinstance(value, list):
        for one in value:
            yield from _pod_templates(one)
    elif isinstance(value, dict):
        spec = value.get("spec")
        if "kind" not in value and isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield value
            return
        for one in value.values():
            yield from _pod_templates(one)
