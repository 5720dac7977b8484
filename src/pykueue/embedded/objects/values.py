"""JSON values: fields of zero values, type names, and how deep a document may go."""

from __future__ import annotations

from typing import Any

from pykueue.api.json_equality import same

from .errors import bad_request

#: Levels of nesting a document may have. The encoder gives up at 254; an envelope such as a list needs a few.
MAX_DEPTH = 240

_SCALARS = (str, int, float, bool, type(None))


def with_zero_fields(value: Any, zero: Any) -> Any:
    """`value` with the absent fields of `zero` added, at every level; null counts as absent."""
    if value is None:
        return zero
    if not zero or type(value) is not dict:
        return value
    missing = {}
    for key, default in zero.items():
        found = value.get(key)
        filled = with_zero_fields(found, default)
        if filled is not found or key not in value:
            missing[key] = filled
    return {**value, **missing} if missing else value


def without_zero_fields(value: Any, zero: Any) -> Any:
    """`value` without the fields that have the very value `zero` has; the inverse of `with_zero_fields`."""
    if type(value) is not dict or type(zero) is not dict:
        return value
    return {
        key: without_zero_fields(found, zero.get(key))
        for key, found in value.items()
        if key not in zero or not same(found, zero[key])
    }


def type_name(value: Any) -> str:
    """The JSON type of a value in the words of Kubernetes' messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def check_depth(value: Any) -> None:
    """Refuse (400) a document nested deeper than MAX_DEPTH levels, whatever its size.

    Cheap for ordinary documents: containers are visited level by level, scalars never.
    """
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise bad_request(f"the document is nested deeper than {MAX_DEPTH} levels")


def has_more_values(value: Any, limit: int) -> bool:
    """Whether a document has more than `limit` values. Takes time up to the limit, not to the size."""
    level, count = [value], 1
    while level:
        inner = [one for one in level if type(one) is dict or type(one) is list]
        count += sum(map(len, inner))
        if count > limit:
            return True
        level = [child for one in inner for child in (one.values() if type(one) is dict else one)]
    return False
