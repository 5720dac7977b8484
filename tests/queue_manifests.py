"""Manifests of queues: flavors, ClusterQueues, LocalQueues and priority classes, for tests in all folders."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

API = "kueue.x-k8s.io/v1beta2"
#: The PriorityClass of the pods in `tests/jobs/samples`.
NIGHTLY: Object = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "nightly"},
    "value": 7,
}
#: One flavor, one ClusterQueue with 10 cpu, one LocalQueue `lq` in `default`.
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default-flavor}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default-flavor
      resources: [{name: cpu, nominalQuota: 10}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
"""
#: A ClusterQueue with a flavor and a LocalQueue of the namespace `bookstore-ml`, as users write them.
BOOKSTORE_QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: { name: bookstore-ml-flavor }
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: { name: bookstore-ml-cq }
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: ["cpu","memory","nvidia.com/gpu"]
      flavors:
        - name: bookstore-ml-flavor
          resources:
            - { name: cpu,            nominalQuota: "4" }
            - { name: memory,         nominalQuota: 8Gi }
            - { name: "nvidia.com/gpu", nominalQuota: "4" }
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: { name: bookstore-ml-lq, namespace: bookstore-ml }
spec: { clusterQueue: bookstore-ml-cq }
"""


def flavor(name: str = "default-flavor", **spec: Any) -> Object:
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def topology(name: str, *levels: str) -> Object:
    """A Topology of these node labels, the highest level first."""
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return {"apiVersion": API, "kind": "Topology", "metadata": {"name": name}, "spec": spec}


def cluster_queue(
    name: str,
    quota: dict[str, str | int] | dict[str, dict[str, str | int]],
    limits: dict[str, str | int] | None = None,
    **spec: Any,
) -> Object:
    """A ClusterQueue for every namespace: quota by resource, or by flavor and resource."""
    flavors = quota if all(isinstance(one, dict) for one in quota.values()) else {"default-flavor": quota}
    covered: list[str] = list(next(iter(flavors.values())))  # type: ignore[arg-type]
    group = {
        "coveredResources": covered,
        "flavors": [
            {
                "name": flavor_name,
                "resources": [
                    {"name": resource, "nominalQuota": str(amount), **(limits or {})}
                    for resource, amount in amounts.items()  # type: ignore[union-attr]
                ],
            }
            for flavor_name, amounts in flavors.items()
        ],
    }
    return {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
    }


def local_queue(name: str, of: str | None = None, namespace: str = "default") -> Object:
    """A LocalQueue of the ClusterQueue of its name, or of another."""
    return {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": of or name},
    }


def admission_check(name: str, controller: str, **spec: Any) -> Object:
    """An AdmissionCheck of this controller."""
    return {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller, **spec},
    }


def queues(quota: dict[str, str | int], name: str = "q", **spec: Any) -> list[Object]:
    """One flavor, one ClusterQueue and its LocalQueue of the same name."""
    return [flavor(), cluster_queue(name, quota, **spec), local_queue(name)]


def priority(name: str, value: int) -> Object:
    metadata = {"name": name}
    return {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": metadata, "value": value}
