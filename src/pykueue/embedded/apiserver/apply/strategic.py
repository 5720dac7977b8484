"""Strategic merge patch: a merge patch that knows which lists merge, and by which key.

Directives: `$patch` (replace, delete, merge) in objects and list elements, `$retainKeys`, and beside a list
`$deleteFromPrimitiveList/NAME` and `$setElementOrder/NAME`. The result shares every unchanged part with the
old document, and is the old document itself when nothing changes.

Source: docs/reference/kubernetes-api-machinery.md, section 11.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

import orjson

from pykueue.api.cel.node import Node
from pykueue.api.json_equality import same
from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import bad_request, shown
from pykueue.embedded.objects.values import check_depth

_PATCH: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"

_MISSING: Final = object()


class HasNode(Protocol):
    """A schema that patches can walk along."""

    @property
    def node(self) -> Node:
        """The schema of the kind's objects."""


def strategic_patch(doc: Object, patch: Any, schema: HasNode) -> Object:
    """Lay a strategic merge patch over `doc`. 400 when the patch or its directives make no sense."""
    if not isinstance(patch, dict):
        raise bad_request("a strategic merge patch must be a JSON object")
    check_depth(patch)
    return _merge_fields(doc, patch, schema.node, "")


def _child(node: Node | None, name: str) -> Node | None:
    return None if node is None else node.child(name)


