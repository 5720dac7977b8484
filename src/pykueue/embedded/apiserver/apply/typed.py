"""Objects walked with their schema, for server-side apply: fields a value has, merging, comparing, pruning.

Granular objects are walked field by field, `map` lists by key, `set` lists by value; all else is a leaf. All
results share what they can with their arguments, which are never changed.

Source: docs/reference/kubernetes-api-machinery.md, section 12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson

from pykueue.api.cel.node import ABSENT, ANY, INT_OR_STRING, QUANTITY, Node
from pykueue.api.json_equality import same
from pykueue.api.objects import Object
from pykueue.embedded.schema.ratcheting import key_fields

from .fieldsets import LEAF, SELF, Fields, is_member, step_text

_EXPECTED: Final = {
    "object": ("map", (dict,)),
    "array": ("list", (list,)),
    "string": ("string", (str,)),
    "boolean": ("boolean", (bool,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
    INT_OR_STRING: ("scalar", (int, float, str, bool)),
    QUANTITY: ("scalar", (int, float, str, bool)),
}


def _child(node: Node, name: str) -> Node | None:
    """The node of a field; an undeclared one that is kept may hold anything."""
    found = node.child(name)
    return ANY if found is None and node.open else found


def _is_granular(value: Any, node: Node) -> bool:
    return type(value) is dict and not node.atomic and node.type in ("object", "")


def _is_keyed(node: Node) -> bool:
    return node.items is not None and node.list_type in ("map", "set")


def element_keys(items: list[Any], node: Node) -> dict[str, Any] | None:
    """Elements of a `map` or `set` list by their step in a field set; None when it has to be a leaf.

    That is so for atomic lists, and for lists in which an element cannot be told from another.
    """
    if node.items is None or node.list_type not in ("map", "set"):
        return None
    keyed: dict[str, Any] = {}
    step_of = node.step_of or _steps(node)
    for item in items:
        step = step_of(item)
        if step is None or step in keyed:
            return None
        keyed[step] = item
    return keyed


def _steps(node: Node) -> Callable[[Any], str | None]:
    """What makes the steps of a list's elements; None for an element that is none of a list with keys."""
    node.step_of = found = _value_step if node.list_type == "set" else _key_steps(key_fields(node))
    return found


def _key_steps(keys: Sequence[tuple[str, Any]]) -> Callable[[Any], str | None]:
    if len(keys) != 1:
        return lambda item: _element_step(item, keys)
    key = keys[0][0]
    before = f"k:{{{orjson.dumps(key).decode()}:"

    def step(item: Any) -> str | None:
        if type(item) is dict and type(value := item.get(key)) is str:  # most lists, and quick
            return f"{before}{orjson.dumps(value).decode()}}}"
        return _element_step(item, keys)

    return step


def _element_step(item: Any, keys: Sequence[tuple[str, Any]]) -> str | None:
    if type(item) is not dict:
        return None
    found = {name: item.get(name, default) for name, default in keys}
    given = {name: value for name, value in found.items() if value is not ABSENT and value is not None}
    if not given or any(type(value) in (dict, list) for value in given.values()):
        return None
    return "k:" + orjson.dumps(given, option=orjson.OPT_SORT_KEYS).decode()


def _value_step(item: Any) -> str | None:
    return None if type(item) in (dict, list) else "v:" + orjson.dumps(item).decode()


# What a value has


def applied_fields(value: Object, node: Node, faults: list[str]) -> Fields:
    """The fields that a configuration applies. Violations of the schema are added to `faults`."""
    return _applied(value, node, None, faults)


class _Path(NamedTuple):
    """Where a value is; rendered only when something is wrong there."""

    above: _Path | None
    #: A step of a field set, or the index in a list that is owned as a whole.
    step: str | int

    def __str__(self) -> str:
        steps = []
        place: _Path | None = self
        while place is not None:
            steps.append(f"[{place.step}]" if isinstance(place.step, int) else step_text(place.step))
            place = place.above
        return "".join(reversed(steps))


def _text(path: _Path | None) -> str:
    return "" if path is None else str(path)


