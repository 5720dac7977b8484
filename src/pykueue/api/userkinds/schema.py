"""The paths and expressions of a JobKind against the schema that an API server publishes for the kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pykueue.api.cel.node import INT_OR_STRING, Node, node_of
from pykueue.api.cel.reads import undeclared
from pykueue.api.jobkinds import ALL, Path
from pykueue.api.similar import did_you_mean
from pykueue.api.validation.fields import INVALID, FieldError

from .compile import CompiledKind, Named


def schema_errors(kind: CompiledKind, schema: Mapping[str, Any]) -> list[FieldError]:
    """What the OpenAPI schema of the kind does not have, or has with another type."""
    # Metadata is the same for all kinds and may be published as a reference.
    root = node_of(schema, Node(open=True))
    errors = [error for named in kind.paths for error in _path_errors(named, root)]
    for field, program, each in kind.programs:
        for variable, start in (("self", ()), ("element", each)):
            reads, node = program.reads(variable), _at(root, start)
            if reads is not None and node is not None:
                errors += [
                    FieldError(field, INVALID, variable, f"the schema of the kind has no field {name!r}")
                    for name in undeclared(reads, node)
                ]
    return errors


def _at(root: Node, path: Path) -> Node | None:
    """The node at a path; None where the schema says nothing about it."""
    node: Node | None = root
    for name in path:
        node = node.items if name == ALL and node is not None else _child(node, name)
        if node is None:
            return None
    return node


def _child(node: Node | None, name: str) -> Node | None:
    return None if node is None else node.child(name)


def _path_errors(named: Named, root: Node) -> Iterator[FieldError]:
    node: Node | None = root
    for depth, name in enumerate(named.path):
        below = node.items if name == ALL and node is not None else _child(node, name)
        if below is None:
            if not _is_open(node, name):
                yield _missing(named, depth, node)
            return
        node = below
    assert node is not None
    if named.type and node.type and not _is_type(node, named.type):
        yield FieldError(
            named.field, INVALID, _text(named.path), f"is of type {node.type}; accepted: {named.type}"
        )
    elif named.field.endswith(".template") and not (node.open or node.child("spec")):
        text = "is not a pod template: the schema of the kind has no field 'spec' in it"
        yield FieldError(named.field, INVALID, _text(named.path), text)


def _is_open(node: Node | None, name: str) -> bool:
    if node is None or node.open:
        return True
    return name == ALL and node.type in ("", "array")


def _is_type(node: Node, type_: str) -> bool:
    return node.type == type_ or (node.type == INT_OR_STRING and type_ in ("integer", "string"))


def _missing(named: Named, depth: int, node: Node | None) -> FieldError:
    name, above = named.path[depth], _text(named.path[:depth]) or "the object"
    known = sorted(node.properties) if node is not None else []
    hint = did_you_mean(name, known) or (f"; it has: {', '.join(known[:20])}" if known else "")
    text = f"{above} has no field {name!r} in the schema of the kind{hint}"
    return FieldError(named.field, INVALID, _text(named.path), text)


def _text(path: Path) -> str:
    return "".join("[*]" if name == ALL else f".{name}" for name in path)
