"""The OpenAPI documents that clients read: v3 per group and version, and the least v2 that kubectl accepts.

Clients take from them what fields exist and mean (`kubectl explain`), whether the server validates fields,
and how lists merge. Paths tell kinds, verbs, patch types and the fieldValidation parameter, no more.

Source: docs/reference/kubernetes-api-machinery.md, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import orjson

from pykueue.embedded.kinds.base import Kind
from pykueue.embedded.schema.contract import ObjectSchema
from pykueue.embedded.schema.definitions import KUBERNETES_VERSION, definition_closure
from pykueue.embedded.schema.published import (
    GVK,
    META,
    REF,
    Document,
    custom_name,
    kind_extension,
    published_definition,
)

#: The Content-Type a v2 answer must have; kubectl fails on the spelling it asks with itself.
V2_CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

_PATCH_TYPES: Final = ("application/json-patch+json", "application/merge-patch+json")
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"

_QUERY: Final = {
    name: {"name": name, "in": "query", "description": text, "schema": {"type": kind, "uniqueItems": True}}
    for name, kind, text in (
        ("dryRun", "string", "All: go through every step except storing."),
        ("fieldManager", "string", "The name of the client or controller that makes this change."),
        (
            "fieldValidation",
            "string",
            "Strict, Warn or Ignore: what to do about unknown or duplicate fields.",
        ),
        ("force", "boolean", "Take over fields that other managers apply."),
        ("labelSelector", "string", "Only objects with these labels."),
        ("fieldSelector", "string", "Only objects with these field values."),
        ("limit", "integer", "The most objects one answer may hold."),
        ("continue", "string", "Where an earlier answer left off."),
        ("resourceVersion", "string", "How recent the answer must be."),
        ("watch", "boolean", "Stream changes instead of listing."),
    )
}
_WRITE_QUERY: Final[tuple[str, ...]] = ("dryRun", "fieldManager", "fieldValidation")
_LIST_QUERY: Final[tuple[str, ...]] = (
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "watch",
)

#: Verb, HTTP method, action and query parameters of operations on collections and on one object.
_Operations = tuple[tuple[str, str, str, tuple[str, ...]], ...]
_COLLECTION_OPERATIONS: Final[_Operations] = (
    ("list", "get", "list", _LIST_QUERY),
    ("create", "post", "post", _WRITE_QUERY),
    ("deletecollection", "delete", "deletecollection", ("dryRun", "labelSelector", "fieldSelector")),
)
_OBJECT_OPERATIONS: Final[_Operations] = (
    ("get", "get", "get", ()),
    ("update", "put", "put", _WRITE_QUERY),
    ("patch", "patch", "patch", (*_WRITE_QUERY, "force")),
    ("delete", "delete", "delete", ("dryRun",)),
)


def _list_schema(kind: Kind, item: str) -> Document:
    return {
        "type": "object",
        "description": f"{kind.list_kind} is a list of {kind.kind}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": f"{REF}{META}ListMeta"}]},
            "items": {"type": "array", "items": {"allOf": [{"$ref": REF + item}]}},
        },
        GVK: [kind_extension(kind.group, kind.version, kind.list_kind)],
    }


def v3_document(group: str, version: str, kinds: Iterable[tuple[Kind, ObjectSchema]]) -> Document:
    """The document of one group and version: the kinds served in it, with every schema they refer to."""
    paths: Document = {}
    schemas: Document = {}
    for kind, schema in kinds:
        published = schema.openapi()
        definition = getattr(schema, "name", None)
        name = definition or custom_name(group, version, kind.kind)
        for other in definition_closure(definition) if definition else _meta_closure():
            if other not in schemas:
                schemas[other] = published_definition(other)
        schemas[name] = published
        if "list" in kind.verbs:
            schemas[f"{name}List"] = _list_schema(kind, name)
            for other in definition_closure(META + "ListMeta"):
                schemas.setdefault(other, published_definition(other))
        _add_paths(paths, kind, name, strategic=definition is not None)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": f"v{KUBERNETES_VERSION}.0"},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _meta_closure() -> list[str]:
    return definition_closure(META + "ObjectMeta")


def _add_paths(paths: Document, kind: Kind, name: str, strategic: bool) -> None:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = f"{base}/namespaces/{{namespace}}" if kind.namespaced else base
    collection, one = f"{scope}/{kind.plural}", f"{scope}/{kind.plural}/{{name}}"
    json = ("application/json",)
    patches = (*_PATCH_TYPES, *((_STRATEGIC,) if strategic else ()), _APPLY)
    bodies: Mapping[str, tuple[str, ...]] = {"create": json, "update": json, "patch": patches}
    for verb, method, action, query in _COLLECTION_OPERATIONS:
        if verb in kind.verbs:
            answer = f"{name}List" if verb == "list" else name
            item = paths.setdefault(collection, _path_item(kind, named=False))
            item[method] = _operation(kind, action, query, answer, bodies.get(verb, ()), name)
    for verb, method, action, query in _OBJECT_OPERATIONS:
        body = bodies.get(verb, ())
        if verb in kind.verbs:
            item = paths.setdefault(one, _path_item(kind, named=True))
            item[method] = _operation(kind, action, query, name, body, name)
        for subresource in kind.subresources:
            if subresource.name == "status" and verb in subresource.verbs:
                item = paths.setdefault(f"{one}/status", _path_item(kind, named=True))
                item[method] = _operation(kind, action, query, name, body, name)
    if kind.namespaced and "list" in kind.verbs:
        everywhere = f"{base}/{kind.plural}"
        operation = _operation(kind, "list", _LIST_QUERY, f"{name}List", (), name)
        paths.setdefault(everywhere, {})["get"] = operation


def _path_item(kind: Kind, named: bool) -> Document:
    names = (["name"] if named else []) + (["namespace"] if kind.namespaced else [])
    return {
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    }


def _operation(
    kind: Kind, action: str, query: Iterable[str], answer: str, body: Iterable[str], name: str
) -> Document:
    operation: Document = {
        "parameters": [_QUERY[one] for one in query],
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": {"$ref": REF + answer}}},
            }
        },
        "x-kubernetes-action": action,
        GVK: kind_extension(kind.group, kind.version, kind.kind),
    }
    contents = {
        media: {"schema": {"$ref": REF + name} if action != "patch" else {"type": "object"}} for media in body
    }
    if contents:
        operation["requestBody"] = {"required": True, "content": contents}
    return operation


def v2_document(others: Iterable[bytes] = ()) -> bytes:
    """The smallest OpenAPI v2 document in protobuf: kubectl wants one to be there, and reads v3.

    Documents of `others` are merged into it: protobuf messages one after the other are one message.
    """
    version = f"v{KUBERNETES_VERSION}.0".encode()
    info = _field(1, b"Kubernetes") + _field(2, version)
    return b"".join(others) + _field(1, b"2.0") + _field(2, info) + _field(8, b"")


def v2_json_document(others: Iterable[bytes] = ()) -> Document:
    """The same in JSON."""
    info = {"title": "Kubernetes", "version": f"v{KUBERNETES_VERSION}.0"}
    merged: Document = {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}
    for other in others:
        try:
            document = orjson.loads(other)
            for part in ("paths", "definitions"):
                merged[part] = {**(document.get(part) or {}), **merged[part]}
        except (ValueError, TypeError, AttributeError):  # not a document: nothing is said about that server
            continue
    return merged


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field, shorter than 128 bytes."""
    return bytes((number << 3 | 2, len(content))) + content
