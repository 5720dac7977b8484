"""Between v1beta1 and v1beta2. docs/reference/kueue-api.md 1.12."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykueue.api import decode, kueue
from pykueue.api.conversion import ConversionError, convert
from pykueue.api.kueue import V1BETA1, V1BETA2

Manifest = dict[str, Any]


def manifest(kind: str, version: str = V1BETA1, **sections: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **sections}


def up(kind: str, **sections: Any) -> Manifest:
    return converted(manifest(kind, V1BETA1, **sections), V1BETA2)


def down(kind: str, **sections: Any) -> Manifest:
    return converted(manifest(kind, V1BETA2, **sections), V1BETA1)


def converted(source: Manifest, version: str) -> Manifest:
    before = copy.deepcopy(source)
    result = convert(source, version)
    assert source == before, "a manifest is never changed"
    assert result["apiVersion"] == version
    assert result["metadata"] is source["metadata"]
    return result


_ASSIGNMENT_LONG = {
    "levels": ["rack", "kubernetes.io/hostname"],
    "domains": [{"values": ["r1", "n1"], "count": 2}, {"values": ["r1", "n2"], "count": 1}],
}
_ASSIGNMENT_SHORT = {
    "levels": ["kubernetes.io/hostname"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}],
            "podCounts": {"individual": [2, 1]},
        }
    ],
}


def status_with(topology: Any) -> Manifest:
    return {
        "admission": {
            "clusterQueue": "q",
            "podSetAssignments": [{"name": "a", "topologyAssignment": topology}],
        }
    }


@pytest.mark.parametrize(
    ("kind", "v1beta1", "v1beta2"),
    [
        ("ClusterQueue", {"spec": {"cohort": "c"}}, {"spec": {"cohortName": "c"}}),
        (
            "ClusterQueue",
            {"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}},
            {
                "spec": {
                    "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
                }
            },
        ),
        (
            "ClusterQueue",
            {
                "spec": {
                    "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
                }
            },
            {
                "spec": {
                    "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
                }
            },
        ),
        (
            "ClusterQueue",
            {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]}}},
            {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]}}},
        ),
        ("ClusterQueue", {"spec": {"lendablePercent": 5}}, {"spec": {"lendablePercent": 5}}),
        ("Cohort", {"spec": {"parentName": "p"}}, {"spec": {"parentName": "p"}}),
        (
            "LocalQueue",
            {"status": {"flavorUsage": [{"name": "f"}], "flavorsReservation": []}},
            {"status": {"flavorsUsage": [{"name": "f"}], "flavorsReservation": []}},
        ),
        (
            "Workload",
            {
                "spec": {
                    "priorityClassName": "p",
                    "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                    "priority": 3,
                }
            },
            {
                "spec": {
                    "priorityClassRef": {
                        "group": "kueue.x-k8s.io",
                        "kind": "WorkloadPriorityClass",
                        "name": "p",
                    },
                    "priority": 3,
                }
            },
        ),
        (
            "Workload",
            {
                "spec": {
                    "priorityClassName": "p",
                    "priorityClassSource": "scheduling.k8s.io/priorityclass",
                }
            },
            {
                "spec": {
                    "priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "p"}
                }
            },
        ),
        (
            "Workload",
            {"status": {"accumulatedPastExexcutionTimeSeconds": 7}},
            {"status": {"accumulatedPastExecutionTimeSeconds": 7}},
        ),
        (
            "MultiKueueCluster",
            {"spec": {"kubeConfig": {"location": "l", "locationType": "Path"}}},
            {"spec": {"clusterSource": {"kubeConfig": {"location": "l", "locationType": "Path"}}}},
        ),
        (
            "MultiKueueCluster",
            {"spec": {"clusterProfileRef": {"name": "p"}}},
            {"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}},
        ),
        ("Topology", {"spec": {"levels": []}}, {"spec": {"levels": []}}),
    ],
)
def test_both_ways(kind: str, v1beta1: Manifest, v1beta2: Manifest) -> None:
    assert up(kind, **v1beta1) == manifest(kind, V1BETA2, **v1beta2)
    assert down(kind, **v1beta2) == manifest(kind, V1BETA1, **v1beta1)


@pytest.mark.parametrize(
    ("kind", "v1beta1", "v1beta2"),
    [
        (
            "ClusterQueue",
            {"spec": {"admissionChecks": ["a", "b"]}},
            {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}},
        ),
        (
            "ClusterQueue",
            {
                "spec": {
                    "admissionChecks": ["a", "b"],
                    "admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]},
                }
            },
            {
                "spec": {
                    "admissionChecksStrategy": {
                        "admissionChecks": [{"name": "a", "onFlavors": ["f"]}, {"name": "b"}]
                    }
                }
            },
        ),
        ("ClusterQueue", {"spec": {"admissionChecks": []}}, {"spec": {}}),
        ("ClusterQueue", {"status": {"pendingWorkloadsStatus": {}}}, {"status": {}}),
        ("LocalQueue", {"status": {"flavors": [{"name": "f"}]}}, {"status": {}}),
        ("Workload", {"spec": {"priorityClassName": "p", "priorityClassSource": ""}}, {"spec": {}}),
        ("Workload", {"spec": {"priorityClassName": "p"}}, {"spec": {}}),
        ("Workload", {"status": status_with(_ASSIGNMENT_LONG)}, {"status": status_with(_ASSIGNMENT_SHORT)}),
        (
            "MultiKueueCluster",
            {"spec": {"kubeConfig": {"location": ""}, "clusterProfileRef": {"name": "p"}}},
            {"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}},
        ),
    ],
)
def test_only_up(kind: str, v1beta1: Manifest, v1beta2: Manifest) -> None:
    assert up(kind, **v1beta1) == manifest(kind, V1BETA2, **v1beta2)


@pytest.mark.parametrize(
    ("kind", "v1beta2", "v1beta1"),
    [
        ("ClusterQueue", {"spec": {"concurrentAdmissionPolicy": {}}}, {"spec": {}}),
        ("Workload", {"spec": {"preemptionGates": [{"name": "g"}]}}, {"spec": {}}),
        ("Workload", {"status": {"preemptionGates": [{"name": "g"}]}}, {"status": {}}),
        (
            "Workload",
            {
                "spec": {
                    "podSets": [
                        {"topologyRequest": {"podsetSliceRequiredTopologyConstraints": [], "required": "r"}},
                        {"name": "b"},
                    ]
                }
            },
            {"spec": {"podSets": [{"topologyRequest": {"required": "r"}}, {"name": "b"}]}},
        ),
        (
            "Workload",
            {"status": status_with(_ASSIGNMENT_SHORT)},
            {
                "status": status_with(
                    {
                        "levels": ["kubernetes.io/hostname"],
                        "domains": [{"values": ["n1"], "count": 2}, {"values": ["n2"], "count": 1}],
                    }
                )
            },
        ),
    ],
)
def test_only_down(kind: str, v1beta2: Manifest, v1beta1: Manifest) -> None:
    assert down(kind, **v1beta2) == manifest(kind, V1BETA1, **v1beta1)


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        (
            {"levels": ["rack"], "domains": [{"values": ["a", "b"], "count": 1}]},
            "admission.podSetAssignments: topologyAssignment.domains[0].values: ['a', 'b'] needs 1 values, "
            "one for each level",
        ),
        (
            {"levels": ["rack"], "domains": [{"values": ["a"]}]},
            "domains[0]: Object missing required field `count`",
        ),
        ({"levels": 5, "domains": []}, "levels: Expected `array`, got `int`"),
    ],
)
def test_topologies_that_cannot_be_said_in_v1beta2(topology: Manifest, why: str) -> None:
    with pytest.raises(ConversionError) as caught:
        up("Workload", status=status_with(topology))
    assert str(caught.value) == f"Workload x: status: {why}"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (
            {
                "domainCount": 3,
                "valuesPerLevel": [{"individual": {"roots": ["a"]}}],
                "podCounts": {"universal": 1},
            },
            "admission.podSetAssignments: topologyAssignment.slices: lengths differ from domainCount",
        ),
        (
            {"domainCount": 200000, "valuesPerLevel": [{"universal": "a"}], "podCounts": {"universal": 1}},
            "admission.podSetAssignments: topologyAssignment has 200000 domains; v1beta1 can say at most "
            "100000",
        ),
        ({"domainCount": "x"}, "slices[0].domainCount: Expected `int`, got `str`"),
    ],
)
def test_topologies_that_cannot_be_said_in_v1beta1(part: Manifest, why: str) -> None:
    with pytest.raises(ConversionError) as caught:
        down("Workload", status=status_with({"levels": ["rack"], "slices": [part]}))
    assert str(caught.value) == f"Workload x: status: {why}"


def test_other_versions_are_refused() -> None:
    with pytest.raises(ConversionError, match=r"cannot convert 'kueue.x-k8s.io/v1alpha1' to"):
        convert(manifest("Workload", "kueue.x-k8s.io/v1alpha1"), V1BETA2)
    with pytest.raises(ConversionError, match=r"Namespace x: cannot convert 'v1' to"):
        convert(manifest("Namespace", "v1"), V1BETA2)
    same = manifest("Workload", V1BETA2)
    assert convert(same, V1BETA2) is same


def test_decode_converts_first() -> None:
    queue = decode(manifest("ClusterQueue", spec={"cohort": "c", "admissionChecks": ["a"]}))
    assert isinstance(queue, kueue.ClusterQueue)
    assert queue.spec.cohort_name == "c"
    assert queue.spec.admission_checks_strategy is not None
    assert queue.spec.admission_checks_strategy.admission_checks[0].name == "a"


_fields = st.sampled_from(
    ["cohort", "cohortName", "admissionChecks", "admissionChecksStrategy", "flavorFungibility", "podSets",
     "priorityClassName", "priorityClassSource", "priorityClassRef", "preemptionGates", "kubeConfig",
     "clusterSource", "clusterProfileRef", "flavorUsage", "flavorsUsage", "admission", "podSetAssignments",
     "topologyAssignment", "domains", "slices", "levels", "topologyRequest", "other"]
)  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_fields, inner, max_size=3),
    max_leaves=12,
)
_sections = st.dictionaries(_fields, _json, max_size=4) | _json


@given(
    st.sampled_from(["ClusterQueue", "LocalQueue", "Workload", "MultiKueueCluster", "Cohort", "Unknown"]),
    _sections,
    _sections,
    st.booleans(),
)
def test_malformed_objects_do_not_break_it(kind: str, spec: Any, status: Any, upwards: bool) -> None:
    versions = (V1BETA1, V1BETA2) if upwards else (V1BETA2, V1BETA1)
    source = manifest(kind, versions[0], spec=spec, status=status)
    with contextlib.suppress(ConversionError):
        converted(source, versions[1])


def test_what_was_stored_as_v1alpha1_keeps_its_place_in_the_tree() -> None:
    """Kueue 0.11 has no other version of Cohorts and Topologies."""
    groups = [{"coveredResources": ["cpu"], "flavors": []}]
    old = manifest("Cohort", "kueue.x-k8s.io/v1alpha1", spec={"parent": "org", "resourceGroups": groups})
    for version in (V1BETA1, V1BETA2):
        new = converted(old, version)
        assert new["spec"] == {"parentName": "org", "resourceGroups": groups}
        assert convert(new, "kueue.x-k8s.io/v1alpha1") == old
    levels = {"levels": [{"nodeLabel": "rack"}]}
    assert converted(manifest("Topology", "kueue.x-k8s.io/v1alpha1", spec=levels), V1BETA2)["spec"] == levels
    with pytest.raises(ConversionError, match="v1alpha1"):
        convert(manifest("Workload", "kueue.x-k8s.io/v1alpha1"), V1BETA2)
