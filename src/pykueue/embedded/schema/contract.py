"""What the request pipeline expects of a kind's schema; the schema modules of this package provide it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from pykueue.api.cel.node import Node
from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import Cause


class ObjectSchema(Protocol):
    """The shape of one kind in one version: published for built-in kinds, structural for custom ones.

    Objects are shared and immutable: a method that changes something returns a new object that copies only
    along the changed path, and returns its argument itself when there is nothing to change.
    """

    @property
    def compiled(self) -> bool:
        """Whether `compile_ahead` has nothing left to do."""
        ...

    @property
    def node(self) -> Node:
        """What patches and managed fields walk along: list types, merge keys."""
        ...

    def compile_ahead(self) -> Iterator[None]:
        """Compile in steps what the other methods would compile at once; no steps when that is done."""
        ...

    def prepare(self, obj: Object, old: Object | None = None) -> tuple[Object, list[str]]:
        """The object without unknown fields and with the schema's defaults, and the unknown fields' paths.

        Subtrees that are the same object in `old` (`is`), which was prepared before, may be skipped. Must
        cope with wrong types anywhere (it leaves such parts alone for `validate` to refuse).
        """
        ...

    def validate(self, obj: Object, old: Object | None = None) -> list[Cause]:
        """Why the object is refused: types, bounds, list uniqueness, CEL rules, ratcheting on `old`.

        Subtrees that are the same object in both (`is`) need not be looked at again.
        """
        ...

    def openapi(self) -> dict[str, Any]:
        """The schema as OpenAPI v3 publishes it."""
        ...
