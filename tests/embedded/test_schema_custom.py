"""Custom kinds: what is pruned, defaulted and refused, and with which words."""
# ruff: noqa: E501 (the tables of messages are one case a line)

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykueue.embedded.apiserver.crd.structural import CustomSchema, custom_schema
from pykueue.embedded.kinds.crdvalidation import check_custom_schema

SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "default": 5, "minimum": 1},
        "big": {"type": "integer", "format": "int32"},
        "text": {"type": "string", "maxLength": 4, "pattern": "^[a-zé]*$"},
        "insensitive": {"type": "string", "pattern": "(?i)^abc$"},
        "mode": {"type": "string", "enum": ["On", "Off"]},
        "maybe": {"type": "string", "nullable": True, "default": "d"},
        "when": {"type": "string", "format": "date-time"},
        "either": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "closed": {"type": "object"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "nested": {
            "type": "object",
            "default": {},
            "required": ["must"],
            "properties": {"must": {"type": "string", "default": "x"}, "n": {"type": "number"}},
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "port"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "port": {"type": "integer", "default": 80},
                    "size": {"type": "integer", "maximum": 10},
                },
            },
        },
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "one": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
            "oneOf": [{"required": ["x"]}, {"required": ["y"]}],
        },
    },
}
OPENAPI = {
    "type": "object",
    "properties": {"spec": SPEC, "status": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}


@pytest.fixture(scope="module")
def schema() -> CustomSchema:
    assert check_custom_schema(OPENAPI, "schema") == []
    return custom_schema("example.com", "v1", "Thing", True, OPENAPI)


def thing(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


DEFAULTED = {"a": 5, "maybe": "d", "nested": {"must": "x"}}


def test_an_object_with_nothing_to_do_comes_back_itself(schema: CustomSchema) -> None:
    obj = thing(**DEFAULTED)
    assert schema.prepare(obj)[0] is obj
    assert schema.validate(obj) == []


def test_defaults_fill_absent_fields_and_what_they_create(schema: CustomSchema) -> None:
    obj = thing(text="ok", parts=[{"name": "p"}])
    before = copy.deepcopy(obj)
    prepared, unknown = schema.prepare(obj)
    assert prepared["spec"] == {**DEFAULTED, "text": "ok", "parts": [{"name": "p", "port": 80}]}
    assert (unknown, obj) == ([], before)
    assert prepared["metadata"] is obj["metadata"]


def test_nulls_vanish_where_they_are_not_allowed(schema: CustomSchema) -> None:
    prepared, _ = schema.prepare(thing(a=None, maybe=None, text=None, labels={"k": None, "l": "v"}))
    assert prepared["spec"] == {"a": 5, "maybe": None, "labels": {"l": "v"}, "nested": {"must": "x"}}
    gone, _ = schema.prepare({**thing(), "spec": None})
    assert "spec" not in gone


def test_unknown_fields_are_pruned_and_told(schema: CustomSchema) -> None:
    obj = thing(
        zzz=1,
        free={"kept": {"deep": 1}},
        closed={"gone": 1},
        labels={"kept": "x"},
        parts=[{"name": "p", "port": 1, "gone": True}],
        template={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "foo": 1}, "kept": 1},
    )
    prepared, unknown = schema.prepare({**obj, "extra": 1, "metadata": {"name": "t", "odd": 1}})
    assert sorted(unknown) == [
        "extra",
        "metadata.odd",
        "spec.closed.gone",
        "spec.parts[0].gone",
        "spec.template.metadata.foo",
        "spec.zzz",
    ]
    assert prepared["spec"] == {
        **DEFAULTED,
        "free": {"kept": {"deep": 1}},
        "closed": {},
        "labels": {"kept": "x"},
        "parts": [{"name": "p", "port": 1}],
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "kept": 1},
    }


def test_whole_numbers_written_as_floats_become_integers(schema: CustomSchema) -> None:
    prepared, _ = schema.prepare(thing(a=7.0, either=2.0, nested={"must": "x", "n": 3.0}))
    assert [type(prepared["spec"][key]) for key in ("a", "either")] == [int, int]
    assert schema.validate(prepared) == []


