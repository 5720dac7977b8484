"""The shape of kinds: what is pruned, defaulted and refused before anything is stored.

`custom_schema` compiles the structural schema of a CustomResourceDefinition's version, `builtin_schema`
finds that of a built-in kind. Both answer the ObjectSchema protocol (contract.py) and have a `node` that
patches and managed fields walk along. An object that needs nothing done to it costs one run of a compiled
validator; only one that has something to prune, to default or to refuse is walked in Python.

Source: docs/reference/kubernetes-api-machinery.md, sections 15 and 22.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson
from jsonschema_rs import Draft4Validator

from pykueue import extras
from pykueue.api.cel.node import ABSENT, Node, structural_node
from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import Cause
from pykueue.embedded.schema.builtin import OBJECT_META, definition_node, metadata_definitions
from pykueue.embedded.schema.causes import faults_of, first_faults, to_causes
from pykueue.embedded.schema.compile import compile_validator, custom_root
from pykueue.embedded.schema.published import published_custom
from pykueue.embedded.schema.ratcheting import unchanged
from pykueue.embedded.schema.walk import (
    Defaults,
    Unique,
    apply_defaults,
    check_unique,
    clean,
    compile_defaults,
    compile_unique,
)

if TYPE_CHECKING:
    from pykueue.embedded.cel.rules import Rules

#: Of a version that declares no schema: everything is kept.
_ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


_RULES_SKIPPED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)


#: Faults after which rules are not asked: what they read may not be there, or too large to go through.
_ENDING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)


#: Fields of an object that are looked at when its status is written; all others are as they were.
_OF_STATUS_WRITES: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


#: Expressions that are compiled in one step.
_COMPILED_TOGETHER = 32


class CustomSchema:
    """The shape of one version of a custom kind; its parts are compiled when they are first needed."""

    def __init__(self, group: str, version: str, kind: str, namespaced: bool, openapi: Object) -> None:
        self.group, self.version, self.kind, self.namespaced = group, version, kind, namespaced
        self._published = openapi
        self.compiled = False
        #: What was found valid last, and by which validator, so that preparing and validating it looks at it
        #: once.
        self._valid: tuple[Object, Draft4Validator] | None = None

    @cached_property
    def node(self) -> Node:
        """The schema as a tree that bodies are pruned, defaulted and validated by."""
        return structural_node(self._published, definition_node(OBJECT_META))

    @cached_property
    def _root(self) -> Object:
        return custom_root(self._published, metadata_definitions())

    @cached_property
    def _validator(self) -> Draft4Validator:
        return compile_validator(self._root)

    @cached_property
    def _status_validator(self) -> Draft4Validator | None:
        """That of objects of which all but status and metadata is as it was; None without a status."""
        fields = self._root["properties"]
        if "status" not in fields:
            return None
        kept = {name: fields[name] if name in _OF_STATUS_WRITES else {} for name in fields}
        return compile_validator({**self._root, "properties": kept})

    @cached_property
    def _defaults(self) -> Defaults | None:
        return compile_defaults(self.node)

    @cached_property
    def _unique(self) -> Unique | None:
        return compile_unique(self.node)

    @cached_property
    def _rules(self) -> Rules | None:
        if not extras.installed("cel"):
            return None  # the server needs the extra; `pykueue schedule` says that rules are not checked
        from pykueue.embedded.cel.rules import compile_rules

        return compile_rules(self.node)

    def compile_ahead(self) -> Iterator[None]:
        """Compile what validation needs in small steps; the caller pauses between two of them."""
        if self.compiled:
            return
        from pykueue.embedded.cel.rules import compile_ahead

        for part in ("node", "_root", "_validator", "_status_validator", "_defaults", "_unique"):
            getattr(self, part)
            yield
        self.__dict__.pop("_root", None)  # nothing else needs it
        programs = []  # kept until the rules refer to them
        for program in compile_ahead(self._published):
            programs.append(program)
            if program is None or len(programs) % _COMPILED_TOGETHER == 0:
                yield
        _ = self._rules
        self.compiled = True

    def prepare(self, obj: Object, old: Object | None = None) -> tuple[Object, list[str]]:
        """Pruned and defaulted, and the paths of the fields pruned."""
        unknown: list[str] = []
        # What was stored before has its defaults already.
        if old is not None and self._is_valid(obj, self._validator_of(obj, old)):
            return obj, unknown
        if self._defaults is not None:
            obj = apply_defaults(obj, self._defaults)
        if self._is_valid(obj, self._validator):
            return obj, unknown
        obj = clean(obj, self.node, None, unknown)
        # Dropping a null uncovers a default, of its field or of a parent that is absent now.
        if self._defaults is not None:
            obj = apply_defaults(obj, self._defaults)
        return obj, unknown

    def _validator_of(self, obj: Object, old: Object | None) -> Draft4Validator:
        """The validator of what is not the same in `old`: most writes are of the status."""
        changed = self._status_validator
        if old is None or changed is None or obj.get("status") is old.get("status"):
            return self._validator
        for field, value in obj.items():
            if field not in _OF_STATUS_WRITES and value is not old.get(field, ABSENT):
                return self._validator
        return changed

    def _is_valid(self, obj: Object, validator: Draft4Validator) -> bool:
        if not validator.is_valid(obj):
            return False
        self._valid = obj, validator
        return True

    def _known_valid(self, obj: Object, validator: Draft4Validator) -> bool:
        """Whether it is what was found valid last, but for metadata that the server has set meanwhile."""
        if self._valid is None:
            return False
        known, by = self._valid
        if (by is not validator and by is not self._validator) or len(known) != len(obj):
            return False
        for field, value in obj.items():
            if value is not known.get(field, ABSENT) and field != "metadata":
                return False
        meta, before = obj.get("metadata"), known.get("metadata")
        if type(meta) is not dict or type(before) is not dict:
            return meta is before
        # The schema of a custom kind may restrict these two fields of the metadata, and no others.
        return meta.get("name") == before.get("name") and meta.get("generateName") == before.get(
            "generateName"
        )

    def validate(self, obj: Object, old: Object | None = None) -> list[Cause]:
        """Why the object is refused; `obj` must have been prepared.

        On an update (`old` given) faults in parts that did not change are let pass.
        """
        causes: list[Cause] = []
        if obj is old:
            return causes
        validator = self._validator_of(obj, old)
        if not self._known_valid(obj, validator) and not validator.is_valid(obj):
            for error in first_faults(faults_of(self._validator, obj)):
                if old is None or not unchanged(error.instance_path, obj, old, self.node):
                    causes.extend(to_causes(error))
        if self._unique is not None:
            check_unique(obj, old, self._unique, causes)
        rules = self._rules
        if rules is not None:
            skipped = any(cause.reason in _ENDING for cause in causes)
            causes.extend([_RULES_SKIPPED] if skipped else rules.check(obj, old))
        return causes

    def openapi(self) -> Object:
        """The schema as OpenAPI v3 publishes it."""
        return published_custom(self.group, self.version, self.kind, self._published)


def custom_schema(
    group: str, version: str, kind: str, namespaced: bool, openapi: Mapping[str, Any] | None
) -> CustomSchema:
    """Compile `openAPIV3Schema` of one version of a CustomResourceDefinition; None accepts anything.

    The schema must have passed `check_custom_schema`. Schemas that are alike are compiled once: servers that
    start one after the other in one process share them.
    """
    return _compiled(group, version, kind, namespaced, orjson.dumps(openapi or _ANYTHING))


@lru_cache(maxsize=256)
def _compiled(group: str, version: str, kind: str, namespaced: bool, openapi: bytes) -> CustomSchema:
    return CustomSchema(group, version, kind, namespaced, orjson.loads(openapi))
