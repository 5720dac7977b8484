"""Which resources are served, and how each is stored.

An `Endpoint` is one kind in one served version. All versions of a resource share one table, which holds the
objects in the form of the storage version; an endpoint of another version converts on the way in and out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import Kind
from pykueue.embedded.schema.contract import ObjectSchema
from pykueue.embedded.store.table import Table

Convert = Callable[[Object], Object]


class Endpoint:
    """One kind in one served version."""

    def __init__(
        self,
        kind: Kind,
        schema: Callable[[], ObjectSchema],
        table: Table,
        storage: Endpoint | None = None,
        to_storage: Convert | None = None,
        from_storage: Convert | None = None,
        deprecation: str = "",
        custom: bool = False,
        fingerprint: str = "",
    ) -> None:
        self.kind = kind
        self.group = kind.group
        self.version = kind.version
        self.plural = kind.plural
        self.namespaced = kind.namespaced
        self.api_version = kind.api_version
        self.table = table
        #: The endpoint of the stored version; itself when this is the one.
        self.storage = storage or self
        #: The Warning header every request to this version gets, if any.
        self.deprecation = deprecation
        #: Whether its definition is being deleted: nothing new may be created.
        self.ending = False
        #: Whether it comes from a CustomResourceDefinition.
        self.custom = custom
        #: Whether the schemas that its writes go through are compiled.
        self.compiled = not custom
        #: Set when the write that compiles them is done with it, while there is one.
        self.compiling: asyncio.Event | None = None
        #: Whether its form differs from the stored one in the name of the version alone: an object is then
        #: asked to fit its own version's schema, not that of the stored version.
        self.renamed = False
        #: Tells this definition of the kind from any other, for caches of documents about it.
        self.fingerprint = fingerprint
        #: Has conversions of objects to an API version at hand for the functions above, where they come from
        #: another program; to be awaited before them. Raises ApiError.
        self.fetch: Callable[[Iterable[Object], str], Awaitable[None]] | None = None
        self._make_schema = schema
        self._schema: ObjectSchema | None = None
        self._to_storage = to_storage
        self._from_storage = from_storage
        self.subresources = {one.name: one for one in kind.subresources}

    @property
    def schema(self) -> ObjectSchema:
        """The kind's schema, compiled when first needed."""
        if self._schema is None:
            self._schema = self._make_schema()
        return self._schema

    @property
    def stored(self) -> bool:
        """Whether objects are stored in this version's form."""
        return self.storage is self

    @property
    def tracked(self) -> Endpoint:
        """The version whose field names managedFields use: versions with the same fields share it."""
        return self if self.renamed else self.storage

    def to_storage(self, obj: Object) -> Object:
        """An object of this version in the stored form."""
        return obj if self._to_storage is None else self._to_storage(obj)

    def from_storage(self, obj: Object) -> Object:
        """A stored object in this version's form."""
        return obj if self._from_storage is None else self._from_storage(obj)

    async def ready(self, objects: Iterable[Object]) -> None:
        """Make sure that `from_storage` can convert these stored objects."""
        if self.fetch is not None:
            await self.fetch(objects, self.api_version)

    @property
    def qualified(self) -> str:
        """`workloads.kueue.x-k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __repr__(self) -> str:
        return f"Endpoint({self.api_version} {self.plural})"


_VERSION = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")
_STABILITY = {None: 0, "beta": 1, "alpha": 2}


def version_order(version: str) -> tuple[int, int, int, int, str]:
    """Sort key of API versions: v2, v1, v1beta2, v1beta1, v1alpha1, then anything else by name."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (1, 0, 0, 0, version)
    major, stability, minor = match.groups()
    return (0, _STABILITY[stability], -int(major), -int(minor or 0), version)


#: Built-in groups in the order in which an ambiguous plural is looked up.
_GROUP_ORDER = (
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "metrics.k8s.io",
)


class Registry:
    """All endpoints, found by path or by kind."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Endpoint] = {}
        self._by_kind: dict[tuple[str, str, str], Endpoint] = {}
        self._storage: dict[tuple[str, str], Endpoint] = {}
        #: What paths of collections were found to name.
        self.collections: dict[str, Any] = {}
        #: Grows with every change: lets discovery documents see that they are stale.
        self.changes = 0

    def add(self, endpoint: Endpoint) -> None:
        """Serve an endpoint, in place of one with the same path."""
        self._by_path[endpoint.group, endpoint.version, endpoint.plural] = endpoint
        self._by_kind[endpoint.group, endpoint.version, endpoint.kind.kind] = endpoint
        self._storage[endpoint.group, endpoint.plural] = endpoint.storage
        self.collections.clear()
        self.changes += 1

    def remove(self, endpoint: Endpoint) -> None:
        """Serve it no longer."""
        if self._by_path.get((endpoint.group, endpoint.version, endpoint.plural)) is not endpoint:
            return
        del self._by_path[endpoint.group, endpoint.version, endpoint.plural]
        self._by_kind.pop((endpoint.group, endpoint.version, endpoint.kind.kind), None)
        if not any(one.plural == endpoint.plural and one.group == endpoint.group for one in self):
            del self._storage[endpoint.group, endpoint.plural]
        self.collections.clear()
        self.changes += 1

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(list(self._by_path.values()))

    def find(self, group: str, version: str, plural: str) -> Endpoint | None:
        """The endpoint that serves a resource in a version, or None."""
        return self._by_path.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> Endpoint | None:
        return self._by_kind.get((group, version, kind))

    def storage(self, group: str, plural: str) -> Endpoint | None:
        """The endpoint of the stored version of a resource."""
        return self._storage.get((group, plural))

    def groups(self) -> list[tuple[str, list[str]]]:
        """Groups with their versions, both in order of preference."""
        versions: dict[str, set[str]] = {}
        for endpoint in self._by_path.values():
            versions.setdefault(endpoint.group, set()).add(endpoint.version)

        def order(group: str) -> tuple[int, str]:
            return (_GROUP_ORDER.index(group) if group in _GROUP_ORDER else len(_GROUP_ORDER), group)

        return [(group, sorted(versions[group], key=version_order)) for group in sorted(versions, key=order)]

    def of_version(self, group: str, version: str) -> Iterable[Endpoint]:
        """Endpoints of one group and version by plural."""
        return sorted(
            (one for one in self._by_path.values() if one.group == group and one.version == version),
            key=lambda one: one.plural,
        )
