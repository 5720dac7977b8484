"""Whether two pod templates say the same, however a client writes them.

Clients read an object into the types of their language and write back all of it: empty fields come or go on
the way, and amounts get another spelling. None of that is a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pykueue.api.quantity import QuantityError, parse

_AMOUNTS: Final = ("requests", "limits", "overhead")


def says_the_same(a: Any, b: Any) -> bool:
    """For parts of pod templates; the order in lists counts."""
    return bool(a == b) or _said(a) == _said(b)


def _said(value: Any) -> Any:
    """Without fields that are null, false, zero or empty: a typed client cannot tell them from absent."""
    if isinstance(value, list):
        return [_said(item) for item in value]
    if not isinstance(value, Mapping):
        return value or None
    said = {
        key: _amounts(inner) if key in _AMOUNTS and isinstance(inner, Mapping) else _said(inner)
        for key, inner in value.items()
    }
    return {key: inner for key, inner in said.items() if inner} or None


def _amounts(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _amount(value) for name, value in given.items()}


def _amount(value: Any) -> Any:
    try:
        return parse(value).nanos
    except (QuantityError, TypeError):
        return value
