"""How the types of the API are written down: one immutable Struct per object, which also is its schema.

A field's type, its default and the marks in `Annotated` say everything a CustomResourceDefinition says about
it; the text below a field is its description. Decoding ignores the marks: what a server stored is not judged
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, dataclass_transform

import msgspec

T = TypeVar("T")


class _ModelMeta(msgspec.StructMeta):
    """Makes fields keyword-only, which a Struct does not inherit by itself."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        options.setdefault("kw_only", True)
        return super().__new__(mcls, name, bases, namespace, **options)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Model(
    msgspec.Struct,
    metaclass=_ModelMeta,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=False,
    frozen=True,
    gc=False,  # manifests are trees: the cycle collector has nothing to find in them
):
    """Base of all API types: camelCase on the wire, unknown fields ignored, immutable."""


class Rule:
    """OpenAPI keywords for the annotated type, by their OpenAPI names."""

    __slots__ = ("keywords",)

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


class Cel:
    """A validation rule in CEL over `self` (and `oldSelf`), with the text of its error."""

    __slots__ = ("message", "reason", "rule")

    def __init__(self, rule: str, message: str, reason: str | None = None) -> None:
        self.rule = rule
        self.message = message
        self.reason = reason


class Published:
    """Marks a field whose schema is the published one of a Kubernetes type, by its full definition name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


#: Marks a field whose Struct default is filled in by the API server.
DEFAULTED: Final = "defaulted"

#: Marks a field the API server demands although decoding forgives its absence.
REQUIRED: Final = "required"


def atomic(**keywords: Any) -> Rule:
    """A list (or map) that server-side apply replaces as a whole."""
    return Rule(**{"x-kubernetes-list-type": "atomic"}, **keywords)


def set_of(**keywords: Any) -> Rule:
    """A list of distinct scalars."""
    return Rule(**{"x-kubernetes-list-type": "set"}, **keywords)


def map_by(*keys: str, **keywords: Any) -> Rule:
    """A list whose items are identified by the named fields."""
    return Rule(
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)},
        **keywords,
    )


_TYPE_RULES: dict[type, list[Cel]] = {}


def checked(*rules: Cel) -> Callable[[type[T]], type[T]]:
    """Adds CEL rules to every schema made from the decorated type."""

    def add(cls: type[T]) -> type[T]:
        _TYPE_RULES[cls] = list(rules)
        return cls

    return add


def type_rules(cls: type) -> list[Cel]:
    """The rules given to `checked`, for this very type."""
    return _TYPE_RULES.get(cls, [])
