"""How the v1beta1 schemas differ from the v1beta2 ones. Source: docs/reference/kueue-api.md 1.12."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

Schema = dict[str, Any]

_POD_CLASS = "scheduling.k8s.io/priorityclass"
_WORKLOAD_CLASS = "kueue.x-k8s.io/workloadpriorityclass"


def v1beta1_schema(kind: str, schema: Schema) -> Schema:
    """The schema of that kind in v1beta1, made from its v1beta2 schema, which stays as it is."""
    result = copy.deepcopy(schema)
    edit = _EDITS.get(kind)
    if edit is not None:
        edit(result)
    return result


def _at(schema: Schema, path: str) -> Schema:
    """The node at a path of property names; `[]` stands for the items of a list."""
    for step in path.split("."):
        schema = schema["items"] if step == "[]" else schema["properties"][step]
    return schema


def _rename(node: Schema, old: str, new: str) -> None:
    node["properties"] = {new if key == old else key: child for key, child in node["properties"].items()}
    if old in node.get("required", ()):
        node["required"] = [new if key == old else key for key in node["required"]]


def _remove(node: Schema, *names: str) -> None:
    for name in names:
        del node["properties"][name]


def _cluster_queue(schema: Schema) -> None:
    spec = _at(schema, "spec")
    _rename(spec, "cohortName", "cohort")
    for rule in spec["x-kubernetes-validations"]:
        rule["rule"] = rule["rule"].replace("cohortName", "cohort")
        rule["message"] = rule["message"].replace("cohortName", "cohort")
    _remove(spec, "concurrentAdmissionPolicy")
    checks = _at(spec, "admissionChecksStrategy.admissionChecks.[].name")
    spec["properties"]["admissionChecks"] = {
        "description": "AdmissionChecks that workloads of all flavors must pass.",
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": {key: checks[key] for key in ("type", "minLength", "maxLength")},
    }
    spec["x-kubernetes-validations"].append(
        {
            "rule": "!has(self.admissionChecks) || size(self.admissionChecks) == 0"
            " || !has(self.admissionChecksStrategy)"
            " || !has(self.admissionChecksStrategy.admissionChecks)",
            "message": "admissionChecks and admissionChecksStrategy are mutually exclusive",
        }
    )
    borrow, preempt = (
        _at(spec, "flavorFungibility.whenCanBorrow"),
        _at(spec, "flavorFungibility.whenCanPreempt"),
    )
    borrow |= {"enum": ["Borrow", "MayStopSearch", "TryNextFlavor"], "default": "Borrow"}
    preempt |= {"enum": ["Preempt", "MayStopSearch", "TryNextFlavor"]}


def _local_queue(schema: Schema) -> None:
    _rename(_at(schema, "status"), "flavorsUsage", "flavorUsage")


def _workload(schema: Schema) -> None:
    spec, status = _at(schema, "spec"), _at(schema, "status")
    _remove(spec, "priorityClassRef", "preemptionGates")
    name, source = "priorityClassName", "priorityClassSource"
    spec["properties"] |= {
        name: {
            "description": "Name of the class the priority comes from.",
            "type": "string",
            "maxLength": 253,
            "pattern": _at(spec, "queueName")["pattern"],
        },
        source: {
            "description": "What kind of class priorityClassName names.",
            "type": "string",
            "enum": [_WORKLOAD_CLASS, _POD_CLASS, ""],
            "default": "",
        },
    }
    for rule in spec["x-kubernetes-validations"]:
        rule["rule"] = rule["rule"].replace("priorityClassRef", name)
        rule["message"] = rule["message"].replace("priorityClassRef", name)
    schema["x-kubernetes-validations"] = [
        rule for rule in schema["x-kubernetes-validations"] if "priorityClassRef" not in rule["rule"]
    ] + [_frozen_priority_class(name), _frozen_priority_class(source)]
    _remove(_at(spec, "podSets.[].topologyRequest"), "podsetSliceRequiredTopologyConstraints")
    _rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    _remove(status, "preemptionGates")
    topology = _at(status, "admission.podSetAssignments.[].topologyAssignment")
    _remove(topology, "slices")
    topology["properties"]["domains"] = {
        "description": "The domains, in order.",
        "type": "array",
        "maxItems": 100000,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "Pods in one domain.",
            "type": "object",
            "required": ["values", "count"],
            "properties": {
                "values": {
                    "description": "Values of the node labels, one per level.",
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 16,
                    "x-kubernetes-list-type": "atomic",
                    "items": {"type": "string"},
                },
                "count": {
                    "description": "Number of pods.",
                    "type": "integer",
                    "format": "int32",
                    "minimum": 1,
                },
            },
        },
    }
    topology["required"] = ["levels", "domains"]


def _frozen_priority_class(field: str) -> Schema:
    """The field may change only while no quota is held, or for a WorkloadPriorityClass's name."""
    holds = (
        "(has({0}.status) && has({0}.status.conditions) && "
        "{0}.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))"
    )
    # A v1beta1 client writes the empty string where a v1beta2 object has nothing.
    value = f"(has({{0}}.spec.{field}) ? {{0}}.spec.{field} : '')"
    same = f"{value.format('oldSelf')} == {value.format('self')}"
    free = (
        f" || (has(self.spec.priorityClassSource) && self.spec.priorityClassSource == '{_WORKLOAD_CLASS}')"
        if field == "priorityClassName"
        else ""
    )
    return {
        "rule": f"!{holds.format('oldSelf')} || !{holds.format('self')} || {same}{free}",
        "message": f"{field} is immutable while quota is reserved",
    }


def _admission_check(schema: Schema) -> None:
    _at(schema, "spec")["properties"]["retryDelayMinutes"] = {
        "description": "Without effect.",
        "type": "integer",
        "format": "int64",
        "default": 15,
    }


def _multikueue_cluster(schema: Schema) -> None:
    spec = _at(schema, "spec")
    source = spec["properties"].pop("clusterSource")
    spec["properties"] |= source["properties"]
    spec["required"] = ["kubeConfig"]


def _multikueue_config(schema: Schema) -> None:
    spec = _at(schema, "spec")
    _remove(spec, "quotaManagement")
    clusters = _at(spec, "clusters")
    clusters["x-kubernetes-list-type"] = "set"
    del clusters["x-kubernetes-validations"]


def _topology(schema: Schema) -> None:
    levels = _at(schema, "spec.levels")
    levels["x-kubernetes-validations"] = [
        rule for rule in levels["x-kubernetes-validations"] if "oldSelf" not in rule["rule"]
    ] + [{"rule": "self == oldSelf", "message": "levels are immutable"}]


def _workload_priority_class(schema: Schema) -> None:
    del _at(schema, "description")["maxLength"]


_EDITS: Final[dict[str, Callable[[Schema], None]]] = {
    "AdmissionCheck": _admission_check,
    "ClusterQueue": _cluster_queue,
    "LocalQueue": _local_queue,
    "MultiKueueCluster": _multikueue_cluster,
    "MultiKueueConfig": _multikueue_config,
    "Topology": _topology,
    "Workload": _workload,
    "WorkloadPriorityClass": _workload_priority_class,
}
