"""Reading manifests: YAML with several documents, JSON, and lists as `kubectl get -o yaml` prints them."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml as _yaml

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML was built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]


#: Most values a document may have when its aliases are written out.
_MAX_NODES = 1_000_000


class YamlError(ValueError):
    """A file cannot be read as manifests. The text names the source, the document and the line."""


class NoObjectError(YamlError):
    """A document is something else than an object of an API: it has neither apiVersion nor kind."""


class _ManifestLoader(_Loader):
    """YAML as Kubernetes reads it: times stay text and keys are unique text."""


_REPLACED = {f"tag:yaml.org,2002:{name}" for name in ("timestamp", "value", "int", "float")}
_ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}
# Numbers without YAML 1.1's base 60, which would make 3725 of 1:02:05.
_ManifestLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)\Z", re.ASCII),
    list("-+0123456789"),
)
_ManifestLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", re.ASCII),
    list("-+.0123456789"),
)


def _float(loader: _ManifestLoader, node: _yaml.ScalarNode) -> float | int:
    """JSON, which every server speaks, does not tell 1.0 from 1."""
    value = float(node.value)
    if not math.isfinite(value):
        raise _yaml.constructor.ConstructorError(None, None, f"{node.value} is too large", node.start_mark)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _text(loader: _ManifestLoader, node: _yaml.ScalarNode) -> str:
    return str(node.value)


_ManifestLoader.add_constructor("tag:yaml.org,2002:float", _float)
# `<<` merges as a key; as a value it is text.
_ManifestLoader.add_constructor("tag:yaml.org,2002:merge", _text)
_ManifestLoader.add_constructor("tag:yaml.org,2002:timestamp", _text)
# What JSON has no word for is refused as an unknown tag.
_ManifestLoader.yaml_constructors = {
    tag: construct
    for tag, construct in _ManifestLoader.yaml_constructors.items()
    if tag not in {f"tag:yaml.org,2002:{name}" for name in ("binary", "set", "omap", "pairs")}
}


def _mapping(loader: _ManifestLoader, node: _yaml.MappingNode) -> dict[Any, Any]:
    written: set[str] = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, _yaml.ScalarNode):
            raise _yaml.constructor.ConstructorError(None, None, "a key must be text", key_node.start_mark)
        if key_node.value in written:
            problem = f"duplicate key {key_node.value!r}"
            raise _yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        written.add(key_node.value)
    loader.flatten_mapping(node)
    # JSON knows only text as keys: a bare number or yes is taken as it was written.
    return {key.value: loader.construct_object(value, deep=True) for key, value in node.value}


_ManifestLoader.add_constructor(_yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_documents(text: str, source: str = "<input>") -> list[dict[str, Any]]:
    """All objects of a text, in order; empty documents are left out and `List` kinds are opened up.

    Raises YamlError.
    """
    return [manifest for _, manifest in load_with_places(text, source)]


def load_with_places(text: str, source: str = "<input>") -> list[tuple[str, dict[str, Any]]]:
    """The same, each object with the place it stands in: `jobs.yaml: document 2 (line 9)`."""
    objects: list[tuple[str, dict[str, Any]]] = []
    number = 0
    loader = _ManifestLoader(text)
    try:
        while loader.check_node():
            number += 1
            node = loader.get_node()
            line = node.start_mark.line + 1 if node else 0
            if "*" in text and _size(node, {}) > _MAX_NODES:
                raise YamlError(f"{source}: document {number} (line {line}): aliases make it too large")
            document = loader.construct_document(node)
            if document is None:
                continue
            _collect(document, objects, f"{source}: document {number} (line {line})")
    except _yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise YamlError(
            f"{source}: document {max(number, 1)}: {where}{error.problem or error.context}"
        ) from None
    except (_yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, YamlError):
            raise
        raise YamlError(f"{source}: document {max(number, 1)}: {error}") from None
    finally:
        loader.dispose()
    return objects


def _size(node: _yaml.Node | None, known: dict[int, int]) -> int:
    """Number of values below a node when its aliases are written out."""
    if not isinstance(node, _yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 0  # what contains itself is refused when it is constructed
        children = node.value
        if isinstance(node, _yaml.MappingNode):
            children = [value for _, value in children]
        known[id(node)] = 1 + sum(_size(child, known) for child in children)
    return known[id(node)]


def _collect(document: Any, objects: list[tuple[str, dict[str, Any]]], where: str) -> None:
    if not isinstance(document, dict):
        raise YamlError(
            f"{where}: found {_name_of(document)} where an object with apiVersion and kind is needed"
        )
    kind = document.get("kind")
    items = document.get("items")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            _collect(item, objects, f"{where}: items[{index}]")
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            error = NoObjectError if document.keys().isdisjoint(("apiVersion", "kind")) else YamlError
            raise error(f"{where}: {field} is missing; every object names its apiVersion and kind")
    objects.append((where, document))


def _name_of(value: Any) -> str:
    return {list: "a list", str: "text", bool: "a boolean"}.get(type(value), f"the value {value!r}")
