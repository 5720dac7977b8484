"""The CEL rules of the definitions, each with what it refuses. docs/reference/kueue-api.md 1.1 to 1.12."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from cel_expr_python import cel

from pykueue.api.crds import crds

Manifest = dict[str, Any]
Schema = dict[str, Any]


@cache
def program(rule: str) -> Any:
    return cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN}).compile(rule)


def holds(rule: str, new: Any, old: Any) -> bool:
    result = program(rule).eval(data={"self": new, "oldSelf": old})
    return result.type() == cel.Type.BOOL and bool(result.plain_value())


def refusals(node: Schema, new: Any, old: Any) -> Iterator[str]:
    """Messages of the rules that do not hold, as an API server goes through a schema."""
    for validation in node.get("x-kubernetes-validations", ()):
        if "oldSelf" in validation["rule"] and old is None:
            continue
        if not holds(validation["rule"], new, old):
            yield validation["message"]
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for name, child in node.get("properties", {}).items():
            if name in new:
                yield from refusals(child, new[name], before.get(name))
        extra = node.get("additionalProperties")
        if isinstance(extra, dict):
            for value in new.values():
                yield from refusals(extra, value, None)
    if isinstance(new, list):
        for item in new:
            yield from refusals(node["items"], item, None)


def check(kind: str, new: Manifest, old: Manifest | None = None, name: str = "v1beta2") -> list[str]:
    (crd,) = (crd for crd in crds() if crd["spec"]["names"]["kind"] == kind)
    (version,) = (version for version in crd["spec"]["versions"] if version["name"] == name)
    return list(refusals(version["schema"]["openAPIV3Schema"], new, old))


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, []),
        ({"key": "a", "value": "b"}, []),
        ({"key": "a", "operator": "Equal", "effect": "NoExecute", "tolerationSeconds": 1}, []),
        (
            {"operator": "Equal"},
            ["operator must be Exists when key is empty, which means all values and all keys"],
        ),
        ({"key": "a", "tolerationSeconds": 1}, ["effect must be NoExecute when tolerationSeconds is set"]),
        ({"key": "a", "operator": "Like"}, ["supported operators: Equal, Exists"]),
        ({"key": "a", "operator": "Exists", "value": "b"}, ["value must be empty when operator is Exists"]),
        ({"key": "a", "effect": "No"}, ["supported effects: NoSchedule, PreferNoSchedule, NoExecute"]),
    ],
)
@pytest.mark.parametrize("name", ["v1beta1", "v1beta2"])
def test_tolerations(toleration: Manifest, expected: list[str], name: str) -> None:
    assert check("ResourceFlavor", {"spec": {"tolerations": [toleration]}}, name=name) == expected
    checks = [{"podSetUpdates": [{"tolerations": [toleration]}]}]
    workload = {"metadata": {}, "spec": {}, "status": {"admissionChecks": checks}}
    assert check("Workload", workload, name=name) == expected


@pytest.mark.parametrize(
    ("spec", "old", "expected"),
    [
        ({}, None, []),
        ({"nodeTaints": [{"key": "a", "effect": "NoSchedule"}]}, None, []),
        (
            {"nodeTaints": [{"key": "a", "effect": "No"}]},
            None,
            ["supported effects: NoSchedule, PreferNoSchedule, NoExecute"],
        ),
        ({"topologyName": "t", "nodeLabels": {"a": "b"}}, {}, []),
        ({"topologyName": "t"}, None, ["at least one nodeLabel is required when topologyName is set"]),
        (
            {"topologyName": "t", "nodeLabels": {}},
            None,
            ["at least one nodeLabel is required when topologyName is set"],
        ),
        (
            {"topologyName": "u", "nodeLabels": {"a": "b"}},
            {"topologyName": "t", "nodeLabels": {"a": "b"}},
            ["topologyName is immutable once set"],
        ),
        ({"nodeLabels": {"a": "b"}}, {"topologyName": "t"}, ["topologyName is immutable once set"]),
    ],
)
def test_resource_flavor(spec: Manifest, old: Manifest | None, expected: list[str]) -> None:
    assert check("ResourceFlavor", {"spec": spec}, None if old is None else {"spec": old}) == expected


def groups(**limits: int) -> list[Manifest]:
    resource = {"name": "cpu", "nominalQuota": 1, **limits}
    return [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [resource]}]}]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"resourceGroups": groups()}, []),
        ({"cohort": "c", "resourceGroups": groups(borrowingLimit=1, lendingLimit=1)}, []),
        (
            {"resourceGroups": groups(borrowingLimit=1)},
            ["borrowingLimit must be unset when {cohort} is unset"],
        ),
        ({"resourceGroups": groups(lendingLimit=1)}, ["lendingLimit must be unset when {cohort} is unset"]),
        (
            {"resourceGroups": [{"coveredResources": ["cpu", "gpu"], "flavors": groups()[0]["flavors"]}]},
            ["flavors must have the same number of resources as the coveredResources"],
        ),
        (
            {
                "flavorFungibility": {
                    "whenCanBorrow": "TryNextFlavor",
                    "whenCanPreempt": "TryNextFlavor",
                    "preference": "BorrowingOverPreemption",
                }
            },
            [],
        ),
        (
            {
                "flavorFungibility": {
                    "whenCanBorrow": "MayStopSearch",
                    "whenCanPreempt": "TryNextFlavor",
                    "preference": "BorrowingOverPreemption",
                }
            },
            ["preference needs both whenCanBorrow and whenCanPreempt to be TryNextFlavor"],
        ),
        (
            {"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}},
            [],
        ),
        ({"preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "Never"}}}, []),
        (
            {
                "preemption": {
                    "reclaimWithinCohort": "Never",
                    "borrowWithinCohort": {"policy": "LowerPriority"},
                }
            },
            ["reclaimWithinCohort=Never and borrowWithinCohort.policy!=Never is not a valid combination"],
        ),
    ],
)
def test_cluster_queue(spec: Manifest, expected: list[str]) -> None:
    older = [text.format(cohort="cohort") for text in expected]
    assert check("ClusterQueue", {"spec": spec}, name="v1beta1") == older
    if "cohort" in spec:
        spec = {**spec, "cohortName": spec["cohort"]}
    newer = [text.format(cohort="cohortName") for text in expected]
    assert check("ClusterQueue", {"spec": spec}) == newer


def test_concurrent_admission() -> None:
    def migration(mode: str, **constraints: str) -> Manifest:
        policy = {"migration": {"mode": mode, "constraints": constraints}}
        return {"spec": {"concurrentAdmissionPolicy": policy}}

    assert check("ClusterQueue", migration("TryPreferredFlavors", lastAcceptableFlavorName="f")) == []
    assert check("ClusterQueue", migration("RetainFirstAdmission")) == []
    assert check("ClusterQueue", migration("RetainFirstAdmission", lastAcceptableFlavorName="f")) == [
        "lastAcceptableFlavorName needs mode TryPreferredFlavors"
    ]


def test_v1beta1_takes_checks_in_one_place() -> None:
    both = {"admissionChecks": ["a"], "admissionChecksStrategy": {"admissionChecks": [{"name": "b"}]}}
    assert check("ClusterQueue", {"spec": both}, name="v1beta1") == [
        "admissionChecks and admissionChecksStrategy are mutually exclusive"
    ]
    assert check("ClusterQueue", {"spec": {"admissionChecks": ["a"]}}, name="v1beta1") == []
    assert check("ClusterQueue", {"spec": {**both, "admissionChecks": []}}, name="v1beta1") == []


def test_cohort() -> None:
    alone = ["borrowingLimit and lendingLimit must be unset when parentName is unset"]
    assert check("Cohort", {"spec": {"resourceGroups": groups(borrowingLimit=1)}}) == alone
    assert check("Cohort", {"spec": {"resourceGroups": groups(lendingLimit=1)}}) == alone
    assert check("Cohort", {"spec": {"resourceGroups": groups(lendingLimit=1), "parentName": "p"}}) == []
    assert check("Cohort", {"spec": {"resourceGroups": groups()}}) == []


@pytest.mark.parametrize(
    ("kind", "before", "after", "message"),
    [
        ("LocalQueue", {"clusterQueue": "a"}, {"clusterQueue": "b"}, "clusterQueue is immutable once set"),
        ("LocalQueue", {"clusterQueue": "a"}, {}, "clusterQueue is immutable once set"),
        ("LocalQueue", {}, {"clusterQueue": "b"}, None),
        ("AdmissionCheck", {"controllerName": "a"}, {"controllerName": "b"}, "controllerName is immutable"),
        ("AdmissionCheck", {"controllerName": "a"}, {"controllerName": "a", "parameters": {}}, None),
    ],
)
def test_immutable_fields(kind: str, before: Manifest, after: Manifest, message: str | None) -> None:
    assert check(kind, {"spec": after}, {"spec": before}) == ([message] if message else [])


_HOST = "kubernetes.io/hostname"
_FIXED = "levels can only be changed when the lowest level is kubernetes.io/hostname before and after"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, ["block", "rack", _HOST], []),
        (None, [_HOST], []),
        (None, ["rack"], []),
        (None, ["rack", "rack"], ["levels must be distinct"]),
        (None, [_HOST, "rack"], ["kubernetes.io/hostname must be the lowest level"]),
        (["rack"], ["rack"], []),
        (["rack"], ["block"], [_FIXED]),
        (["rack", _HOST], ["rack"], [_FIXED]),
        (["rack"], ["rack", _HOST], [_FIXED]),
        (["rack", _HOST], ["block", "rack", _HOST], []),
    ],
)
def test_topology(before: list[str] | None, after: list[str], expected: list[str]) -> None:
    def topology(levels: list[str]) -> Manifest:
        return {"spec": {"levels": [{"nodeLabel": level} for level in levels]}}

    old = topology(before) if before else None
    assert check("Topology", topology(after), old) == expected
    if before:
        older = [] if before == after else ["levels are immutable"]
        assert check("Topology", topology(after), old, "v1beta1") == older


def test_multikueue() -> None:
    one = ["exactly one of kubeConfig and clusterProfileRef is required"]

    def cluster(**source: Manifest) -> list[str]:
        return check("MultiKueueCluster", {"spec": {"clusterSource": source}})

    assert cluster(kubeConfig={}) == cluster(clusterProfileRef={}) == []
    assert cluster() == cluster(kubeConfig={}, clusterProfileRef={}) == one
    assert check("MultiKueueConfig", {"spec": {"clusters": ["a", "b"]}}) == []
    assert check("MultiKueueConfig", {"spec": {"clusters": ["a", "a"]}}) == ["clusters must be distinct"]


def workload(
    spec: Manifest | None = None, status: Manifest | None = None, conditions: tuple[str, ...] = ()
) -> Manifest:
    held = [{"type": name, "status": "True"} for name in conditions]
    return {
        "metadata": {"name": "w"},
        "spec": {"podSets": [{"name": "main", "count": 1}], **(spec or {})},
        "status": {"conditions": held, **(status or {})},
    }


_ONE_OF = "exactly one of universal and individual is required"


def topology_assignment(values: Manifest, counts: Manifest) -> Manifest:
    part = {"domainCount": 1, "valuesPerLevel": [values], "podCounts": counts}
    assignment = {"name": "main", "topologyAssignment": {"levels": ["l"], "slices": [part]}}
    return workload(status={"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}})


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (workload(), []),
        ({"metadata": {"name": "w"}, "spec": {}}, []),
        (workload({"podSets": [{"count": 3, "minCount": 3}]}), []),
        (workload({"podSets": [{"count": 3, "minCount": 4}]}), ["minCount must not exceed count"]),
        (
            workload({"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}}),
            ["priority is required when priorityClassRef is set"],
        ),
        (
            workload(
                {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "PriorityClass"}, "priority": 1}
            ),
            [
                "kind must be WorkloadPriorityClass for group kueue.x-k8s.io, PriorityClass for "
                "scheduling.k8s.io"
            ],
        ),
        (
            workload(
                status={"admission": {"clusterQueue": "q", "podSetAssignments": []}},
                conditions=("QuotaReserved",),
            ),
            ["podSetAssignments must have the same number of podSets as the spec"],
        ),
        (workload(status={"admission": {"clusterQueue": "q", "podSetAssignments": []}}), []),
        (
            workload(status={"clusterName": "a", "nominatedClusterNames": ["b"]}),
            ["clusterName and nominatedClusterNames are mutually exclusive"],
        ),
        (workload(status={"clusterName": "a", "nominatedClusterNames": []}), []),
        (topology_assignment({"universal": "a"}, {"individual": [1]}), []),
        (topology_assignment({}, {"universal": 1, "individual": [1]}), [_ONE_OF, _ONE_OF]),
    ],
)
def test_workload(manifest: Manifest, expected: list[str]) -> None:
    assert check("Workload", manifest) == expected


_CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"}
_POD_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "p"}
_MAX = {"maximumExecutionTimeSeconds": 5}


def with_class(reference: Manifest, name: str = "p") -> Manifest:
    return {"priority": 1, "priorityClassRef": {**reference, "name": name}}


@pytest.mark.parametrize(
    ("condition", "before", "after", "message"),
    [
        (
            "QuotaReserved",
            {"queueName": "a"},
            {"queueName": "b"},
            "queueName is immutable while quota is reserved",
        ),
        ("QuotaReserved", {"queueName": "a"}, {}, "queueName is immutable while quota is reserved"),
        ("QuotaReserved", {"priority": 1}, {"priority": 2}, None),
        (
            "QuotaReserved",
            {},
            with_class(_CLASS),
            "priorityClassRef cannot be added or removed while quota is reserved",
        ),
        (
            "QuotaReserved",
            with_class(_CLASS),
            {},
            "priorityClassRef cannot be added or removed while quota is reserved",
        ),
        (
            "QuotaReserved",
            with_class(_CLASS),
            with_class(_POD_CLASS),
            "priorityClassRef.group and priorityClassRef.kind are immutable while quota is reserved",
        ),
        ("QuotaReserved", with_class(_CLASS), with_class(_CLASS, "q"), None),
        (
            "QuotaReserved",
            with_class(_POD_CLASS),
            with_class(_POD_CLASS, "q"),
            "priorityClassRef.name is immutable for a PriorityClass while quota is reserved",
        ),
        ("Admitted", _MAX, {}, "maximumExecutionTimeSeconds is immutable while admitted"),
        ("Admitted", {}, _MAX, "maximumExecutionTimeSeconds is immutable while admitted"),
        (
            "Admitted",
            _MAX,
            {"maximumExecutionTimeSeconds": 6},
            "maximumExecutionTimeSeconds is immutable while admitted",
        ),
        ("Admitted", _MAX, {**_MAX, "active": False}, None),
    ],
)
def test_workload_changes(condition: str, before: Manifest, after: Manifest, message: str | None) -> None:
    old, new = workload(before, conditions=(condition,)), workload(after, conditions=(condition,))
    assert check("Workload", new, old) == ([message] if message else [])
    assert check("Workload", workload(after), old) == []
    assert check("Workload", new, workload(before)) == []


def test_a_cluster_is_chosen_once() -> None:
    def on(cluster: str | None) -> Manifest:
        return workload(status={"clusterName": cluster} if cluster else {})

    assert check("Workload", on("b"), on("a")) == ["clusterName is immutable once set"]
    assert check("Workload", on(None), on("a")) == check("Workload", on("a"), on(None)) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            {"priorityClassName": "p", "priorityClassSource": "scheduling.k8s.io/priorityclass"},
            {"priorityClassName": "q", "priorityClassSource": "scheduling.k8s.io/priorityclass"},
            ["priorityClassName is immutable while quota is reserved"],
        ),
        (
            {"priorityClassName": "p", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"},
            {"priorityClassName": "q", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"},
            [],
        ),
        (
            {"priorityClassName": "p", "priorityClassSource": "scheduling.k8s.io/priorityclass"},
            {"priorityClassName": "p", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"},
            ["priorityClassSource is immutable while quota is reserved"],
        ),
    ],
)
def test_priority_classes_in_v1beta1(before: Manifest, after: Manifest, expected: list[str]) -> None:
    old = workload({"priority": 1, **before}, conditions=("QuotaReserved",))
    new = workload({"priority": 1, **after}, conditions=("QuotaReserved",))
    assert check("Workload", new, old, "v1beta1") == expected
    assert check("Workload", workload(after), name="v1beta1") == [
        "priority is required when priorityClassName is set"
    ]


def test_in_v1beta1_an_empty_priority_class_is_none() -> None:
    """What is stored as v1beta2 has no field where a v1beta1 client writes the empty string."""
    none = workload({}, conditions=("QuotaReserved",))
    empty = workload({"priorityClassSource": ""}, conditions=("QuotaReserved",))
    assert check("Workload", empty, none, "v1beta1") == check("Workload", none, empty, "v1beta1") == []
