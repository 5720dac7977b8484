"""From manifests to typed objects and back."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.api import KINDS, DecodeError, batch, core, decode, decode_as, encode, kind_of, kueue
from pykueue.api.core import Taint, Toleration
from pykueue.api.kueue import V1BETA2
from pykueue.api.quantity import parse

Manifest = dict[str, Any]


def manifest(kind: str, **sections: Any) -> Manifest:
    return {"apiVersion": V1BETA2, "kind": kind, "metadata": {"name": "x", "namespace": "ns"}, **sections}


TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "creationTimestamp": None},
    "spec": {
        "containers": [
            {
                "name": "c",
                "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 2}},
                "securityContext": {"runAsUser": 5},
            }
        ],
        "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "overhead": {"cpu": "10m"},
        "nodeSelector": {"zone": "a"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                    ]
                }
            }
        },
        "tolerations": [{"key": "t", "operator": "Exists"}],
        "runtimeClassName": "r",
        "priorityClassName": "p",
        "schedulingGates": [{"name": "g"}],
    },
}


def test_a_workload() -> None:
    workload = decode(
        manifest(
            "Workload",
            spec={
                "podSets": [{"name": "a", "template": TEMPLATE, "count": 3}],
                "queueName": "q",
                "priority": 7,
            },
            status={"conditions": [{"type": "Admitted", "status": "True", "reason": "R", "message": ""}]},
        )
    )
    assert isinstance(workload, kueue.Workload)
    assert workload.metadata.key == "ns/x"
    assert (workload.spec.queue_name, workload.spec.priority, workload.spec.active) == ("q", 7, True)
    assert workload.condition_is("Admitted")
    assert not workload.condition_is("Finished")
    (pod_set,) = workload.spec.pod_sets
    assert pod_set.template == TEMPLATE, "nothing of the template is lost"
    spec = pod_set.pod_template.spec
    assert spec.containers[0].resources.requests == {"cpu": parse("0.5"), "memory": parse("1Gi")}
    assert spec.containers[0].resources.limits == {"nvidia.com/gpu": parse(2)}
    assert spec.init_containers[0].restart_policy == "Always"
    assert spec.overhead == {"cpu": parse("10m")}
    assert spec.node_selector == {"zone": "a"}
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    assert spec.affinity.node_affinity.required is not None
    (term,) = spec.affinity.node_affinity.required.node_selector_terms
    assert term.match_expressions[0].values == ["v"]
    assert spec.tolerations[0].operator == "Exists"
    assert (spec.runtime_class_name, spec.priority_class_name) == ("r", "p")
    assert spec.scheduling_gates[0].name == "g"
    assert pod_set.pod_template is pod_set.pod_template, "decoded once"


def test_a_job() -> None:
    job = decode(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": TEMPLATE}}
    )
    assert isinstance(job, batch.Job)
    assert job.spec.template == TEMPLATE
    assert job.spec.pod_template.spec.node_selector == {"zone": "a"}


def test_nulls_stand_for_absent_fields() -> None:
    queue = decode(
        manifest("ClusterQueue", spec={"cohortName": None, "resourceGroups": None, "preemption": None})
    )
    assert isinstance(queue, kueue.ClusterQueue)
    assert queue.spec == kueue.ClusterQueueSpec()


def test_unknown_fields_are_ignored() -> None:
    queue = decode(manifest("LocalQueue", spec={"clusterQueue": "q", "future": {"x": 1}}, other=1))
    assert isinstance(queue, kueue.LocalQueue)
    assert queue.spec.cluster_queue == "q"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            manifest("Workload", spec={"priority": "high"}),
            "Workload ns/x: spec.priority: Expected `int | null`, got `str`",
        ),
        (
            manifest("ClusterQueue", spec={"stopPolicy": "Maybe"}),
            "ClusterQueue ns/x: spec.stopPolicy: Invalid enum value 'Maybe'",
        ),
        (manifest("AdmissionCheck"), "AdmissionCheck ns/x: Object missing required field `spec`"),
        (
            manifest("Cohort", spec={"fairSharing": {"weight": "much"}}),
            "Cohort ns/x: spec.fairSharing.weight: 'much' is not a quantity: a number is accepted, with "
            "a suffix "
            "n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": []},
            "Pod p-: spec: Expected `object`, got `array`",
        ),
        (
            {"apiVersion": "v2", "kind": "Pod"},
            "Pod (no name): no type for apiVersion 'v2', kind 'Pod'",
        ),
        ({}, "object (no name): no type for apiVersion None, kind None"),
        ({"apiVersion": [], "kind": {}}, "object (no name): no type for apiVersion [], kind {}"),
    ],
)
def test_errors_name_the_object_and_the_field(source: Manifest, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(source)
    assert str(caught.value) == message


def test_what_is_no_object_is_an_error() -> None:
    with pytest.raises(DecodeError, match=r"^object: Expected `object`, got `int`$"):
        decode_as(core.Pod, 5)


def test_written_back_without_defaults() -> None:
    admission = kueue.Admission(
        cluster_queue="q",
        pod_set_assignments=[
            kueue.PodSetAssignment(
                name="a", flavors={"cpu": "f"}, resource_usage={"cpu": parse("1500m")}, count=0
            )
        ],
    )
    written = {
        "clusterQueue": "q",
        "podSetAssignments": [
            {"name": "a", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1500m"}, "count": 0}
        ],
    }
    assert encode(admission) == written
    assert decode_as(kueue.Admission, written) == admission


def test_kinds_know_their_names() -> None:
    assert kind_of(kueue.Workload) == "Workload"
    assert kind_of(decode(manifest("Cohort"))) == "Cohort"
    assert all(kind == type.__name__ for (_, kind), type in KINDS.items())


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerates"),
    [
        ({"operator": "Exists"}, ("a", "b", "NoSchedule"), True),
        ({"key": "a", "operator": "Exists"}, ("a", "b", "NoSchedule"), True),
        ({"key": "a", "operator": "Exists"}, ("c", "b", "NoSchedule"), False),
        ({"key": "a", "value": "b"}, ("a", "b", "NoSchedule"), True),
        ({"key": "a", "operator": "Equal", "value": "x"}, ("a", "b", "NoSchedule"), False),
        ({"key": "a", "value": "b", "effect": "NoExecute"}, ("a", "b", "NoSchedule"), False),
        ({"key": "a", "operator": "Like", "value": "b"}, ("a", "b", "NoSchedule"), False),
        ({}, ("a", "", "NoSchedule"), False),
    ],
)
def test_tolerations(toleration: Manifest, taint: tuple[str, str, str], tolerates: bool) -> None:
    key, value, effect = taint
    assert (
        decode_as(Toleration, toleration).tolerates(Taint(key=key, value=value, effect=effect)) is tolerates
    )
