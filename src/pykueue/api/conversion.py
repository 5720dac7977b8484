"""Between v1beta1 and v1beta2 of the group, on manifests. Source: docs/reference/kueue-api.md 1.12.

Cohorts and Topologies also to and from v1alpha1, the only version of them that Kueue 0.11 has: a cluster
taken over from it holds them so, and their managed fields.

A manifest is never changed: what differs is copied along the path, the rest is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pykueue.api.decoding import DecodeError, decode_as, describe, encode
from pykueue.api.kueue.common import GROUP, V1BETA1, V1BETA2
from pykueue.api.kueue.workload import TopologyAssignment
from pykueue.api.model import Model
from pykueue.api.topologies import MAX_DOMAINS_PER_SLICE, Domain, compress, count_domains, expand

Manifest = dict[str, Any]

_V1ALPHA1: Final = f"{GROUP}/v1alpha1"
_WORKLOAD_CLASS_SOURCE: Final = "kueue.x-k8s.io/workloadpriorityclass"
_POD_CLASS_SOURCE: Final = "scheduling.k8s.io/priorityclass"
_UP_FUNGIBILITY = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


class ConversionError(ValueError):
    """An object cannot be said in the other version. The text names the object and the field."""


def convert(manifest: Manifest, api_version: str) -> Manifest:
    """The manifest in that version of the group, or the same object where it is already.

    Raises ConversionError.
    """
    have = manifest.get("apiVersion")
    if have == api_version:
        return manifest
    kind = str(manifest.get("kind"))
    table = _TABLES.get((str(have), api_version))
    if table is None or (_V1ALPHA1 in (have, api_version) and kind not in table):
        raise ConversionError(
            f"{describe(manifest)}: cannot convert {have!r} to {api_version!r}; "
            f"{V1BETA1} and {V1BETA2} convert to each other"
        )
    result = {**manifest, "apiVersion": api_version}
    for section, change in table.get(kind, {}).items():
        content = manifest.get(section)
        if isinstance(content, dict):
            try:
                result[section] = change(dict(content))
            except DecodeError as error:
                raise ConversionError(f"{describe(manifest)}: {section}: {error.why}") from None
    return result


def _rename(content: Manifest, old: str, new: str) -> None:
    if old in content:
        value = content.pop(old)
        content.setdefault(new, value)


def _each(items: Any, change: Callable[[Manifest], Manifest]) -> Any:
    if not isinstance(items, list):
        return items
    return [change(dict(item)) if isinstance(item, dict) else item for item in items]


def _cohort_spec_from_alpha(spec: Manifest) -> Manifest:
    _rename(spec, "parent", "parentName")
    return spec


def _cohort_spec_to_alpha(spec: Manifest) -> Manifest:
    _rename(spec, "parentName", "parent")
    return spec


def _cluster_queue_spec_up(spec: Manifest) -> Manifest:
    _rename(spec, "cohort", "cohortName")
    checks = spec.pop("admissionChecks", None)
    if isinstance(checks, list) and checks:
        strategy = spec.get("admissionChecksStrategy")
        strategy = dict(strategy) if isinstance(strategy, dict) else {}
        given = strategy.get("admissionChecks")
        rules = list(given) if isinstance(given, list) else []
        named = [rule.get("name") for rule in rules if isinstance(rule, dict)]
        rules += [{"name": check} for check in checks if check not in named]
        spec["admissionChecksStrategy"] = {**strategy, "admissionChecks": rules}
    fungibility = spec.get("flavorFungibility")
    if isinstance(fungibility, dict):
        spec["flavorFungibility"] = {
            key: _UP_FUNGIBILITY.get(value, value) if isinstance(value, str) else value
            for key, value in fungibility.items()
        }
    return spec


def _cluster_queue_spec_down(spec: Manifest) -> Manifest:
    _rename(spec, "cohortName", "cohort")
    spec.pop("concurrentAdmissionPolicy", None)
    fungibility = spec.get("flavorFungibility")
    if isinstance(fungibility, dict):
        fungibility = dict(fungibility)
        for key, value in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
            if fungibility.get(key) == "MayStopSearch":
                fungibility[key] = value
        spec["flavorFungibility"] = fungibility
    return spec


def _cluster_queue_status_up(status: Manifest) -> Manifest:
    status.pop("pendingWorkloadsStatus", None)
    return status


def _local_queue_status_up(status: Manifest) -> Manifest:
    _rename(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)
    return status


def _local_queue_status_down(status: Manifest) -> Manifest:
    _rename(status, "flavorsUsage", "flavorUsage")
    return status


def _workload_spec_up(spec: Manifest) -> Manifest:
    name = spec.pop("priorityClassName", None)
    source = spec.pop("priorityClassSource", None)
    if name and source == _WORKLOAD_CLASS_SOURCE:
        spec["priorityClassRef"] = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    elif name and source == _POD_CLASS_SOURCE:
        spec["priorityClassRef"] = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}
    return spec


def _workload_spec_down(spec: Manifest) -> Manifest:
    reference = spec.pop("priorityClassRef", None)
    if isinstance(reference, dict) and reference.get("name"):
        spec["priorityClassName"] = reference["name"]
        spec["priorityClassSource"] = (
            _WORKLOAD_CLASS_SOURCE if reference.get("group") == "kueue.x-k8s.io" else _POD_CLASS_SOURCE
        )
    spec.pop("preemptionGates", None)
    spec["podSets"] = _each(spec.get("podSets"), _pod_set_down)
    if spec["podSets"] is None:
        del spec["podSets"]
    return spec


def _pod_set_down(pod_set: Manifest) -> Manifest:
    request = pod_set.get("topologyRequest")
    if isinstance(request, dict) and "podsetSliceRequiredTopologyConstraints" in request:
        pod_set["topologyRequest"] = {
            key: value for key, value in request.items() if key != "podsetSliceRequiredTopologyConstraints"
        }
    return pod_set


def _workload_status_up(status: Manifest) -> Manifest:
    _rename(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    return _with_assignments(status, _topology_up)


def _workload_status_down(status: Manifest) -> Manifest:
    _rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    status.pop("preemptionGates", None)
    return _with_assignments(status, _topology_down)


def _with_assignments(status: Manifest, change: Callable[[Manifest], Manifest]) -> Manifest:
    def assignment(item: Manifest) -> Manifest:
        topology = item.get("topologyAssignment")
        if isinstance(topology, dict):
            item["topologyAssignment"] = change(topology)
        return item

    admission = status.get("admission")
    if isinstance(admission, dict) and "podSetAssignments" in admission:
        status["admission"] = {
            **admission,
            "podSetAssignments": _each(admission["podSetAssignments"], assignment),
        }
    return status


class _LongDomain(Model):
    values: list[str]
    count: int


class _LongAssignment(Model):
    levels: list[str] = []  # noqa: RUF012 - a Struct copies it
    domains: list[_LongDomain] = []  # noqa: RUF012


def _topology_up(topology: Manifest) -> Manifest:
    if "domains" not in topology:
        return topology
    assignment = decode_as(_LongAssignment, topology)
    for index, domain in enumerate(assignment.domains):
        if len(domain.values) != len(assignment.levels):
            raise DecodeError(
                "topologyAssignment",
                f"admission.podSetAssignments: topologyAssignment.domains[{index}].values: {domain.values} "
                f"needs {len(assignment.levels)} values, one for each level",
            )
    domains = [Domain(tuple(domain.values), domain.count) for domain in assignment.domains]
    compressed: Manifest = encode(compress(assignment.levels, domains))
    return compressed


def _topology_down(topology: Manifest) -> Manifest:
    if "domains" in topology:
        return topology
    assignment = decode_as(TopologyAssignment, topology)
    if count_domains(assignment) > MAX_DOMAINS_PER_SLICE:
        raise DecodeError(
            "topologyAssignment",
            f"admission.podSetAssignments: topologyAssignment has {count_domains(assignment)} domains; "
            f"v1beta1 can say at most {MAX_DOMAINS_PER_SLICE}",
        )
    try:
        domains = expand(assignment)
    except ValueError:
        raise DecodeError(
            "topologyAssignment",
            "admission.podSetAssignments: topologyAssignment.slices: lengths differ from domainCount",
        ) from None
    return {
        "levels": list(assignment.levels),
        "domains": [{"values": list(domain.values), "count": domain.pods} for domain in domains],
    }


def _multikueue_cluster_spec_up(spec: Manifest) -> Manifest:
    source: Manifest = {}
    config, profile = spec.pop("kubeConfig", None), spec.pop("clusterProfileRef", None)
    if profile:
        source["clusterProfileRef"] = profile
    # v1beta1 demands a kubeConfig even where a profile is meant; an empty one says nothing.
    if isinstance(config, dict) and (config.get("location") or not profile):
        source["kubeConfig"] = config
    if source:
        spec.setdefault("clusterSource", source)
    return spec


def _multikueue_cluster_spec_down(spec: Manifest) -> Manifest:
    source = spec.pop("clusterSource", None)
    if isinstance(source, dict):
        spec.update({key: source[key] for key in ("kubeConfig", "clusterProfileRef") if key in source})
    return spec


_Changes = dict[str, dict[str, Callable[[Manifest], Manifest]]]

_UP: _Changes = {
    "ClusterQueue": {"spec": _cluster_queue_spec_up, "status": _cluster_queue_status_up},
    "LocalQueue": {"status": _local_queue_status_up},
    "Workload": {"spec": _workload_spec_up, "status": _workload_status_up},
    "MultiKueueCluster": {"spec": _multikueue_cluster_spec_up},
}
_DOWN: _Changes = {
    "ClusterQueue": {"spec": _cluster_queue_spec_down},
    "LocalQueue": {"status": _local_queue_status_down},
    "Workload": {"spec": _workload_spec_down, "status": _workload_status_down},
    "MultiKueueCluster": {"spec": _multikueue_cluster_spec_down},
}
_FROM_ALPHA: _Changes = {"Cohort": {"spec": _cohort_spec_from_alpha}, "Topology": {}}
_TO_ALPHA: _Changes = {"Cohort": {"spec": _cohort_spec_to_alpha}, "Topology": {}}

#: (apiVersion, wanted apiVersion) -> what changes. What has a v1alpha1 is alike in the two after it.
_TABLES: dict[tuple[str, str], _Changes] = {
    (V1BETA1, V1BETA2): _UP,
    (V1BETA2, V1BETA1): _DOWN,
    (_V1ALPHA1, V1BETA1): _FROM_ALPHA,
    (_V1ALPHA1, V1BETA2): _FROM_ALPHA,
    (V1BETA1, _V1ALPHA1): _TO_ALPHA,
    (V1BETA2, _V1ALPHA1): _TO_ALPHA,
}
