"""From a request body to an object the server may store: envelope, unknown fields, types, defaults.

Source: docs/reference/kubernetes-api-machinery.md, sections 8 and 15.
"""

from __future__ import annotations

from typing import Any

import orjson

from pykueue.api.cel.node import ABSENT
from pykueue.api.json_equality import same
from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.call import Call, WriteOptions
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.objects import metadata
from pykueue.embedded.objects.errors import (
    Cause,
    bad_request,
    invalid_object,
    named,
    type_invalid,
)
from pykueue.embedded.schema.builtin import builtin_schema


def own_copy(body: Any) -> tuple[Any, bool]:
    """A copy that shares nothing with the caller's value, and whether it may have nulls.

    400 when it is not a JSON value.
    """
    try:
        data = orjson.dumps(body)
        return orjson.loads(data), b"null" in data
    except (TypeError, orjson.JSONDecodeError) as error:
        raise bad_request(f"the body is not a JSON value: {error}") from error


def check_envelope(endpoint: Endpoint, body: Any) -> Object:
    """An object of the endpoint's kind and version, filled in for built-in kinds. 400 or 422 otherwise."""
    if type(body) is not dict:
        raise bad_request(f"the object provided is unrecognized (must be of type {endpoint.kind.kind})")
    api_version, kind = body.get("apiVersion"), body.get("kind")
    if api_version == endpoint.api_version and kind == endpoint.kind.kind:
        return body
    beginning = orjson.dumps(body).decode()[:200]
    if not kind and endpoint.custom:
        raise bad_request(f"Object 'Kind' is missing in '{beginning}'")
    if not api_version and endpoint.custom:
        raise bad_request(f"Object 'apiVersion' is missing in '{beginning}'")
    if api_version and api_version != endpoint.api_version:
        raise bad_request(
            f"the API version in the data ({named(api_version)}) does not match the expected API version "
            f"({endpoint.api_version})"
        )
    if kind and kind != endpoint.kind.kind:
        if endpoint.custom:
            given = body.get("metadata")
            name = given.get("name") or "" if isinstance(given, dict) else ""
            cause = Cause(
                "kind", "FieldValueInvalid", f'Invalid value: "{named(kind)}": must be {endpoint.kind.kind}'
            )
            raise invalid_object(endpoint.group, named(kind), named(name), [cause])
        raise bad_request(
            f'{named(kind)} in version "{endpoint.version}" cannot be handled as a {endpoint.kind.kind}'
        )
    return {**body, "apiVersion": endpoint.api_version, "kind": endpoint.kind.kind}


def subresource_body(call: Call, body: Any) -> Object:
    """A body of the kind that a subresource takes (Binding, Eviction, Scale, TokenRequest), types checked.

    400 when it is not an object or of another kind, 422 when a field has the wrong type.
    """
    sub, endpoint = call.endpoint.subresources[call.target.subresource], call.endpoint
    kind = sub.kind or endpoint.kind.kind
    group, version = (sub.group, sub.version) if sub.version else (endpoint.group, endpoint.version)
    if type(body) is not dict:
        raise bad_request(f"the object provided is unrecognized (must be of type {kind})")
    if body.get("kind") not in (None, "", kind):
        raise bad_request(f"{named(body['kind'])} cannot be handled as a {kind}")
    schema = builtin_schema(group, version, kind)
    obj, _ = schema.prepare({"metadata": {}, **body})
    causes = schema.validate(obj)
    if causes:
        raise invalid_object(group, kind, call.target.name, causes)
    return obj


def report_unknown(
    faults: list[str], options: WriteOptions, warnings: list[str], introduction: str = ""
) -> None:
    """Refuse, warn about or ignore unknown and duplicate fields, as fieldValidation says."""
    if not faults or options.field_validation == "Ignore":
        return
    if options.field_validation == "Strict":
        raise bad_request(f"{introduction}strict decoding error: " + ", ".join(faults))
    warnings.extend(faults)


def _sharing_spec(obj: Object, old: Object) -> Object:
    """The object with the very spec it had if it is equal to that: most writes are about something else."""
    spec, before = obj.get("spec"), old.get("spec")
    return {**obj, "spec": before} if spec is not before and same(spec, before) else obj


def with_default_status(endpoint: Endpoint, obj: Object) -> Object:
    """A new custom object with a status if that has a default: what was sent of it has been dropped."""
    status = endpoint.schema.node.properties.get("status")
    if "status" in obj or status is None or status.default is ABSENT:
        return obj
    return endpoint.schema.prepare(obj)[0]


def _without_sent_status(endpoint: Endpoint, obj: Object, call: Call | None, old: Object | None) -> Object:
    """A custom object as it is going to be, where the status is not written with the rest of it."""
    if not endpoint.kind.has_status or (call is not None and call.target.subresource):
        return obj
    kept = {key: value for key, value in obj.items() if key != "status"}
    if old is None:
        return with_default_status(endpoint, kept)
    return {**kept, "status": old["status"]} if "status" in old else kept


async def decode(
    endpoint: Endpoint, body: Any, options: WriteOptions, call: Call | None, old: Object | None = None
) -> Object:
    """The body as an object in stored form: known fields only, types checked, defaults filled in.

    `old` is the object the body was patched from, in the endpoint's version, if it was.
    """
    obj = check_envelope(endpoint, body)
    found = obj.get("metadata")
    if found is None:
        obj = {**obj, "metadata": {}}
    elif type(found) is not dict:
        cause = type_invalid("metadata", found, "must be of type object")
        raise invalid_object(endpoint.group, endpoint.kind.kind, "", [cause])
    elif old is None or found is not old["metadata"]:
        causes = metadata.type_causes(found)
        if causes:
            raise invalid_object(endpoint.group, endpoint.kind.kind, str(found.get("name") or ""), causes)
    schema, kind = endpoint.schema, endpoint.kind
    obj, unknown = schema.prepare(obj, old)
    if call is not None and unknown:
        faults = [f'unknown field "{path}"' for path in unknown]
        name = f'{kind.kind} in version "{endpoint.version}" cannot be handled as a {kind.kind}: '
        report_unknown(faults, options, call.warnings, "" if call.method == "PATCH" else name)
    if kind.typed:
        causes = schema.validate(obj, old)
        if causes:
            raise invalid_object(endpoint.group, kind.kind, str(obj["metadata"].get("name") or ""), causes)
        obj = kind.default(obj) if old is None else kind.default_change(_sharing_spec(obj, old), old)
        obj = kind.fill_status(obj)
    if not endpoint.stored:
        storage = endpoint.storage
        if not kind.typed:
            # What does not fit its own version's schema cannot be converted.
            causes = schema.validate(_without_sent_status(endpoint, obj, call, old), old)
            if causes:
                raise invalid_object(
                    endpoint.group, kind.kind, str(obj["metadata"].get("name") or ""), causes
                )
        if kind.typed and old is None:
            causes = kind.validate(obj)
            if causes:
                raise invalid_object(
                    endpoint.group, kind.kind, str(obj["metadata"].get("name") or ""), causes
                )
        if endpoint.fetch is not None:
            await endpoint.fetch((obj,), storage.api_version)
        obj = endpoint.to_storage(obj)
        obj, _ = storage.schema.prepare(obj)
        obj = storage.kind.fill_status(storage.kind.default(obj))
    return obj
