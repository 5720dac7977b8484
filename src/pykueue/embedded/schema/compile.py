"""From OpenAPI schemas to compiled JSON Schema validators.

The validator made here is *closed*: it also fails where there would be something to prune, to default or to
convert (an unknown field, an absent field with a default, a forbidden null, a whole number written 1.0). An
object that passes needs no walk at all, which is the common case; one that fails is cleaned, defaulted and
asked again. JSON Schema draft 4 is used because there, as in Kubernetes' types, 1.0 is no integer and
exclusiveMinimum is a boolean.

Source: docs/reference/kubernetes-api-machinery.md, sections 15 and 22.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs
import orjson

from pykueue.api.cel.formats import FORMATS, INTEGER_BOUNDS, PATTERN_OPTIONS, GoPattern, pattern_is_native

Schema = dict[str, Any]

#: Where a custom kind's validator finds ObjectMeta.
OBJECT_META: Final = "#/definitions/ObjectMeta"

_COPIED: Final = (
    "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "maxItems",
    "minItems", "maxProperties", "minProperties", "multipleOf", "required",
)  # fmt: skip

#: What an embedded object says it is: it is looked for by that.
_EMBEDDED_TYPE: Final[Schema] = {
    "apiVersion": {"type": "string", "minLength": 1},
    "kind": {"type": "string", "minLength": 1, "pattern": "^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$"},
}

_NOT_NULL: Final = ["array", "boolean", "number", "object", "string"]

_INT_OR_STRING_FORMS: Final = ([{"type": "integer"}, {"type": "string"}],)


def compile_validator(schema: Schema) -> jsonschema_rs.Draft4Validator:
    """Compile a JSON Schema made by this module. Unknown formats pass."""
    return jsonschema_rs.Draft4Validator(
        schema,
        formats=FORMATS,
        validate_formats=True,
        ignore_unknown_formats=True,
        pattern_options=PATTERN_OPTIONS,
        keywords={"goPattern": GoPattern},
        offline=True,
    )


def custom_root(openapi: Mapping[str, Any], definitions: Schema) -> Schema:
    """The closed JSON Schema of a custom kind. `definitions` hold ObjectMeta and what it refers to."""
    root = convert({**openapi, "type": "object", "nullable": False}, closed=True)
    declared = (openapi.get("properties") or {}).get("metadata")
    metadata: Schema = {"$ref": OBJECT_META}
    if isinstance(declared, dict) and declared.get("properties"):
        metadata = {"allOf": [metadata, convert(declared, closed=False)]}
    properties = {**root.get("properties", {}), **_type_and_metadata(), "metadata": metadata}
    return {**root, "properties": properties, "definitions": definitions}


def _type_and_metadata() -> Schema:
    return {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": OBJECT_META},
    }


def convert(schema: Mapping[str, Any], closed: bool) -> Schema:
    """One structural OpenAPI schema as JSON Schema. Open ones are used inside allOf, anyOf, oneOf and not."""
    out: Schema = {key: schema[key] for key in _COPIED if schema.get(key) is not None}
    for bound in ("Maximum", "Minimum"):
        if bound.lower() not in out:
            out.pop(f"exclusive{bound}", None)
    if "required" in out:
        out["required"] = list(dict.fromkeys(out["required"]))
    nullable = bool(schema.get("nullable"))
    flexible = bool(schema.get("x-kubernetes-int-or-string"))
    kind = ["integer", "string"] if flexible else schema.get("type")
    if kind:
        names = kind if isinstance(kind, list) else [kind]
        out["type"] = [*names, "null"] if nullable else kind
    if schema.get("enum"):
        out["enum"] = _distinct([*schema["enum"], None] if nullable else schema["enum"])
    _convert_format(schema, out)
    _convert_fields(schema, out, closed)
    if isinstance(schema.get("items"), dict):
        out["items"] = convert(schema["items"], closed)
    junctors: Schema = {}
    for key in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(key)
        if branches and not (flexible and key == "anyOf" and branches in _INT_OR_STRING_FORMS):
            junctors[key] = [convert(branch, closed=False) for branch in branches]
    if isinstance(schema.get("not"), dict):
        junctors["not"] = convert(schema["not"], closed=False)
    if junctors and nullable:
        out["anyOf"] = [{"type": "null"}, junctors]
    else:
        out.update(junctors)
    if out.get("required") == []:
        del out["required"]
    return out


def _distinct(options: list[Any]) -> list[Any]:
    """Each value once: JSON Schema allows no repetition, and 1.0 is 1."""
    kept: dict[Any, Any] = {}
    for option in options:
        number = type(option) in (int, float)
        kept.setdefault(option if number else orjson.dumps(option, option=orjson.OPT_SORT_KEYS), option)
    return list(kept.values())


def _convert_format(schema: Mapping[str, Any], out: Schema) -> None:
    """Formats of numbers become bounds, patterns beyond the validator's syntax a keyword of our own."""
    name = schema.get("format") or ""
    if schema.get("type") == "integer" or schema.get("x-kubernetes-int-or-string"):
        low, high = INTEGER_BOUNDS.get(name, INTEGER_BOUNDS[""])
        if "maximum" not in out:
            out["maximum"] = high
        if "minimum" not in out:
            out["minimum"] = low
    elif name:
        out["format"] = name
    pattern = schema.get("pattern")
    if pattern:
        out["pattern" if pattern_is_native(pattern) else "goPattern"] = pattern


def _value(schema: Mapping[str, Any], closed: bool) -> Schema:
    """A field's value. A null is dropped where it is not allowed, of a field of any type too."""
    out = convert(schema, closed)
    if closed and "type" not in out and not schema.get("nullable"):
        out["type"] = _NOT_NULL
    return out


def _convert_fields(schema: Mapping[str, Any], out: Schema, closed: bool) -> None:
    properties = {name: _value(inner, closed) for name, inner in (schema.get("properties") or {}).items()}
    if schema.get("x-kubernetes-embedded-resource"):
        properties.update({**_type_and_metadata(), **_EMBEDDED_TYPE})
        out["required"] = sorted({*out.get("required", ()), "apiVersion", "kind"})
    if properties:
        out["properties"] = properties
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        out["additionalProperties"] = _value(additional, closed)
    elif additional is not None:
        out["additionalProperties"] = bool(additional)
    elif (
        closed
        and not schema.get("x-kubernetes-preserve-unknown-fields")
        and (properties or schema.get("type") == "object")
    ):
        out["additionalProperties"] = False
    if closed:
        defaulted = [
            name
            for name, inner in (schema.get("properties") or {}).items()
            if "default" in inner and name not in out.get("required", ())
        ]
        if defaulted:
            out["required"] = [*out.get("required", ()), *defaulted]
