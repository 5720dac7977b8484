"""Schemas of the built-in kinds, from the published definitions of one Kubernetes version.

The definitions (definitions.py) have types, descriptions, list types and merge keys. What the package
distorts is put right here: null is allowed nearly everywhere (Go reads null as absent, so null is dropped),
quantities and int-or-string are alternatives of nullable types, defaults that list keys rely on are missing.
Schemas are compiled per kind, when first asked for.

Source: docs/reference/kubernetes-api-machinery.md, section 22.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import jsonschema_rs

from pykueue.api.cel.formats import CANONICAL_QUANTITY, INTEGER_BOUNDS
from pykueue.api.cel.node import INT_OR_STRING, QUANTITY, Node
from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import Cause

from .causes import faults_of, to_causes
from .compile import compile_validator
from .definitions import definition_closure, definition_name, definitions, referenced
from .published import published_definition
from .walk import clean

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META: Final = _META + "ObjectMeta"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING: Final = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_TIMES: Final = (_META + "Time", _META + "MicroTime")

#: Definitions without properties that hold anything, as opposed to empty structs.
_ANYTHING: Final = frozenset(
    {
        _META + "FieldsV1",
        _META + "Patch",
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    }
)

#: Fields published as required whose zero value is accepted, so that leaving them out is too.
_ZERO_ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "io.k8s.api.core.v1.HTTPHeader": frozenset({"value"}),
    "io.k8s.api.core.v1.Sysctl": frozenset({"value"}),
    "io.k8s.api.core.v1.LimitRangeSpec": frozenset({"limits"}),
    "io.k8s.api.core.v1.Event": frozenset({"metadata"}),
    "io.k8s.api.apps.v1.ControllerRevision": frozenset({"revision"}),
    "io.k8s.api.events.v1.Event": frozenset({"eventTime"}),
    "io.k8s.api.rbac.v1.RoleRef": frozenset({"apiGroup"}),
    "io.k8s.api.scheduling.v1.PriorityClass": frozenset({"value"}),
    "io.k8s.api.authentication.v1.TokenRequestSpec": frozenset({"audiences"}),
}

#: Defaults of fields that are keys of lists: an element without them has these.
_KEY_DEFAULTS: Final[Mapping[tuple[str, str], str]] = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
}

# Nodes

_nodes: dict[str, Node] = {}


def definition_node(name: str) -> Node:
    """The node of a definition, made once; recursive definitions lead back to the same node."""
    node = _nodes.get(name)
    if node is None:
        node = _nodes[name] = Node()
        _fill(node, definitions()[name], name)
    return node


def _fill(node: Node, schema: Mapping[str, Any], name: str) -> None:
    if name == _QUANTITY:
        node.type = QUANTITY
        return
    if name == _INT_OR_STRING:
        node.type = INT_OR_STRING
        return
    node.type = _json_type(schema)
    node.open = name in _ANYTHING
    if node.open:
        node.type = ""
    # Times that are not set are null in what Go writes. Those of metadata go, like nulls elsewhere: some
    # clients send them in templates, which would not equal those without. Others are left alone.
    node.nullable = name in _TIMES or not node.type
    for field, inner in (schema.get("properties") or {}).items():
        child = _place(inner)
        if child.nullable and name == OBJECT_META:
            child = replace(child, nullable=False)
        default = _KEY_DEFAULTS.get((name, field))
        node.properties[field] = child if default is None else replace(child, default=default)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        node.values = _place(additional)
        if node.values.type == "string":
            # Go reads null in a map of strings as the empty string.
            node.values = replace(node.values, default="")
    if isinstance(schema.get("items"), dict):
        node.items = _place(schema["items"])
    node.list_type = schema.get("x-kubernetes-list-type") or "atomic"
    node.list_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    _mark(node, schema)


def _place(schema: Mapping[str, Any]) -> Node:
    name = referenced(schema)
    if name is None:
        node = Node()
        _fill(node, schema, "")
        return node
    target = definition_node(name)
    if schema.keys() <= {"$ref", "description"}:
        return target
    node = replace(target)
    _mark(node, schema)
    return node


def _mark(node: Node, schema: Mapping[str, Any]) -> None:
    strategies = (schema.get("x-kubernetes-patch-strategy") or "").split(",")
    node.merges = node.merges or "merge" in strategies
    node.retains_keys = node.retains_keys or "retainKeys" in strategies
    node.replaces = node.replaces or "replace" in strategies
    node.merge_key = schema.get("x-kubernetes-patch-merge-key") or node.merge_key
    if "x-kubernetes-map-type" in schema:
        node.atomic = schema["x-kubernetes-map-type"] == "atomic"


def _json_type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "")
    if isinstance(kind, list):
        kind = next(one for one in kind if one != "null")
    return str(kind)


# Validators

#: A time that is not null.
_SET_TIME: Final[Object] = {"type": "string", "format": "date-time"}

#: Marks the variant of a definition that is used below a status.
_IN_STATUS: Final = "~"


def json_schema(root: str) -> Object:
    """The closed JSON Schema of a definition, with the definitions it leads to.

    What a status lacks counts as zero, as in Go, so below it nothing is required.
    """
    closure = {name: _convert(definitions()[name], name) for name in definition_closure(root)}
    status = referenced((definitions()[root].get("properties") or {}).get("status") or {})
    if status is not None:
        for name in definition_closure(status):
            closure[name + _IN_STATUS] = _convert(definitions()[name], name, _IN_STATUS)
        properties = {
            **closure[root]["properties"],
            "status": {"$ref": f"#/definitions/{status}{_IN_STATUS}"},
        }
        closure[root] = {**closure[root], "properties": properties}
    return {"$ref": f"#/definitions/{root}", "definitions": closure}


@cache
def metadata_definitions() -> Object:
    """ObjectMeta and what it refers to, under the name by which custom kinds' schemas refer to it."""
    found: Object = json_schema(OBJECT_META)["definitions"]
    return {**found, "ObjectMeta": found[OBJECT_META]}


