"""A cluster that Kueue manages, with queues and jobs of one test, and pykueue's commands beside it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from realcluster_plane import PATIENCE, Kubectl, until

from pykueue.api import conditions
from pykueue.questions import Why, answer_from
from pykueue.questions.edits import edited
from queue_manifests import priority as priority_class

Object = dict[str, Any]

_numbers = itertools.count(1)

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: on-demand-{n}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: spot-{n}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: research-{n}}}
spec:
  cohortName: lab-{n}
  namespaceSelector: {{}}
  preemption: {preemption}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: on-demand-{n}
      resources: [{{name: cpu, nominalQuota: 8, borrowingLimit: 2}}, {{name: memory, nominalQuota: 32Gi}}]
    - name: spot-{n}
      resources: [{{name: cpu, nominalQuota: 4}}, {{name: memory, nominalQuota: 16Gi}}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: production-{n}}}
spec:
  cohortName: lab-{n}
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: on-demand-{n}
      resources: [{{name: cpu, nominalQuota: 12, lendingLimit: 12}}, {{name: memory, nominalQuota: 64Gi}}]
---
apiVersion: v1
kind: Namespace
metadata: {{name: team-{n}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: research, namespace: team-{n}}}
spec: {{clusterQueue: research-{n}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: production, namespace: team-{n}}}
spec: {{clusterQueue: production-{n}}}
"""


def workload_of(kubectl: Kubectl, job: str, namespace: str = "default") -> Object | None:
    """The Workload of a job by the name in its owner references."""
    for each in kubectl.list("workloads.kueue.x-k8s.io", "-n", namespace):
        if any(owner["name"] == job for owner in each["metadata"].get("ownerReferences") or ()):
            return each
    return None


def condition_of(workload: Object | None, type: str) -> Object:
    """A condition of a Workload; empty where there is none of that type, or no Workload."""
    return dict(conditions.condition(workload or {}, type) or {})


def pykueue(*arguments: str, status: int = 0) -> str:
    """The output of a command that must end with a status."""
    command = [sys.executable, "-m", "pykueue.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


class Beside:
    """The cluster."""

    def __init__(self, kubeconfig: Path, kubectl: Kubectl) -> None:
        self.kubeconfig, self.kubectl = kubeconfig, kubectl

    def pykueue(self, *arguments: str, status: int = 0) -> str:
        """The output of a command about the cluster, which must end with a status."""
        return pykueue(*arguments, "--kubeconfig", str(self.kubeconfig), status=status)

    def full_lab(self, pods: int = 6) -> Lab:
        """A job holds 6 of 8 cpu on demand; one of some pods of 1.5 cpu is pending."""
        lab = self.lab()
        lab.submit("survey", 3, "2")
        lab.wait_admitted("survey")
        lab.submit("training", pods, "1500m")
        lab.wait_evaluated("training")
        return lab

    def lab(self, preemption: str = "{withinClusterQueue: LowerPriority}") -> Lab:
        """New queues for a test: `research` may borrow 2 cpu from `production`."""
        return Lab(self, next(_numbers), preemption)


class Lab:
    """Two queues of one cohort in their own namespace."""

    def __init__(self, beside: Beside, number: int, preemption: str) -> None:
        self.beside, self.number, self.namespace = beside, number, f"team-{number}"
        text = QUEUES.format(n=number, preemption=preemption)
        objects = [obj for obj in yaml.safe_load_all(text) if obj]
        beside.kubectl.apply(*objects)
        until(
            lambda: all(self._is_active(name) for name in ("research", "production")), "ClusterQueues active"
        )

    def _is_active(self, name: str) -> bool:
        queue = self.beside.kubectl.get("clusterqueue", f"{name}-{self.number}") or {}
        return conditions.is_true(queue, "Active")

    def submit(self, name: str, pods: int, cpu: str, priority: int | None = None, **labels: str) -> None:
        """A Job that runs until it is deleted."""
        if priority is not None:
            labels["kueue.x-k8s.io/priority-class"] = self._priority_class(priority)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
        template = {
            "metadata": {"annotations": {"sim.pykueue.io/run-time": "forever"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {"kueue.x-k8s.io/queue-name": "research", **labels},
            },
            "spec": {"parallelism": pods, "completions": pods, "suspend": True, "template": template},
        }
        self.beside.kubectl.apply(job)

    def _priority_class(self, value: int) -> str:
        """The name of a WorkloadPriorityClass with this value."""
        self.beside.kubectl.apply(priority_class(f"p{value}", value))
        return f"p{value}"

    def workload(self, job: str) -> Object | None:
        """The Workload of a Job."""
        return workload_of(self.beside.kubectl, job, self.namespace)

    def condition(self, job: str, type: str) -> Object:
        return condition_of(self.workload(job), type)

    def wait_admitted(self, job: str) -> None:
        until(
            lambda: self.condition(job, "QuotaReserved").get("status") == "True", f"{job} has quota", PATIENCE
        )

    def wait_evaluated(self, job: str) -> None:
        """Wait until Kueue says why a job has no quota."""
        until(lambda: "couldn't assign" in self.condition(job, "QuotaReserved").get("message", ""), job)

    def why(self, job: str) -> Why:
        return answer_from(
            json.loads(self.beside.pykueue("why", f"job/{job}", "-n", self.namespace, "-o", "json"))
        )

    def make(self, edit: Any, job: str) -> None:
        """Make a change of an answer as an administrator or the owner of the job makes it."""
        kubectl = self.beside.kubectl
        if edit.kind == "Workload":
            patch: Object
            if edit.field == "spec.podSets[main].count":
                patch = {"spec": {"parallelism": int(edit.after)}}
            elif edit.field == "spec.priority":
                labels = {"kueue.x-k8s.io/priority-class": self._priority_class(int(edit.after))}
                patch = {"metadata": {"labels": labels}}
            else:
                assert edit.field == "spec.queueName", edit.field
                patch = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": edit.after}}}
            kubectl("patch", "job", job, "-n", self.namespace, "--type=merge", "-p", json.dumps(patch))
            return
        where = ("-n", edit.namespace) if edit.namespace else ()
        found = json.loads(kubectl("get", edit.kind.lower(), edit.name, *where, "-o", "json"))
        changed = edited(found, edit)
        kubectl("replace", *where, "-f", "-", stdin=yaml.safe_dump(changed))
