"""What the runs are made of."""

from __future__ import annotations

from typing import Any

from pykueue.embedded.nodes.pool import NodePool, parse_pools
from pykueue.embedded.operators.pods import RUN_TIME

Object = dict[str, Any]

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"
#: What a node pool file says of the nodes: room for 32 pods each, which start at once and run for a second.
POOL = """
seed: 1
pools:
- name: node
  count: {count}
  allocatable: {{cpu: "32", memory: 128Gi, pods: "110"}}
  zones: [a, b, c]
  simulation: {{startDelay: 0s, runTime: {run_time}}}
"""


def pools(count: int, run_time: str = "1s") -> list[NodePool]:
    """Nodes whose pods end by themselves after `run_time`."""
    return parse_pools(pool_file(count, run_time))


def pool_file(count: int, run_time: str = "1s") -> str:
    return POOL.format(count=count, run_time=run_time)


def _pod_spec(**more: Any) -> Object:
    requests = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "image": "i", "resources": {"requests": requests}}
    return {"restartPolicy": "Never", "containers": [container], **more}


def job(name: str) -> Object:
    """A Job of one pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": _pod_spec()}},
    }


def job_set(name: str, pods: int, run_time: str = "") -> Object:
    """A JobSet of one Job with that many pods; they run as the node says, or for `run_time`."""
    pod_template: Object = {"spec": _pod_spec()}
    if run_time:
        pod_template["metadata"] = {"annotations": {RUN_TIME: run_time}}
    template = {"spec": {"parallelism": pods, "completions": pods, "template": pod_template}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "w", "template": template}]},
    }


def pod(number: int, mode: str, group: str) -> Object:
    """A pod to be placed: alone (mode ""), or by `coscheduling` or `volcano` with its group."""
    metadata: Object = {"name": f"pod-{number:06d}", "namespace": "default"}
    more: Object = {}
    if mode == "coscheduling":
        metadata["labels"] = {COSCHEDULING_LABEL: group}
    elif mode == "volcano":
        metadata["annotations"] = {VOLCANO_ANNOTATION: group}
        more["schedulerName"] = "volcano"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod_spec(**more)}
