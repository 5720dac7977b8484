"""The parts of a custom kind's schema that objects are checked by, compiled when they are first needed.

Source: docs/reference/kubernetes-api-machinery.md, sections 15 and 22.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

from jsonschema_rs import Draft4Validator

from pykueue import extras
from pykueue.api.cel.node import Node, structural_node
from pykueue.api.objects import Object
from pykueue.embedded.schema.builtin import OBJECT_META, definition_node, metadata_definitions
from pykueue.embedded.schema.compile import compile_validator, custom_root
from pykueue.embedded.schema.walk import Defaults, Unique, compile_defaults, compile_unique

if TYPE_CHECKING:
    from pykueue.embedded.cel.rules import Rules

#: Fields of an object that are looked at when its status is written; all others are as they were.
OF_STATUS_WRITES: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


#: Expressions that are compiled in one step.
_COMPILED_TOGETHER = 32


class Parts:
    """What an OpenAPI schema of a custom kind is compiled to."""

    def __init__(self, openapi: Object) -> None:
        self._published = openapi
        self.compiled = False

    @cached_property
    def node(self) -> Node:
        """The schema as a tree that bodies are pruned, defaulted and validated by."""
        return structural_node(self._published, definition_node(OBJECT_META))

    @cached_property
    def _root(self) -> Object:
        return custom_root(self._published, metadata_definitions())

    @cached_property
    def validator(self) -> Draft4Validator:
        return compile_validator(self._root)

    @cached_property
    def status_validator(self) -> Draft4Validator | None:
        """That of objects of which all but status and metadata is as it was; None without a status."""
        fields = self._root["properties"]
        if "status" not in fields:
            return None
        kept = {name: fields[name] if name in OF_STATUS_WRITES else {} for name in fields}
        return compile_validator({**self._root, "properties": kept})

    @cached_property
    def defaults(self) -> Defaults | None:
        return compile_defaults(self.node)

    @cached_property
    def unique(self) -> Unique | None:
        return compile_unique(self.node)

    @cached_property
    def rules(self) -> Rules | None:
        if not extras.installed("cel"):
            return None  # the server needs the extra; `pykueue schedule` says that rules are not checked
        from pykueue.embedded.cel.rules import compile_rules

        return compile_rules(self.node)

    def compile_ahead(self) -> Iterator[None]:
        """Compile what validation needs in small steps; the caller pauses between two of them."""
        if self.compiled:
            return
        from pykueue.embedded.cel.rules import compile_ahead

        for part in ("node", "_root", "validator", "status_validator", "defaults", "unique"):
            getattr(self, part)
            yield
        self.__dict__.pop("_root", None)  # nothing else needs it
        programs = []  # kept until the rules refer to them
        for program in compile_ahead(self._published):
            programs.append(program)
            if program is None or len(programs) % _COMPILED_TOGETHER == 0:
                yield
        _ = self.rules
        self.compiled = True
