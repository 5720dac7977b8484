"""Sets of fields in the form managedFields stores them (FieldsV1), and their algebra.

A set is a tree of dicts. Keys are `f:NAME` (a field), `k:{...}` (a list element by key), `v:...` (a list
element by value) and `.` (the place itself). A leaf `{}` is a member; a place with members below is itself
one only if it holds `.`. Sets are never changed in place.

Source: docs/reference/kubernetes-api-machinery.md, section 12.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

Fields = dict[str, Any]

#: The place itself, beside what lies below it.
SELF: Final = "."
LEAF: Final[Fields] = {}


def is_member(fields: Fields) -> bool:
    """Whether the place this subtree stands for is itself in the set."""
    return not fields or SELF in fields


def union(left: Fields, right: Fields) -> Fields:
    """Places in either set."""
    if left is right or not right:
        return left
    if not left:
        return right
    out = dict(left)
    for key, theirs in right.items():
        ours = left.get(key)
        out[key] = theirs if ours is None else _join(ours, theirs)
    return out


def _join(ours: Fields, theirs: Fields) -> Fields:
    if ours and theirs:
        return union(ours, theirs)
    # One is a leaf, hence a member; what lies below comes from the other.
    below = ours or theirs
    return {SELF: LEAF, **below} if below else LEAF


def difference(left: Fields, right: Fields) -> Fields:
    """Places of the first set that are not in the second."""
    if not right:
        return left
    out: Fields = {}
    for key, ours in left.items():
        theirs = right.get(key)
        if theirs is None:
            out[key] = ours
            continue
        if not ours:
            if not is_member(theirs):
                out[key] = ours
            continue
        rest = difference(ours, theirs)
        if not theirs and SELF in rest:
            rest = {inner: value for inner, value in rest.items() if inner != SELF}
        if rest:
            out[key] = LEAF if rest.keys() == {SELF} else rest
    return out


def intersection(left: Fields, right: Fields) -> Fields:
    """Places in both sets."""
    out: Fields = {}
    for key, ours in left.items():
        theirs = right.get(key)
        if theirs is None:
            continue
        both = is_member(ours) and is_member(theirs)
        below = intersection(ours, theirs) if ours and theirs else {}
        below = {inner: value for inner, value in below.items() if inner != SELF}
        if below:
            out[key] = {SELF: LEAF, **below} if both else below
        elif both:
            out[key] = LEAF
    return out


def without_below(left: Fields, gone: Fields) -> Fields:
    """Places of the first set that are neither members of the second nor below one."""
    if not gone:
        return left
    out: Fields = {}
    for key, ours in left.items():
        theirs = gone.get(key)
        if theirs is None:
            out[key] = ours
        elif not is_member(theirs):
            rest = without_below(ours, theirs) if ours else ours
            if rest or not ours:
                out[key] = rest
    return out


def with_parents(fields: Fields) -> Fields:
    """The set with every place on the way to a member."""
    return {SELF: LEAF, **{key: with_parents(below) for key, below in fields.items()}} if fields else fields


def paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Every member as people write it: `.status.conditions[type="Active"].status`."""
    for key, below in fields.items():
        if key == SELF:
            continue
        path = prefix + step_text(key)
        if is_member(below):
            yield path
        yield from paths(below, path)


def step_text(key: str) -> str:
    """One step of a path."""
    kind, _, rest = key.partition(":")
    match kind:
        case "f":
            return f".{rest}"
        case "k":
            try:
                keys = orjson.loads(rest)
                return "[" + ",".join(f"{name}={_json(value)}" for name, value in keys.items()) + "]"
            except (ValueError, AttributeError):
                return f"[{rest}]"
        case "v":
            return f"[={rest}]"
    return f"[{rest}]"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
