"""JobKinds: what compiles, and what is refused with which field named."""

from __future__ import annotations

from typing import Any

import pytest

from job_kind_manifests import job_kind
from pykueue.api.jobkinds import pod_count, pod_set_slots, shows
from pykueue.api.userkinds import JobKindError, compile_kind, schema_errors

Manifest = dict[str, Any]


def errors(manifest: Manifest) -> list[str]:
    with pytest.raises(JobKindError) as caught:
        compile_kind(manifest)
    return [str(error) for error in caught.value.errors]


def test_a_short_description_is_that_of_a_job_with_one_pod_set() -> None:
    kind = compile_kind(job_kind(succeeded={"condition": "Done"})).description
    assert (kind.framework, kind.resource.plural, kind.suspend) == (
        "example.com/widget",
        "widgets",
        ("spec", "suspend"),
    )
    job = {"spec": {"size": 3, "suspend": False, "template": {"spec": {}}}}
    (slot,) = pod_set_slots(job, kind)
    assert (slot.name, pod_count(slot.element, slot.paths, job)) == ("main", 3)
    assert shows(job, kind.ready), "a started job is ready where the description says nothing"
    assert kind.succeeded == ("Done",)


def test_a_pod_set_for_each_element_of_a_list() -> None:
    kind = compile_kind(
        job_kind(
            podSets=[
                {
                    "forEach": ".spec.groups",
                    "namePath": ".name",
                    "template": ".template",
                    "count": "element.size * self.spec.factor",
                }
            ]
        )
    ).description
    job = {"spec": {"factor": 2, "groups": [{"name": "A", "size": 2}, {"name": "b", "size": 5}]}}
    found = [(s.name, pod_count(s.element, s.paths, job)) for s in pod_set_slots(job, kind)]
    assert found == [("a", 4), ("b", 10)]


@pytest.mark.parametrize(
    "group",
    [
        "",
        "apps",
        "batch",
        "rbac.authorization.k8s.io",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "certificates.k8s.io",
        "kueue.x-k8s.io",
        "visibility.kueue.x-k8s.io",
        "pykueue.io",
        "config.pykueue.io",
    ],
)
def test_groups_that_decide_about_others_are_refused(group: str) -> None:
    manifest = job_kind(group=group)
    manifest["metadata"]["name"] = f"widgets.{group}"
    assert any(text.startswith("spec.group: ") for text in errors(manifest))


@pytest.mark.parametrize(
    "name", ["widgets", "widgets/status.example.com", "widgets.other.com", "*.example.com"]
)
def test_names_that_are_no_resource_of_the_group_are_refused(name: str) -> None:
    manifest = job_kind()
    manifest["metadata"]["name"] = name
    (text,) = errors(manifest)
    assert text.startswith("metadata.name: ")
    assert "widgets.example.com" in text


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"suspend": ".metadata.finalizers"}, "spec.suspend"),
        ({"suspend": ".status.suspend"}, "spec.suspend"),
        ({"suspend": ".spec"}, "spec.suspend"),
        ({"suspend": "spec.suspend"}, "spec.suspend"),
        ({"suspend": ".spec.a[0]"}, "spec.suspend"),
        ({"suspend": ".spec.*"}, "spec.suspend"),
        ({"suspend": ".spec." + "a" * 300}, "spec.suspend"),
        ({"managedBy": {"path": ".metadata.name"}}, "spec.managedBy.path"),
        ({"managedBy": {"path": ".spec.suspend"}}, "spec.suspend"),
        ({"suspend": ".spec.template.spec.suspend"}, "spec.suspend"),
        ({"podSets": [{"name": "m", "template": ".metadata"}]}, "spec.podSets[0].template"),
        ({"podSets": [{"name": "m", "template": ".spec"}]}, "spec.podSets[0].template"),
        (
            {"podSets": [{"forEach": ".status.x", "namePath": ".n", "template": ".t"}]},
            "spec.podSets[0].forEach",
        ),
        ({"podSets": [{"name": "m", "template": ".spec.t", "count": "1 +"}]}, "spec.podSets[0].count"),
        ({"podSets": [{"name": "m", "template": ".spec.t", "count": "'a'"}]}, "spec.podSets[0].count"),
        ({"podSets": [{"name": "m", "template": ".spec.t"}] * 2}, "spec.podSets[1].name"),
        ({"podSets": []}, "spec.podSets"),
        ({"podSets": "x"}, "spec.podSets"),
        ({"ready": {"condition": "Ready", "cel": "true"}}, "spec.ready"),
        ({"ready": {}}, "spec.ready"),
        ({"ready": {"path": ".status.x"}}, "spec.ready.values"),
        ({"ready": {"cel": "1"}}, "spec.ready.cel"),
        ({"failed": {"cel": "unknown == 1"}}, "spec.failed.cel"),
        ({"failed": {"cel": "self.a.all(x, self.a.all(y, x == y))"}}, "spec.failed.cel"),
        ({"failed": {"cel": "self.a" + ".map(x, x + x)" * 40 + ".size() > 1"}}, "spec.failed.cel"),
        ({"failed": {"cel": "true || " * 200 + "true"}}, "spec.failed.cel"),
        ({"podLabels": {"a/b/c": "x"}}, "spec.podLabels[a/b/c]"),
        ({"version": "../v1"}, "spec.version"),
        ({"kind": "pods/exec"}, "spec.kind"),
    ],
)
def test_wrong_fields_are_named(spec: Manifest, field: str) -> None:
    assert field in [text.partition(": ")[0] for text in errors(job_kind(**spec))]


SCHEMA: Manifest = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "suspend": {"type": "boolean"},
                "replicas": {"type": "integer"},
                "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "groups": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"n": {"type": "string"}}},
                },
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}


def test_paths_and_expressions_are_compared_with_the_schema() -> None:
    kind = compile_kind(
        job_kind(
            suspend=".spec.replicas",
            succeeded={"cel": "self.status.phase == 'Done'"},
            failed={"cel": "self.status.stage == 'Failed'"},
        )
    )
    assert [str(error) for error in schema_errors(kind, SCHEMA)] == [
        'spec.suspend: Invalid value: ".spec.replicas": is of type integer; accepted: boolean',
        "spec.podSets[0].count: Invalid value: \".spec.size\": .spec has no field 'size' in the schema of "
        "the kind; it has: groups, replicas, suspend, template",
        "spec.failed.cel: Invalid value: \"self\": the schema of the kind has no field 'stage'",
    ]


def test_a_template_of_another_shape_is_refused_by_the_schema() -> None:
    pod_sets = [{"forEach": ".spec.groups", "namePath": ".n", "template": ".n"}]
    (error,) = schema_errors(compile_kind(job_kind(podSets=pod_sets)), SCHEMA)
    assert str(error).endswith("is of type string; accepted: object")


def test_an_expression_over_too_much_has_no_result() -> None:
    kind = compile_kind(
        job_kind(
            failed={"cel": "self.status.pods.exists(p, p == 'x')"},
            podSets=[{"name": "m", "template": ".spec.t", "count": "size(self.spec.list)"}],
        )
    ).description
    job = {"status": {"pods": ["y"] * 5000 + ["x"]}, "spec": {"list": [1] * 5000}}
    (failed,) = kind.failed
    assert not isinstance(failed, str)
    assert not failed.holds(job)
    (slot,) = pod_set_slots(job, kind)
    with pytest.raises(ValueError, match="5000 characters or elements is read; at most 4096"):
        pod_count(slot.element, slot.paths, job)
