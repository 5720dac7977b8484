"""Structural schemas of Kubernetes types that objects of ours hold, made from the published schemas."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from pykueue.api.quantity import PATTERN

#: Release of Kubernetes whose pod templates (and their like) our objects can hold.
RELEASE: Final = "v1.34.0"

Schema = dict[str, Any]

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

#: Metadata a template can sensibly carry; the server prunes the rest.
_METADATA = ("annotations", "finalizers", "labels", "name", "namespace")
_KEPT = (
    "format",
    "enum",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
)


def published_schema(name: str) -> Schema:
    """A new copy of the schema of a type, by its full definition name."""
    return _inlined(name)


@cache
def _definitions() -> dict[str, Schema]:
    path = f"kubernetes-json-schema/{RELEASE}-local/_definitions.json"
    data = resources.files("kubernetes_validate").joinpath(path).read_bytes()
    definitions: dict[str, Schema] = msgspec.json.decode(data)["$defs"]
    return definitions


def _inlined(name: str) -> Schema:
    if name == _QUANTITY:
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    if name == _INT_OR_STRING:
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    definition = _definitions()[name]
    if name == _OBJECT_META:
        properties = definition["properties"]
        definition = {"type": "object", "properties": {field: properties[field] for field in _METADATA}}
    return _structural(definition)


def _structural(node: Schema) -> Schema:
    """The node as a CRD may say it: one type, no references, no nulls, keys of map lists always there."""
    if "$ref" in node:
        result = _inlined(node["$ref"].rpartition("/")[2])
    else:
        result = {"type": _type(node)}
        for keyword in _KEPT:
            if keyword in node:
                result[keyword] = node[keyword]
        if "properties" in node:
            result["properties"] = {key: _structural(child) for key, child in node["properties"].items()}
        if "required" in node:
            result["required"] = node["required"]
        if isinstance(node.get("additionalProperties"), dict):
            result["additionalProperties"] = _structural(node["additionalProperties"])
        if "items" in node:
            result["items"] = _structural(node["items"])
        for key in result.get("x-kubernetes-list-map-keys", ()):
            if key not in result["items"].get("required", ()):
                result["items"]["properties"][key]["default"] = "TCP" if key == "protocol" else ""
    if "description" in node:
        result["description"] = _first_sentence(node["description"])
    return result


def _type(node: Schema) -> str:
    type = node["type"]
    if isinstance(type, str):
        return type
    (only,) = (name for name in type if name != "null")
    return str(only)


def _first_sentence(text: str) -> str:
    """The gist: whole texts would triple the size of the definitions."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]
