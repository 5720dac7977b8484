"""Reading manifests: YAML with several documents, JSON, and lists as `kubectl get -o yaml` prints them."""

from __future__ import annotations

from typing import Any

from .yaml_values import YamlSyntaxError, read_documents


class YamlError(ValueError):
    """A file cannot be read as manifests. The text names the source, the document and the line."""


class NoObjectError(YamlError):
    """A document is something else than an object of an API: it has neither apiVersion nor kind."""


def load_documents(text: str, source: str = "<input>") -> list[dict[str, Any]]:
    """All objects of a text, in order; empty documents are left out and `List` kinds are opened up.

    Raises YamlError.
    """
    return [manifest for _, manifest in load_with_places(text, source)]


def load_with_places(text: str, source: str = "<input>") -> list[tuple[str, dict[str, Any]]]:
    """The same, each object with the place it stands in: `jobs.yaml: document 2 (line 9)`."""
    objects: list[tuple[str, dict[str, Any]]] = []
    number = 0
    try:
        for document in read_documents(text):
            number += 1
            if document.value is not None:
                _collect(document.value, objects, f"{source}: document {number} (line {document.line})")
    except YamlSyntaxError as error:
        raise YamlError(f"{source}: document {number + 1}: {error}") from None
    return objects


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
