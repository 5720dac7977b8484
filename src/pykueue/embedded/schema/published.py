"""Schemas as OpenAPI v3 publishes them: of built-in definitions, and of custom kinds.

Source: docs/reference/kubernetes-api-machinery.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .definitions import definitions, referenced

Document = dict[str, Any]

#: Prefix of the definitions of metadata.
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
#: Prefix of a `$ref` to a schema of the same document.
REF: Final = "#/components/schemas/"
#: Where a schema or an operation names its kind.
GVK: Final = "x-kubernetes-group-version-kind"


def published_definition(name: str) -> Document:
    """A built-in definition as OpenAPI v3 publishes it, without the distortions of its JSON Schema form."""
    return _publish(definitions()[name], name)


def _publish(schema: Mapping[str, Any], name: str = "") -> Document:
    out: Document = {}
    for key, value in schema.items():
        match key:
            case "$ref":
                out["allOf"] = [{"$ref": REF + str(referenced(schema))}]
            case "type":
                out["type"] = (
                    next(one for one in value if one != "null") if isinstance(value, list) else value
                )
            case "properties":
                out["properties"] = {field: _publish(inner) for field, inner in value.items()}
            case "items" | "additionalProperties" if isinstance(value, dict):
                out[key] = _publish(value)
            case "oneOf":
                out["oneOf"] = [_publish(one) for one in value]
                if name.endswith("IntOrString"):
                    out["format"] = "int-or-string"
            case "enum":
                # Only apiVersion and kind have one here, and these are known from the path.
                continue
            case _:
                out[key] = value
    return out


def custom_name(group: str, version: str, kind: str) -> str:
    """`io.x-k8s.kueue.v1beta2.ClusterQueue` for kueue.x-k8s.io."""
    return ".".join([*reversed(group.split(".")), version, kind])


def published_custom(group: str, version: str, kind: str, schema: Mapping[str, Any]) -> Document:
    """A custom kind's schema with the fields that every object has."""
    described = {
        name: {"type": "string", "description": definition["description"]}
        for name, definition in definitions()["io.k8s.api.core.v1.Pod"]["properties"].items()
        if name in ("apiVersion", "kind")
    }
    metadata = {
        "allOf": [{"$ref": f"{REF}{META}ObjectMeta"}],
        "description": "Standard object's metadata.",
    }
    properties = {**(schema.get("properties") or {}), **described, "metadata": metadata}
    return {**schema, "type": "object", "properties": properties, GVK: [kind_extension(group, version, kind)]}


def kind_extension(group: str, version: str, kind: str) -> Document:
    """The value of `GVK` for a kind."""
    return {"group": group, "version": version, "kind": kind}
