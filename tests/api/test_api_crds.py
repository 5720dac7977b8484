"""The definitions: names, versions, structure, defaults, bounds. docs/reference/kueue-api.md 1.0 to 1.12."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest

from pykueue.api import decode
from pykueue.api.crds import CONVERTED, crds, crds_with_webhook
from pykueue.api.crds.generate import generate
from pykueue.api.kueue import V1BETA1, V1BETA2
from pykueue.embedded.apiserver.crd.structural import custom_schema
from pykueue.embedded.kinds import crdvalidation
from pykueue.embedded.kinds.crdvalidation import check_custom_schema

Manifest = dict[str, Any]
Schema = dict[str, Any]


def definition(kind: str) -> Manifest:
    (found,) = (crd for crd in crds() if crd["spec"]["names"]["kind"] == kind)
    return found


def version(kind: str, name: str = "v1beta2") -> Manifest:
    (found,) = (version for version in definition(kind)["spec"]["versions"] if version["name"] == name)
    return found


def schema(kind: str, name: str = "v1beta2") -> Schema:
    found: Schema = version(kind, name)["schema"]["openAPIV3Schema"]
    return found


def at(node: Schema, path: str) -> Schema:
    for step in path.split("."):
        node = node["items"] if step == "[]" else node["properties"][step]
    return node


def causes(manifest: Manifest) -> list[tuple[str, str]]:
    """Field and message of everything an API server refuses, after pruning and defaulting."""
    kind, name = manifest["kind"], manifest["apiVersion"].rpartition("/")[2]
    shape = custom_schema("kueue.x-k8s.io", name, kind, False, schema(kind, name))
    prepared, _ = shape.prepare(manifest)
    return [(cause.field, cause.message) for cause in shape.validate(prepared)]


ALL = [
    (crd["spec"]["names"]["kind"], name)
    for crd in crds()
    for name in ("v1beta1", "v1beta2")
    if crd["spec"]["group"] == "kueue.x-k8s.io"
]


def test_the_data_file_is_what_the_types_say() -> None:
    assert crds() == generate(), "run python -m pykueue.api.crds --write"


@pytest.mark.parametrize(
    ("kind", "plural", "short_names", "scope", "status", "columns"),
    [
        ("ResourceFlavor", "resourceflavors", ["flavor", "flavors", "rf"], "Cluster", False, []),
        (
            "ClusterQueue",
            "clusterqueues",
            ["cq"],
            "Cluster",
            True,
            [
                ("Cohort", ".spec.cohortName", 0),
                ("Strategy", ".spec.queueingStrategy", 1),
                ("Pending Workloads", ".status.pendingWorkloads", 0),
                ("Admitted Workloads", ".status.admittedWorkloads", 1),
            ],
        ),
        ("Cohort", "cohorts", ["co"], "Cluster", True, []),
        (
            "LocalQueue",
            "localqueues",
            ["queue", "queues", "lq"],
            "Namespaced",
            True,
            [
                ("ClusterQueue", ".spec.clusterQueue", 0),
                ("Pending Workloads", ".status.pendingWorkloads", 0),
                ("Admitted Workloads", ".status.admittedWorkloads", 0),
            ],
        ),
        (
            "Workload",
            "workloads",
            ["kwl", "kueueworkload", "kueueworkloads"],
            "Namespaced",
            True,
            [
                ("Queue", ".spec.queueName", 0),
                ("Reserved in", ".status.admission.clusterQueue", 0),
                ("Admitted", '.status.conditions[?(@.type=="Admitted")].status', 0),
                ("Finished", '.status.conditions[?(@.type=="Finished")].status', 0),
                ("Age", ".metadata.creationTimestamp", 0),
            ],
        ),
        (
            "WorkloadPriorityClass",
            "workloadpriorityclasses",
            ["wpc"],
            "Cluster",
            False,
            [("Value", ".value", 0)],
        ),
        ("AdmissionCheck", "admissionchecks", ["ac"], "Cluster", True, []),
        ("Topology", "topologies", ["topo"], "Cluster", False, []),
        (
            "MultiKueueCluster",
            "multikueueclusters",
            ["mkc"],
            "Cluster",
            True,
            [
                ("Connected", '.status.conditions[?(@.type=="Active")].status', 0),
                ("Age", ".metadata.creationTimestamp", 0),
            ],
        ),
        ("MultiKueueConfig", "multikueueconfigs", ["mkconf"], "Cluster", False, []),
        ("ProvisioningRequestConfig", "provisioningrequestconfigs", ["prc"], "Cluster", False, []),
    ],
)
def test_names_and_columns(
    kind: str,
    plural: str,
    short_names: list[str],
    scope: str,
    status: bool,
    columns: list[tuple[str, str, int]],
) -> None:
    crd = definition(kind)
    assert crd["metadata"]["name"] == f"{plural}.kueue.x-k8s.io"
    assert crd["spec"]["group"] == "kueue.x-k8s.io"
    assert crd["spec"]["scope"] == scope
    names = crd["spec"]["names"]
    assert (names["plural"], names["shortNames"], names["listKind"]) == (plural, short_names, f"{kind}List")
    assert "categories" not in names
    for name in ("v1beta1", "v1beta2"):
        shown = version(kind, name)
        assert shown["served"]
        assert shown["storage"] == (name == "v1beta2")
        assert shown.get("deprecated", False) == (name == "v1beta1" and kind != "MultiKueueConfig")
        assert (shown.get("subresources") == {"status": {}}) == status
        found = [
            (column["name"], column["jsonPath"], column.get("priority", 0))
            for column in shown.get("additionalPrinterColumns", [])
        ]
        older = [(title, path.replace("cohortName", "cohort"), wide) for title, path, wide in columns]
        assert found == (columns if name == "v1beta2" else older)


def test_workloads_are_selected_by_their_cluster_queue() -> None:
    selectable = [{"jsonPath": ".status.admission.clusterQueue"}]
    assert version("Workload")["selectableFields"] == selectable
    assert "selectableFields" not in version("Workload", "v1beta1")


def test_a_deprecated_version_says_what_to_use() -> None:
    assert version("Workload", "v1beta1")["deprecationWarning"] == (
        "This version is deprecated. Use v1beta2 instead."
    )


def test_real_clusters_convert_by_webhook() -> None:
    client = {"service": {"name": "webhook-service", "namespace": "n", "path": "/convert"}}
    for crd in crds_with_webhook(client):
        kind = crd["spec"]["names"]["kind"]
        if kind in CONVERTED:
            assert crd["spec"]["conversion"] == {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
            }
        else:
            assert "conversion" not in crd["spec"]
    assert not any("conversion" in crd["spec"] for crd in crds())


def nodes(node: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(node.get(keyword), dict):
            yield from nodes(node[keyword], f"{path}[]")


def test_schemas_are_checked_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    check = crdvalidation._check_in_steps

    def counted(root: Schema, path: str, *arguments: Any) -> Iterator[None]:
        checked.append(path)
        return check(root, path, *arguments)

    monkeypatch.setattr(crdvalidation, "_check_in_steps", counted)
    monkeypatch.setattr(crdvalidation, "_found", OrderedDict())
    for _ in range(3):
        for kind, name in ALL:
            assert check_custom_schema(schema(kind, name), f"{kind} {name}") == []
    assert len(checked) == len(ALL)


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_schemas_are_structural(kind: str, name: str) -> None:
    root = schema(kind, name)
    assert [str(cause) for cause in check_custom_schema(root, "schema")] == []
    for path, node in nodes(root):
        assert not {"$ref", "nullable", "oneOf", "allOf", "not", "definitions"} & set(node), path
        if node.get("x-kubernetes-int-or-string"):
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
            assert "type" not in node, path
        else:
            assert node["type"] in ("object", "array", "string", "integer", "number", "boolean"), path
        if node.get("x-kubernetes-list-type") == "map":
            items = node["items"]
            for key in node["x-kubernetes-list-map-keys"]:
                assert key in items.get("required", []) or "default" in items["properties"][key], path
        if node.get("type") == "array":
            assert "items" in node, path


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_field_is_described(kind: str, name: str) -> None:
    for path, node in nodes(schema(kind, name)):
        for field, child in node.get("properties", {}).items():
            inside_template = ".template." in f"{path}."
            assert child.get("description") or field == "metadata" or inside_template, f"{path}.{field}"


def test_pod_templates_have_their_real_shape() -> None:
    template = at(schema("Workload"), "spec.podSets.[].template")
    containers = at(template, "spec.containers")
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    requests = at(containers["items"], "resources.requests")["additionalProperties"]
    assert requests["x-kubernetes-int-or-string"]
    assert "pattern" in requests
    ports = at(containers["items"], "ports")
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert at(ports, "[].protocol")["default"] == "TCP"
    assert set(at(template, "metadata")["properties"]) == {
        "annotations", "finalizers", "labels", "name", "namespace"
    }  # fmt: skip
    assert at(template, "spec.initContainers.[].restartPolicy")["type"] == "string"
    assert at(template, "spec.resources.limits")["type"] == "object"


MINIMAL: dict[str, Manifest] = {
    "AdmissionCheck": {"spec": {"controllerName": "c"}},
    "ClusterQueue": {"spec": {"fairSharing": {}, "flavorFungibility": {}, "preemption": {}}},
    "Cohort": {"spec": {"fairSharing": {}}},
    "LocalQueue": {"spec": {}},
    "MultiKueueCluster": {"spec": {"clusterSource": {"kubeConfig": {"location": "l"}}}},
    "MultiKueueConfig": {"spec": {"clusters": ["a"]}},
    "ProvisioningRequestConfig": {"spec": {"provisioningClassName": "c"}},
    "ResourceFlavor": {"spec": {}},
    "Topology": {"spec": {"levels": [{"nodeLabel": "l"}]}},
    "Workload": {
        "spec": {"podSets": [{"template": {"spec": {"containers": [{"name": "c"}]}}}]},
        "status": {
            "admission": {"clusterQueue": "q", "podSetAssignments": [{}]},
            "resourceRequests": [{}],
        },
    },
    "WorkloadPriorityClass": {"value": 1},
}


@pytest.mark.parametrize("kind", MINIMAL)
def test_schemas_and_types_have_the_same_defaults(kind: str) -> None:
    manifest = {"apiVersion": V1BETA2, "kind": kind, "metadata": {"name": "x"}, **MINIMAL[kind]}
    shape = custom_schema("kueue.x-k8s.io", "v1beta2", kind, False, schema(kind))
    prepared, unknown = shape.prepare(manifest)
    assert unknown == []
    assert shape.validate(prepared) == []
    assert decode(prepared) == decode(manifest)


def test_the_defaults() -> None:
    def prepared(kind: str, name: str, spec: Manifest) -> Any:
        shape = custom_schema("kueue.x-k8s.io", name, kind, False, schema(kind, name))
        return shape.prepare({"apiVersion": f"kueue.x-k8s.io/{name}", "kind": kind, "spec": spec})[0]["spec"]

    queue = {
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
        "fairSharing": {"weight": 1},
    }
    assert prepared("ClusterQueue", "v1beta2", {"fairSharing": {}}) == queue
    assert prepared("ClusterQueue", "v1beta1", {"fairSharing": {}}) == queue | {
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"}
    }
    assert prepared("LocalQueue", "v1beta2", {}) == {"stopPolicy": "None"}
    assert prepared("Workload", "v1beta2", {}) == {"active": True}
    assert prepared("MultiKueueConfig", "v1beta2", {"clusters": ["a"]})["quotaManagement"] == "Manual"
    assert prepared("AdmissionCheck", "v1beta1", {})["retryDelayMinutes"] == 15
    assert prepared("ProvisioningRequestConfig", "v1beta2", {}) == {
        "retryStrategy": {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}
    }


@pytest.mark.parametrize(
    ("kind", "path", "bounds"),
    [
        ("ResourceFlavor", "spec.nodeLabels", {"maxProperties": 8, "x-kubernetes-map-type": "atomic"}),
        ("ResourceFlavor", "spec.nodeTaints", {"maxItems": 8, "x-kubernetes-list-type": "atomic"}),
        ("ResourceFlavor", "spec.tolerations", {"maxItems": 8, "x-kubernetes-list-type": "atomic"}),
        ("ResourceFlavor", "spec.topologyName", {"maxLength": 253}),
        ("ClusterQueue", "spec.resourceGroups", {"maxItems": 16, "x-kubernetes-list-type": "atomic"}),
        ("ClusterQueue", "spec.resourceGroups.[].coveredResources", {"minItems": 1, "maxItems": 64}),
        (
            "ClusterQueue",
            "spec.resourceGroups.[].flavors",
            {"minItems": 1, "maxItems": 64, "x-kubernetes-list-map-keys": ["name"]},
        ),
        ("ClusterQueue", "spec.resourceGroups.[]", {"required": ["coveredResources", "flavors"]}),
        ("ClusterQueue", "spec.resourceGroups.[].flavors.[]", {"required": ["name", "resources"]}),
        ("ClusterQueue", "spec.namespaceSelector", {"x-kubernetes-map-type": "atomic"}),
        ("ClusterQueue", "spec.admissionChecksStrategy.admissionChecks", {"minItems": 1, "maxItems": 64}),
        (
            "ClusterQueue",
            "spec.admissionChecksStrategy.admissionChecks.[].onFlavors",
            {"maxItems": 64, "x-kubernetes-list-type": "set"},
        ),
        ("ClusterQueue", "spec.borrowingLimitPercent", {"minimum": 0, "format": "int32"}),
        ("ClusterQueue", "spec.lendablePercent", {"minimum": 0, "maximum": 100}),
        ("ClusterQueue", "status.fairSharing", {"required": ["weightedShare"]}),
        ("ClusterQueue", "status.conditions", {"maxItems": 16, "x-kubernetes-list-map-keys": ["type"]}),
        ("Cohort", "spec.resourceGroups", {"maxItems": 16}),
        ("Workload", "spec.podSets", {"minItems": 1, "maxItems": 18, "x-kubernetes-list-map-keys": ["name"]}),
        ("Workload", "spec.podSets.[]", {"required": ["template"]}),
        ("Workload", "spec.podSets.[].name", {"maxLength": 63, "default": "main"}),
        ("Workload", "spec.podSets.[].count", {"minimum": 0, "default": 1, "format": "int32"}),
        ("Workload", "spec.podSets.[].minCount", {"minimum": 1}),
        ("Workload", "spec.podSets.[].topologyRequest.podSetGroupName", {"maxLength": 256}),
        ("Workload", "spec.podSets.[].topologyRequest.podIndexLabel", {"maxLength": 317}),
        (
            "Workload",
            "spec.podSets.[].topologyRequest.podsetSliceRequiredTopologyConstraints",
            {"maxItems": 3},
        ),
        ("Workload", "spec.maximumExecutionTimeSeconds", {"minimum": 1}),
        ("Workload", "spec.preemptionGates", {"maxItems": 8, "x-kubernetes-list-map-keys": ["name"]}),
        ("Workload", "spec", {}),
        ("Workload", "status.admission.podSetAssignments", {"maxItems": 18}),
        (
            "Workload",
            "status.admission.podSetAssignments.[].topologyAssignment.slices",
            {"maxItems": 1000, "x-kubernetes-list-type": "atomic"},
        ),
        ("Workload", "status.admissionChecks", {"maxItems": 8}),
        ("Workload", "status.admissionChecks.[].podSetUpdates", {"maxItems": 18}),
        (
            "Workload",
            "status.schedulingStats.evictions",
            {"maxItems": 256, "x-kubernetes-list-map-keys": ["reason", "underlyingCause"]},
        ),
        ("Workload", "status.nominatedClusterNames", {"maxItems": 20}),
        ("Workload", "status.unhealthyNodes", {"maxItems": 8}),
        ("WorkloadPriorityClass", "description", {"maxLength": 2048}),
        ("AdmissionCheck", "spec.controllerName", {"minLength": 1, "maxLength": 253}),
        ("AdmissionCheck", "spec.parameters", {"required": ["apiGroup", "kind", "name"]}),
        ("Topology", "spec.levels", {"minItems": 1, "maxItems": 16, "x-kubernetes-list-type": "atomic"}),
        ("Topology", "spec.levels.[].nodeLabel", {"minLength": 1, "maxLength": 316}),
        ("MultiKueueConfig", "spec.clusters", {"minItems": 1, "maxItems": 20}),
        ("MultiKueueCluster", "spec.clusterSource.kubeConfig.location", {"minLength": 1, "maxLength": 256}),
        ("ProvisioningRequestConfig", "spec.parameters", {"maxProperties": 100}),
        (
            "ProvisioningRequestConfig",
            "spec.managedResources",
            {"maxItems": 100, "x-kubernetes-list-type": "set"},
        ),
        (
            "ProvisioningRequestConfig",
            "spec.podSetUpdates.nodeSelector",
            {"maxItems": 8, "x-kubernetes-list-map-keys": ["key"]},
        ),
    ],
)
def test_bounds(kind: str, path: str, bounds: Schema) -> None:
    node = at(schema(kind), path)
    assert {keyword: node.get(keyword) for keyword in bounds} == bounds


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (
            "ClusterQueue",
            {"queueingStrategy": "LIFO"},
            [
                (
                    "spec.queueingStrategy",
                    'Unsupported value: "LIFO": supported values: "StrictFIFO", "BestEffortFIFO"',
                )
            ],
        ),
        (
            "ClusterQueue",
            {"lendablePercent": 101},
            [
                (
                    "spec.lendablePercent",
                    "Invalid value: 101: spec.lendablePercent in body should be less than or equal to 100",
                )
            ],
        ),
        ("ClusterQueue", {"fairSharing": {"weight": "0.5"}}, []),
        ("ClusterQueue", {"cohortName": "Team"}, [("spec.cohortName", "")]),
        ("AdmissionCheck", {}, [("spec.controllerName", "Required value")]),
    ],
)
def test_what_is_out_of_bounds_is_refused(kind: str, spec: Manifest, expected: list[tuple[str, str]]) -> None:
    found = causes({"apiVersion": V1BETA2, "kind": kind, "metadata": {"name": "x"}, "spec": spec})
    # Where the schema is broken already, a last cause says that the CEL rules were not tried.
    found = [cause for cause in found if cause[0] != "<nil>"]
    assert [field for field, _ in found] == [field for field, _ in expected]
    assert all(text in message for (_, message), (_, text) in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("kind", "there", "gone"),
    [
        (
            "ClusterQueue",
            ["spec.cohort", "spec.admissionChecks", "spec.admissionChecksStrategy", "spec.lendablePercent"],
            ["spec.cohortName", "spec.concurrentAdmissionPolicy"],
        ),
        ("LocalQueue", ["status.flavorUsage"], ["status.flavorsUsage"]),
        (
            "Workload",
            [
                "spec.priorityClassName",
                "spec.priorityClassSource",
                "status.accumulatedPastExexcutionTimeSeconds",
                "status.admission.podSetAssignments.[].topologyAssignment.domains.[].values",
            ],
            [
                "spec.priorityClassRef",
                "spec.preemptionGates",
                "status.preemptionGates",
                "status.accumulatedPastExecutionTimeSeconds",
                "status.admission.podSetAssignments.[].topologyAssignment.slices",
                "spec.podSets.[].topologyRequest.podsetSliceRequiredTopologyConstraints",
            ],
        ),
        ("AdmissionCheck", ["spec.retryDelayMinutes"], []),
        ("MultiKueueCluster", ["spec.kubeConfig", "spec.clusterProfileRef"], ["spec.clusterSource"]),
        ("MultiKueueConfig", ["spec.clusters"], ["spec.quotaManagement"]),
    ],
)
def test_v1beta1_has_its_own_fields(kind: str, there: list[str], gone: list[str]) -> None:
    older = schema(kind, "v1beta1")
    for path in there:
        assert at(older, path)
    for path in gone:
        with pytest.raises(KeyError):
            at(older, path)


def test_v1beta1_has_its_own_bounds() -> None:
    assert at(schema("MultiKueueConfig", "v1beta1"), "spec.clusters")["x-kubernetes-list-type"] == "set"
    assert "maxLength" not in at(schema("WorkloadPriorityClass", "v1beta1"), "description")
    assert at(schema("MultiKueueCluster", "v1beta1"), "spec")["required"] == ["kubeConfig"]
    borrow = at(schema("ClusterQueue", "v1beta1"), "spec.flavorFungibility.whenCanBorrow")
    assert borrow["enum"] == ["Borrow", "MayStopSearch", "TryNextFlavor"]
    manifest = {
        "apiVersion": V1BETA1,
        "kind": "ClusterQueue",
        "metadata": {"name": "x"},
        "spec": {"cohort": "c"},
    }
    assert causes(manifest) == []


@pytest.mark.parametrize("kind", ["Cohort", "Topology"])
def test_a_version_that_older_installations_stored_is_known_but_not_served(kind: str) -> None:
    """Without it an API server that holds such objects refuses the definition."""
    alpha = version(kind, "v1alpha1")
    assert not alpha["served"]
    assert not alpha["storage"]
    assert alpha["schema"]["openAPIV3Schema"]["x-kubernetes-preserve-unknown-fields"] is True
