"""The queues that several benches share."""

from __future__ import annotations

from typing import Any

from pykueue.api.kueue import V1BETA2
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, Resource

Object = dict[str, Any]


def queues(cpu: int) -> list[tuple[Resource, Object]]:
    """A flavor, ClusterQueue `cq` with a quota of `cpu` CPUs, and LocalQueue `lq` in namespace `default`."""
    quota = {"name": "default-flavor", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}
    return [
        (
            RESOURCE_FLAVORS,
            {"apiVersion": V1BETA2, "kind": "ResourceFlavor", "metadata": {"name": "default-flavor"}},
        ),
        (
            CLUSTER_QUEUES,
            {"apiVersion": V1BETA2, "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec},
        ),
        (
            LOCAL_QUEUES,
            {
                "apiVersion": V1BETA2,
                "kind": "LocalQueue",
                "metadata": {"name": "lq", "namespace": "default"},
                "spec": {"clusterQueue": "cq"},
            },
        ),
    ]
