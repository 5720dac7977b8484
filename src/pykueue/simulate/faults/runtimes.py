"""The runtimes that TrainJobs of a run refer to. They never change."""

from __future__ import annotations

from pykueue.api.jobkinds.trainjob import CLUSTER_RUNTIMES, STEP_LABEL
from pykueue.api.objects import Object
from pykueue.api.resources import Resource
from pykueue.embedded.operators.pods import RUN_TIME


def runtime_name(size: int, cpu: int) -> str:
    """The runtime of a TrainJob of so many pods with so much cpu; with several, one is an initializer."""
    return f"{'staged' if size > 1 else 'nodes'}-{cpu}"


def _step(name: str, step: str, cpu: int) -> Object:
    requests = {"requests": {"cpu": str(cpu)}}
    containers = [{"name": name, "image": "i", "resources": requests}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {
        "name": name,
        "template": {"metadata": {"labels": {STEP_LABEL: step}}, "spec": {"template": template}},
    }


def _runtime(size: int, cpu: int) -> Object:
    jobs = [_step("node", "trainer", cpu)]
    if size > 1:
        (node,) = jobs
        name = "dataset-initializer"
        node["dependsOn"] = [{"name": name, "status": "Complete"}]
        initializer = _step(name, name, cpu)
        # The nodes must be ready before the shortest time limit of a run, 6 s.
        template = initializer["template"]["spec"]["template"]
        template["metadata"] = {"annotations": {RUN_TIME: "1s"}}
        jobs = [initializer, node]
    return {
        "apiVersion": CLUSTER_RUNTIMES.api_version,
        "kind": CLUSTER_RUNTIMES.kind,
        "metadata": {"name": runtime_name(size, cpu)},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


#: All of them, as administrators create them.
RUNTIME_OBJECTS = [_runtime(size, cpu) for size in (1, 2) for cpu in (1, 2)]
_BY_NAME = {one["metadata"]["name"]: one for one in RUNTIME_OBJECTS}


def read_runtime(resource: Resource, namespace: str, name: str) -> Object | None:
    """The runtime of a TrainJob, as job integrations read it."""
    return _BY_NAME.get(name) if resource == CLUSTER_RUNTIMES else None
