"""The string functions of CEL's extension library, together with those of the same names on lists.

The CEL library brings the string functions, but then refuses an `indexOf` for lists, which Kubernetes has.
Source: docs/reference/kubernetes-api-machinery.md, section 22.4, and the CEL strings extension.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from .functions import T, function, method
from .lists import equal

_TO_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_TO_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _within(index: int, text: str, name: str) -> int:
    if not 0 <= index <= len(text):
        raise ValueError(f"{name}: index {index} is out of range")
    return index


@method("charAt", T.STRING, T.STRING, T.INT)
def _char_at(text: str, index: int) -> str:
    _within(index, text, "charAt")
    return text[index : index + 1]


@method("substring", T.STRING, T.STRING, T.INT)
def _substring(text: str, start: int) -> str:
    return text[_within(start, text, "substring") :]


@method("substring", T.STRING, T.STRING, T.INT, T.INT)
def _substring_between(text: str, start: int, end: int) -> str:
    if start > _within(end, text, "substring"):
        raise ValueError(f"substring: index {start} is after {end}")
    return text[_within(start, text, "substring") : end]


@method("indexOf", T.INT, T.STRING, T.STRING, T.INT)
def _index_from(text: str, wanted: str, start: int) -> int:
    return text.find(wanted, _within(start, text, "indexOf"))


@method("lastIndexOf", T.INT, T.STRING, T.STRING, T.INT)
def _last_index_from(text: str, wanted: str, start: int) -> int:
    return text.rfind(wanted, 0, _within(start, text, "lastIndexOf") + len(wanted))


method("indexOf", T.INT, T.STRING, T.STRING)(lambda text, wanted: text.find(wanted))
method("lastIndexOf", T.INT, T.STRING, T.STRING)(lambda text, wanted: text.rfind(wanted))
method("indexOf", T.INT, T.LIST, T.DYN)(
    lambda values, wanted: next((at for at, value in enumerate(values) if equal(value, wanted)), -1)
)
method("lastIndexOf", T.INT, T.LIST, T.DYN)(
    lambda values, wanted: max((at for at, value in enumerate(values) if equal(value, wanted)), default=-1)
)
method("lowerAscii", T.STRING, T.STRING)(lambda text: text.translate(_TO_LOWER))
method("upperAscii", T.STRING, T.STRING)(lambda text: text.translate(_TO_UPPER))
method("trim", T.STRING, T.STRING)(lambda text: text.strip())
method("reverse", T.STRING, T.STRING)(lambda text: text[::-1])
method("replace", T.STRING, T.STRING, T.STRING, T.STRING)(lambda text, old, new: text.replace(old, new))
method("replace", T.STRING, T.STRING, T.STRING, T.STRING, T.INT)(
    lambda text, old, new, limit: text.replace(old, new, limit)
)
method("join", T.STRING, T.LIST)(lambda values: "".join(values))
method("join", T.STRING, T.LIST, T.STRING)(lambda values, separator: separator.join(values))
method("split", T.List(T.STRING), T.STRING, T.STRING)(
    lambda text, separator: text.split(separator) if separator else list(text)
)
function("strings.quote", T.STRING, T.STRING)(lambda text: json.dumps(text, ensure_ascii=False))


@method("split", T.List(T.STRING), T.STRING, T.STRING, T.INT)
def _split_limited(text: str, separator: str, limit: int) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    return [*text[: limit - 1], text[limit - 1 :]] if 0 < limit < len(text) else list(text)


_CLAUSE: Final = re.compile(r"%(?:%|(?:\.(\d{1,2}))?([sdfebxXo]))|%")


@method("format", T.STRING, T.STRING, T.LIST)
def _format(text: str, arguments: list[Any]) -> str:
    waiting = iter(arguments)

    def clause(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if match[0] == "%":
            raise ValueError(f"format: {text!r} has a clause that is not understood")
        try:
            value = next(waiting)
        except StopIteration:
            raise ValueError(f"format: {text!r} has more clauses than arguments") from None
        return _clause(match[2], value, 6 if match[1] is None else int(match[1]))

    return _CLAUSE.sub(clause, text)


def _clause(kind: str, value: Any, precision: int) -> str:
    match kind:
        case "s":
            return _shown(value)
        case "d" if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(int(value))
        case "f" | "e" if isinstance(value, (int, float)):
            return format(value, f".{precision}{kind}")
        case "b" | "o" if isinstance(value, int):
            return format(int(value), kind)
        case "x" | "X" if isinstance(value, int) and not isinstance(value, bool):
            return format(value, kind)
        case "x" | "X" if isinstance(value, (str, bytes, bytearray)):
            digits = (value.encode() if isinstance(value, str) else bytes(value)).hex()
            return digits.upper() if kind == "X" else digits
    raise ValueError(f"format: %{kind} does not take {value!r}")


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_shown(key)}: {_shown(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode() if isinstance(value, (bytes, bytearray)) else str(value)