def _applied(value: Any, node: Node, path: _Path | None, faults: list[str]) -> Fields:
    if value is None:
        return LEAF
    expected = _EXPECTED.get(node.type)
    if expected is not None and not isinstance(value, expected[1]):
        shown = orjson.dumps(value).decode()[:100]
        faults.append(f"{_text(path)}: expected {expected[0]}, got {shown}")
        return LEAF
    if _is_granular(value, node):
        fields: Fields = {}
        for name, inner in value.items():
            child = _child(node, name)
            if child is None:
                faults.append(f"{_text(path)}.{name}: field not declared in schema")
                continue
            step = "f:" + name
            if type(inner) is str and child.type == "string":  # most fields, and quick
                fields[step] = LEAF
                continue
            below = _applied(inner, child, _Path(path, step), faults)
            if not below and name in node.properties and _is_nothing_itself(inner, child):
                continue
            if below and name not in node.properties:
                # An entry of a map is an item of its own, unlike a field of a struct.
                below = {SELF: LEAF, **below}
            fields[step] = below
        return fields
    if type(value) is list and node.items is not None and _is_keyed(node):
        return _applied_elements(value, node, node.items, path, faults)
    # Owned as a whole, but what is in it has to fit all the same.
    if type(value) is list and node.items is not None:
        for index, item in enumerate(value):
            _applied(item, node.items, _Path(path, index), faults)
    elif type(value) is dict and node.atomic:
        _applied(value, replace(node, atomic=False), path, faults)
    return LEAF


def _is_nothing_itself(value: Any, node: Node) -> bool:
    """Whether only what is in it would be owned: a list with keys, an object that has fields."""
    return (type(value) is list and _is_keyed(node)) or (bool(value) and _is_granular(value, node))


def _applied_elements(
    value: list[Any], node: Node, items: Node, path: _Path | None, faults: list[str]
) -> Fields:
    fields: Fields = {}
    keys = key_fields(node)
    #: Keys that an element must have.
    needed = [name for name, default in keys if default is ABSENT]
    step_of = node.step_of or _steps(node)
    for index, item in enumerate(value):
        step = step_of(item)
        # An element with a single key that has a step has its key.
        has_keys = step is not None and (len(keys) < 2 or all(name in item for name in needed))
        if node.list_type != "set" and not has_keys:
            missing = [name for name in needed if type(item) is dict and name not in item]
            faults.append(
                f"{_text(path)}: element {index}: associative list with keys has an element that omits "
                f'key field "{(missing or list(node.list_keys))[0]}" (and doesn\'t have default value)'
            )
            continue
        if step is None:
            faults.append(f"{_text(path)}: element {index}: a set holds scalars")
            continue
        if step in fields:
            faults.append(f"{_text(path)}: duplicate entries for key {step_text(step)}")
            continue
        below = _applied(item, items, _Path(path, step), faults)
        fields[step] = {SELF: LEAF, **below} if below else LEAF
    return fields


def present_fields(value: Any, node: Node) -> Fields:
    """All fields of a value, with `.` at every object and list: what the manager that created it owns."""
    if not value:
        return LEAF
    if _is_granular(value, node):
        fields: Fields = {SELF: LEAF}
        for name, inner in value.items():
            kind = type(inner)  # most values are scalars, and quick
            nested = kind is dict or kind is list
            fields["f:" + name] = present_fields(inner, _child(node, name) or ANY) if nested else LEAF
        return fields
    if type(value) is list and node.items is not None and (keyed := element_keys(value, node)) is not None:
        return {SELF: LEAF, **{step: present_fields(item, node.items) for step, item in keyed.items()}}
    return LEAF


# Merging


