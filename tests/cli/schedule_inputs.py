"""Inputs of `pykueue schedule` for tests, and how it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from pykueue.cli.schedule import schedule

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default
      resources: [{name: cpu, nominalQuota: 4}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: team}
spec: {clusterQueue: cq}
"""


def workload(name: str, cpu: int, priority: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "queueName": "lq",
            "priority": priority,
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
                            ],
                            "restartPolicy": "Never",
                        }
                    },
                }
            ],
            **more,
        },
    }


def admitted(name: str, cpu: int, priority: int = 0) -> dict[str, Any]:
    stamp = "2026-01-01T00:00:00Z"
    return {
        **workload(name, cpu, priority),
        "status": {
            "conditions": [
                {"type": type, "status": "True", "reason": type, "message": "", "lastTransitionTime": stamp}
                for type in ("QuotaReserved", "Admitted")
            ],
            "admission": {
                "clusterQueue": "cq",
                "podSetAssignments": [
                    {
                        "name": "main",
                        "count": 1,
                        "flavors": {"cpu": "default"},
                        "resourceUsage": {"cpu": str(cpu)},
                    }
                ],
            },
        },
    }


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(schedule, [*arguments, "--now", "2026-01-02T00:00:00Z"], input=stdin)


def decide(directory: Path, *objects: dict[str, Any], options: tuple[str, ...] = ()) -> dict[str, Any]:
    (directory / "workloads.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )
    result = run("-f", str(directory), "-o", "json", *options)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report
