"""Built-in kinds: strict types, unknown fields, nulls and quantities as Go reads them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykueue.api.cel.node import Node
from pykueue.embedded.schema.builtin import BuiltinSchema, builtin_schema
from pykueue.embedded.schema.definitions import definitions
from pykueue.embedded.schema.walk import path_text

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
    "spec": {
        "parallelism": 3,
        "suspend": True,
        "template": {
            "metadata": {"labels": {"app": "j"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "c",
                        "image": "busybox",
                        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
                        "readinessProbe": {"httpGet": {"port": "http"}},
                    }
                ],
            },
        },
    },
}


def job(**container: Any) -> dict[str, Any]:
    obj = copy.deepcopy(JOB)
    obj["spec"]["template"]["spec"]["containers"][0].update(container)
    return obj


@pytest.fixture(scope="module")
def schema() -> BuiltinSchema:
    return builtin_schema("batch", "v1", "Job")


def test_an_ordinary_job_comes_back_itself(schema: BuiltinSchema) -> None:
    assert schema.prepare(JOB)[0] is JOB
    assert schema.validate(JOB) == []


def test_unknown_fields(schema: BuiltinSchema) -> None:
    obj = job(foo=1)
    obj["spec"]["zzz"] = 1
    prepared, unknown = schema.prepare(obj)
    assert sorted(unknown) == ["spec.template.spec.containers[0].foo", "spec.zzz"]
    assert prepared == JOB


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ({"cpu": 1}, {"cpu": "1"}),
        ({"cpu": 0.5}, {"cpu": "500m"}),
        ({"cpu": "0.5", "memory": "1.5Gi"}, {"cpu": "500m", "memory": "1536Mi"}),
        ({"cpu": "1000m"}, {"cpu": "1"}),
        ({"example.com/gpu": "2000"}, {"example.com/gpu": "2k"}),
        ({"memory": "1e3"}, {"memory": "1e3"}),
        ({"cpu": "0"}, {"cpu": "0"}),
    ],
)
def test_quantities_are_canonical(schema: BuiltinSchema, written: Any, stored: Any) -> None:
    prepared, unknown = schema.prepare(job(resources={"requests": written}))
    assert prepared["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] == stored
    assert (schema.validate(prepared), unknown) == ([], [])


def test_a_time_that_is_null_is_absent(schema: BuiltinSchema) -> None:
    """As kubectl and other clients in Go write templates; `rollout undo` finds the revision again."""
    obj = copy.deepcopy(JOB)
    obj["metadata"]["creationTimestamp"] = None
    obj["spec"]["template"]["metadata"]["creationTimestamp"] = None
    prepared, unknown = schema.prepare(obj)
    assert (prepared, unknown) == (JOB, [])


def test_nulls_are_absent_as_in_go(schema: BuiltinSchema) -> None:
    obj = job(env=None, resources={"requests": {"cpu": None}}, readinessProbe={"httpGet": {"port": None}})
    obj["spec"]["suspend"] = None
    obj["metadata"]["annotations"] = {"empty": None}
    prepared, _ = schema.prepare(obj)
    assert "suspend" not in prepared["spec"]
    assert prepared["metadata"]["annotations"] == {"empty": ""}
    assert [cause.field for cause in schema.validate(prepared)] == [
        "spec.template.spec.containers[0].readinessProbe.httpGet.port"
    ]


@pytest.mark.parametrize(
    ("container", "field"),
    [
        ({"env": [{"name": "A", "value": 1}]}, "env[0].value"),
        ({"env": {"A": "1"}}, "env"),
        ({"resources": {"requests": {"cpu": "much"}}}, "resources.requests.cpu"),
        ({"resources": {"requests": {"cpu": True}}}, "resources.requests.cpu"),
        ({"ports": [{"containerPort": "80"}]}, "ports[0].containerPort"),
        ({"ports": [{"containerPort": 2**40}]}, "ports[0].containerPort"),
        ({"ports": [{}]}, "ports[0].containerPort"),
        ({"readinessProbe": {"httpGet": {"port": 1.5}}}, "readinessProbe.httpGet.port"),
        ({"name": None}, "name"),
    ],
)
def test_wrong_types_name_the_field(schema: BuiltinSchema, container: Any, field: str) -> None:
    prepared, _ = schema.prepare(job(**container))
    assert [cause.field for cause in schema.validate(prepared)] == [
        f"spec.template.spec.containers[0].{field}"
    ]


def test_a_boolean_label_value_is_refused(schema: BuiltinSchema) -> None:
    obj = job()
    obj["metadata"]["labels"]["on"] = True
    causes = schema.validate(schema.prepare(obj)[0])
    assert [(cause.field, cause.reason) for cause in causes] == [
        ("metadata.labels.on", "FieldValueTypeInvalid")
    ]


def test_a_status_may_lack_what_is_zero() -> None:
    pods = builtin_schema("", "v1", "Pod")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"containerStatuses": [{"name": "c"}]},
    }
    assert pods.validate(pods.prepare(pod)[0]) == []
    assert pods.validate(pods.prepare({**pod, "spec": {}})[0])[0].field == "spec.containers"


def test_embedded_json_is_left_alone() -> None:
    schema = builtin_schema("apps", "v1", "ControllerRevision")
    obj = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "r"},
        "revision": 1,
        "data": {"anything": [None, {"x": 1.0}]},
    }
    assert schema.prepare(obj) == (obj, [])


def test_recursive_schemas() -> None:
    schema = builtin_schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    inner = {"type": "object", "properties": {"a": {"type": "object", "typo": 1, "nullable": None}}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "things", "kind": "Thing"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": inner}}
            ],
        },
    }
    prepared, unknown = schema.prepare(crd)
    assert unknown == ["spec.versions[0].schema.openAPIV3Schema.properties.a.typo"]
    assert schema.validate(prepared) == []


def test_every_published_kind_compiles() -> None:
    for schema in definitions().values():
        for one in schema.get("x-kubernetes-group-version-kind") or ():
            if one["version"] == "v1" and not one["kind"].endswith("List"):
                compiled = builtin_schema(one["group"], "v1", one["kind"])
                compiled.prepare({"apiVersion": "x", "kind": one["kind"], "metadata": {"name": "a"}})


def places(node: Node, path: tuple[str | int, ...], above: tuple[Node, ...]) -> Iterator[tuple[Any, Node]]:
    """Every place below a node, but only once around a recursion."""
    if node in above or len(path) > 9:
        return
    for name, child in node.properties.items():
        yield (*path, name), child
        yield from places(child, (*path, name), (*above, node))
    if node.items is not None:
        yield (*path, 0), node.items
        yield from places(node.items, (*path, 0), (*above, node))
    if node.values is not None:
        yield (*path, "key"), node.values
        yield from places(node.values, (*path, "key"), (*above, node))


def holding(path: tuple[str | int, ...], value: Any) -> Any:
    for step in reversed(path):
        value = [value] if step == 0 else {step: value}
    return value


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("", "Pod"),
        ("", "Node"),
        ("", "Service"),
        ("batch", "CronJob"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
    ],
)
def test_a_wrong_type_anywhere_names_its_place(group: str, kind: str) -> None:
    schema = builtin_schema(group, "v1", kind)
    tried = 0
    for path, node in places(schema.node, (), ()):
        for wrong in (True, 1.5, "text", [[]], {"a": {}}, -(2**40)):
            fits = {
                "boolean": isinstance(wrong, bool),
                "string": isinstance(wrong, str),
                "integer": False,
                "number": isinstance(wrong, (int, float)) and not isinstance(wrong, bool),
                "array": isinstance(wrong, list),
                "object": isinstance(wrong, dict),
                "int-or-string": isinstance(wrong, str),
                "quantity": isinstance(wrong, (int, float)) and not isinstance(wrong, bool),
                "": True,
            }
            if fits[node.type] or (node.type == "integer" and wrong == -(2**40)):
                continue
            tried += 1
            prepared, unknown = schema.prepare(holding(path, wrong))
            where = path_text(path)
            assert where in [cause.field for cause in schema.validate(prepared)], (where, wrong)
            assert unknown == []
    assert tried > 100


def test_an_unpublished_kind() -> None:
    with pytest.raises(KeyError):
        builtin_schema("example.com", "v1", "Thing")


NAMES = ["metadata", "spec", "template", "containers", "env", "name", "value", "resources", "labels", "a"]
names = st.sampled_from([*NAMES, "ports", "containerPort", "requests"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(names, values))
def test_anything_is_prepared_or_refused_without_a_trace(obj: dict[str, Any]) -> None:
    schema = builtin_schema("batch", "v1", "Job")
    before = copy.deepcopy(obj)
    prepared, _ = schema.prepare(obj)
    schema.validate(prepared)
    assert schema.prepare(prepared) == (prepared, [])
    assert obj == before
