"""What is kept of nodes and pods: the few fields that placement, ungating and replacement read.

A cluster has many more pods than Workloads, so the caches of both hold outlines. Source of the fields:
docs/reference/topology-aware-scheduling.md 7.3, 8, 14 and 15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pykueue.api.kueue import names
from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.api.objects import Key, Object, annotations_of, get, labels_of
from pykueue.api.pods import has_gate
from pykueue.api.topologies import HOSTNAME
from pykueue.api.variants import parent_reference

#: The annotations of a pod that belongs to a Workload with a topology assignment.
TOPOLOGY_ANNOTATIONS = (
    names.REQUIRED_TOPOLOGY_ANNOTATION,
    names.PREFERRED_TOPOLOGY_ANNOTATION,
    names.UNCONSTRAINED_TOPOLOGY_ANNOTATION,
    names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    names.SLICE_CONSTRAINTS_ANNOTATION,
)
_ANNOTATIONS = frozenset(
    {
        *TOPOLOGY_ANNOTATIONS,
        HYBRID_ASSIGNMENT_ANNOTATION,
        names.WORKLOAD_ANNOTATION,
        names.WORKLOAD_SLICE_NAME_ANNOTATION,
        names.POD_INDEX_OFFSET_ANNOTATION,
    }
)
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def node_outline(node: Mapping[str, Any]) -> Object:
    """A Node with its labels, taints, allocatable resources, and whether it is ready and schedulable."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    conditions = [
        {key: one[key] for key in ("type", "status", "lastTransitionTime") if key in one}
        for one in status.get("conditions") or ()
        if one.get("type") == "Ready"
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**_metadata(node), "labels": dict(labels_of(node))},
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if spec.get(key)},
        "status": {"allocatable": status.get("allocatable") or {}, "conditions": conditions},
    }


def pod_outline(pod: Mapping[str, Any]) -> Object:
    """A Pod with what ties it to its Workload and its node.

    Of a pod that is ungated one by one the gates, labels, node selector and tolerations, and of one that may
    have several flavors whether it could be scheduled; of one that is not
    placed by topology, once it is bound, its requests and host ports.
    """
    metadata, spec = _metadata(pod), pod.get("spec") or {}
    annotations = {key: value for key, value in annotations_of(pod).items() if key in _ANNOTATIONS}
    if annotations:
        metadata["annotations"] = annotations
    kept: Object = {"nodeName": spec["nodeName"]} if spec.get("nodeName") else {}
    if _is_ungated_one_by_one(pod):
        metadata["labels"] = dict(labels_of(pod))
        fields = ("schedulingGates", "nodeSelector", "tolerations")
        kept |= {key: spec[key] for key in fields if spec.get(key)}
    if spec.get("nodeName") and not is_placed_by_topology(pod):
        kept |= {key: spec[key] for key in ("overhead", "resources") if spec.get(key)}
        for key in ("containers", "initContainers"):
            if spec.get(key):
                kept[key] = [_container(one) for one in spec[key]]
    status: Object = {"phase": get(pod, "status", "phase")}
    if HYBRID_ASSIGNMENT_ANNOTATION in annotations_of(pod):
        known = get(pod, "status", "conditions") or ()
        status["conditions"] = [_outlined(one) for one in known if one.get("type") == "PodScheduled"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": kept, "status": status}


def _outlined(condition: Mapping[str, Any]) -> Object:
    fields = ("type", "status", "reason", "lastTransitionTime")
    return {key: condition[key] for key in fields if key in condition}


def _metadata(obj: Mapping[str, Any]) -> Object:
    metadata = obj["metadata"]
    return {name: metadata[name] for name in _METADATA if name in metadata}


def _container(container: Mapping[str, Any]) -> Object:
    kept: Object = {}
    if requests := get(container, "resources", "requests"):
        kept["resources"] = {"requests": requests}
    if policy := container.get("restartPolicy"):
        kept["restartPolicy"] = policy
    if ports := [port for port in container.get("ports") or () if port.get("hostPort")]:
        kept["ports"] = ports
    return kept


def _is_ungated_one_by_one(pod: Mapping[str, Any]) -> bool:
    """Whether the pod may wait for the domain, or the flavor, that its Workload has for it."""
    return is_placed_by_topology(pod) or HYBRID_ASSIGNMENT_ANNOTATION in annotations_of(pod)


def is_placed_by_topology(pod: Mapping[str, Any]) -> bool:
    """Whether the capacity that the pod uses is that of its Workload's topology assignment."""
    annotations = annotations_of(pod)
    return any(name in annotations for name in TOPOLOGY_ANNOTATIONS)


def runs_outside(pod: Mapping[str, Any] | None) -> bool:
    """Whether the pod uses a node without a topology assignment; terminated pods are not asked about."""
    return pod is not None and bool(get(pod, "spec", "nodeName")) and not is_placed_by_topology(pod)


def is_topology_gated(pod: Mapping[str, Any]) -> bool:
    """Whether the pod waits for its domain."""
    return has_gate(pod, names.TOPOLOGY_GATE)


def slice_name(obj: Mapping[str, Any]) -> str:
    """What ties the pods of an elastic job to all of its Workloads; else the name of a Workload."""
    annotations = annotations_of(obj)
    own = annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION)
    if own:
        return own
    parent = parent_reference(obj)
    if parent is not None:
        return str(parent.get("name"))  # whose pods run with the admission of the variant
    if obj.get("kind") == "Workload":
        return str(obj["metadata"]["name"])
    return annotations.get(names.WORKLOAD_ANNOTATION, "")


def hostname(node: Mapping[str, Any]) -> str:
    """How topology assignments name the node."""
    return labels_of(node).get(HOSTNAME) or str(node["metadata"]["name"])


def pinned_host(pod: Mapping[str, Any]) -> str:
    """The host that the pod may be bound to alone; empty while it has none."""
    return str(get(pod, "spec", "nodeSelector", HOSTNAME) or "")


def slice_keys(pod: Mapping[str, Any]) -> Iterator[Key]:
    """The namespace and slice name of a pod that is ungated one by one."""
    if _is_ungated_one_by_one(pod) and (name := slice_name(pod)):
        yield pod["metadata"].get("namespace") or "", name


def host_keys(pod: Mapping[str, Any]) -> Iterator[str]:
    """The node that a pod placed by topology is bound to, and the host that it is pinned to."""
    if is_placed_by_topology(pod):
        yield from {str(get(pod, "spec", "nodeName") or ""), pinned_host(pod)} - {""}
