"""What an API server would refuse of an object that is created, without a server.

The same schemas, defaults and rules of kinds as in `apiserver`; what needs other stored objects (namespaces,
quotas, webhooks of others) is left out. The objects themselves are not changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from pykueue.api.cel.node import Node
from pykueue.api.objects import Object
from pykueue.embedded.apiserver.crd.kind import CustomKind
from pykueue.embedded.apiserver.crd.structural import custom_schema
from pykueue.embedded.kinds.base import Kind
from pykueue.embedded.kinds.builtin import builtin_kinds
from pykueue.embedded.objects import metadata
from pykueue.embedded.objects.errors import Cause
from pykueue.embedded.schema.builtin import builtin_schema
from pykueue.embedded.schema.contract import ObjectSchema
from pykueue.embedded.schema.definitions import published_kinds

#: Name and uid of an object that has none yet.
_NAME, _UID = "unnamed", "00000000-0000-4000-8000-000000000000"


class UnknownField(NamedTuple):
    """A field that the schema does not have."""

    path: str
    #: Names of the fields that are known in its place.
    known: tuple[str, ...]


class _Served(NamedTuple):
    kind: Kind
    #: Compiles the schema at the first call.
    schema: Callable[[], ObjectSchema]


class _NoCluster:
    """The context of hooks where nothing is stored."""

    user, dry_run, now = "", True, 0.0

    def __init__(self) -> None:
        self.rng = random.Random(0)

    def lookup(self, group: str, plural: str, namespace: str, name: str) -> Object | None:
        return None

    def objects(self, group: str, plural: str, namespace: str = "") -> Iterable[Object]:
        return ()


class Offline:
    """The kinds of a server: the built-in ones and those of CustomResourceDefinitions."""

    def __init__(self, definitions: Iterable[Object]) -> None:
        self._served: dict[tuple[str, str], _Served] = {}
        self._groups: dict[str, set[tuple[str, str]]] = {}
        for group, version, name in published_kinds():
            self._groups.setdefault(group, set()).add((version, name))
        for kind in builtin_kinds():
            self._serve(kind, partial(builtin_schema, kind.group, kind.version, kind.kind))
        for definition in definitions:
            for version in definition["spec"]["versions"]:
                if version["served"]:
                    self._serve_custom(CustomKind(definition, version), version)

    def _serve_custom(self, kind: Kind, version: Object) -> None:
        openapi = version["schema"]["openAPIV3Schema"]
        schema = partial(custom_schema, kind.group, kind.version, kind.kind, kind.namespaced, openapi)
        self._serve(kind, schema)

    def _serve(self, kind: Kind, schema: Callable[[], ObjectSchema]) -> None:
        self._served[kind.api_version, kind.kind] = _Served(kind, cache(schema))
        self._groups.setdefault(kind.group, set()).add((kind.version, kind.kind))

    def knows(self, api_version: str, kind: str) -> bool:
        """Whether the kind is known in this version."""
        group, _, version = api_version.rpartition("/")
        return (version, kind) in self._groups.get(group, ())

    def versions(self, group: str, kind: str) -> list[str]:
        """The API versions in which a kind of the group is known."""
        found = sorted(version for version, name in self._groups.get(group, ()) if name == kind)
        return [f"{group}/{version}" if group else version for version in found]

    def kinds(self, group: str) -> list[str]:
        """Names of all kinds of the group."""
        return sorted({name for _, name in self._groups.get(group, ())})

    def unknown_fields(self, obj: Object) -> list[UnknownField]:
        """Fields that the schema of the kind does not have; none for a kind that is not served."""
        served = self._served.get((obj["apiVersion"], obj["kind"]))
        if served is None:
            return []
        schema = served.schema()
        return list(_unknown_fields(obj, schema.node, "")) if schema.prepare(obj)[1] else []

    def causes(self, obj: Object) -> list[Cause]:
        """Why the object would be refused when it is created, beside unknown fields.

        None for a kind that is not served. What only a server sets (the status, most metadata) does not
        count.
        """
        served = self._served.get((obj["apiVersion"], obj["kind"]))
        if served is None:
            return []
        kind, schema = served.kind, served.schema()
        meta = obj.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        causes = metadata.type_causes(meta)
        if causes:
            return causes
        meta = {**meta, "name": meta.get("name") or _NAME, "uid": meta.get("uid") or _UID}
        obj, _ = schema.prepare({**obj, "metadata": meta})
        # Types of built-in kinds are checked as soon as they are decoded, before the status is dropped.
        causes = schema.validate(obj) if kind.typed else []
        if kind.has_status and not kind.keeps_status_at_create:
            obj = {key: value for key, value in obj.items() if key != "status"}
        if not kind.typed:
            causes = schema.validate(obj)
        if not causes:
            obj = kind.prepare_create(kind.default(obj), _NoCluster())
            causes = kind.validate(obj)
        return [*metadata.causes(obj["metadata"], kind.name_rule), *causes]


def _unknown_fields(value: Any, node: Node, path: str) -> Iterator[UnknownField]:
    if isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            yield from _unknown_fields(item, node.items, f"{path}[{index}]")
    elif isinstance(value, dict) and (node.properties or node.values is not None):
        for key, inner in value.items():
            child = node.child(key)
            if child is not None:
                yield from _unknown_fields(inner, child, f"{path}.{key}" if path else key)
            elif not node.open:
                yield UnknownField(f"{path}.{key}" if path else key, tuple(node.properties))