def _convert(schema: Mapping[str, Any], name: str = "", variant: str = "") -> Object:
    target = referenced(schema)
    if target is not None:
        return {"$ref": f"#/definitions/{target}{variant}"}
    if name == _QUANTITY:
        return {"type": "string", "pattern": CANONICAL_QUANTITY}
    if name == _INT_OR_STRING:
        low, high = INTEGER_BOUNDS["int32"]
        return {"type": ["integer", "string"], "minimum": low, "maximum": high}
    if name in _ANYTHING:
        return {}
    kind = _json_type(schema)
    out: Object = {"type": kind}
    if name in _TIMES:
        return {**_SET_TIME, "type": ["string", "null"]}
    if kind == "integer":
        out["minimum"], out["maximum"] = INTEGER_BOUNDS[schema.get("format", "")]
    elif kind == "string" and schema.get("format") == "byte":
        out["format"] = "byte"
    if kind == "object":
        properties = schema.get("properties") or {}
        if properties:
            out["properties"] = {
                field: _convert(inner, variant=variant) for field, inner in properties.items()
            }
            if name == OBJECT_META:
                times = [field for field, inner in properties.items() if referenced(inner) in _TIMES]
                out["properties"] |= dict.fromkeys(times, _SET_TIME)
        additional = schema.get("additionalProperties")
        out["additionalProperties"] = (
            _convert(additional, variant=variant) if isinstance(additional, dict) else False
        )
        required = [
            one for one in schema.get("required") or () if one not in _ZERO_ALLOWED.get(name, frozenset())
        ]
        if required and not variant:
            out["required"] = required
    if isinstance(schema.get("items"), dict):
        out["items"] = _convert(schema["items"], variant=variant)
    return out


class BuiltinSchema:
    """The shape of one built-in kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.compiled = True
        self.node = definition_node(name)
        self._validator: jsonschema_rs.Draft4Validator = compile_validator(json_schema(name))
        #: Whether a part of the object may be validated by itself, as none of its fields must be there.
        self._has_parts = not definitions()[name].get("required")
        #: What was found valid last, so that preparing and validating it looks at it once.
        self._valid: Object | None = None

    def compile_ahead(self) -> Iterator[None]:
        return iter(())

    def prepare(self, obj: Object, old: Object | None = None) -> tuple[Object, list[str]]:
        """Without unknown fields and nulls, quantities canonical; and the unknown fields' paths.

        Fields that are those of `old`, which is stored, are not looked at again.
        """
        unknown: list[str] = []
        looked_at = obj
        if old is not None and self._has_parts:
            looked_at = {field: value for field, value in obj.items() if old.get(field) is not value}
        if self._validator.is_valid(looked_at):
            self._valid = obj
            return obj, unknown
        return clean(obj, self.node, None, unknown), unknown

    def validate(self, obj: Object, old: Object | None = None) -> list[Cause]:
        """Wrong types and missing fields; `obj` must have been prepared.

        Repeated list elements are each kind's own matter: Kubernetes accepts an environment variable twice.
        """
        causes: list[Cause] = []
        if obj is old or obj is self._valid or self._validator.is_valid(obj):
            return causes
        for error in faults_of(self._validator, obj):
            causes.extend(to_causes(error))
        return causes

    def openapi(self) -> Object:
        """The schema as OpenAPI v3 publishes it, with references to the other definitions."""
        return published_definition(self.name)


@cache
def builtin_schema(group: str, version: str, kind: str) -> BuiltinSchema:
    """The schema of a built-in kind. KeyError when nothing is published for it."""
    return BuiltinSchema(definition_name(group, version, kind))
