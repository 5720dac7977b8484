"""A schema as a tree of nodes: what pruning, defaulting, patches and managed fields walk along.

One `Node` describes one place in an object. Custom kinds build theirs from a structural OpenAPI schema
(`structural_node`), built-in kinds from the published definitions (builtin_schemas.py). The rules on values
(bounds, patterns) are not here: they are compiled to a JSON Schema validator.

Source: docs/reference/kubernetes-api-machinery.md, sections 12 and 15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: No default: null is one.
ABSENT: Final = object()

#: Type of a place that takes an integer or a string.
INT_OR_STRING: Final = "int-or-string"
#: Type of a Kubernetes quantity of a built-in kind: written as text, also read from a number.
QUANTITY: Final = "quantity"


@dataclass(slots=True, eq=False)
class Node:
    """What may be at one place. `type` is a JSON type, INT_OR_STRING, QUANTITY, or empty for any value."""

    type: str = ""
    properties: dict[str, Node] = field(default_factory=dict)
    #: Of every other field (`additionalProperties`).
    values: Node | None = None
    items: Node | None = None
    #: Whether undeclared fields are kept.
    open: bool = False
    nullable: bool = False
    default: Any = ABSENT
    #: `atomic`, `set` or `map`; `list_keys` identify the elements of a `map`.
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    #: Whether the fields of an object are owned as one.
    atomic: bool = False
    #: How a strategic merge patch treats the place: merge lists (by `merge_key` if they hold objects), keep
    #: only the fields that the patch lists, or replace maps.
    merges: bool = False
    merge_key: str = ""
    retains_keys: bool = False
    replaces: bool = False
    #: The most bytes of a text, elements of a list or entries of a map, where the schema says so.
    limit: int | None = None
    #: Bytes of the smallest JSON value.
    least: int = 1
    #: `x-kubernetes-validations` of the place.
    rules: tuple[Mapping[str, Any], ...] = ()
    #: Makes the step of an element of a list in a set of fields; made when it is first asked for.
    step_of: Callable[[Any], str | None] | None = field(default=None, init=False, repr=False)

    def child(self, name: str) -> Node | None:
        """The node of a field; None when the field is unknown here (which an open node keeps as is)."""
        found = self.properties.get(name)
        return self.values if found is None else found


#: Keeps anything, owned field by field.
ANY = Node(open=True, nullable=True)


def structural_node(schema: Mapping[str, Any], metadata: Node) -> Node:
    """The root of a custom kind. `metadata` describes ObjectMeta, which no custom schema can change."""
    root = node_of(schema, metadata)
    root.type = "object"
    root.nullable = False
    root.default = ABSENT
    root.properties = {**root.properties, **_type_and_metadata(metadata)}
    return root


def _type_and_metadata(metadata: Node) -> dict[str, Node]:
    return {"apiVersion": Node("string"), "kind": Node("string"), "metadata": metadata}


def node_of(schema: Mapping[str, Any], metadata: Node) -> Node:
    """The node of one structural schema. `metadata` describes ObjectMeta in embedded objects."""
    additional = schema.get("additionalProperties")
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    items = schema.get("items")
    node = Node(
        type=INT_OR_STRING if schema.get("x-kubernetes-int-or-string") else schema.get("type", ""),
        properties={
            name: node_of(inner, metadata) for name, inner in (schema.get("properties") or {}).items()
        },
        values=node_of(additional, metadata) if isinstance(additional, dict) else None,
        items=node_of(items, metadata) if isinstance(items, dict) else None,
        open=bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True,
        nullable=bool(schema.get("nullable")),
        default=schema.get("default", ABSENT),
        list_type=schema.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
        atomic=schema.get("x-kubernetes-map-type") == "atomic",
        limit=_limit(schema),
        rules=tuple(schema.get("x-kubernetes-validations") or ()),
    )
    node.least = _least(node, schema)
    if not node.type and not node.properties and node.values is None:
        node.open = True
    if embedded:
        node.properties = {**node.properties, **_type_and_metadata(metadata)}
    return node


_LIMITS: Final = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
#: The most and the fewest bytes of texts in formats of a known form.
_FORMATS: Final = {"date": (12, 12), "date-time": (32, 21), "duration": (32, 3)}
#: A character of a text whose length is limited has at most so many bytes.
_CHARACTER: Final = 4
_LEAST: Final = {"boolean": 4, "string": 2, "array": 2, "object": 2}


def _limit(schema: Mapping[str, Any]) -> int | None:
    kind = schema.get("type", "")
    given: int | None = schema.get(_LIMITS.get(kind, "maxLength"))
    if kind != "string":
        return given
    written = schema.get("format") or ""
    if written in _FORMATS:
        return _FORMATS[written][0]
    if given is not None:
        return given if written == "byte" else given * _CHARACTER
    if schema.get("enum"):
        return max(len(one) if isinstance(one, str) else 0 for one in schema["enum"])
    return None


def _least(node: Node, schema: Mapping[str, Any]) -> int:
    if node.type == "string":
        return _FORMATS.get(schema.get("format") or "", (0, _LEAST["string"]))[1]
    least = _LEAST.get(node.type, 1)
    if node.type != "object" or node.values is not None:
        return least
    # Required fields are there, with their names, quotes, a colon and a comma; defaults come from the server.
    needed = {name: node.properties.get(name) for name in schema.get("required") or ()}
    return least + sum(
        len(name) + inner.least + 4
        for name, inner in needed.items()
        if inner is not None and inner.default is ABSENT
    )


def walk(node: Node, visit: Callable[[Node], bool]) -> None:
    """Call `visit` on every node below and including `node` once; it says whether to go on below."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if not visit(one):
            continue
        stack.extend(one.properties.values())
        stack.extend(inner for inner in (one.values, one.items) if inner is not None)
