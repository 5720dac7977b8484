"""Clusters whose run times follow known laws, at a load near one."""

from __future__ import annotations

from typing import Any

_API = "kueue.x-k8s.io/v1beta2"
HEAD = {"apiVersion": "pykueue.io/v1alpha1", "kind": "Scenario", "name": "backtest"}
FLAVOR = {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": "default"}}


def queue(name: str, resource: str, amount: int, **spec: Any) -> list[dict[str, Any]]:
    """A ClusterQueue and its LocalQueue `team/NAME`."""
    flavor = {"name": "default", "resources": [{"name": resource, "nominalQuota": str(amount)}]}
    groups = [{"coveredResources": [resource], "flavors": [flavor]}]
    return [
        {
            "apiVersion": _API,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
        },
        {
            "apiVersion": _API,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"clusterQueue": name},
        },
    ]


def jobs(name: str, to: str, requests: dict[str, Any], run_time: Any, **more: Any) -> dict[str, Any]:
    """A class of jobs of one pod."""
    return {
        "name": name,
        "queue": f"team/{to}",
        "podSets": [{"requests": requests}],
        "runTime": run_time,
        **more,
    }


def log_normal(minutes: float, sigma: float) -> dict[str, Any]:
    return {"logNormal": {"median": f"{minutes}m", "sigma": sigma}}


#: Queues and generators of each kind of cluster.
CLUSTERS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "one queue, two classes": (
        queue("q", "cpu", 5),
        [
            {
                "perHour": 12,
                "end": "10d",
                "jobs": [
                    jobs("some", "q", {"cpu": 1}, log_normal(15, 0.7)),
                    jobs("big", "q", {"cpu": 1}, {"fixed": "40m"}),
                ],
            }
        ],
    ),
    "two queues that borrow": (
        [
            *queue("a", "cpu", 4, cohortName="all", preemption={"reclaimWithinCohort": "Any"}),
            *queue("b", "cpu", 4, cohortName="all", preemption={"reclaimWithinCohort": "Any"}),
        ],
        [
            {
                "perHour": 14,
                "end": "10d",
                "jobs": [
                    jobs("one", "a", {"cpu": 1}, log_normal(20, 0.8)),
                    jobs("two", "b", {"cpu": 2}, log_normal(15, 0.8)),
                ],
            }
        ],
    ),
    # Shares of GPU pods by size, and their skewed run times, as in Alibaba's trace of 2023 (openb).
    "GPU sizes as in openb": (
        queue("q", "nvidia.com/gpu", 16),
        [
            {
                "perHour": 15,
                "end": "10d",
                "jobs": [
                    jobs("one", "q", {"nvidia.com/gpu": 1}, log_normal(16, 1.2), weight=80),
                    jobs("two", "q", {"nvidia.com/gpu": 2}, log_normal(16, 1.2), weight=8),
                    jobs("four", "q", {"nvidia.com/gpu": 4}, log_normal(25, 1.0), weight=4),
                    jobs("eight", "q", {"nvidia.com/gpu": 8}, log_normal(25, 1.0), weight=8),
                ],
            }
        ],
    ),
}
