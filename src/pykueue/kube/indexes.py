"""Indexes of a watch cache: the keys of objects by what a function finds in them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

from pykueue.api.objects import Key

KeyFunction = Callable[[Any], Iterable[Hashable]]

#: Fields of metadata, beside those that never change, that indexes `of_metadata` look at.
_FIELDS: Final = ("labels", "annotations", "ownerReferences", "deletionTimestamp")


class Index:
    """The keys of objects by the index keys that `key_function` gives them.

    `of_metadata` says that these follow from an object's name, labels, annotations, owners and
    deletionTimestamp, `of_spec` that they follow from its name and its spec, whose changes the server counts
    as generations: they are not computed again while these stay as they are.
    """

    __slots__ = ("_key_function", "keys", "of_metadata", "of_spec")

    def __init__(self, key_function: KeyFunction, of_metadata: bool = False, of_spec: bool = False) -> None:
        self._key_function = key_function
        #: index key -> object keys, in the order in which they came (a dict, for its order)
        self.keys: dict[Hashable, dict[Key, None]] = {}
        self.of_metadata = of_metadata
        self.of_spec = of_spec

    def add(self, key: Key, obj: Any) -> None:
        """An object came."""
        for index_key in self._key_function(obj):
            self.keys.setdefault(index_key, {})[key] = None

    def remove(self, key: Key, obj: Any) -> None:
        """An object went."""
        for index_key in self._key_function(obj):
            self._remove(key, index_key)

    def move(self, key: Key, old: Any, new: Any) -> None:
        """An object changed; one that keeps an index key keeps its place under it."""
        found, given = self._key_function(old), self._key_function(new)
        if found == given:
            return  # most often, and without a copy
        before, after = list(found), list(given)
        for index_key in set(before).difference(after):
            self._remove(key, index_key)
        for index_key in after:
            if index_key not in before:
                self.keys.setdefault(index_key, {})[key] = None

    def _remove(self, key: Key, index_key: Hashable) -> None:
        found = self.keys.get(index_key)
        if found is not None:
            found.pop(key, None)
            if not found:
                del self.keys[index_key]


def move_in(indexes: Iterable[Index], key: Key, old: Any, new: Any) -> None:
    """An object changed: find it by its new keys."""
    same_metadata: bool | None = None
    same_spec: bool | None = None
    for index in indexes:
        if index.of_metadata:
            if same_metadata is None:
                same_metadata = _same_metadata(old, new)
            if same_metadata:
                continue
        elif index.of_spec:
            if same_spec is None:
                same_spec = _same_spec(old, new)
            if same_spec:
                continue
        index.move(key, old, new)


def _same_metadata(old: Any, new: Any) -> bool:
    """Whether the keys of indexes `of_metadata` are the same."""
    before, after = old["metadata"], new["metadata"]
    for field in _FIELDS:
        one, other = before.get(field), after.get(field)
        if one is not other and one != other:
            return False
    return True


def _same_spec(old: Any, new: Any) -> bool:
    """Whether the keys of indexes `of_spec` are the same: for the server, the spec is."""
    generation = old["metadata"].get("generation")
    return bool(generation) and generation == new["metadata"].get("generation")
