"""Our kinds through a real API server: both versions, and refusals that name the field."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from realcluster_install import Installation
from realcluster_plane import Kubectl

GROUP = "kueue.x-k8s.io"

Object = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _running(running: Installation) -> None:
    """Conversion and admission are the manager's."""


def in_v1beta1(kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": f"{GROUP}/v1beta1", "kind": kind, "metadata": {"name": name}, **fields}


POD_SET = {
    "name": "main",
    "count": 2,
    "template": {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        }
    },
}

#: Every kind as v1beta1 spells it, and where v1beta2 has what it says (None where both spell it alike).
OLD: list[tuple[Object, Object]] = [
    (
        in_v1beta1(
            "ClusterQueue",
            "both",
            spec={
                "cohort": "lab",
                "flavorFungibility": {"whenCanBorrow": "Borrow"},
                "admissionChecks": ["look"],
            },
        ),
        {
            "cohortName": "lab",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch"},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "look"}]},
        },
    ),
    (in_v1beta1("Cohort", "both", spec={"parentName": "root"}), {"parentName": "root"}),
    (in_v1beta1("LocalQueue", "both", spec={"clusterQueue": "both"}), {"clusterQueue": "both"}),
    (
        in_v1beta1(
            "Workload",
            "both",
            spec={
                "podSets": [POD_SET],
                "queueName": "nowhere",
                "priorityClassName": "old-class",
                "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                "priority": 5,
            },
        ),
        {
            "queueName": "nowhere",
            "priorityClassRef": {"group": GROUP, "kind": "WorkloadPriorityClass", "name": "old-class"},
        },
    ),
    (
        in_v1beta1(
            "MultiKueueCluster", "both", spec={"kubeConfig": {"location": "remote", "locationType": "Secret"}}
        ),
        {"clusterSource": {"kubeConfig": {"location": "remote", "locationType": "Secret"}}},
    ),
    (in_v1beta1("MultiKueueConfig", "both", spec={"clusters": ["both"]}), {"clusters": ["both"]}),
    (in_v1beta1("AdmissionCheck", "both", spec={"controllerName": "x/y"}), {"controllerName": "x/y"}),
    (
        in_v1beta1("ResourceFlavor", "both", spec={"nodeLabels": {"pool": "a"}}),
        {"nodeLabels": {"pool": "a"}},
    ),
    (
        in_v1beta1("Topology", "both", spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}),
        {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
    ),
    (
        in_v1beta1("ProvisioningRequestConfig", "both", spec={"provisioningClassName": "queued"}),
        {"provisioningClassName": "queued"},
    ),
    (in_v1beta1("WorkloadPriorityClass", "both", value=10, description="d"), {}),
]


def contains(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(contains(found.get(k), v) for k, v in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and all(map(contains, found, wanted)) and len(found) == len(wanted)
    return bool(found == wanted)


@pytest.mark.parametrize(("old", "spec"), OLD, ids=[old["kind"] for old, _ in OLD])
def test_both_versions_say_the_same(kubectl: Kubectl, old: Object, spec: Object) -> None:
    """Written in the old version, read in the new, written back in it, read in the old."""
    kubectl("create", "-f", "-", stdin=yaml.safe_dump(old))
    kind, name = old["kind"].lower(), old["metadata"]["name"]
    try:
        new = kubectl.get(f"{kind}.v1beta2.{GROUP}", name)
        assert new is not None
        assert new["apiVersion"] == f"{GROUP}/v1beta2"
        assert contains(new.get("spec"), spec) or not spec
        new["metadata"].setdefault("labels", {})["seen"] = "yes"
        new["metadata"].pop("managedFields", None)
        kubectl("replace", "-f", "-", stdin=yaml.safe_dump(new))
        again = kubectl.get(f"{kind}.v1beta1.{GROUP}", name)
        assert again is not None
        assert again["apiVersion"] == f"{GROUP}/v1beta1"
        assert again["metadata"]["labels"] == {"seen": "yes"}
        wanted = {key: value for key, value in old.get("spec", {}).items() if key != "admissionChecks"}
        assert contains(again.get("spec", {}), wanted)
    finally:
        kubectl("delete", kind, name, "--wait=false")
        kubectl.run("patch", kind, name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


def queue(**spec: Any) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "refused"},
        "spec": spec,
    }


def group(**resource: Any) -> list[Object]:
    quota = {"name": "cpu", "nominalQuota": "1", **resource}
    return [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]


def job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "refused", "labels": {f"{GROUP}/queue-name": "Not-a-queue"}},
        "spec": {"template": template, **spec},
    }


#: An object that is refused, the field that must be named, and who refuses it.
REFUSED: list[tuple[str, Object, str]] = [
    ("unknown field", queue(cohorts="x"), "spec.cohorts"),
    ("wrong type", queue(cohortName=["x"]), "spec.cohortName"),
    ("value out of an enumeration", queue(queueingStrategy="Fifo"), "spec.queueingStrategy"),
    (
        "negative quota",
        queue(resourceGroups=group(nominalQuota="-1")),
        "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
    ),
    (
        "borrowing without a cohort",
        queue(resourceGroups=group(borrowingLimit="1")),
        # Before this text, Kubernetes up to 1.35 writes the value as "object".
        "borrowingLimit must be unset when cohortName is unset",
    ),
    (
        "bad selector",
        queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Nor"}]}),
        "spec.namespaceSelector",
    ),
    (
        "queue name of a Workload",
        {
            "apiVersion": f"{GROUP}/v1beta2",
            "kind": "Workload",
            "metadata": {"name": "refused", "namespace": "default"},
            "spec": {"queueName": "Not a name", "podSets": [POD_SET]},
        },
        "spec.queueName",
    ),
    ("queue name of a Job", job(), f"metadata.labels[{GROUP}/queue-name]"),
    (
        "taint of a flavor",
        {
            "apiVersion": f"{GROUP}/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "refused"},
            "spec": {"nodeTaints": [{"key": "k", "effect": "Never"}]},
        },
        "spec.nodeTaints",
    ),
    (
        "cohort that is its own parent",
        {
            "apiVersion": f"{GROUP}/v1beta2",
            "kind": "Cohort",
            "metadata": {"name": "refused"},
            "spec": {"parentName": "Not a name"},
        },
        "spec.parentName",
    ),
]


@pytest.mark.parametrize(("obj", "field"), [(o, f) for _, o, f in REFUSED], ids=[n for n, _, _ in REFUSED])
def test_what_is_wrong_is_refused_by_its_field(kubectl: Kubectl, obj: Object, field: str) -> None:
    assert field in kubectl.refused("create", "-f", "-", stdin=yaml.safe_dump(obj))


def test_what_may_not_change_is_refused_by_its_field(kubectl: Kubectl) -> None:
    check = {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "fixed"},
        "spec": {"controllerName": "x/y"},
    }
    kubectl.apply(check)
    error = kubectl.refused(
        "patch", "admissioncheck", "fixed", "--type=merge", "-p", '{"spec":{"controllerName":"z"}}'
    )
    assert "spec.controllerName" in error
    kubectl("delete", "admissioncheck", "fixed")


def test_queues_are_selected_by_field(kubectl: Kubectl) -> None:
    """Workloads can be asked for by the ClusterQueue that holds them."""
    assert kubectl.list("workloads", "--field-selector", "status.admission.clusterQueue=none") == []


def test_the_old_version_warns(kubectl: Kubectl) -> None:
    done = kubectl.run("get", f"clusterqueues.v1beta1.{GROUP}")
    assert "This version is deprecated. Use v1beta2 instead." in done.stderr
