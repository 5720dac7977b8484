"""Manifests of elastic Ray jobs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from kinds_world import manifests

from pykueue.api.jobkinds import value_at, with_value

Object = dict[str, Any]
SAMPLES = Path(__file__).parents[1] / "jobs" / "samples"
SPECS: dict[str, tuple[str, ...]] = {
    "raycluster": ("spec",),
    "rayjob": ("spec", "rayClusterSpec"),
    "rayservice": ("spec", "rayClusterConfig"),
}


def elastic(name: str, workers: int) -> Object:
    """A Ray sample in the queue `q` with one worker group, and the annotation; each pod requests 1 CPU."""
    (job,) = manifests(SAMPLES / f"{name}.yaml")
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    job["metadata"].setdefault("annotations", {})["kueue.x-k8s.io/elastic-job"] = "true"
    path = (*SPECS[name], "workerGroupSpecs")
    (group, *_) = value_at(job, path)
    group = {**group, "replicas": workers, "minReplicas": 0, "maxReplicas": 20}
    group.pop("numOfHosts", None)
    for template in (group["template"], value_at(job, (*SPECS[name], "headGroupSpec", "template"))):
        for container in template["spec"]["containers"]:
            container["resources"] = {"requests": {"cpu": "1"}}
    return copy.deepcopy(with_value(job, path, [group]))
