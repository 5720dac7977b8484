"""The functions of Kubernetes' CEL on lists and on lists as sets.

Source: docs/reference/kubernetes-api-machinery.md, section 22.4, and the Kubernetes documentation of CEL.
"""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from .functions import T, function, method


def _sorted_pairs(values: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(values))


def _not_empty(values: list[Any], name: str) -> list[Any]:
    if not values:
        raise ValueError(f"{name} called on empty list")
    return values


def equal(left: Any, right: Any) -> bool:
    """Equality of CEL: numbers by value, booleans only with booleans."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return bool(left == right)


def _has(values: list[Any], wanted: Any) -> bool:
    return any(equal(value, wanted) for value in values)


def _distinct(values: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        if not _has(kept, value):
            kept.append(value)
    return kept


def _flatten(values: list[Any], depth: int = 1) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if isinstance(value, list):
            flat.extend(_flatten(value, depth - 1) if depth > 1 else value)
        else:
            flat.append(value)
    return flat


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(values):
        raise ValueError(f"cannot slice({start}, {end}) a list of {len(values)}")
    return values[start:end]


def _sort(values: list[Any]) -> list[Any]:
    def order(left: Any, right: Any) -> int:
        return int(left > right) - int(left < right)

    return sorted(values, key=cmp_to_key(order))


def _range(count: int) -> list[int]:
    if not 0 <= count <= 100_000:
        raise ValueError(f"lists.range({count}): between 0 and 100000 are accepted")
    return list(range(count))


method("isSorted", T.BOOL, T.LIST)(_sorted_pairs)
method("sum", T.DYN, T.LIST)(sum)
method("min", T.DYN, T.LIST)(lambda values: min(_not_empty(values, "min")))
method("max", T.DYN, T.LIST)(lambda values: max(_not_empty(values, "max")))
method("distinct", T.LIST, T.LIST)(_distinct)
method("flatten", T.LIST, T.LIST)(_flatten)
method("flatten", T.LIST, T.LIST, T.INT)(_flatten)
method("slice", T.LIST, T.LIST, T.INT, T.INT)(_slice)
method("sort", T.LIST, T.LIST)(_sort)
function("lists.range", T.LIST, T.INT)(_range)
function("sets.contains", T.BOOL, T.LIST, T.LIST)(
    lambda left, right: all(_has(left, value) for value in right)
)
function("sets.intersects", T.BOOL, T.LIST, T.LIST)(
    lambda left, right: any(_has(left, value) for value in right)
)
function("sets.equivalent", T.BOOL, T.LIST, T.LIST)(
    lambda left, right: (
        all(_has(left, value) for value in right) and all(_has(right, value) for value in left)
    )
)