def merge(live: Any, config: Any, node: Node) -> Any:
    """`live` with the fields of `config` laid over; `live` itself when it has them all."""
    if config is None and live and _is_nothing_itself(live, node):
        return live  # nothing to lay over it
    if _is_granular(config, node) and type(live) is dict:
        changed: Object | None = None
        for name, inner in config.items():
            old = live.get(name, ABSENT)
            if old is inner or (type(inner) is str and type(old) is str and inner == old):
                continue  # most fields, and quick
            leaf = old is ABSENT or type(inner) is str
            new = inner if leaf else merge(old, inner, _child(node, name) or ANY)
            if new is not old:
                changed = dict(live) if changed is None else changed
                changed[name] = new
        return live if changed is None else changed
    if type(config) is list and type(live) is list and node.items is not None:
        ours, theirs = element_keys(live, node), element_keys(config, node)
        if ours is not None and theirs is not None:
            merged = dict(ours)
            for step, item in theirs.items():
                merged[step] = merge(ours[step], item, node.items) if step in ours else item
            if all(merged[step] is item for step, item in ours.items()) and len(merged) == len(ours):
                return live
            return list(merged.values())
    return live if same(live, config) else config


# Comparing


class Changes:
    """What differs between two objects: fields changed (added or modified) and fields removed."""

    __slots__ = ("changed", "removed")

    def __init__(self, old: Any, new: Any, node: Node) -> None:
        self.changed, self.removed = _compare(old, new, node)

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


def _compare(old: Any, new: Any, node: Node) -> tuple[Fields, Fields]:
    if old is new:
        return {}, {}
    if _is_granular(new, node) and type(old) is dict:
        changed: Fields = {}
        removed: Fields = {}
        for name, inner in new.items():
            before = old.get(name, ABSENT)
            if before is not inner and not (type(inner) is str and type(before) is str and inner == before):
                _compare_item("f:" + name, before, inner, _child(node, name) or ANY, changed, removed)
        removed.update({"f:" + name: LEAF for name in old if name not in new})
        return changed, removed
    if type(new) is list and type(old) is list and node.items is not None:
        ours, theirs = element_keys(old, node), element_keys(new, node)
        if ours is not None and theirs is not None:
            changed, removed = {}, {}
            for step, item in theirs.items():
                _compare_item(step, ours.get(step, ABSENT), item, node.items, changed, removed)
            for step in ours:
                if step not in theirs:
                    removed[step] = LEAF
            return changed, removed
    return {}, {}


def _compare_item(step: str, old: Any, new: Any, node: Node, changed: Fields, removed: Fields) -> None:
    if old is ABSENT:
        changed[step] = present_fields(new, node)
        return
    if _comparable(old, new, node):
        below, gone = _compare(old, new, node)
        if below:
            changed[step] = below
        if gone:
            removed[step] = gone
    elif not same(old, new):
        changed[step] = present_fields(new, node)
        lost = {inner: LEAF for inner in present_fields(old, node) if inner not in changed[step]}
        if lost:
            removed[step] = lost


def _comparable(old: Any, new: Any, node: Node) -> bool:
    """Whether both are walked, so that the differences lie below."""
    if _is_granular(new, node):
        return type(old) is dict
    if type(new) is list and type(old) is list:
        return element_keys(old, node) is not None and element_keys(new, node) is not None
    return False


# Pruning


def prune(value: Any, gone: Fields, kept: Fields, node: Node) -> Any:
    """`value` without the places in `gone` that have nothing in or below them in `kept`."""
    if type(value) is dict and _is_granular(value, node):
        out: Object | None = None
        for step, below in gone.items():
            name = step[2:]
            if step == SELF or name not in value:
                continue
            theirs = kept.get(step)
            if theirs is None:
                out = dict(value) if out is None else out
                del out[name]
            elif below:
                new = prune(value[name], below, theirs, _child(node, name) or ANY)
                if new is not value[name]:
                    out = dict(value) if out is None else out
                    out[name] = new
        return value if out is None else out
    if type(value) is list and node.items is not None and (keyed := element_keys(value, node)) is not None:
        items = dict(keyed)
        for step, below in gone.items():
            if step not in items:
                continue
            theirs = kept.get(step)
            if theirs is None or (is_member(below) and not is_member(theirs)):
                del items[step]
            elif below:
                items[step] = prune(items[step], below, theirs, node.items)
        if len(items) == len(keyed) and all(items[step] is keyed[step] for step in items):
            return value
        return list(items.values())
    return value
