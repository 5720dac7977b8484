"""The walks over an object that a compiled validator cannot do: pruning, defaults, unique list elements.

All return their argument itself when nothing changes, and otherwise share every unchanged part with it.
Source: docs/reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from pykueue.api.cel.node import ABSENT, ANY, INT_OR_STRING, QUANTITY, Node
from pykueue.api.quantity import QuantityError
from pykueue.api.quantity import parse as parse_quantity
from pykueue.embedded.objects.errors import Cause, duplicate, invalid, type_invalid

#: Unknown fields of an object that are named: those beyond are dropped like them, but not mentioned.
MAX_UNKNOWN = 100
#: Characters of a key that paths show: more than the longest valid label key has.
MAX_KEY = 320

#: From here on a float stands for several integers.
_EXACT = 2.0**53

#: A path as a linked list from the leaf up, so that walking down costs nothing until a path is reported.
Trail = tuple[Any, str | int] | None


def trail_text(trail: Trail) -> str:
    """`spec.containers[0].name` for people and for Status causes."""
    steps: list[str | int] = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    return path_text(reversed(steps))


def path_text(steps: Iterable[str | int]) -> str:
    """The same from the steps in order. Long keys are shortened."""
    text = ""
    for step in steps:
        if isinstance(step, str) and len(step) > MAX_KEY:
            step = f"{step[:MAX_KEY]}..."
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


# Pruning


def clean(value: Any, node: Node, trail: Trail, unknown: list[str]) -> Any:
    """`value` without what the schema does not know, with numbers and nulls as Kubernetes stores them.

    Unknown fields go (their paths are added to `unknown`), null goes where it is not allowed, 1.0 becomes 1
    where an integer belongs, quantities of built-in kinds become canonical text. Wrong types stay.
    """
    kind = type(value)
    if kind is dict:
        return _clean_fields(value, node, trail, unknown) if node.type in ("object", "") else value
    if kind is list:
        return _clean_items(value, node.items, trail, unknown) if node.items is not None else value
    if kind is float:
        if node.type in ("integer", INT_OR_STRING) and value.is_integer() and abs(value) < _EXACT:
            return int(value)
        return _quantity(value) if node.type == QUANTITY else value
    if node.type == QUANTITY and kind in (str, int):
        return _quantity(value)
    return value


def _clean_fields(value: dict[str, Any], node: Node, trail: Trail, unknown: list[str]) -> dict[str, Any]:
    properties, values = node.properties, node.values
    if not properties and values is None and node.open:
        return value
    changed: dict[str, Any] | None = None
    for key, inner in value.items():
        child = properties.get(key, values)
        if child is None:
            if node.open:
                continue
            if len(unknown) < MAX_UNKNOWN:
                unknown.append(trail_text((trail, key)))
        elif inner is None:
            if child.nullable:
                continue
            if child is values and child.default is not ABSENT:
                changed = dict(value) if changed is None else changed
                changed[key] = child.default
                continue
        elif type(inner) is str and child.type == "string":
            continue  # most fields, and quick
        else:
            new = clean(inner, child, (trail, key), unknown)
            if new is not inner:
                changed = dict(value) if changed is None else changed
                changed[key] = new
            continue
        changed = dict(value) if changed is None else changed
        del changed[key]
    return value if changed is None else changed


def with_nulls(cleaned: Any, sent: Any, node: Node, apart: Node | None) -> Any:
    """`cleaned` with the nulls of `sent` that were dropped where none are allowed, to be refused as such.

    An applied configuration is taken at its word: what it leaves out, it does not say is null. `apart` is the
    node of metadata, of the object and of those in it, whose nulls count for nothing.
    """
    if type(cleaned) is dict and type(sent) is dict:
        changed = dict(cleaned)
        for key, inner in sent.items():
            child = node.child(key)
            if child is None or child is ANY or child is apart:
                continue
            if inner is not None:
                if key in cleaned:
                    changed[key] = with_nulls(cleaned[key], inner, child, apart)
            elif not child.nullable and child.default is ABSENT:
                changed[key] = None
        return changed
    if type(cleaned) is list and type(sent) is list and node.items is not None:
        pairs = zip(cleaned, sent, strict=True)
        return [with_nulls(one, other, node.items, apart) for one, other in pairs]
    return cleaned


def null_causes(value: Any, node: Node, apart: Node | None, trail: Trail = None) -> Iterator[Cause]:
    """A cause for every field that is null and may not be, but for those of metadata (`apart`)."""
    if type(value) is dict:
        for key, inner in value.items():
            child = node.child(key)
            if child is None or child is apart:
                continue
            if inner is not None:
                yield from null_causes(inner, child, apart, (trail, key))
            elif not child.nullable and child.default is ABSENT and child.type:
                where = trail_text((trail, key))
                wanted = "integer,string" if child.type == INT_OR_STRING else child.type
                yield type_invalid(where, "null", f'{where} in body must be of type {wanted}: "null"')
    elif type(value) is list and node.items is not None:
        for index, inner in enumerate(value):
            yield from null_causes(inner, node.items, apart, (trail, index))


def _clean_items(value: list[Any], items: Node, trail: Trail, unknown: list[str]) -> list[Any]:
    changed: list[Any] | None = None
    for index, inner in enumerate(value):
        if inner is None and not items.nullable and items.default is not ABSENT:
            new = items.default
        else:
            new = clean(inner, items, (trail, index), unknown)
        if new is not inner:
            changed = list(value) if changed is None else changed
            changed[index] = new
    return value if changed is None else changed


def _quantity(value: Any) -> Any:
    """Canonical text; what is no quantity stays for the validator to refuse."""
    if type(value) is bool:
        return value
    try:
        return str(parse_quantity(value))
    except QuantityError:
        return value


# Defaults


class Defaults(NamedTuple):
    """The part of a schema that leads to defaults; everything else needs no visit."""

    #: Field, value, and whether an explicit null is replaced.
    fields: tuple[tuple[str, Any, bool], ...]
    children: tuple[tuple[str, Defaults], ...]
    values: Defaults | None
    items: Defaults | None


def compile_defaults(node: Node) -> Defaults | None:
    """The defaults below `node`, or None when there are none (not looked for in recursion)."""
    return _compile_defaults(node, set())


def _compile_defaults(node: Node, above: set[int]) -> Defaults | None:
    if id(node) in above:
        return None
    above.add(id(node))
    fields, children = [], []
    for name, child in node.properties.items():
        below = _compile_defaults(child, above)
        if child.default is not ABSENT:
            value = child.default if below is None else apply_defaults(child.default, below)
            fields.append((name, value, not child.nullable))
        if below is not None:
            children.append((name, below))
    values = _compile_defaults(node.values, above) if node.values is not None else None
    items = _compile_defaults(node.items, above) if node.items is not None else None
    above.discard(id(node))
    if not fields and not children and values is None and items is None:
        return None
    return Defaults(tuple(fields), tuple(children), values, items)


def apply_defaults(value: Any, defaults: Defaults) -> Any:
    """Fill in absent fields, and explicit nulls where null is not allowed. Wrong types stay."""
    if type(value) is list:
        return value if defaults.items is None else _default_items(value, defaults.items)
    if type(value) is not dict:
        return value
    changed: dict[str, Any] | None = None
    for name, default, replaces_null in defaults.fields:
        if name not in value or (replaces_null and value[name] is None):
            if changed is None:
                changed = dict(value)
            changed[name] = default
    for name, child in defaults.children:
        inner = value.get(name)
        if inner is not None:
            new = apply_defaults(inner, child)
            if new is not inner:
                if changed is None:
                    changed = dict(value)
                changed[name] = new
    if defaults.values is not None:
        for name, inner in value.items():
            new = apply_defaults(inner, defaults.values)
            if new is not inner:
                if changed is None:
                    changed = dict(value)
                changed[name] = new
    return value if changed is None else changed


def _default_items(value: list[Any], items: Defaults) -> list[Any]:
    changed: list[Any] | None = None
    for index, inner in enumerate(value):
        new = apply_defaults(inner, items)
        if new is not inner:
            if changed is None:
                changed = list(value)
            changed[index] = new
    return value if changed is None else changed


# Unique elements

_TEXTS_ONLY = {str}


class Unique(NamedTuple):
    """The part of a schema that leads to lists of unique elements."""

    #: Key fields of a `map` list with their defaults, None for a `set`; empty for other nodes.
    keys: tuple[tuple[str, Any], ...] | None
    children: dict[str, Unique]
    values: Unique | None
    items: Unique | None


def compile_unique(node: Node) -> Unique | None:
    """The `set` and `map` lists below `node`, or None when there are none (not looked for in recursion)."""
    return _compile_unique(node, set())


def _compile_unique(node: Node, above: set[int]) -> Unique | None:
    if id(node) in above:
        return None
    above.add(id(node))
    children = {
        name: below
        for name, child in node.properties.items()
        if (below := _compile_unique(child, above)) is not None
    }
    values = _compile_unique(node.values, above) if node.values is not None else None
    items = _compile_unique(node.items, above) if node.items is not None else None
    above.discard(id(node))
    keys: tuple[tuple[str, Any], ...] | None = ()
    if node.list_type == "set":
        keys = None
    elif node.list_type == "map" and node.items is not None:
        keyed = node.items.properties
        keys = tuple((key, keyed[key].default if key in keyed else ABSENT) for key in node.list_keys)
    if keys == () and not children and values is None and items is None:
        return None
    return Unique(keys, children, values, items)


def check_unique(value: Any, old: Any, unique: Unique, causes: list[Cause]) -> None:
    """Add a cause for every repeated element. What is the same object in `old` has been checked before."""
    if not _is_unique(value, old, unique):
        _add_repeated(value, old, unique, None, causes)


def _is_unique(value: Any, old: Any, unique: Unique) -> bool:
    """Whether there is no cause: what nearly always is the case, and asked for every write."""
    if type(value) is dict:
        before = old if type(old) is dict else None
        children = unique.children
        if children:
            for name in value:
                if name in children:
                    inner = value[name]
                    previous = before.get(name) if before else None
                    if inner is not previous and not _is_unique(inner, previous, children[name]):
                        return False
        each = unique.values
        if each is not None:
            return all(_is_unique(inner, before and before.get(name), each) for name, inner in value.items())
    elif type(value) is list and value and value is not old:
        keys = unique.keys
        if keys != () and (len(value) > 1 or type(value[0]) is not dict) and not _are_distinct(value, keys):
            return False
        each = unique.items
        if each is not None:
            count = len(old) if type(old) is list else 0
            for index, inner in enumerate(value):
                previous = old[index] if index < count else None
                if inner is not previous and not _is_unique(inner, previous, each):
                    return False
    return True


def _are_distinct(value: list[Any], keys: tuple[tuple[str, Any], ...] | None) -> bool:
    if keys is not None and len(keys) == 1:
        name = keys[0][0]
        try:
            texts = [element[name] for element in value]
        except (KeyError, TypeError):  # some lack the key, or are no objects
            pass
        else:
            if set(map(type, texts)) == _TEXTS_ONLY:
                return len(set(texts)) == len(texts)
    causes: list[Cause] = []
    _check_elements(value, keys, None, causes)
    return not causes


def _add_repeated(value: Any, old: Any, unique: Unique, trail: Trail, causes: list[Cause]) -> None:
    if value is old:
        return
    if type(value) is dict:
        before = old if type(old) is dict else {}
        children = unique.children
        if children:
            for name in value:
                child = children.get(name)
                if child is not None and value[name] is not before.get(name):
                    _add_repeated(value[name], before.get(name), child, (trail, name), causes)
        if unique.values is not None:
            for name, inner in value.items():
                _add_repeated(inner, before.get(name), unique.values, (trail, name), causes)
    elif type(value) is list:
        if unique.keys != ():
            _check_elements(value, unique.keys, trail, causes)
        if unique.items is not None:
            previous = old if type(old) is list else ()
            for index, inner in enumerate(value):
                before_item = previous[index] if index < len(previous) else None
                _add_repeated(inner, before_item, unique.items, (trail, index), causes)


def _check_elements(
    value: list[Any], keys: tuple[tuple[str, Any], ...] | None, trail: Trail, causes: list[Cause]
) -> None:
    seen = set()
    for index, inner in enumerate(value):
        identity: Any
        if keys is None:
            identity = inner if type(inner) is str else orjson.dumps(inner, option=orjson.OPT_SORT_KEYS)
        elif type(inner) is dict:
            identity = element_key(inner, keys)
        else:
            if inner is not None:
                where = trail_text((trail, index))
                causes.append(invalid(where, inner, "must be an object for an array of list-type map"))
            continue
        if identity in seen:
            shown = (
                inner
                if keys is None
                else {
                    key: inner.get(key, default)
                    for key, default in keys
                    if key in inner or default is not ABSENT
                }
            )
            causes.append(duplicate(trail_text((trail, index)), shown))
        seen.add(identity)


def element_key(element: dict[str, Any], keys: tuple[tuple[str, Any], ...]) -> Any:
    """The identity of an element of a `map` list: hashable, equal only for equal key fields."""
    if len(keys) == 1:
        found = element.get(*keys[0])
        return found if type(found) is str else (type(found), _hashable(found))
    parts = [element.get(key, default) for key, default in keys]
    return tuple(part if type(part) is str else (type(part), _hashable(part)) for part in parts)


def _hashable(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return value
