"""Manifests reduced to what decisions read: never environments, arguments or volumes of pods.

For files that leave the cluster or stay on disk: dumps and recordings. An engine decides on reduced objects
what it decides on the whole ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykueue.api.kueue.names import HYBRID_ASSIGNMENT_ANNOTATION
from pykueue.api.pods import CLASS_FIELDS
from pykueue.engine.flavors.templates import hybrid_text

Manifest = dict[str, Any]

#: Fields of metadata that are kept.
_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
)
#: Annotations, and labels of Workloads and pods, are kept if the domain of their key ends so.
_DOMAINS: Final = ("kueue.x-k8s.io", "pykueue.io")
#: Kinds whose labels are compared with selectors.
_SELECTED: Final = frozenset({"Namespace", "Node"})

#: Fields of the status that are kept, by kind.
_STATUS: Final = {"LocalQueue": ("fairSharing",), "AdmissionCheck": ("conditions",)}

_NODE: Final = ("taints", "unschedulable")
_CONTAINER: Final = ("name", "resources", "ports", "restartPolicy")
#: Fields of a pod that exists: where it is, besides what it requests.
_POD: Final = (*CLASS_FIELDS, "nodeName", "schedulerName", "priorityClassName")


def reduced(manifest: Mapping[str, Any]) -> Manifest:
    """The manifest of an object that decisions read, without all that they do not."""
    kind = manifest.get("kind")
    found = {name: value for name, value in manifest.items() if name not in ("metadata", "spec", "status")}
    found["metadata"] = _metadata(manifest.get("metadata") or {}, kind)
    spec, status = manifest.get("spec"), manifest.get("status")
    if kind == "Workload":
        found["spec"] = _workload_spec(spec or {})
        if status:
            found["status"] = _workload_status(status)
    elif kind == "Pod":
        found["spec"] = _pod_spec(spec or {}, _POD)
        found["status"] = {name: value for name, value in (status or {}).items() if name == "phase"}
    elif kind == "Node":
        found["spec"] = {name: value for name, value in (spec or {}).items() if name in _NODE}
        found["status"] = {
            name: _conditions(value) if name == "conditions" else value
            for name, value in (status or {}).items()
            if name in ("capacity", "allocatable", "conditions")
        }
    elif kind == "EngineState":
        found["spec"] = _engine_state(spec or {})
    else:
        if spec is not None:
            found["spec"] = spec
        kept = {name: status[name] for name in _STATUS.get(str(kind), ()) if name in status} if status else {}
        if "conditions" in kept:
            kept["conditions"] = _conditions(kept["conditions"])
        if kept:
            found["status"] = kept
    return found


def _metadata(metadata: Mapping[str, Any], kind: Any) -> Manifest:
    found = {name: metadata[name] for name in _METADATA if name in metadata}
    labels = metadata.get("labels") or {}
    kept = labels if kind in _SELECTED else _ours(labels)
    if kept:
        found["labels"] = dict(kept)
    annotations = _ours(metadata.get("annotations") or {})
    if annotations:
        found["annotations"] = annotations
    if metadata.get("ownerReferences"):
        found["ownerReferences"] = metadata["ownerReferences"]
    return found


def _ours(values: Mapping[str, Any]) -> Manifest:
    return {key: value for key, value in values.items() if key.partition("/")[0].endswith(_DOMAINS)}


def _workload_spec(spec: Mapping[str, Any]) -> Manifest:
    pod_sets = [
        {**each, "template": _template(each.get("template") or {})} for each in spec.get("podSets") or ()
    ]
    return {**spec, "podSets": pod_sets}


def _template(template: Mapping[str, Any]) -> Manifest:
    found: Manifest = {"spec": _pod_spec(template.get("spec") or {}, CLASS_FIELDS)}
    if text := hybrid_text(template):
        found["metadata"] = {"annotations": {HYBRID_ASSIGNMENT_ANNOTATION: text}}
    return found


def _pod_spec(spec: Mapping[str, Any], fields: tuple[str, ...]) -> Manifest:
    found: Manifest = {
        name: [{field: each[field] for field in _CONTAINER if each.get(field)} for each in spec[name]]
        for name in ("containers", "initContainers")
        if spec.get(name)
    }
    return found | {name: spec[name] for name in fields if spec.get(name) is not None}


def _workload_status(status: Mapping[str, Any]) -> Manifest:
    found = {name: value for name, value in status.items() if name != "resourceRequests"}
    if "conditions" in found:
        found["conditions"] = _conditions(found["conditions"])
    if "admissionChecks" in found:
        found["admissionChecks"] = [_check(each) for each in found["admissionChecks"]]
    return found


def _check(state: Mapping[str, Any]) -> Manifest:
    found = {name: value for name, value in state.items() if name != "message"}
    if "podSetUpdates" in found:
        kept = ("name", "nodeSelector", "tolerations")
        found["podSetUpdates"] = [
            {name: each[name] for name in kept if name in each} for each in found["podSetUpdates"]
        ]
    return found


def _conditions(conditions: Any) -> list[Manifest]:
    return [{name: value for name, value in each.items() if name != "message"} for each in conditions]


def _engine_state(spec: Mapping[str, Any]) -> Manifest:
    """The templates of pod sets that did not fit."""
    queues = {
        name: queue
        if not queue.get("unfit")
        else {**queue, "unfit": [_unfit(each) for each in queue["unfit"]]}
        for name, queue in (spec.get("clusterQueues") or {}).items()
    }
    return {**spec, "clusterQueues": queues} if queues else dict(spec)


def _unfit(unfit: Mapping[str, Any]) -> Manifest:
    return {**unfit, **_workload_spec({"podSets": unfit.get("podSets")})}