@pytest.mark.parametrize(
    ("spec", "field", "reason", "message"),
    [
        ({"a": "1"}, "a", "TypeInvalid", 'Invalid value: "string": spec.a in body must be of type integer: "string"'),
        ({"a": 1.5}, "a", "TypeInvalid", 'Invalid value: "number": spec.a in body must be of type integer: "number"'),
        ({"a": True}, "a", "TypeInvalid", 'Invalid value: "boolean": spec.a in body must be of type integer: "boolean"'),
        ({"a": 0}, "a", "Invalid", "Invalid value: 0: spec.a in body should be greater than or equal to 1"),
        ({"a": 2**63}, "a", "Invalid", "Invalid value: 9223372036854775808: spec.a in body must be of type int64"),
        ({"big": 2**31}, "big", "Invalid", "Invalid value: 2147483648: spec.big in body must be of type int32"),
        ({"text": "abcde"}, "text", "TooLong", "Too long: may not be more than 4 bytes"),
        ({"text": "A"}, "text", "Invalid", "Invalid value: \"A\": spec.text in body should match '^[a-zé]*$'"),
        ({"insensitive": "x"}, "insensitive", "Invalid", "Invalid value: \"x\": spec.insensitive in body should match '(?i)^abc$'"),
        ({"mode": "on"}, "mode", "NotSupported", 'Unsupported value: "on": supported values: "On", "Off"'),
        ({"when": "x"}, "when", "TypeInvalid", 'Invalid value: "x": spec.when in body must be of type date-time: "x"'),
        ({"either": 1.5}, "either", "TypeInvalid", 'Invalid value: "number": spec.either in body must be of type integer,string: "number"'),
        ({"labels": {"k": 1}}, "labels.k", "TypeInvalid", 'Invalid value: "integer": spec.labels.k in body must be of type string: "integer"'),
        ({"tags": ["a", "b", "a"]}, "tags[2]", "Duplicate", 'Duplicate value: "a"'),
        ({"parts": [{}]}, "parts[0].name", "Required", "Required value"),
        ({"parts": [{"name": "p"}, {"name": "p", "port": 80}]}, "parts[1]", "Duplicate", 'Duplicate value: {"name":"p","port":80}'),
        ({"parts": [{"name": c} for c in "abcd"]}, "parts", "TooMany", "Too many: 4: must have at most 3 items"),
        ({"parts": [None]}, "parts[0]", "TypeInvalid", 'Invalid value: "null": spec.parts[0] in body must be of type object: "null"'),
        ({"template": {"kind": "Pod"}}, "template.apiVersion", "Required", "Required value"),
        ({"template": {"apiVersion": "v1", "kind": ""}}, "template.kind", "Invalid", 'Invalid value: "": spec.template.kind in body should be at least 1 chars long'),
        ({"template": {"apiVersion": "", "kind": "Pod"}}, "template.apiVersion", "Invalid", 'Invalid value: "": spec.template.apiVersion in body should be at least 1 chars long'),
        ({"one": {}}, "one", "Invalid", 'Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid'),
        ({"one": {"x": 1, "y": 1}}, "one", "Invalid", 'Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found more than one valid'),
    ],
)  # fmt: skip
def test_refusals(schema: CustomSchema, spec: dict[str, Any], field: str, reason: str, message: str) -> None:
    prepared, _ = schema.prepare(thing(**spec))
    causes = schema.validate(prepared)
    assert (f"spec.{field}", f"FieldValue{reason}", message) in causes
    assert len(causes) == 1 or "oneOf" in message


def test_patterns_in_go_syntax_match(schema: CustomSchema) -> None:
    assert schema.validate(schema.prepare(thing(insensitive="ABC"))[0]) == []