def _where(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# Objects


def _merge_fields(doc: Object, patch: Object, node: Node | None, path: str) -> Object:
    directive = patch.get(_PATCH)
    if directive is not None:
        if directive == "replace":
            replaced = _without_directives({key: value for key, value in patch.items() if key != _PATCH})
            return doc if same(doc, replaced) else replaced
        if directive == "delete":
            return doc and {}
        if directive != "merge":
            raise bad_request(
                f'{_where(path, _PATCH)} is {shown(directive)}: "replace", "delete" and "merge" are accepted'
            )
    retained = patch.get(_RETAIN)
    if retained is not None:
        doc = _retain(doc, patch, retained, path)
    merged: Object = {}
    for key, value in patch.items():
        if key.startswith((_ORDER, _DELETE_FROM)):
            # Handled with its list, or here when the patch does not have the list itself.
            name = key.split("/", 1)[1]
            if name not in patch:
                old = merged.get(name, doc.get(name, _MISSING))
                merged[name] = _merge_list_field(old, name, [], patch, node, path)
        elif key not in (_PATCH, _RETAIN):
            merged[key] = _merge_field(doc.get(key, _MISSING), key, value, patch, node, path)
    changed = {key: value for key, value in merged.items() if value is not doc.get(key, _MISSING)}
    if not changed:
        return doc
    return {key: value for key, value in {**doc, **changed}.items() if value is not _MISSING}


def _merge_field(old: Any, key: str, value: Any, patch: Object, node: Node | None, path: str) -> Any:
    """What a field becomes: `old` itself where nothing changes, _MISSING where it goes."""
    if value is None:
        return _MISSING
    child = _child(node, key)
    if isinstance(value, dict):
        if child is None or not child.replaces:
            return _merge_fields(old if isinstance(old, dict) else {}, value, child, _where(path, key))
        new: Any = _without_directives(value)
    elif isinstance(value, list):
        if child is not None and child.merges:
            return _merge_list_field(old, key, value, patch, node, path)
        new = _without_directives(value)
    else:
        new = value
    return old if old is not _MISSING and same(old, new) else new


def _retain(doc: Object, patch: Object, retained: Any, path: str) -> Object:
    where = _where(path, _RETAIN)
    if not isinstance(retained, list) or not all(isinstance(one, str) for one in retained):
        raise bad_request(f"{where} must be a list of field names")
    kept = set(retained)
    for key, value in patch.items():
        if not key.startswith("$") and value is not None and key not in kept:
            raise bad_request(f"{where} must list {shown(key)}, which the patch sets")
    if all(key in kept for key in doc):
        return doc
    return {key: value for key, value in doc.items() if key in kept}


def _without_directives(value: Any) -> Any:
    """A value of the patch as it is stored."""
    if isinstance(value, dict):
        if value.get(_PATCH) == "delete":
            return {}
        if not any(key.startswith("$") for key in value) and not any(
            isinstance(inner, (dict, list)) for inner in value.values()
        ):
            return value
        return {key: _without_directives(inner) for key, inner in value.items() if not _is_directive(key)}
    if isinstance(value, list):
        return [
            _without_directives(inner)
            for inner in value
            if not (isinstance(inner, dict) and inner.get(_PATCH) in ("delete", "replace"))
        ]
    return value


def _is_directive(key: str) -> bool:
    return key in (_PATCH, _RETAIN) or key.startswith((_ORDER, _DELETE_FROM))


# Lists


def _merge_list_field(
    found: Any, key: str, value: list[Any], patch: Object, node: Node | None, path: str
) -> Any:
    """What a list becomes: `found` itself where nothing changes."""
    where = _where(path, key)
    child = _child(node, key)
    old = found if isinstance(found, list) else []
    order = _directive_list(patch, _ORDER + key, where)
    doomed = _directive_list(patch, _DELETE_FROM + key, where)
    merge_key = child.merge_key if child is not None else ""
    if child is None or not child.merges:
        raise bad_request(f"{where} is not a list that merges: directives beside it have no meaning")
    if merge_key:
        new = _merge_objects(old, value, order, child, where)
    else:
        new = _merge_scalars(old, value, doomed or [], order, where)
    if same(new, old) and ((found is not None and found is not _MISSING) or not new):
        return found
    return new


def _directive_list(patch: Object, directive: str, where: str) -> list[Any] | None:
    value = patch.get(directive)
    if value is not None and not isinstance(value, list):
        raise bad_request(f"{directive} beside {where} must be a list")
    return value


def _identity(value: Any) -> Any:
    """Hashable, equal only for the same JSON value."""
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def _merge_scalars(
    old: list[Any], value: list[Any], doomed: list[Any], order: list[Any] | None, where: str
) -> list[Any]:
    gone = {_identity(one) for one in doomed}
    merged: dict[Any, Any] = {}
    for one in [*(one for one in old if _identity(one) not in gone), *value]:
        merged.setdefault(_identity(one), one)
    if order is None:
        return list(merged.values())
    wanted = [_identity(one) for one in order]
    _check_order((_identity(one) for one in value), wanted, where)
    return _ordered(merged, wanted, [_identity(one) for one in old])


def _merge_objects(
    old: list[Any], value: list[Any], order: list[Any] | None, node: Node, where: str
) -> list[Any]:
    merge_key = node.merge_key
    if any(isinstance(one, dict) and one.get(_PATCH) == "replace" for one in value):
        return [
            _without_directives(one)
            for one in value
            if not (isinstance(one, dict) and one.get(_PATCH) in ("replace", "delete"))
        ]
    merged: dict[Any, Any] = {}
    for at, one in enumerate(old):
        # An element without the key, or with one that is taken, cannot be addressed; it stays.
        identity = _identity(one[merge_key]) if isinstance(one, dict) and merge_key in one else ("", at)
        merged[identity if identity not in merged else ("", at)] = one
    seen = list(merged)
    given = []
    for one in value:
        identity = _identity(_key_of(one, merge_key, where))
        directive = one.get(_PATCH)
        if directive == "delete":
            merged.pop(identity, None)
            continue
        if directive not in (None, "merge"):
            raise bad_request(
                f'{where}: {_PATCH} is {shown(directive)}: "replace", "delete" and "merge" are accepted'
            )
        given.append(identity)
        before = merged.get(identity)
        if before is None and not directive and _is_plain(one):  # most elements, and quick
            merged[identity] = one
        elif not same(before, one):
            merged[identity] = _merge_fields(before or {}, one, node.items, where)
    if order is None:
        return list(merged.values())
    wanted = [_identity(_key_of(one, merge_key, f"{_ORDER} of {where}")) for one in order]
    _check_order(given, wanted, where)
    return _ordered(merged, wanted, seen)


def _is_plain(element: Object) -> bool:
    """Whether an element is stored just as a patch has it: scalars only, without nulls and directives."""
    for key, value in element.items():
        if key[:1] == "$" or (type(value) is not str and type(value) is not int):
            return False
    return True


def _key_of(element: Any, merge_key: str, where: str) -> Any:
    if not isinstance(element, dict):
        raise bad_request(f"{where} must hold objects, not {shown(element)}")
    key = element.get(merge_key)
    if key is None:
        raise bad_request(f"{where}: {shown(element)} does not contain declared merge key: {merge_key}")
    return key


def _check_order(given: Iterable[Any], wanted: list[Any], where: str) -> None:
    """Elements of the patch must be among those put in order, in the same order."""
    places = {identity: at for at, identity in enumerate(wanted)}
    last = -1
    for identity in given:
        at = places.get(identity)
        if at is None or at < last:
            raise bad_request(f"{_ORDER} of {where} does not match the order of the list in the patch")
        last = at


def _ordered(merged: dict[Any, Any], wanted: list[Any], before: list[Any]) -> list[Any]:
    """Elements in the order wanted. One that the order does not name stays before those it stood before."""
    places = {identity: at for at, identity in enumerate(before)}
    wanted_ones = dict.fromkeys(wanted)
    named = [identity for identity in wanted_ones if identity in merged]
    others = [identity for identity in merged if identity not in wanted_ones]
    result, waiting = [], 0
    for identity in named:
        place = places.get(identity)
        while (
            place is not None and waiting < len(others) and places.get(others[waiting], len(before)) < place
        ):
            result.append(merged[others[waiting]])
            waiting += 1
        result.append(merged[identity])
    return [*result, *(merged[identity] for identity in others[waiting:])]
