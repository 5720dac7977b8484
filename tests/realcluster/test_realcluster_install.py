"""Installing on a real API server: everything is accepted, explained, and allowed to whom it should be."""

from __future__ import annotations

import pytest
from realcluster_install import Installation, rendered
from realcluster_plane import Kubectl

KINDS = {
    "admissionchecks": "AdmissionCheck",
    "clusterqueues": "ClusterQueue",
    "cohorts": "Cohort",
    "localqueues": "LocalQueue",
    "multikueueclusters": "MultiKueueCluster",
    "multikueueconfigs": "MultiKueueConfig",
    "provisioningrequestconfigs": "ProvisioningRequestConfig",
    "resourceflavors": "ResourceFlavor",
    "topologies": "Topology",
    "workloadpriorityclasses": "WorkloadPriorityClass",
    "workloads": "Workload",
}


def test_everything_is_applied(installed: Installation) -> None:
    lines = installed.output.splitlines()
    assert len(lines) == len(installed.manifests)
    assert all(line.endswith("serverside-applied") for line in lines)


def test_applying_again_changes_nothing(installed: Installation, kubectl: Kubectl) -> None:
    def apply() -> dict[str, str]:
        kubectl("apply", "--server-side", "-f", "-", stdin=rendered())
        kinds = "crds,mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,deployments"
        found = kubectl.list(kinds, "-A", "-l", "app.kubernetes.io/name=kueue")
        return {obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in found}

    assert apply() == apply()


def test_the_kinds_are_established(installed: Installation, kubectl: Kubectl) -> None:
    found = kubectl.list("crds", "-l", "app.kubernetes.io/name=kueue")
    assert found
    for crd in found:
        conditions = {one["type"]: one["status"] for one in crd["status"]["conditions"]}
        assert conditions["Established"] == "True", crd["metadata"]["name"]
        assert conditions.get("NonStructuralSchema", "False") == "False", crd["metadata"]["name"]
        stored = [one["name"] for one in crd["spec"]["versions"] if one["storage"]]
        assert crd["status"]["storedVersions"] == stored, crd["metadata"]["name"]
        assert stored == ["v1beta2" if crd["spec"]["group"] == "kueue.x-k8s.io" else "v1alpha1"]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("plural", sorted(KINDS))
def test_every_field_is_explained(kubectl: Kubectl, plural: str, version: str) -> None:
    told = kubectl("explain", "--recursive", plural, f"--api-version=kueue.x-k8s.io/{version}")
    assert f"KIND:       {KINDS[plural]}" in told
    assert f"VERSION:    {version}" in told
    assert "FIELDS:" in told
