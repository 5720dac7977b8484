"""Functions of Go templates, and how Go prints values: https://pkg.go.dev/text/template."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus


class _Missing:
    """The value of a missing field."""


MISSING = _Missing()


def truth(value: Any) -> bool:
    """Whether a value is neither missing nor its type's zero value, and not empty."""
    return value is not MISSING and bool(value)


def printed(value: Any) -> str:
    """A value as Go's `Print` writes it."""
    match value:
        case _Missing() | None:
            return "<no value>"
        case bool():
            return "true" if value else "false"
        case Mapping():
            return "map[" + " ".join(f"{key}:{_inner(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(_inner(one) for one in value) + "]"
        case float() if value.is_integer() and abs(value) < 1e21:
            return str(int(value))
    return str(value)


def _inner(value: Any) -> str:
    return "<nil>" if value is None else printed(value)


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if value is MISSING or value is None:
            raise LookupError("index of untyped nil")
        if isinstance(value, Mapping):
            value = value.get(key, MISSING)
        elif not isinstance(key, int) or not 0 <= key < len(value):
            raise LookupError(f"index out of range: {printed(key)}")
        else:
            value = value[key]
    return value


def _exists(value: Any, *keys: Any) -> bool:
    """kubectl's test of whether `index` would find something."""
    try:
        return _index(value, *keys) is not MISSING
    except (LookupError, TypeError):
        return False


def _length(value: Any) -> int:
    if value is MISSING or value is None:
        raise ValueError("len of nil pointer")
    return len(value)


def _slice(value: Any, *bounds: int) -> Any:
    start, end = (*bounds, *(0, len(value))[len(bounds) :])[:2]
    if not 0 <= start <= end <= len(value):
        raise LookupError("index out of range")
    return value[start:end]


def _printf(form: str, *values: Any) -> str:
    """The verbs %v %s %d %q %t %f %x %% with flags, width and precision."""
    rest = list(values)

    def one(match: re.Match[str]) -> str:
        flags, verb = match[1], match[2]
        if verb == "%":
            return "%"
        if not rest:
            return f"%!{verb}(MISSING)"
        value = rest.pop(0)
        match verb:
            case "d" | "x" | "f" if isinstance(value, int | float) and not isinstance(value, bool):
                return str(f"%{flags}{verb}" % value)
            case "q":
                return str(f"%{flags}s" % json.dumps(printed(value), ensure_ascii=False))
        return str(f"%{flags}s" % printed(value))

    return re.sub(r"%([-+ 0#]*(?:[1-9]\d*)?(?:\.\d+)?)([vsdqtfx%])", one, form)


def _equal(left: Any, *others: Any) -> bool:
    return any(left == other for other in others)


def _print(*values: Any) -> str:
    """Go puts a space between two values where neither is a text."""
    text = ""
    for position, value in enumerate(values):
        spaced = position and not isinstance(value, str) and not isinstance(values[position - 1], str)
        text += (" " if spaced else "") + printed(value)
    return text


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": lambda *values: next((one for one in values if not truth(one)), values[-1]),
    "or": lambda *values: next((one for one in values if truth(one)), values[-1]),
    "not": lambda value: not truth(value),
    "eq": _equal,
    "ne": lambda left, right: left != right,
    "lt": lambda left, right: left < right,
    "le": lambda left, right: left <= right,
    "gt": lambda left, right: left > right,
    "ge": lambda left, right: left >= right,
    "index": _index,
    "exists": _exists,
    "len": _length,
    "slice": _slice,
    "print": _print,
    "println": lambda *values: " ".join(printed(one) for one in values) + "\n",
    "printf": _printf,
    "html": lambda *values: (
        html.escape(_print(*values)).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    ),
    "urlquery": lambda *values: quote_plus(_print(*values)),
    "base64decode": lambda text: base64.b64decode(text).decode(errors="replace"),
}