def test_a_null_goes_where_it_is_not_allowed() -> None:
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"any": anything, "null": {**anything, "nullable": True}}}
    schema = custom_schema("e", "v1", "K", True, {"type": "object", "properties": {"spec": spec}})
    prepared, _ = schema.prepare(thing(any=None, null=None))
    assert prepared["spec"] == {"null": None}
    free = thing(any={"a": None, "list": [None]}, null=None)
    assert schema.prepare(free)[0]["spec"] == free["spec"]


def test_list_elements_with_keys_are_objects(schema: CustomSchema) -> None:
    prepared, _ = schema.prepare(thing(parts=["p"]))
    assert {(one.reason, one.message) for one in schema.validate(prepared)} == {
        (
            "FieldValueTypeInvalid",
            'Invalid value: "string": spec.parts[0] in body must be of type object: "string"',
        ),
        ("FieldValueInvalid", 'Invalid value: "p": must be an object for an array of list-type map'),
    }


def test_metadata_types(schema: CustomSchema) -> None:
    prepared, _ = schema.prepare({**thing(), "metadata": {"name": "t", "labels": {"on": True}}})
    assert [cause.field for cause in schema.validate(prepared)] == ["metadata.labels.on"]


def test_an_update_is_not_refused_for_what_it_leaves(schema: CustomSchema) -> None:
    old, _ = schema.prepare(
        thing(a=0, mode="bad", parts=[{"name": "p", "size": 99}, {"name": "q", "size": 99}], one={})
    )
    assert len(schema.validate(old)) == 6
    moved = copy.deepcopy(old)
    moved["spec"]["text"] = "new"
    moved["spec"]["parts"].reverse()
    assert schema.validate(moved, old) == []
    moved["spec"]["parts"][0]["size"] = 98
    moved["spec"]["mode"] = "worse"
    assert [cause.field for cause in schema.validate(moved, old)] == ["spec.mode", "spec.parts[0].size"]


def test_no_schema_keeps_everything() -> None:
    open_schema = custom_schema("example.com", "v1", "Open", True, None)
    obj = {"apiVersion": "example.com/v1", "kind": "Open", "metadata": {}, "spec": {"x": [None, 1.0]}}
    assert open_schema.prepare(obj) == (obj, [])
    assert open_schema.validate(obj) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SPEC["properties"], "name", "must", "é"]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.fixed_dictionaries({"metadata": json_values, "spec": json_values, "status": json_values}))
def test_anything_is_prepared_once_and_for_all(obj: dict[str, Any]) -> None:
    schema = FUZZED
    before = copy.deepcopy(obj)
    prepared, _ = schema.prepare(obj)
    schema.validate(prepared, before)
    schema.validate(prepared)
    assert schema.prepare(prepared) == (prepared, [])
    assert obj == before


FUZZED = custom_schema("example.com", "v1", "Thing", True, OPENAPI)


def nested_in(key: str, levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {key: schema}}
    return schema


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, ".type"),
        ({"type": "text"}, ".type"),
        ({"type": "array"}, ".items"),
        ({"type": "array", "items": []}, ".items"),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, ".uniqueItems"),
        ({"type": "string", "x-kubernetes-list-type": "set"}, ".type"),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}, ".x-kubernetes-list-type"),
        ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}, ".x-kubernetes-list-map-keys"),
        ({"type": "object", "properties": [], }, ".properties"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}, ".additionalProperties"),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": False}, ".x-kubernetes-preserve-unknown-fields"),
        ({"type": "integer", "anyOf": [{"type": "integer"}]}, ".anyOf[0].type"),
        ({"type": "integer", "default": "x"}, ".default"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}}, ".default.b"),
        ({"type": "string", "pattern": "("}, ".pattern"),
        ({"type": "string", "maxLength": -1}, ".maxLength"),
        ({"type": "string", "minimum": "1"}, ".minimum"),
        ({"type": "string", "nullable": "yes"}, ".nullable"),
        ({"$ref": "#/x", "type": "object"}, ".$ref"),
        ("string", ""),
    ],
)  # fmt: skip
def test_schemas_that_are_not_structural(spec: Any, field: str) -> None:
    causes = check_custom_schema({"type": "object", "properties": {"spec": spec}}, "schema")
    assert f"schema.properties[spec]{field}" in [cause.field for cause in causes]


