"""Rules of the Workload's admission webhook, with their texts. docs/reference/kueue-api.md 1.6."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api.kueue import V1BETA2
from pykueue.api.validation import validate

Manifest = dict[str, Any]

_GATED = "kueue.x-k8s.io/admission-gated-by"
_BOOST = "kueue.x-k8s.io/priority-boost"
_ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


def pod_set(name: str = "main", count: int = 1, template: Manifest | None = None, **fields: Any) -> Manifest:
    return {"name": name, "count": count, "template": template or {"spec": {"containers": []}}, **fields}


def condition(type: str, status: str = "True") -> Manifest:
    return {"type": type, "status": status, "reason": "R", "message": ""}


def assignment(name: str = "main", **fields: Any) -> Manifest:
    return {"name": name, **fields}


def workload(
    *pod_sets: Manifest,
    annotations: Manifest | None = None,
    reserved: bool = False,
    admitted: bool = False,
    status: Manifest | None = None,
    **spec: Any,
) -> Manifest:
    conditions = [condition("QuotaReserved")] * reserved + [condition("Admitted")] * admitted
    held: Manifest = {"conditions": conditions}
    if reserved:
        held["admission"] = {"clusterQueue": "q", "podSetAssignments": [assignment()]}
    return {
        "apiVersion": V1BETA2,
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns", "annotations": annotations or {}},
        "spec": {"podSets": list(pod_sets or [pod_set()]), "queueName": "l", **spec},
        "status": {**held, **(status or {})},
    }


def texts(manifest: Manifest, old: Manifest | None = None, **gates: bool) -> list[str]:
    return [str(error) for error in validate(manifest, old, gates)]


def template(**spec: Any) -> Manifest:
    return {"spec": {"containers": [], **spec}}


def container(**resources: Any) -> Manifest:
    return {"name": "c", "resources": resources}


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (workload(), []),
        (workload(pod_set("a", 3, minCount=3), pod_set("b")), []),
        (
            workload(pod_set("a", 3, minCount=4)),
            ["spec.podSets[0].minCount: Invalid value: 4: must not exceed count 3"],
        ),
        (
            workload(pod_set("a", 3, minCount=1), pod_set("b", 3, minCount=1)),
            ["spec.podSets: Invalid value: 2: at most one podSet can use minCount"],
        ),
        (workload(pod_set("a"), pod_set("a")), ['spec.podSets[1].name: Duplicate value: "a"']),
        (
            workload(pod_set("a", 3, minCount=1), annotations=_ELASTIC),
            ["spec.podSets[0].minCount: Forbidden: cannot be used with elastic jobs"],
        ),
        (
            workload(priorityClassRef={"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "p"}),
            ["spec.priority: Required value: is needed with priorityClassRef"],
        ),
        (
            workload(reserved=True, status={"admission": None}),
            ["status.admission: Required value: is needed while QuotaReserved is True"],
        ),
        (
            workload(
                reserved=True,
                status={"admission": {"clusterQueue": "q", "podSetAssignments": [assignment("x", count=2)]}},
            ),
            ['status.admission.podSetAssignments[0].name: Not found: "x": no such podSet in the spec'],
        ),
        (
            workload(
                pod_set(count=3),
                reserved=True,
                status={
                    "admission": {
                        "clusterQueue": "q",
                        "podSetAssignments": [
                            assignment(resourceUsage={"cpu": "1", "memory": "9", "gpu": "4"}),
                        ],
                    }
                },
            ),
            [
                'status.admission.podSetAssignments[0].resourceUsage[cpu]: Invalid value: "1": must be '
                "divisible "
                "by the count 3",
                'status.admission.podSetAssignments[0].resourceUsage[gpu]: Invalid value: "4": must be '
                "divisible "
                "by the count 3",
            ],
        ),
        (
            workload(
                pod_set(count=3),
                reserved=True,
                status={
                    "admission": {
                        "clusterQueue": "q",
                        "podSetAssignments": [assignment(count=2, resourceUsage={"cpu": "1", "memory": "8"})],
                    }
                },
            ),
            [],
        ),
        (
            workload(
                pod_set("b", 2),
                pod_set("a"),
                status={"reclaimablePods": [{"name": "x", "count": 1}, {"name": "b", "count": 3}]},
            ),
            [
                'status.reclaimablePods[0].name: Not found: "x": the podSets are a, b',
                "status.reclaimablePods[1].count: Invalid value: 3: must not exceed the count 2 of the "
                "podSet",
            ],
        ),
        (
            workload(annotations=_ELASTIC, status={"reclaimablePods": [{"name": "main", "count": 3}]}),
            [],
        ),
        (
            workload(
                status={
                    "admissionChecks": [
                        {
                            "name": "c",
                            "state": "Ready",
                            "podSetUpdates": [
                                {"name": "main", "labels": {"a": "b"}},
                                {
                                    "name": "x",
                                    "labels": {"a": "!"},
                                    "annotations": {"/": ""},
                                    "nodeSelector": {"": "b"},
                                    "tolerations": [{"operator": "Like"}],
                                },
                            ],
                        }
                    ]
                }
            ),
            [
                'status.admissionChecks[0].podSetUpdates[1].name: Not found: "x": no such podSet in the spec',
                'status.admissionChecks[0].podSetUpdates[1].labels: Invalid value: "!": a valid label '
                "must be "
                "empty or consist of letters, digits, '-', '_' and '.', and begin and end with a letter "
                "or digit "
                "(for example 'my_value')",
                'status.admissionChecks[0].podSetUpdates[1].annotations: Invalid value: "/": prefix part '
                "must be "
                "non-empty",
                'status.admissionChecks[0].podSetUpdates[1].nodeSelector: Invalid value: "": name part '
                "must be "
                "non-empty",
                "status.admissionChecks[0].podSetUpdates[1].tolerations[0].operator: Invalid value: "
                '"Like": must '
                "be Exists when key is empty",
                "status.admissionChecks[0].podSetUpdates[1].tolerations[0].operator: Unsupported value: "
                '"Like": '
                'supported values: "Equal", "Exists"',
            ],
        ),
        (
            workload(status={"clusterName": "a", "nominatedClusterNames": ["a", "b"]}),
            [
                'status.clusterName: Invalid value: "a": clusterName and nominatedClusterNames are mutually '
                "exclusive"
            ],
        ),
    ],
)
def test_an_object(manifest: Manifest, expected: list[str]) -> None:
    assert texts(manifest) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("a.b/c", []),
        ("a.b/c,a.b/d", []),
        ("a.b/c,,a.b/d", ['Invalid value: "a.b/c,,a.b/d": gate names must not be empty']),
        (" a.b/c", ['Invalid value: " a.b/c": gate names must not contain blanks']),
        ("a.b/c,a.b/c", ['Duplicate value: "a.b/c"']),
        ("plain", ['Invalid value: "plain": a gate is named domain/path, as example.com/gate']),
        ("a.b/!", ['Invalid value: "a.b/!": a gate is named domain/path, as example.com/gate']),
        (
            "a.b/" + "c" * 60,
            [f'Invalid value: "a.b/{"c" * 60}": gate names have at most 63 characters'],
        ),
    ],
)
def test_names_of_admission_gates(value: str, expected: list[str]) -> None:
    manifest = workload(annotations={_GATED: value})
    assert texts(manifest) == [f"metadata.annotations[{_GATED}]: {text}" for text in expected]
    assert texts(manifest, AdmissionGatedBy=False) == []


def test_admission_gates_can_only_be_taken_away() -> None:
    both, one, none = (workload(annotations={_GATED: value}) for value in ("a.b/c,a.b/d", "a.b/d", ""))
    assert texts(one, both) == texts(none, both) == texts(workload(), both) == texts(one, one) == []
    assert texts(both, one) == [
        f"metadata.annotations[{_GATED}]: Forbidden: gates can only be removed after creation; added: a.b/c"
    ]
    assert texts(one, workload()) == [
        f"metadata.annotations[{_GATED}]: Forbidden: gates can only be removed after creation; added: a.b/d"
    ]


@pytest.mark.parametrize("value", ["", "x", "1.5", "2147483648", "-2147483649", " 1", "1e3", "٣", "9" * 30])
def test_a_priority_boost_is_an_integer(value: str) -> None:
    manifest = workload(annotations={_BOOST: value})
    (text,) = texts(manifest, PriorityBoost=True)
    assert text.startswith(f"metadata.annotations[{_BOOST}]: Invalid value: ")
    assert text.endswith(": must be a signed 32-bit integer")
    assert texts(manifest) == []


@pytest.mark.parametrize("value", ["0", "-5", "+7", "2147483647", "-2147483648"])
def test_integers_are_priority_boosts(value: str) -> None:
    assert texts(workload(annotations={_BOOST: value}), PriorityBoost=True) == []


@pytest.mark.parametrize(
    ("pod_template", "expected"),
    [
        (
            template(containers=[container(requests={"cpu": "-1", "pods": 1}, limits={"memory": "-1Gi"})]),
            [
                'containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or '
                "equal to 0",
                'containers[0].resources.requests[pods]: Invalid value: "pods": the resource name pods is '
                "reserved for counting pods",
                'containers[0].resources.limits[memory]: Invalid value: "-1Gi": must be greater than or '
                "equal "
                "to 0",
            ],
        ),
        (
            template(initContainers=[container(), container(limits={"pods": 1})]),
            [
                'initContainers[1].resources.limits[pods]: Invalid value: "pods": the resource name pods is '
                "reserved for counting pods"
            ],
        ),
        (
            template(resources={"requests": {"cpu": "-1m"}}),
            ['resources.requests[cpu]: Invalid value: "-1m": must be greater than or equal to 0'],
        ),
    ],
)
def test_amounts_in_templates(pod_template: Manifest, expected: list[str]) -> None:
    manifest = workload(pod_set(template=pod_template))
    assert texts(manifest) == [f"spec.podSets[0].template.spec.{text}" for text in expected]
    assert texts(manifest, WorkloadValidateResourcesAreNonNegative=False) == []


def test_metadata_of_templates() -> None:
    manifest = workload(
        pod_set(template={"metadata": {"labels": {"/a": "b"}, "annotations": {"a/": "x" * 262144}}})
    )
    assert texts(manifest) == [
        'spec.podSets[0].template.metadata.labels: Invalid value: "/a": prefix part must be non-empty',
        'spec.podSets[0].template.metadata.annotations: Invalid value: "a/": name part must be non-empty',
        "spec.podSets[0].template.metadata.annotations: Too long: may not be more than 262144 bytes",
    ]
    assert texts(manifest, WorkloadValidationForPodSetMetadata=False) == []


def test_a_template_of_the_wrong_shape_is_an_error() -> None:
    assert texts(workload(pod_set(template={"spec": {"containers": 5}}))) == [
        "spec.podSets[0].template: Invalid value: null: spec.containers: Expected `array`, got `int`"
    ]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}, []),
        (
            {"podSetSliceRequiredTopology": "rack"},
            ["podSetSliceSize: Required value: is needed with podSetSliceRequiredTopology"],
        ),
        (
            {"podSetSliceSize": 0},
            [
                "podSetSliceRequiredTopology: Required value: is needed with podSetSliceSize",
                "podSetSliceSize: Invalid value: 0: must be greater than or equal to 1",
            ],
        ),
        (
            {
                "podsetSliceRequiredTopologyConstraints": [
                    {"topology": "a", "size": 2},
                    {"topology": "b", "size": 0},
                ]
            },
            [
                "podsetSliceRequiredTopologyConstraints[1].size: Invalid value: 0: must be greater than "
                "or equal "
                "to 1"
            ],
        ),
    ],
)
def test_slices(request_: Manifest, expected: list[str]) -> None:
    manifest = workload(pod_set(topologyRequest=request_))
    assert texts(manifest) == [f"spec.podSets[0].topologyRequest.{text}" for text in expected]
    assert texts(manifest, TASValidateWorkloadSliceSize=False) == []


_POD_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "p"}
_CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"priority": 1}, {"priority": 2}, []),
        ({"active": True}, {"active": False}, []),
        ({"queueName": "a"}, {"queueName": "b"}, ['queueName: Invalid value: "b": field is immutable']),
        (
            {},
            {"priorityClassRef": _CLASS, "priority": 1},
            ["priorityClassRef: Forbidden: field is immutable"],
        ),
        (
            {"priorityClassRef": _CLASS, "priority": 1},
            {},
            ["priorityClassRef: Forbidden: field is immutable"],
        ),
        (
            {"priorityClassRef": _CLASS, "priority": 1},
            {"priorityClassRef": {**_CLASS, "name": "q"}, "priority": 1},
            [],
        ),
        (
            {"priorityClassRef": _POD_CLASS, "priority": 1},
            {"priorityClassRef": {**_POD_CLASS, "name": "q"}, "priority": 1},
            ['priorityClassRef.name: Invalid value: "q": field is immutable'],
        ),
        (
            {"priorityClassRef": _POD_CLASS, "priority": 1},
            {"priorityClassRef": _CLASS, "priority": 1},
            [
                'priorityClassRef.group: Invalid value: "kueue.x-k8s.io": field is immutable',
                'priorityClassRef.kind: Invalid value: "WorkloadPriorityClass": field is immutable',
            ],
        ),
    ],
)
def test_changes_of_the_spec_while_quota_is_reserved(
    before: Manifest, after: Manifest, expected: list[str]
) -> None:
    held = texts(workload(reserved=True, **after), workload(reserved=True, **before))
    assert held == [f"spec.{text} while quota is reserved" for text in expected]
    assert texts(workload(**after), workload(**before)) == []
    assert texts(workload(**after), workload(reserved=True, **before)) == []
    assert texts(workload(reserved=True, **after), workload(**before)) == []


@pytest.mark.parametrize(
    "after",
    [
        [pod_set(count=2)],
        [pod_set(), pod_set("b")],
        [pod_set(template=template(nodeName="n"))],
        [pod_set("other")],
    ],
)
def test_pod_sets_are_fixed_once_quota_was_reserved(after: list[Manifest]) -> None:
    immutable = ["spec.podSets: Forbidden: field is immutable while quota is reserved"]
    old = workload(reserved=True)
    assert texts(workload(*after), old) == immutable
    assert texts(workload(*after), workload()) == []
    assert texts(workload(), old) == []


def test_a_typed_client_writes_the_same_template_in_other_words() -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000m"}}, "stdin": False}
    terse = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    other = {**container, "resources": {"requests": {"cpu": "1"}, "limits": {}}, "stdin": None, "args": []}
    wordy = {
        "metadata": {"creationTimestamp": None},
        "spec": {"restartPolicy": "Never", "containers": [other], "securityContext": {}, "nodeName": ""},
    }
    old = workload(pod_set(template=terse), reserved=True)
    assert texts(workload(pod_set(template=wordy), reserved=True), old) == []
    other["resources"]["requests"]["cpu"] = "1001m"
    assert texts(workload(pod_set(template=wordy), reserved=True), old) != []


def test_elastic_workloads_may_shrink() -> None:
    def elastic(count: int, **fields: Any) -> Manifest:
        return workload(pod_set(count=count, **fields), annotations=_ELASTIC, reserved=True)

    immutable = ["spec.podSets: Forbidden: field is immutable while quota is reserved"]
    assert texts(elastic(2), elastic(3)) == []
    assert texts(elastic(3), elastic(2)) == immutable
    assert texts(elastic(2, template=template(nodeName="n")), elastic(3)) == immutable
    assert texts(elastic(2), elastic(3), ElasticJobsViaWorkloadSlices=False) == immutable


def test_the_maximum_time_is_fixed_while_admitted() -> None:
    def running(seconds: int | None, admitted: bool = True) -> Manifest:
        return workload(reserved=True, admitted=admitted, maximumExecutionTimeSeconds=seconds)

    wrong = "spec.maximumExecutionTimeSeconds: Invalid value: {}: field is immutable while admitted"
    assert texts(running(2), running(1)) == [wrong.format(2)]
    assert texts(running(None), running(1)) == [wrong.format("null")]
    assert texts(running(2, admitted=False), running(1, admitted=False)) == []
    assert texts(running(1), running(1)) == []


def test_an_admission_can_be_set_and_cleared_but_not_changed() -> None:
    def admission(queue: str = "q", **fields: Any) -> Manifest:
        return {"admission": {"clusterQueue": queue, "podSetAssignments": [assignment(**fields)]}}

    def held(**fields: Any) -> Manifest:
        return workload(reserved=True, status=admission(**fields))

    topology = {"levels": ["rack"], "slices": []}
    assert texts(held(), workload()) == []
    assert texts(workload(), held()) == []
    assert texts(held(queue="other"), held()) == ["status.admission: Forbidden: field is immutable"]
    assert len(texts(held(flavors={"cpu": "f"}), held(flavors={"cpu": "g"}))) == 1
    assert texts(held(topologyAssignment=topology), held(delayedTopologyRequest="Pending")) == []
    assert len(texts(held(topologyAssignment=topology), held(), TopologyAwareScheduling=False)) == 1


def test_a_split_pod_set_may_get_other_flavors_and_shrink_but_not_grow() -> None:
    def held(*pods: int) -> Manifest:
        flavors = {"individual": {"roots": ["reserved", "spot"][: len(pods)]}}
        part = {
            "domainCount": len(pods),
            "valuesPerLevel": [flavors],
            "podCounts": {"individual": list(pods)},
        }
        split = assignment(
            flavors={"cpu": "reserved"},
            count=sum(pods),
            resourceUsage={"cpu": str(sum(pods))},
            topologyAssignment={"levels": ["pykueue.io/flavor"], "slices": [part]},
        )
        admission = {"clusterQueue": "q", "podSetAssignments": [split]}
        return workload(pod_set(count=8), reserved=True, status={"admission": admission})

    assert texts(held(3, 3), held(4, 2)) == []
    assert texts(held(4), held(4, 2)) == []
    assert texts(held(4, 4), held(4, 2)) == [
        "status.admission.podSetAssignments[0].count: Invalid value: 8: a pod set that is split over flavors "
        "may only shrink while quota is reserved"
    ]


def test_a_reservation_without_admission_is_let_be_where_it_was_so() -> None:
    broken = workload(reserved=True, status={"admission": None})
    assert texts(broken, broken) == []
    assert len(texts(broken, workload(reserved=True))) == 1


def test_reclaimed_pods_stay_reclaimed_while_quota_is_reserved() -> None:
    def reclaiming(count: int | None, reserved: bool = True) -> Manifest:
        pods = [] if count is None else [{"name": "main", "count": count}]
        return workload(pod_set(count=3), reserved=reserved, status={"reclaimablePods": pods})

    assert texts(reclaiming(2), reclaiming(1)) == []
    assert texts(reclaiming(1), reclaiming(2)) == [
        "status.reclaimablePods[main].count: Invalid value: 1: cannot be less than 2 while quota is reserved"
    ]
    assert texts(reclaiming(None), reclaiming(2)) == [
        "status.reclaimablePods[main]: Required value: cannot be removed while quota is reserved"
    ]
    assert texts(reclaiming(None, reserved=False), reclaiming(2)) == []


def test_updates_of_a_check_are_fixed_while_it_is_ready() -> None:
    def checked(state: str, **labels: str) -> Manifest:
        updates = [{"name": "main", "labels": labels}]
        return workload(status={"admissionChecks": [{"name": "c", "state": state, "podSetUpdates": updates}]})

    assert texts(checked("Ready", a="1"), checked("Pending")) == []
    assert texts(checked("Pending"), checked("Ready", a="1")) == []
    assert texts(checked("Ready", a="2"), checked("Ready", a="1")) == [
        "status.admissionChecks[0].podSetUpdates: Forbidden: field is immutable while the check is Ready"
    ]


def test_a_cluster_is_chosen_once_from_the_nominated_ones() -> None:
    def on(cluster: str | None = None, *nominated: str, annotations: Manifest | None = None) -> Manifest:
        status: Manifest = {"nominatedClusterNames": list(nominated)}
        if cluster:
            status["clusterName"] = cluster
        return workload(annotations=annotations, status=status)

    assert texts(on("a"), on(None, "a", "b")) == []
    assert texts(on(), on("a")) == []
    assert texts(on("b"), on("a")) == ['status.clusterName: Invalid value: "b": field is immutable']
    assert texts(on("c"), on(None, "a", "b")) == [
        'status.clusterName: Invalid value: "c": must be one of the nominatedClusterNames before'
    ]
    replacement = {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/w"}
    assert texts(on("c", annotations=replacement), on(annotations=replacement)) == []
