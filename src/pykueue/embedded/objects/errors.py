"""Refusals in Kubernetes' words: field causes, and the Status errors they end up in.

Clients test `reason` and the HTTP code, people read the message; both follow
docs/reference/kubernetes-api-machinery.md, section 19.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from pykueue.kube.errors import ApiError

#: Causes a Status lists, and characters of their texts; what is beyond is counted.
MAX_CAUSES, MAX_CAUSES_TEXT = 500, 128 * 1024
#: Values of a container, and characters of a text, that a message shows.
MAX_SHOWN_VALUES, MAX_SHOWN_TEXT = 100, 1024
#: Reason of the cause for a value of the wrong JSON type.
TYPE_INVALID: Final = "FieldValueTypeInvalid"


class Cause(NamedTuple):
    """Why one field was refused. `field` is a path such as `spec.containers[0].name`."""

    field: str
    reason: str
    message: str


def shown(value: Any) -> str:
    """A value as JSON, shortened to a bounded size."""
    brief, _ = _brief(value, MAX_SHOWN_VALUES)
    text = orjson.dumps(brief, default=str).decode()
    return text if len(text) <= 2 * MAX_SHOWN_TEXT else shortened(text)


def shortened(text: str) -> str:
    """A text of bounded length for messages."""
    return text if len(text) <= MAX_SHOWN_TEXT else f"{text[:MAX_SHOWN_TEXT]}..."


def named(value: Any) -> str:
    """A name that a client gave, which may be any value, as messages show it: a text without quotes."""
    return shortened(value) if isinstance(value, str) else shown(value)


def _brief(value: Any, left: int) -> tuple[Any, int]:
    """The beginning of a value, and how many more values may be shown after it."""
    left -= 1
    if type(value) is str:
        return shortened(value), left
    if type(value) is dict:
        fields: dict[str, Any] = {}
        for key, inner in value.items():
            if left <= 0:
                fields["..."] = f"{len(value) - len(fields)} more"
                break
            fields[shortened(str(key))], left = _brief(inner, left)
        return fields, left
    if type(value) is list:
        items: list[Any] = []
        for inner in value:
            if left <= 0:
                items.append(f"... {len(value) - len(items)} more")
                break
            item, left = _brief(inner, left)
            items.append(item)
        return items, left
    return value, left


def listed_causes(causes: Sequence[Cause]) -> tuple[list[Cause], int]:
    """The causes a Status lists, and how many more there are."""
    listed: list[Cause] = []
    size = 0
    for cause in causes[:MAX_CAUSES]:
        size += len(cause.field) + len(cause.message)
        if listed and size > MAX_CAUSES_TEXT:
            break
        listed.append(cause)
    return listed, len(causes) - len(listed)


def required(field: str, detail: str = "") -> Cause:
    """The field must be given."""
    return Cause(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid(field: str, value: Any, detail: str) -> Cause:
    """The value breaks a rule that `detail` states."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """The value has the wrong JSON type."""
    return Cause(field, TYPE_INVALID, f"Invalid value: {shown(value)}: {detail}")


def not_supported(field: str, value: Any, supported: Sequence[str]) -> Cause:
    """The value is not one of those listed."""
    listed = ", ".join(shown(one) for one in supported)
    return Cause(
        field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}"
    )


def forbidden(field: str, detail: str) -> Cause:
    """The field may not be given, or not be changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def immutable(field: str, value: Any) -> Cause:
    """The field may not change once set."""
    return invalid(field, value, "field is immutable")


def immutable_fields(
    new: Mapping[str, Any], old: Mapping[str, Any], keys: Iterable[str], path: str = ""
) -> list[Cause]:
    """Those of the fields below `path` (such as `spec.`) that differ, none of which may change once set."""
    return [immutable(path + key, new.get(key)) for key in keys if new.get(key) != old.get(key)]


def duplicate(field: str, value: Any) -> Cause:
    """The list already has this value or key."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def missing_reference(field: str, value: Any) -> Cause:
    """The value names something that is not there."""
    return Cause(field, "FieldValueNotFound", f"Not found: {shown(value)}")


def too_long(field: str, limit: int) -> Cause:
    """The text is longer than `limit` bytes."""
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> Cause:
    """The list is longer than `limit`."""
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items")


def qualified(plural: str, group: str) -> str:
    """`workloads.kueue.x-k8s.io`, or the bare plural in the core group."""
    return f"{plural}.{group}" if group else plural


def _details(
    group: str = "", kind: str = "", name: str = "", causes: Iterable[Cause] = (), uid: str = ""
) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    if uid:
        details["uid"] = uid
    rendered = [
        {"reason": cause.reason, "message": cause.message, **({"field": cause.field} if cause.field else {})}
        for cause in causes
    ]
    if rendered:
        details["causes"] = rendered
    return details


def invalid_object(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with every cause listed."""
    listed, more = listed_causes(causes)
    texts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in listed]
    if more:
        texts.append(f"and {more} more")
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    return ApiError(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {text}',
        _details(group, kind, name, listed),
    )


def bad_request(message: str) -> ApiError:
    """400: the request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def not_found(group: str, plural: str, name: str) -> ApiError:
    """404: no such object."""
    return ApiError(
        404, "NotFound", f'{qualified(plural, group)} "{name}" not found', _details(group, plural, name)
    )


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(
        409,
        "AlreadyExists",
        f'{qualified(plural, group)} "{name}" already exists',
        _details(group, plural, name),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, detail: str = MODIFIED) -> ApiError:
    """409: the object is not in the state the request relies on."""
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {detail}',
        _details(group, plural, name),
    )


def forbidden_request(group: str, plural: str, name: str, detail: str) -> ApiError:
    """403: the user may not, or the object may not now."""
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {detail}", _details(group, plural, name))


def expired(message: str) -> ApiError:
    """410: the history asked for is gone; list again."""
    return ApiError(410, "Expired", message)


class ListExpiredError(ApiError):
    """410 for a chunked list that went on too late; it can go on inconsistently with `token`."""

    def __init__(self, message: str, token: str) -> None:
        super().__init__(410, "Expired", message)
        self.token = token


def unsupported_media_type(message: str) -> ApiError:
    """415: the body's type is not accepted here."""
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable(message: str) -> ApiError:
    """406: no answer in a form the client reads."""
    return ApiError(406, "NotAcceptable", message)


def method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> ApiError:
    """405."""
    return ApiError(405, "MethodNotAllowed", message)


def internal_error(message: str) -> ApiError:
    """500: not the client's fault."""
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        _details(causes=[Cause("", "InternalError", message)]),
    )


def to_status(error: ApiError) -> dict[str, Any]:
    """The Status body for an error."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason
    details = dict(error.details)
    if error.retry_after is not None:
        details["retryAfterSeconds"] = int(error.retry_after)
    if details:
        status["details"] = details
    status["code"] = error.code
    if isinstance(error, ListExpiredError):
        status["metadata"] = {"continue": error.token}
    return status


def success(group: str = "", plural: str = "", name: str = "", uid: str = "") -> dict[str, Any]:
    """The Status body of a deletion or another action without an object to show."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    details = _details(group, plural, name, uid=uid)
    if details:
        status["details"] = details
    return status