def test_the_root_must_be_an_object() -> None:
    assert [cause.field for cause in check_custom_schema({"type": "string"}, "s")] == ["s.type"]
    assert [cause.field for cause in check_custom_schema({}, "s")] == ["s.type"]
    assert [cause.field for cause in check_custom_schema([], "s")] == ["s"]
    restricted = {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"labels": {}}}},
    }
    assert "s.properties[metadata]" in [cause.field for cause in check_custom_schema(restricted, "s")]


def test_names_may_be_constrained() -> None:
    openapi = {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}
        },
    }
    assert check_custom_schema(openapi, "s") == []
    schema = custom_schema("example.com", "v1", "Short", False, openapi)
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Short",
        "metadata": {"name": "long", "labels": {"a": "b"}},
    }
    assert schema.prepare(obj) == (obj, [])
    assert [cause.field for cause in schema.validate(obj)] == ["metadata.name"]


keyword_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from(
        [2**64 - 1, 2**53, 1.5, -1.5, 1e300, "", "a", "(", "(?i)a", "int32", "map", "set", "date-time"]
    ),
    st.lists(st.sampled_from(["a", "a", "b", 1, 1.0, None, True, {}]), max_size=3),
)
KEYWORDS = ["format", "title", "description", "default", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "enum", "maxProperties", "minProperties", "required", "nullable", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-validations"]  # fmt: skip
schemas = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean", "object", "text", None, 1])},
        optional=dict.fromkeys(KEYWORDS, keyword_values),
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array"])},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "b-c", "true"]), inner, max_size=2),
            "items": inner,
            "additionalProperties": inner | st.booleans(),
            "allOf": st.lists(inner, max_size=2) | keyword_values,
            "anyOf": st.lists(inner, max_size=2) | keyword_values,
            "oneOf": st.lists(inner, max_size=2) | keyword_values,
            "not": inner | keyword_values,
            "x-kubernetes-list-type": st.sampled_from(["map", "set", "atomic"]),
            "x-kubernetes-list-map-keys": st.lists(st.sampled_from(["a", "b-c"]), max_size=2),
            "required": st.lists(st.sampled_from(["a", "b-c", "z"]), max_size=3),
            "default": st.just({}),
        },
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(schemas, json_values)
def test_a_schema_that_is_accepted_can_be_used(spec: dict[str, Any], value: Any) -> None:
    openapi = {"type": "object", "properties": {"spec": spec}}
    if check_custom_schema(openapi, "schema"):
        return
    schema = custom_schema("example.com", "v1", "Thing", True, openapi)
    prepared, _ = schema.prepare({**thing(), "spec": value})
    schema.validate(prepared)
    schema.validate(prepared, thing())
    schema.openapi()


def test_a_status_write_looks_at_the_status_alone(schema: CustomSchema) -> None:
    old = {**thing(**DEFAULTED, big=2**40), "status": {"n": 1}}  # as before the schema had a bound
    new = {**old, "status": {"n": 2}}
    assert schema.prepare(new, old) == (new, [])
    assert schema.validate(new, old) == []
    assert [one.field for one in schema.validate({**old, "status": {"n": "x"}}, old)] == ["status.n"]
    assert schema.prepare({**old, "status": {"n": 2, "zzz": 1}}, old) == (new, ["status.zzz"])


def test_what_a_status_write_did_not_look_at_is_no_valid_object(schema: CustomSchema) -> None:
    old = {**thing(**DEFAULTED, big=2**40), "status": {"n": 1}}
    new = {**old, "status": {"n": 2}}
    schema.prepare(new, old)
    assert [one.field for one in schema.validate(new)] == ["spec.big"]
    changed = {**new, "spec": {**new["spec"], "text": "ABC"}}
    schema.prepare(changed, old)
    assert [one.field for one in schema.validate(changed, old)] == ["spec.text"]
