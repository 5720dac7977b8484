"""What the request pipeline expects of a kind's schema; the schema modules of this room provide it."""

from __future__ import annotations

from typing import Any, Protocol

from pykueue.embedded.apiserver.status import Cause

Object = dict[str, Any]


class ObjectSchema(Protocol):
    """The shape of one kind in one version: published for built-in kinds, structural for custom ones.

    Objects are shared and immutable: a method that changes something returns a new object that copies only
    along the changed path, and returns its argument itself when there is nothing to change.
    """

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


# Functions expected of the neighbouring modules:
#   schema.builtin_schema(group, version, kind) -> ObjectSchema       KeyError when nothing is published
#   schema.custom_schema(group, version, kind, namespaced, openapi: dict | None) -> ObjectSchema
#   schema.check_custom_schema(openapi, path) -> list[Cause]          structural rules, CEL compiles
#   patches.json_patch(doc, patch: list) -> doc                       ApiError 422 / 400
#   patches.merge_patch(doc, patch) -> doc                            copy on write
#   strategic.strategic_patch(doc, patch, schema) -> doc
#   apply.apply(live: Object | None, config, manager, force, subresource, now: str, schema, api_version)
#       -> Object; ApiError 409 with FieldManagerConflict causes; `live` itself when nothing changes
#   apply.track_update(old: Object | None, new, manager, subresource, now: str, schema, api_version) -> Object
#       on POST, PUT and the other patches; leaves untracked objects untracked
#   protobuf.decode(body: bytes) -> Object                            ValueError when it is not an envelope
#   openapi.v2_document() -> bytes;  openapi.v3_document(group, version, [(Kind, ObjectSchema)]) -> dict
#   tables.table(kind, objects, metadata, now, include_object, with_columns) -> dict
#   tables.json_path(path) -> evaluator
