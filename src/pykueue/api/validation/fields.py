"""Errors about fields, worded as a Kubernetes API server words them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
DUPLICATE: Final = "FieldValueDuplicate"
NOT_FOUND: Final = "FieldValueNotFound"
FORBIDDEN: Final = "FieldValueForbidden"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"

_TEXTS: Final = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    NOT_FOUND: "Not found",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
}
_WITHOUT_VALUE: Final = frozenset({REQUIRED, FORBIDDEN, TOO_LONG})


class FieldError(NamedTuple):
    """One thing wrong with one field. `str()` is what users see: `spec.x: Invalid value: 1: must be 2`.

    Source: docs/reference/kubernetes-api-machinery.md 19.
    """

    #: Path of the field, for example `spec.podSets[0].count`.
    path: str
    #: Reason of the cause in a Status, one of the constants of this module.
    reason: str
    #: The value found; not shown for reasons that name none.
    value: Any = None
    #: What is wrong with it, and what would be accepted.
    detail: str = ""

    @property
    def message(self) -> str:
        """The text without the path, as a Status cause carries it."""
        text = _TEXTS[self.reason]
        if self.reason not in _WITHOUT_VALUE:
            text += f": {_shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def cause(self) -> dict[str, str]:
        """The entry of a Status's details.causes."""
        return {"reason": self.reason, "message": self.message, "field": self.path}

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def new_errors(
    errors: Callable[[Mapping[str, Any]], Iterable[FieldError]],
    obj: Mapping[str, Any],
    old: Mapping[str, Any] | None,
) -> list[FieldError]:
    """What is wrong with an object and was not before: one with old errors can still be changed."""
    found = list(errors(obj))
    if not found or old is None:
        return found
    known = list(errors(old))
    return [error for error in found if error not in known]


def not_supported(path: str, value: Any, accepted: Sequence[str]) -> FieldError:
    """A value that is none of the accepted ones."""
    listed = ", ".join(json.dumps(option) for option in accepted)
    return FieldError(path, NOT_SUPPORTED, value, f"supported values: {listed}")


def too_many(path: str, count: int, most: int, what: str = "items") -> FieldError:
    """More of something than allowed."""
    return FieldError(path, TOO_MANY, count, f"must have at most {most} {what}")


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 512 else text[:509] + "..."
