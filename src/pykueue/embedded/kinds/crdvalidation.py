"""Checks of CustomResourceDefinitions: the schema is structural, its rules compile, columns can be printed.

Source: docs/reference/kubernetes-api-machinery.md, section 15. The estimated cost of rules
is limited as on a cluster (`cel/cost.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from pykueue.api.cel.formats import pattern_is_native
from pykueue.api.cel.node import ABSENT, Node, node_of, structural_node
from pykueue.api.regex import RegexError, compile_regex
from pykueue.embedded.objects.errors import Cause, forbidden, invalid, not_supported, required
from pykueue.embedded.objects.jsonpath import json_path
from pykueue.embedded.objects.values import check_depth
from pykueue.embedded.schema.builtin import OBJECT_META, definition_node, metadata_definitions
from pykueue.embedded.schema.compile import compile_validator, convert
from pykueue.embedded.schema.walk import apply_defaults, clean, compile_defaults

#: Places with rules that are checked in one step.
_RULED_TOGETHER = 32
_COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_LIST_TYPES = ("atomic", "map", "set")

#: JSON Schema keywords that structural schemas do not have.
_NEVER = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems")
#: What only the schema itself may say, not the alternatives inside allOf, anyOf, oneOf and not.
_NOT_IN_JUNCTORS = ("description", "type", "default", "additionalProperties", "nullable")
_LIMITS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_NUMBERS = ("maximum", "minimum", "multipleOf")
_FLAGS = (
    "exclusiveMaximum",
    "exclusiveMinimum",
    "nullable",
    "x-kubernetes-int-or-string",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-preserve-unknown-fields",
)
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


#: What was found last, by the digest of path and schema: the same schema is checked ahead and again with its
#: definition, at each change of something else in it, and by every server of this process.
_found: OrderedDict[bytes, list[Cause]] = OrderedDict()
_FOUND_LIMIT = 64


def check_custom_schema(openapi: Any, path: str) -> list[Cause]:
    """Why the schema is refused. `path` is where it stands in the CustomResourceDefinition."""
    list(check_ahead(openapi, path))
    return list(_found[_key(openapi, path)])


def check_ahead(openapi: Any, path: str) -> Iterator[object]:
    """Do the work of `check_custom_schema` in steps, so that others can be served in between.

    Rules stay compiled while the steps are kept (`cel.rules.compile_ahead`).
    """
    check_depth(openapi)
    key = _key(openapi, path)
    if key not in _found:
        from pykueue.embedded.cel.rules import compile_ahead

        yield from compile_ahead(openapi)
        causes: list[Cause] = []
        yield from _check_in_steps(openapi, path, causes)
        _found[key] = causes
        if len(_found) > _FOUND_LIMIT:
            _found.popitem(last=False)
    _found.move_to_end(key)


def _key(openapi: Any, path: str) -> bytes:
    return sha256(orjson.dumps([path, openapi])).digest()


def _check_in_steps(openapi: Any, path: str, causes: list[Cause]) -> Iterator[None]:
    if not isinstance(openapi, dict):
        causes.append(invalid(path, openapi, "must be an object"))
        return
    if openapi.get("type") != "object":
        causes.append(
            required(f"{path}.type", "must not be empty at the root")
            if not openapi.get("type")
            else invalid(f"{path}.type", openapi["type"], 'must be "object" at the root')
        )
    if openapi.get("nullable"):
        causes.append(forbidden(f"{path}.nullable", "must be false at the root"))
    yield
    _check(openapi, path, True, causes)
    _check_metadata(openapi, path, causes)
    if causes:
        return
    yield
    _check_defaults(openapi, path, causes)
    yield
    from pykueue.embedded.cel.rules import Costs, check_rules

    costs = Costs()
    node = structural_node(openapi, definition_node(OBJECT_META))
    yield
    for number, (rules, below, where, around) in enumerate(_ruled(openapi, node, path, _Around())):
        causes.extend(check_rules(rules, below, where, around.times, around.uncorrelated, costs))
        if number % _RULED_TOGETHER == 0:
            yield
    causes.extend(costs.causes(path))


def _check(schema: Any, path: str, root: bool, causes: list[Cause]) -> None:
    if not isinstance(schema, dict):
        causes.append(invalid(path, schema, "must be an object"))
        return
    kind = schema.get("type")
    flexible = schema.get("x-kubernetes-int-or-string") is True
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    if kind is None or kind == "":
        if not flexible and keeps is not True and not root:
            causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    elif kind not in _TYPES:
        causes.append(not_supported(f"{path}.type", kind, _TYPES))
    if keeps is False:
        causes.append(
            invalid(f"{path}.x-kubernetes-preserve-unknown-fields", keeps, "must be true or undefined")
        )
    if schema.get("uniqueItems"):
        causes.append(forbidden(f"{path}.uniqueItems", "uniqueItems cannot be set to true"))
    if schema.get("x-kubernetes-embedded-resource") and kind != "object":
        causes.append(
            invalid(f"{path}.type", kind, "must be object if x-kubernetes-embedded-resource is true")
        )
    _check_keywords(schema, path, causes)
    _check_fields(schema, path, causes)
    _check_list_type(schema, path, causes)
    for key in ("allOf", "anyOf", "oneOf"):
        branches = _branches(schema, key, path, causes)
        if flexible and key == "anyOf" and branches == _INT_OR_STRING:
            continue
        for index, branch in enumerate(branches):
            if flexible and key == "allOf" and branch == {"anyOf": _INT_OR_STRING}:
                continue
            _check_junctor(branch, f"{path}.{key}[{index}]", causes)
    if "not" in schema:
        _check_junctor(schema["not"], f"{path}.not", causes)


def _check_keywords(schema: Mapping[str, Any], path: str, causes: list[Cause]) -> None:
    causes.extend(forbidden(f"{path}.{key}", "is not supported") for key in _NEVER if schema.get(key))
    for key in _LIMITS:
        value = schema.get(key)
        if value is not None and (type(value) is not int or value < 0):
            causes.append(invalid(f"{path}.{key}", value, "must be an integer greater than or equal to 0"))
    for key in _NUMBERS:
        value = schema.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            causes.append(invalid(f"{path}.{key}", value, "must be a number"))
    for key in _FLAGS:
        if key in schema and not isinstance(schema[key], bool):
            causes.append(invalid(f"{path}.{key}", schema[key], "must be a boolean"))
    if isinstance(schema.get("multipleOf"), (int, float)) and schema["multipleOf"] <= 0:
        causes.append(invalid(f"{path}.multipleOf", schema["multipleOf"], "must be greater than 0"))
    pattern = schema.get("pattern")
    if pattern is not None and not _is_pattern(pattern):
        causes.append(invalid(f"{path}.pattern", pattern, "must be a valid regular expression"))
    for key in ("enum", "x-kubernetes-validations"):
        if schema.get(key) is not None and not isinstance(schema[key], list):
            causes.append(invalid(f"{path}.{key}", schema[key], "must be an array"))
    names = schema.get("required")
    if names is not None and not (isinstance(names, list) and all(isinstance(one, str) for one in names)):
        causes.append(invalid(f"{path}.required", names, "must be an array of names"))
    for key in ("format", "description"):
        if schema.get(key) is not None and not isinstance(schema[key], str):
            causes.append(invalid(f"{path}.{key}", schema[key], "must be a string"))


def _is_pattern(pattern: Any) -> bool:
    if not isinstance(pattern, str):
        return False
    if pattern_is_native(pattern):
        return True
    try:
        compile_regex(pattern)
    except RegexError:
        return False
    return True


def _check_fields(schema: Mapping[str, Any], path: str, causes: list[Cause]) -> None:
    properties, additional, items = (
        schema.get(key) for key in ("properties", "additionalProperties", "items")
    )
    if properties is not None and not isinstance(properties, dict):
        causes.append(invalid(f"{path}.properties", properties, "must be an object"))
    elif properties:
        for name, inner in properties.items():
            _check(inner, f"{path}.properties[{name}]", False, causes)
    if additional is not None:
        if properties:
            causes.append(
                forbidden(
                    f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
                )
            )
        if isinstance(additional, dict):
            _check(additional, f"{path}.additionalProperties", False, causes)
        elif not isinstance(additional, bool):
            causes.append(invalid(f"{path}.additionalProperties", additional, "must be an object"))
    if items is not None:
        if isinstance(items, list):
            causes.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
        else:
            _check(items, f"{path}.items", False, causes)
    elif schema.get("type") == "array":
        causes.append(required(f"{path}.items", "must be specified"))


def _check_list_type(schema: Mapping[str, Any], path: str, causes: list[Cause]) -> None:
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys")
    if list_type is not None:
        if list_type not in _LIST_TYPES:
            causes.append(not_supported(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES))
        elif schema.get("type") != "array":
            causes.append(
                invalid(
                    f"{path}.type", schema.get("type"), "must be array if x-kubernetes-list-type is specified"
                )
            )
    if keys and list_type != "map":
        causes.append(
            invalid(
                f"{path}.x-kubernetes-list-type",
                list_type,
                "must be map if x-kubernetes-list-map-keys is non-empty",
            )
        )
    if list_type == "map" and schema.get("type") == "array":
        items = schema.get("items")
        fields = items.get("properties") if isinstance(items, dict) else None
        if not (isinstance(keys, list) and keys):
            causes.append(
                required(
                    f"{path}.x-kubernetes-list-map-keys",
                    "must not be empty if x-kubernetes-list-type is map",
                )
            )
            return
        for index, key in enumerate(keys):
            if not isinstance(fields, dict) or not isinstance(fields.get(key), dict):
                where = f"{path}.x-kubernetes-list-map-keys[{index}]"
                causes.append(invalid(where, key, "entries must all be names of item properties"))
            elif key not in ((items or {}).get("required") or ()) and "default" not in fields[key]:
                causes.append(
                    required(
                        f"{path}.items.properties[{key}].default",
                        "this property is in x-kubernetes-list-map-keys, so it must have a default or be a "
                        "required property",
                    )
                )


def _branches(schema: Mapping[str, Any], key: str, path: str, causes: list[Cause]) -> list[Any]:
    """The alternatives of allOf, anyOf or oneOf."""
    branches = schema.get(key)
    if branches is not None and not isinstance(branches, list):
        causes.append(invalid(f"{path}.{key}", branches, "must be an array"))
        return []
    return branches or []


def _check_junctor(schema: Any, path: str, causes: list[Cause]) -> None:
    """Alternatives constrain values; they declare nothing."""
    if not isinstance(schema, dict):
        causes.append(invalid(path, schema, "must be an object"))
        return
    for key in schema:
        if key in _NOT_IN_JUNCTORS or key.startswith("x-kubernetes-"):
            causes.append(forbidden(f"{path}.{key}", "must be empty to be structural"))
    _check_keywords(schema, path, causes)
    properties = schema.get("properties")
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        _check_junctor(inner, f"{path}.properties[{name}]", causes)
    if "items" in schema:
        _check_junctor(schema["items"], f"{path}.items", causes)
    for key in ("allOf", "anyOf", "oneOf"):
        for index, branch in enumerate(_branches(schema, key, path, causes)):
            _check_junctor(branch, f"{path}.{key}[{index}]", causes)
    if "not" in schema:
        _check_junctor(schema["not"], f"{path}.not", causes)


def _check_metadata(openapi: Mapping[str, Any], path: str, causes: list[Cause]) -> None:
    """Of metadata only the name and generateName may be constrained."""
    properties = openapi.get("properties")
    metadata = properties.get("metadata") if isinstance(properties, dict) else None
    if not isinstance(metadata, dict):
        return
    if not metadata.keys() <= {"type", "description", "properties"} or not (
        set(metadata.get("properties") or ()) <= {"name", "generateName"}
    ):
        causes.append(
            forbidden(
                f"{path}.properties[metadata]",
                "must not specify anything other than name and generateName, but metadata is implicitly "
                "specified",
            )
        )


def _check_defaults(schema: Mapping[str, Any], path: str, causes: list[Cause]) -> None:
    """A default must be a value its own schema accepts, with nothing to prune."""
    if schema.get("default", ABSENT) is not ABSENT:
        _check_default(schema, path, causes)
    for name, inner in (schema.get("properties") or {}).items():
        _check_defaults(inner, f"{path}.properties[{name}]", causes)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            _check_defaults(schema[key], f"{path}.{key}", causes)


def _check_default(schema: Mapping[str, Any], path: str, causes: list[Cause]) -> None:
    value = schema["default"]
    obj = {"value": value}
    wrapper = {"type": "object", "properties": {"value": schema}}
    node = node_of(wrapper, definition_node(OBJECT_META))
    unknown: list[str] = []
    clean(obj, node, None, unknown)
    defaults = compile_defaults(node)
    completed = obj if defaults is None else apply_defaults(obj, defaults)
    if unknown:
        where = unknown[0].removeprefix("value")
        causes.append(invalid(f"{path}.default{where}", value, "must not have unknown fields"))
        return
    validator = compile_validator({**convert(wrapper, closed=True), "definitions": metadata_definitions()})
    if not validator.is_valid(completed):
        causes.append(invalid(f"{path}.default", value, "must be a value that the schema accepts"))


@dataclass(frozen=True)
class _Around:
    """What surrounds a place with rules."""

    #: How often the place may be in an object; None where nothing limits it.
    times: float | None = 1
    #: The path of the list whose old and new elements do not correspond, if the place is within one.
    uncorrelated: str = ""


def _ruled(
    schema: Mapping[str, Any], node: Node, path: str, around: _Around
) -> Iterator[tuple[Any, Node, str, _Around]]:
    """The places that have rules: the rules, the node, where the rules stand, and what surrounds the place.

    Rules must compile, read only what the schema has, and not cost too much.
    """
    rules = schema.get("x-kubernetes-validations")
    if rules:
        yield rules, node, f"{path}.x-kubernetes-validations", around
    for name, inner in (schema.get("properties") or {}).items():
        yield from _ruled(inner, node.properties[name], f"{path}.properties[{name}]", around)
    for key, below in (("items", node.items), ("additionalProperties", node.values)):
        if isinstance(schema.get(key), dict) and below is not None:
            limited = around.times is not None and node.limit is not None
            times = (around.times or 0) * (node.limit or 0) if limited else None
            uncorrelated = around.uncorrelated
            if key == "items" and node.list_type != "map":
                uncorrelated = uncorrelated or path
            yield from _ruled(schema[key], below, f"{path}.{key}", _Around(times, uncorrelated))


def check_printer_columns(declared: Any, path: str) -> list[Cause]:
    """Why `additionalPrinterColumns` are refused; `path` is where they stand."""
    if declared is None:
        return []
    if not isinstance(declared, list):
        return [invalid(path, declared, "must be an array")]
    causes: list[Cause] = []
    for index, one in enumerate(declared):
        where = f"{path}[{index}]"
        if not isinstance(one, dict):
            causes.append(invalid(where, one, "must be an object"))
            continue
        if not one.get("name"):
            causes.append(required(f"{where}.name"))
        if not one.get("type"):
            causes.append(required(f"{where}.type", f"must be one of {', '.join(_COLUMN_TYPES)}"))
        elif one["type"] not in _COLUMN_TYPES:
            causes.append(not_supported(f"{where}.type", one["type"], _COLUMN_TYPES))
        if not one.get("jsonPath"):
            causes.append(required(f"{where}.jsonPath"))
            continue
        try:
            json_path(one["jsonPath"])
        except ValueError as error:
            causes.append(invalid(f"{where}.jsonPath", one["jsonPath"], str(error)))
    return causes
