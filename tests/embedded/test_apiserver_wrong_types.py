"""A wrong type in every field of every kind: refused, and the field is named.

All fields at one depth are given a wrong value at once, so that some thousand requests cover every field with
every type that it is not.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from apiserver_harness import CRDS, Api, with_server

from pykueue.api.crds import crds
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.jobset.definition import definition as jobset_definition
from pykueue.kube.transport import Request

Schema = dict[str, Any]

#: A value of every JSON type.
_VALUES: dict[str, Any] = {
    "string": "A_b!",
    "integer": 7,
    "number": 1.5,
    "boolean": True,
    "array": ["A_b!"],
    "object": {"a": 7},
}
#: Types whose values are also taken for another.
_ALSO = {"number": {"number", "integer"}}
#: Kinds whose metadata is looked at: a built-in one and a custom one.
_WITH_METADATA = ("configmaps", "workloads")
#: Definitions of values of any kind.
_ANY = ("FieldsV1", "RawExtension")
#: How often one definition may be within itself: schemas of schemas have no end.
_NESTED = 1


class Shape:
    """A published schema with its references resolved."""

    def __init__(self, schema: Schema, schemas: dict[str, Schema], above: tuple[str, ...] = ()) -> None:
        while True:
            if "$ref" in schema:
                name = schema["$ref"].rpartition("/")[2]
                above = (*above, name)
                schema = schemas[name]
            elif schema.get("allOf"):
                schema = {**schema, **schema["allOf"][0], "allOf": None}
            else:
                break
        self._schema, self._schemas, self._above = schema, schemas, above
        self.endless = any(above.count(name) > _NESTED + 1 for name in above)

    @cached_property
    def types(self) -> set[str]:
        """The JSON types of its values; all of them where it does not say."""
        schema = self._schema
        if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
            return {"string", "integer"}
        branches = [one.get("type") for one in schema.get("oneOf") or () if one.get("type")]
        named = branches or ([schema["type"]] if schema.get("type") else [])
        if (not named and not schema.get("properties")) or (self._above and self._above[-1].endswith(_ANY)):
            return set(_VALUES)
        return {also for one in named or ["object"] for also in _ALSO.get(one, {one})}

    @cached_property
    def fields(self) -> dict[str, Shape]:
        if self.endless:
            return {}
        properties = self._schema.get("properties") or {}
        return {name: Shape(inner, self._schemas, self._above) for name, inner in properties.items()}

    @cached_property
    def depth(self) -> int:
        """How many steps its deepest field is away."""
        if self.endless:
            return 0
        below = [*self.fields.values(), *([self.inner] if self.inner is not None else [])]
        return 1 + max((one.depth for one in below), default=0)

    @cached_property
    def inner(self) -> Shape | None:
        """What a list or map holds."""
        key = "items" if self._schema.get("type") == "array" else "additionalProperties"
        inner = self._schema.get(key)
        return Shape(inner, self._schemas, self._above) if isinstance(inner, dict) and inner else None

    def wrong(self, depth: int, kind: str, path: str, wanted: list[str]) -> Any:
        """A value in which all fields at a depth are of the type `kind` where they must not be.

        Their paths are added to `wanted`; None when there is no such field.
        """
        if self.endless:
            return None
        if depth == 0:
            if kind in self.types:
                return None
            wanted.append(path)
            return _VALUES[kind]
        if depth >= self.depth:
            return None
        inner = self.inner
        if inner is not None:
            key: Any = "[0]" if self._schema.get("type") == "array" else ".key"
            below = inner.wrong(depth - 1, kind, path + key, wanted)
            return None if below is None else [below] if key == "[0]" else {"key": below}
        found = {}
        for name, shape in self.fields.items():
            below = shape.wrong(depth - 1, kind, f"{path}.{name}" if path else name, wanted)
            if below is not None:
                found[name] = below
        return found or None


async def _refuses(api: Api, endpoint: Endpoint, path: str, body: Schema, wanted: list[str]) -> list[str]:
    """Which of the wanted fields are not named by the refusal."""
    given = body.get("metadata")
    body = {"apiVersion": endpoint.api_version, "kind": endpoint.kind.kind, **body}
    if isinstance(given, dict | None):
        body["metadata"] = {"name": "n", **(given or {})}
    if endpoint.custom and "status" in body:
        # A create drops what only its own path may write; the schema is the same there.
        prepared, _ = endpoint.schema.prepare(body)
        named = {cause.field for cause in endpoint.schema.validate(prepared)}
    else:
        error = await api.refused(api.server.transport().call(Request("POST", path, {}, body)))
        assert error.code in (400, 422), f"{endpoint.qualified} {error.code} {error.message[:300]}"
        named = {cause.get("field") for cause in error.details.get("causes") or ()}
    return [f"{endpoint.api_version} {endpoint.plural} {one}" for one in wanted if one not in named]


def _part_of(path: str, meta: str, rest: Schema) -> bool:
    """Whether a path is within a field of the metadata or, without one, within the rest of the object."""
    first, _, below = path.partition(".")
    if not meta:
        return first.partition("[")[0] in rest
    return first == "metadata" and re.split(r"[.\[]", below)[0] == meta


async def _attack(api: Api, endpoint: Endpoint, schemas: dict[str, Schema], silent: list[str]) -> int:
    base = f"/apis/{endpoint.api_version}" if endpoint.group else "/api/v1"
    path = f"{base}/namespaces/default" if endpoint.namespaced else base
    path = f"{path}/{endpoint.plural}"
    shape, checked = Shape(endpoint.schema.openapi(), schemas), 0
    for kind in _VALUES:
        for depth in range(1, shape.depth):
            wanted: list[str] = []
            body = shape.wrong(depth, kind, "", wanted) or {}
            meta = body.pop("metadata", None)
            rest = {name: value for name, value in body.items() if name not in ("apiVersion", "kind")}
            groups: list[tuple[str, Schema]] = [("", rest)] if rest else []
            # Metadata is the same for all; its parts are refused one after the other.
            if endpoint.plural in _WITH_METADATA and isinstance(meta, dict):
                groups += [(name, {"metadata": {name: value}}) for name, value in meta.items()]
            for name, content in groups:
                fields = [one for one in wanted if _part_of(one, name, rest)]
                silent += await _refuses(api, endpoint, path, content, fields)
                checked += len(fields)
    return checked


def test_every_field_of_every_kind_refuses_every_wrong_type() -> None:
    async def story(api: Api) -> None:
        for crd in [*crds(), jobset_definition()]:
            await api.create(CRDS, crd)
        schemas: dict[str, Schema] = {}
        for group, versions in api.server.core.registry.groups():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                schemas |= (await api.get(f"/openapi/v3/{path}"))["components"]["schemas"]
        silent: list[str] = []
        checked = 0
        for endpoint in api.server.core.registry:
            if "create" in endpoint.kind.verbs:
                checked += await _attack(api, endpoint, schemas, silent)
        assert checked > 90_000
        assert not silent, "\n".join(silent[:60])

    with_server(story)
