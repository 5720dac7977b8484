"""Indexes of (flavor, resource) pairs: every table of quota and usage is keyed by these small integers."""

from __future__ import annotations


class FlavorResources:
    """Indexes of (flavor, resource) pairs, in the order they were first seen, for the life of an engine."""

    __slots__ = ("_indexes", "names")

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, str], int] = {}
        #: (flavor, resource) by index.
        self.names: list[tuple[str, str]] = []

    def index_of(self, flavor: str, resource: str) -> int:
        """The index of a (flavor, resource) pair; a new pair gets the next free index."""
        name = (flavor, resource)
        index = self._indexes.get(name)
        if index is None:
            index = self._indexes[name] = len(self.names)
            self.names.append(name)
        return index

    def resource(self, flavor_resource: int) -> str:
        """The resource of the pair with this index."""
        return self.names[flavor_resource][1]
