"""Webhook rules for flavors, queues and cohorts, with their texts. docs/reference/kueue-api.md 1.2 to 1.4."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api.kueue import V1BETA1, V1BETA2
from pykueue.api.validation import FieldError, validate
from pykueue.api.validation.fields import FORBIDDEN, INVALID, NOT_SUPPORTED, REQUIRED, TOO_LONG

Manifest = dict[str, Any]


def texts(manifest: Manifest, old: Manifest | None = None, **gates: bool) -> list[str]:
    return [str(error) for error in validate(manifest, old, gates)]


def flavor(**spec: Any) -> Manifest:
    return {"apiVersion": V1BETA2, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": spec}


def cluster_queue(**spec: Any) -> Manifest:
    return {"apiVersion": V1BETA2, "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec}


def cohort(**spec: Any) -> Manifest:
    return {"apiVersion": V1BETA2, "kind": "Cohort", "metadata": {"name": "c"}, "spec": spec}


def group(resources: list[str], *flavors: Manifest) -> Manifest:
    return {"coveredResources": resources, "flavors": list(flavors)}


def quotas(name: str, **resources: Any) -> Manifest:
    """A flavor with one quota per resource: an amount, or the fields of the quota."""
    return {
        "name": name,
        "resources": [
            {"name": resource, **(quota if isinstance(quota, dict) else {"nominalQuota": quota})}
            for resource, quota in resources.items()
        ],
    }


_NAME = (
    "name part must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit "
    "(for example 'example.com/my_name')"
)
_VALUE = (
    "a valid label must be empty or consist of letters, digits, '-', '_' and '.', and begin and end with "
    "a letter "
    "or digit (for example 'my_value')"
)
_SUBDOMAIN = (
    "must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit "
    "(a lowercase RFC 1123 subdomain, for example 'example.com')"
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"nodeLabels": {"example.com/zone": "a", "b": ""}}, []),
        ({"nodeLabels": {"-a": "b"}}, [f'spec.nodeLabels: Invalid value: "-a": {_NAME}']),
        ({"nodeLabels": {"a": "b c"}}, [f'spec.nodeLabels: Invalid value: "b c": {_VALUE}']),
        ({"nodeLabels": {"/a": ""}}, ['spec.nodeLabels: Invalid value: "/a": prefix part must be non-empty']),
        (
            {"nodeLabels": {"A.b/a": ""}},
            [f'spec.nodeLabels: Invalid value: "A.b/a": prefix part {_SUBDOMAIN}'],
        ),
        ({"nodeLabels": {"a/": ""}}, ['spec.nodeLabels: Invalid value: "a/": name part must be non-empty']),
        (
            {"nodeLabels": {"a" * 64: "b" * 64}},
            [
                f'spec.nodeLabels: Invalid value: "{"a" * 64}": name part must be no more than 63 characters',
                f'spec.nodeLabels: Invalid value: "{"b" * 64}": must be no more than 63 characters',
            ],
        ),
        (
            {"nodeLabels": {"a" * 254 + "/a": ""}},
            [
                f'spec.nodeLabels: Invalid value: "{"a" * 254}/a": prefix part must be no more than 253 '
                "characters"
            ],
        ),
        ({"nodeTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}, []),
        (
            {"nodeTaints": [{"key": "a b", "value": "-", "effect": "Never"}]},
            [
                f'spec.nodeTaints[0].key: Invalid value: "a b": {_NAME}',
                f'spec.nodeTaints[0].value: Invalid value: "-": {_VALUE}',
                'spec.nodeTaints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", '
                '"PreferNoSchedule", "NoExecute"',
            ],
        ),
        ({"nodeTaints": [{"key": "a", "effect": ""}]}, ["spec.nodeTaints[0].effect: Required value"]),
        (
            {
                "nodeTaints": [
                    {"key": "a", "value": "x", "effect": "NoSchedule"},
                    {"key": "a", "value": "y", "effect": "NoExecute"},
                    {"key": "a", "value": "z", "effect": "NoSchedule"},
                ]
            },
            ['spec.nodeTaints[2]: Duplicate value: "a:NoSchedule": taints must differ in key or effect'],
        ),
        (
            {
                "tolerations": [
                    {"operator": "Exists"},
                    {"key": "a", "operator": "Equal", "value": "b"},
                    {"key": "a", "effect": "NoExecute", "tolerationSeconds": 3},
                ]
            },
            [],
        ),
        (
            {"tolerations": [{"value": "x"}]},
            ['spec.tolerations[0].operator: Invalid value: "": must be Exists when key is empty'],
        ),
        (
            {"tolerations": [{"key": "!", "operator": "Exists", "value": "x"}]},
            [
                f'spec.tolerations[0].key: Invalid value: "!": {_NAME}',
                'spec.tolerations[0].value: Invalid value: "x": must be empty when operator is Exists',
            ],
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Like", "effect": "Never", "tolerationSeconds": 1}]},
            [
                'spec.tolerations[0].effect: Invalid value: "Never": must be NoExecute when '
                "tolerationSeconds is "
                "set",
                'spec.tolerations[0].operator: Unsupported value: "Like": supported values: "Equal", '
                '"Exists"',
                'spec.tolerations[0].effect: Unsupported value: "Never": supported values: "NoSchedule", '
                '"PreferNoSchedule", "NoExecute"',
            ],
        ),
        (
            {"tolerations": [{"key": "a", "value": "?"}]},
            [f'spec.tolerations[0].value: Invalid value: "?": {_VALUE}'],
        ),
    ],
)
def test_resource_flavor(spec: Manifest, expected: list[str]) -> None:
    assert texts(flavor(**spec)) == expected


_WITH_F = [group(["cpu"], quotas("f", cpu=1))]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {
                "cohortName": "c",
                "resourceGroups": [
                    group(
                        ["cpu", "example.com/gpu"],
                        quotas("f", cpu={"nominalQuota": 5, "borrowingLimit": 0, "lendingLimit": 5})
                        | {
                            "resources": [
                                {"name": "cpu", "nominalQuota": 5, "borrowingLimit": 0, "lendingLimit": 5},
                                {"name": "example.com/gpu", "nominalQuota": "2"},
                            ]
                        },
                    )
                ],
            },
            [],
        ),
        ({"cohortName": "A"}, [f'spec.cohortName: Invalid value: "A": {_SUBDOMAIN}']),
        (
            {"resourceGroups": [group(["cpu"], quotas("F", cpu=1))]},
            [f'spec.resourceGroups[0].flavors[0].name: Invalid value: "F": {_SUBDOMAIN}'],
        ),
        (
            {"resourceGroups": [group(["c u"], quotas("f", **{"c u": 1}))]},
            [f'spec.resourceGroups[0].coveredResources[0]: Invalid value: "c u": {_NAME}'],
        ),
        (
            {
                "resourceGroups": [
                    group(["cpu"], quotas("f", cpu=1)),
                    group(["cpu"], quotas("g", cpu=1)),
                ]
            },
            [
                'spec.resourceGroups[1].coveredResources[0]: Duplicate value: "cpu": a resource can be '
                "in one "
                "group only"
            ],
        ),
        (
            {
                "resourceGroups": [
                    group(["cpu"], quotas("f", cpu=1)),
                    group(["memory"], quotas("f", memory=1)),
                ]
            },
            [
                'spec.resourceGroups[1].flavors[0].name: Duplicate value: "f": a flavor can be in one '
                "group only"
            ],
        ),
        (
            {"resourceGroups": [group(["cpu", "memory"], quotas("f", memory=1, cpu=1))]},
            [
                'spec.resourceGroups[0].flavors[0].resources[0].name: Invalid value: "memory": must be cpu: '
                "resources stand in the order of coveredResources",
                'spec.resourceGroups[0].flavors[0].resources[1].name: Invalid value: "cpu": must be memory: '
                "resources stand in the order of coveredResources",
            ],
        ),
        (
            {"resourceGroups": [group(["cpu", "memory"], quotas("f", cpu=1))]},
            [
                'spec.resourceGroups[0].flavors[0].resources: Invalid value: ["cpu"]: must have the same '
                "number "
                "of resources as coveredResources"
            ],
        ),
        (
            {"resourceGroups": [group(["cpu"], quotas("f", cpu="-100m"))]},
            [
                'spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: "-100m": '
                "must be "
                "greater than or equal to 0"
            ],
        ),
        (
            {
                "cohortName": "c",
                "resourceGroups": [
                    group(
                        ["cpu"],
                        quotas("f", cpu={"nominalQuota": 1, "borrowingLimit": -1, "lendingLimit": -2}),
                    )
                ],
            },
            [
                'spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: "-1": must be '
                "greater than or equal to 0",
                'spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "-2": must be '
                "greater than or equal to 0",
            ],
        ),
        (
            {
                "resourceGroups": [
                    group(
                        ["cpu"], quotas("f", cpu={"nominalQuota": 1, "borrowingLimit": 1, "lendingLimit": 1})
                    )
                ]
            },
            [
                'spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: "1": must be '
                "unset when cohortName is unset",
                'spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "1": must '
                "be unset "
                "when cohortName is unset",
            ],
        ),
        (
            {
                "cohortName": "c",
                "resourceGroups": [group(["cpu"], quotas("f", cpu={"nominalQuota": 1, "lendingLimit": 2}))],
            },
            [
                'spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "2": must '
                "be less "
                "than or equal to the nominalQuota 1"
            ],
        ),
        (
            {
                "resourceGroups": [
                    group(
                        [f"r{n}" for n in range(18)],
                        *(quotas(f"f{m}", **{f"r{n}": 1 for n in range(18)}) for m in range(30)),
                    )
                ]
            },
            [
                "spec.resourceGroups[0]: Invalid value: 540: flavors times coveredResources must be at "
                "most 512"
            ],
        ),
        (
            {
                "resourceGroups": [
                    group([f"r{n}"], *(quotas(f"f{n}-{m}", **{f"r{n}": 1}) for m in range(52)))
                    for n in range(5)
                ]
            },
            ["spec.resourceGroups: Too many: 260: must have at most 256 flavors in all groups"],
        ),
        (
            {
                "resourceGroups": [
                    group(
                        [f"r{n}-{m}" for m in range(52)],
                        quotas(f"f{n}", **{f"r{n}-{m}": 1 for m in range(52)}),
                    )
                    for n in range(5)
                ]
            },
            ["spec.resourceGroups: Too many: 260: must have at most 256 resources in all groups"],
        ),
        ({"borrowingLimitPercent": 0, "lendablePercent": 0}, []),
        ({"borrowingLimitPercent": 250, "lendablePercent": 100}, []),
        (
            {"borrowingLimitPercent": -1, "lendablePercent": 101},
            [
                "spec.borrowingLimitPercent: Invalid value: -1: must be greater than or equal to 0",
                "spec.lendablePercent: Invalid value: 101: must be between 0 and 100",
            ],
        ),
        ({"namespaceSelector": {}}, []),
        (
            {"namespaceSelector": {"matchLabels": {"a b": "c"}}},
            [f'spec.namespaceSelector.matchLabels: Invalid value: "a b": {_NAME}'],
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "?", "operator": "In"}]}},
            [
                f'spec.namespaceSelector.matchExpressions[0].key: Invalid value: "?": {_NAME}',
                "spec.namespaceSelector.matchExpressions: Invalid value: [\"? In\"]: In on label '?' "
                "needs values",
            ],
        ),
        (
            {
                "flavorFungibility": {
                    "whenCanBorrow": "TryNextFlavor",
                    "preference": "BorrowingOverPreemption",
                }
            },
            [],
        ),
        (
            {"flavorFungibility": {"preference": "BorrowingOverPreemption"}},
            [
                'spec.flavorFungibility.preference: Invalid value: "BorrowingOverPreemption": needs both '
                "whenCanBorrow and whenCanPreempt to be TryNextFlavor"
            ],
        ),
        (
            {"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}},
            [],
        ),
        (
            {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
            [
                'spec.preemption.borrowWithinCohort.policy: Invalid value: "LowerPriority": must be '
                "Never when "
                "reclaimWithinCohort is Never"
            ],
        ),
        ({"fairSharing": {"weight": 0}}, []),
        ({"fairSharing": {"weight": "2n"}}, []),
        (
            {"fairSharing": {"weight": "1n"}},
            ['spec.fairSharing.weight: Invalid value: "1n": must be 0 or greater than 1n'],
        ),
        (
            {"fairSharing": {"weight": -1}},
            ['spec.fairSharing.weight: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        (
            {
                "resourceGroups": _WITH_F,
                "admissionChecksStrategy": {
                    "admissionChecks": [{"name": "a"}, {"name": "b", "onFlavors": ["f"]}]
                },
            },
            [],
        ),
        (
            {
                "resourceGroups": _WITH_F,
                "admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f", "g"]}]},
            },
            [
                'spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]: Not found: "g": the '
                "ClusterQueue "
                "has no such flavor"
            ],
        ),
        (
            {
                "resourceGroups": _WITH_F,
                "concurrentAdmissionPolicy": {
                    "migration": {
                        "mode": "RetainFirstAdmission",
                        "constraints": {"lastAcceptableFlavorName": "g"},
                    }
                },
            },
            [
                "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName: Invalid "
                "value: "
                '"g": needs mode TryPreferredFlavors',
                "spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName: Not found: "
                '"g": the ClusterQueue has no such flavor',
            ],
        ),
    ],
)
def test_cluster_queue(spec: Manifest, expected: list[str]) -> None:
    assert texts(cluster_queue(**spec)) == expected


_POLICY = {"migration": {"mode": "TryPreferredFlavors"}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"resourceGroups": _WITH_F}, []),
        (
            {"queueingStrategy": "StrictFIFO"},
            [
                "spec.resourceGroups: Invalid value: 0: exactly one resource group is needed with "
                "concurrentAdmissionPolicy",
                'spec.queueingStrategy: Invalid value: "StrictFIFO": StrictFIFO cannot be used with '
                "concurrentAdmissionPolicy",
            ],
        ),
        (
            {"resourceGroups": [group(["cpu"], *(quotas(f"f{n}", cpu=1) for n in range(17)))]},
            [
                "spec.resourceGroups: Too many: 17: must have at most 16 flavors with "
                "concurrentAdmissionPolicy"
            ],
        ),
    ],
)
def test_concurrent_admission_needs_a_simple_queue(spec: Manifest, expected: list[str]) -> None:
    queue = cluster_queue(concurrentAdmissionPolicy=_POLICY, **spec)
    assert texts(queue, ConcurrentAdmission=True) == expected
    assert texts(queue) == []


def test_concurrent_admission_cannot_be_changed() -> None:
    immutable = ["spec.concurrentAdmissionPolicy: Forbidden: field is immutable"]
    plain, concurrent = cluster_queue(), cluster_queue(concurrentAdmissionPolicy=_POLICY)
    assert texts(concurrent, plain) == texts(plain, concurrent) == immutable
    assert texts(concurrent, concurrent) == []


def test_a_check_on_a_missing_flavor_is_let_be_while_nothing_about_it_changes() -> None:
    def queue(flavors: list[str], on: list[str], cohort: str = "a") -> Manifest:
        return cluster_queue(
            cohortName=cohort,
            resourceGroups=[group(["cpu"], *(quotas(name, cpu=1) for name in flavors))],
            admissionChecksStrategy={"admissionChecks": [{"name": "check", "onFlavors": on}]},
        )

    old = queue(["f"], ["gone"])
    wrong = [
        'spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Not found: "gone": the '
        "ClusterQueue has no "
        "such flavor"
    ]
    assert texts(old) == wrong
    assert texts(queue(["f"], ["gone"], cohort="b"), old) == []
    assert texts(queue(["f", "g"], ["gone"]), old) == wrong
    assert texts(queue(["f"], ["gone", "f"]), old) == wrong
    assert texts(queue(["f"], ["gone"]), old, RejectUpdatesToCQWithInvalidOnFlavors=True) == wrong


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"parentName": "A"}, [f'spec.parentName: Invalid value: "A": {_SUBDOMAIN}']),
        (
            {
                "resourceGroups": [
                    group(
                        ["cpu"], quotas("f", cpu={"nominalQuota": 1, "borrowingLimit": 1, "lendingLimit": 2})
                    )
                ]
            },
            [
                'spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: Invalid value: "1": must be '
                "unset when parentName is unset",
                'spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: "2": must '
                "be unset "
                "when parentName is unset",
            ],
        ),
        (
            {
                "parentName": "p",
                "resourceGroups": [group(["cpu"], quotas("f", cpu={"nominalQuota": 1, "lendingLimit": 2}))],
            },
            [],
        ),
        (
            {"fairSharing": {"weight": -1}},
            ['spec.fairSharing.weight: Invalid value: "-1": must be greater than or equal to 0'],
        ),
    ],
)
def test_cohort(spec: Manifest, expected: list[str]) -> None:
    assert texts(cohort(**spec)) == expected


def test_objects_in_v1beta1_are_judged_as_what_they_become() -> None:
    queue = cluster_queue(cohort="A") | {"apiVersion": V1BETA1}
    assert texts(queue) == [f'spec.cohortName: Invalid value: "A": {_SUBDOMAIN}']


def test_a_wrong_shape_is_one_error_that_names_the_field() -> None:
    assert texts(cluster_queue(resourceGroups=5)) == [
        "spec.resourceGroups: Invalid value: null: Expected `array`, got `int`"
    ]
    assert texts(flavor(nodeLabels={"a": 1})) == [
        "spec.nodeLabels[...]: Invalid value: null: Expected `str`, got `int`"
    ]
    (error,) = texts(cluster_queue(resourceGroups=[group(["cpu"], quotas("f", cpu="many"))]))
    assert error.startswith(
        "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: null: 'many' is not "
        "a quantity"
    )


def test_kinds_without_rules_are_right() -> None:
    queue = {
        "apiVersion": V1BETA2,
        "kind": "LocalQueue",
        "metadata": {"name": "l"},
        "spec": {"clusterQueue": "q"},
    }
    assert validate(queue) == []


def test_errors_are_worded_as_an_api_server_words_them() -> None:
    assert str(FieldError("a", INVALID, {"b": [1, None]}, "why")) == 'a: Invalid value: {"b": [1, null]}: why'
    assert str(FieldError("a", REQUIRED)) == "a: Required value"
    assert str(FieldError("a", FORBIDDEN, None, "why")) == "a: Forbidden: why"
    assert str(FieldError("a", TOO_LONG, None, "may not be more than 3 bytes")) == (
        "a: Too long: may not be more than 3 bytes"
    )
    assert FieldError("a", NOT_SUPPORTED, "x", 'supported values: "y"').cause() == {
        "reason": "FieldValueNotSupported",
        "field": "a",
        "message": 'Unsupported value: "x": supported values: "y"',
    }
    assert len(str(FieldError("a", INVALID, "x" * 10000))) < 600
