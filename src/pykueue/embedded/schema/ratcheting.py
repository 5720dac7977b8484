"""Ratcheting: an update is not refused for what it leaves as it was.

Source: docs/reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pykueue.api.cel.node import ABSENT, Node
from pykueue.api.json_equality import same

from .walk import element_key


def unchanged(path: Sequence[str | int], new: Any, old: Any, node: Node) -> bool:
    """Whether the value at `path` is the same in both objects, or lies in a part that is.

    Elements of `map` lists correspond by key; those of other lists only when the whole list is the same.
    """
    at: Node | None = node
    for step in path:
        if new is old:
            return True
        if isinstance(step, int):
            if not isinstance(new, list) or not isinstance(old, list):
                return False
            if same(new, old):
                return True
            counterpart = correlated(new[step], old, at)
            if counterpart is ABSENT:
                return False
            new, old = new[step], counterpart
            at = at.items if at is not None else None
        else:
            if not isinstance(new, dict) or not isinstance(old, dict) or step not in new or step not in old:
                return False
            new, old = new[step], old[step]
            at = at.child(step) if at is not None else None
    return same(new, old)


def correlated(element: Any, old: list[Any], node: Node | None) -> Any:
    """The element of the old list with the same key, or ABSENT: also for lists that have no keys."""
    if node is None or node.list_type != "map" or node.items is None or not isinstance(element, dict):
        return ABSENT
    keys = key_fields(node)
    wanted = element_key(element, keys)
    for one in old:
        if isinstance(one, dict) and element_key(one, keys) == wanted:
            return one
    return ABSENT


def key_fields(node: Node) -> tuple[tuple[str, Any], ...]:
    """The key fields of a `map` list with their defaults."""
    fields = node.items.properties if node.items is not None else {}
    return tuple((key, fields[key].default if key in fields else ABSENT) for key in node.list_keys)
