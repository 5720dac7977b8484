"""Wrong values in every field of every kind: refused or stored, never a fault of the server."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from apiserver_harness import CRDS, Api, widget_definition, with_server

from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Request

_STRANGE: list[Any] = [
    None, True, False, 0, -1, 2**63, 1.5, "", "x", "A_b!", "é\u0000", "9" * 300, [], [None], [[]], {},
    {"": ""}, {"a": {"b": []}}, ["x", 1], [{}], "1Gi", "2026-01-01T00:00:00Z",
]  # fmt: skip
_DEPTH = 9


def _value(schema: dict[str, Any], schemas: dict[str, Any], rng: random.Random, depth: int) -> Any:
    """A value more or less as the published schema wants it."""
    while True:
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        elif schema.get("allOf"):
            schema = schema["allOf"][0]
        else:
            break
    if rng.random() < 0.03:
        return rng.choice(_STRANGE)
    if schema.get("enum"):
        return rng.choice(schema["enum"])
    match schema.get("type"):
        case "object" | None if "properties" in schema:
            if depth > _DEPTH:
                return {}
            wanted = set(schema.get("required") or ())
            return {
                key: _value(child, schemas, rng, depth + 1)
                for key, child in schema["properties"].items()
                if key in wanted or key == "spec" or rng.random() < 0.35
            }
        case "object":
            child = schema.get("additionalProperties")
            if not isinstance(child, dict) or depth > _DEPTH:
                return {}
            return {"key": _value(child, schemas, rng, depth + 1)}
        case "array":
            if depth > _DEPTH:
                return []
            return [_value(schema["items"], schemas, rng, depth + 1) for _ in range(rng.randint(0, 2))]
        case "string":
            return rng.choice(["a", "b-c", "10m", "Always", "2026-01-01T00:00:00Z"])
        case "integer" | "number":
            return rng.choice([0, 1, 7])
        case "boolean":
            return rng.random() < 0.5
    return rng.choice(_STRANGE)


async def _survives(api: Api, request: Request) -> None:
    try:
        await api.server.transport().call(request)
    except ApiError as error:
        refused = error
    else:
        return
    # A configuration that does not fit its schema is an internal error on every API server.
    assert refused.code != 500 or request.content_type == APPLY_PATCH, refused.message
    orjson.dumps(refused.details)


async def _attack(
    api: Api, endpoint: Endpoint, schemas: dict[str, Any], rng: random.Random, rounds: int
) -> None:
    base = "/apis/" + endpoint.api_version if endpoint.group else "/api/v1"
    if endpoint.namespaced:
        base += "/namespaces/default"
    path = f"{base}/{endpoint.plural}"
    published = endpoint.schema.openapi()
    for number in range(rounds):
        body = _value(published, schemas, rng, 0)
        if not isinstance(body, dict):
            body = {}
        body["apiVersion"], body["kind"] = endpoint.api_version, endpoint.kind.kind
        if rng.random() < 0.9:
            body["metadata"] = {"name": f"n{number}"}
        await _survives(api, Request("POST", path, {}, body))
        for kind in (MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH):
            patch = _value(published, schemas, rng, 0)
            if kind == APPLY_PATCH and isinstance(patch, dict):
                patch |= {"apiVersion": endpoint.api_version, "kind": endpoint.kind.kind, "metadata": {}}
            await _survives(api, Request("PATCH", f"{path}/n{number}", {"fieldManager": "f"}, patch, kind))
            if endpoint.kind.has_status:
                await _survives(
                    api, Request("PATCH", f"{path}/n{number}/status", {"fieldManager": "f"}, patch, kind)
                )
        steps = [
            {"op": "add", "path": f"/{key}", "value": rng.choice(_STRANGE)} for key in ("spec", "status")
        ]
        await _survives(api, Request("PATCH", f"{path}/n{number}", {}, steps, JSON_PATCH))
        for row in [endpoint.table.get((("default" if endpoint.namespaced else ""), f"n{number}"))]:
            if row is not None:
                endpoint.kind.cells(endpoint.from_storage(row.object), api.clock.time())
        await _survives(api, Request("DELETE", f"{path}/n{number}", {}, rng.choice([None, {}, *_STRANGE])))


@pytest.mark.parametrize("seed", range(3))
def test_no_value_in_any_field_makes_the_server_fail(seed: int) -> None:
    async def story(api: Api) -> None:
        rng = random.Random(seed)
        await api.create(CRDS, widget_definition())
        schemas: dict[str, Any] = {}
        for group, versions in api.server.core.registry.groups():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                schemas |= (await api.get(f"/openapi/v3/{path}"))["components"]["schemas"]
        for endpoint in api.server.core.registry:
            if "update" in endpoint.kind.verbs and endpoint.plural != "namespaces":
                await _attack(api, endpoint, schemas, rng, 12)

    with_server(story)
