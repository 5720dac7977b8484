"""OpenAPI documents: what kubectl looks for in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pykueue.embedded.apiserver.crd.structural import custom_schema
from pykueue.embedded.apiserver.discovery.openapi import v2_document, v3_document
from pykueue.embedded.kinds.base import SCALE, STATUS, Kind
from pykueue.embedded.objects.protobuf import wire_fields
from pykueue.embedded.schema.builtin import builtin_schema


class Job(Kind):
    group, kind, plural, subresources = "batch", "Job", "jobs", (STATUS,)


class Thing(Kind):
    group, kind, plural, namespaced, subresources = "example.com", "Thing", "things", False, (STATUS, SCALE)


class Review(Kind):
    group, kind, plural, verbs = "batch", "Review", "reviews", ("create",)


THING: dict[str, Any] = {
    "type": "object",
    "description": "A thing.",
    "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "nullable": True}}}},
}


@pytest.fixture(scope="module")
def batch() -> dict[str, Any]:
    return v3_document("batch", "v1", [(Job(), builtin_schema("batch", "v1", "Job"))])


@pytest.fixture(scope="module")
def custom() -> dict[str, Any]:
    schema = custom_schema("example.com", "v1", "Thing", False, THING)
    return v3_document("example.com", "v1", [(Thing(), schema)])


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_reference_leads_somewhere(batch: dict[str, Any], custom: dict[str, Any]) -> None:
    for document in (batch, custom):
        names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(references(document)) <= names
        assert json.loads(json.dumps(document)) == document


def test_the_patch_operation_tells_what_the_server_can(batch: dict[str, Any], custom: dict[str, Any]) -> None:
    jobs = batch["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]
    operation = jobs["patch"]
    assert operation["x-kubernetes-group-version-kind"] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert "fieldValidation" in [one["name"] for one in operation["parameters"]]
    assert "application/strategic-merge-patch+json" in operation["requestBody"]["content"]
    things = custom["paths"]["/apis/example.com/v1/things/{name}"]["patch"]["requestBody"]["content"]
    assert sorted(things) == [
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ]


def test_paths_follow_verbs_and_scope(batch: dict[str, Any], custom: dict[str, Any]) -> None:
    assert sorted(batch["paths"]) == [
        "/apis/batch/v1/jobs",
        "/apis/batch/v1/namespaces/{namespace}/jobs",
        "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
        "/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status",
    ]
    assert sorted(custom["paths"]) == [
        "/apis/example.com/v1/things",
        "/apis/example.com/v1/things/{name}",
        "/apis/example.com/v1/things/{name}/status",
    ]
    assert sorted(custom["paths"]["/apis/example.com/v1/things/{name}/status"]) == [
        "get",
        "parameters",
        "patch",
        "put",
    ]


def test_kinds_that_can_only_be_created(batch: dict[str, Any]) -> None:
    schema = custom_schema("batch", "v1", "Review", True, None)
    document = v3_document("batch", "v1", [(Review(), schema)])
    (path,) = document["paths"]
    assert sorted(document["paths"][path]) == ["parameters", "post"]


def test_built_in_schemas_are_published_undistorted(batch: dict[str, Any]) -> None:
    schemas = batch["components"]["schemas"]
    container = schemas["io.k8s.api.core.v1.Container"]["properties"]
    assert container["image"]["type"] == "string"
    assert container["ports"]["x-kubernetes-patch-merge-key"] == "containerPort"
    assert container["resources"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.api.core.v1.ResourceRequirements"}
    ]
    assert schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] == {
        "format": "int-or-string",
        "oneOf": [{"type": "string"}, {"type": "integer"}],
    }
    assert schemas["io.k8s.api.batch.v1.JobList"]["properties"]["items"]["items"] == {
        "allOf": [{"$ref": "#/components/schemas/io.k8s.api.batch.v1.Job"}]
    }
    assert '"null"' not in json.dumps([schema.get("type") for schema in schemas.values()])


def test_custom_schemas_have_what_every_object_has(custom: dict[str, Any]) -> None:
    thing = custom["components"]["schemas"]["com.example.v1.Thing"]
    assert thing["description"] == "A thing."
    assert thing["x-kubernetes-group-version-kind"] == [
        {"group": "example.com", "version": "v1", "kind": "Thing"}
    ]
    assert sorted(thing["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
    assert thing["properties"]["spec"] == THING["properties"]["spec"]


def test_the_smallest_second_version() -> None:
    fields = {number: bytes(value) for number, _, value in wire_fields(memoryview(v2_document()))}  # type: ignore[arg-type]
    assert fields[1] == b"2.0"
    assert fields[8] == b""
    info = {number: bytes(value) for number, _, value in wire_fields(memoryview(fields[2]))}  # type: ignore[arg-type]
    assert info[1] == b"Kubernetes"
