"""The shape of kinds: what is pruned, defaulted and refused before anything is stored.

`custom_schema` compiles the structural schema of a CustomResourceDefinition's version, `builtin_schema`
finds that of a built-in kind. Both answer the ObjectSchema protocol (contract.py) and have a `node` that
patches and managed fields walk along. An object that needs nothing done to it costs one run of a compiled
validator; only one that has something to prune, to default or to refuse is walked in Python.

Source: docs/reference/kubernetes-api-machinery.md, sections 15 and 22.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson
from jsonschema_rs import Draft4Validator

from pykueue.api.cel.node import ABSENT, Node
from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import Cause
from pykueue.embedded.schema.causes import faults_of, first_faults, to_causes
from pykueue.embedded.schema.published import published_custom
from pykueue.embedded.schema.ratcheting import unchanged
from pykueue.embedded.schema.walk import apply_defaults, check_unique, clean

from .parts import OF_STATUS_WRITES, Parts

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


class CustomSchema:
    """The shape of one version of a custom kind; its parts are compiled when they are first needed."""

    def __init__(self, group: str, version: str, kind: str, namespaced: bool, openapi: Object) -> None:
        self.group, self.version, self.kind, self.namespaced = group, version, kind, namespaced
        self._published = openapi
        self._parts = Parts(openapi)
        #: What was found valid last, and by which validator, so that preparing and validating it looks at it
        #: once.
        self._valid: tuple[Object, Draft4Validator] | None = None

    @property
    def compiled(self) -> bool:
        """Whether everything is compiled."""
        return self._parts.compiled

    @property
    def node(self) -> Node:
        """The schema as a tree that bodies are pruned, defaulted and validated by."""
        return self._parts.node

    def compile_ahead(self) -> Iterator[None]:
        """Compile what validation needs in small steps; the caller pauses between two of them."""
        return self._parts.compile_ahead()

    def prepare(self, obj: Object, old: Object | None = None) -> tuple[Object, list[str]]:
        """Pruned and defaulted, and the paths of the fields pruned."""
        parts = self._parts
        unknown: list[str] = []
        # What was stored before has its defaults already.
        if old is not None and self._is_valid(obj, self._validator_of(obj, old)):
            return obj, unknown
        if parts.defaults is not None:
            obj = apply_defaults(obj, parts.defaults)
        if self._is_valid(obj, parts.validator):
            return obj, unknown
        obj = clean(obj, self.node, None, unknown)
        # Dropping a null uncovers a default, of its field or of a parent that is absent now.
        if parts.defaults is not None:
            obj = apply_defaults(obj, parts.defaults)
        return obj, unknown

    def _validator_of(self, obj: Object, old: Object | None) -> Draft4Validator:
        """The validator of what is not the same in `old`: most writes are of the status."""
        parts = self._parts
        changed = parts.status_validator
        if old is None or changed is None or obj.get("status") is old.get("status"):
            return parts.validator
        for field, value in obj.items():
            if field not in OF_STATUS_WRITES and value is not old.get(field, ABSENT):
                return parts.validator
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
        if (by is not validator and by is not self._parts.validator) or len(known) != len(obj):
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
        parts = self._parts
        validator = self._validator_of(obj, old)
        if not self._known_valid(obj, validator) and not validator.is_valid(obj):
            for error in first_faults(faults_of(parts.validator, obj)):
                if old is None or not unchanged(error.instance_path, obj, old, self.node):
                    causes.extend(to_causes(error))
        if parts.unique is not None:
            check_unique(obj, old, parts.unique, causes)
        rules = parts.rules
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
