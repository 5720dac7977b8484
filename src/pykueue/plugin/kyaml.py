"""KYAML, the form of `kubectl -o kyaml`: YAML in flow style, with every string quoted and trailing commas.

Source: https://kubernetes.io/docs/reference/encodings/kyaml/ (KEP 5295).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

#: Keys that need no quotes: what no YAML parser takes for anything but a string.
_PLAIN_KEY: Final = re.compile(r"[^\W]([\w./-]*[^\W])?", re.UNICODE)
_WORDS: Final = frozenset(
    {"null", "true", "t", "false", "f", "y", "yes", "on", "n", "no", "off", "nan", "inf"}
)
_NUMBER: Final = re.compile(
    r"[+-]?(0[xX][0-9a-fA-F]+(\.[0-9a-fA-F]*)?([pP][+-]?\d+)?|0[bB][01]+|0[oO]?[0-7]+|\d+(\.\d*)?([eE][+-]?\d+)?"
    r"|\.\d+([eE][+-]?\d+)?|infinity)",
    re.IGNORECASE,
)
_DATE: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([Tt ].*)?")
_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\r": "\\r", "\v": "\\v", "\0": "\\0",
    "\x1b": "\\e", "\x85": "\\N", "\xa0": "\\_", "\u2028": "\\L", "\u2029": "\\P",
}  # fmt: skip


def document(value: Any) -> str:
    """A JSON value as a KYAML document, keys in alphabetical order."""
    return f"---\n{_rendered(value, 0)}\n"


def _rendered(value: Any, indent: int) -> str:
    match value:
        case dict():
            return _mapping(value, indent)
        case list():
            return _sequence(value, indent)
        case str():
            return _string(value, indent + 1)
        case _:
            return json.dumps(value)


def _mapping(value: dict[str, Any], indent: int) -> str:
    if not value:
        return "{}"
    inner = "  " * (indent + 1)
    lines = [f"{inner}{_key(key)}: {_rendered(value[key], indent + 1)},\n" for key in sorted(value)]
    return "{\n" + "".join(lines) + "  " * indent + "}"


def _sequence(value: list[Any], indent: int) -> str:
    if not value:
        return "[]"
    if all(isinstance(each, dict | list) for each in value):
        return f"[{', '.join(_rendered(each, indent) for each in value)}]"
    inner = "  " * (indent + 1)
    return "[\n" + "".join(f"{inner}{_rendered(each, indent + 1)},\n" for each in value) + "  " * indent + "]"


def _key(key: str) -> str:
    ambiguous = key.lower() in _WORDS or _NUMBER.fullmatch(key.replace("_", "")) or _DATE.fullmatch(key)
    if _PLAIN_KEY.fullmatch(key) and not ambiguous:
        return key
    quoted = _escaped(key).replace("\n", "\\n").replace("\t", "\\t")
    return f'"{quoted}"'


def _string(text: str, indent: int) -> str:
    """In double quotes; a text of several lines keeps one line for each, joined by escaped line breaks."""
    if "\n" not in text:
        return f'"{_escaped(text)}"'
    margin = "  " * indent
    *lines, last = text.split("\n")
    found = ['"\\\n']
    for line in lines:
        found.append(f"{margin}{_margined(line)}\\n\\\n")
    if last:
        found.append(f"{margin}{_margined(last)}\\\n")
    return f'{"".join(found)}{margin}"'


def _margined(line: str) -> str:
    """White space at the beginning of a line is escaped, so that it is kept."""
    return ("\\" if line[:1].isspace() else " ") + _escaped(line)


def _escaped(text: str) -> str:
    return "".join(
        _ESCAPES.get(each) or (each if each.isprintable() or each in "\t\n" else _code(each)) for each in text
    )


def _code(character: str) -> str:
    number = ord(character)
    if number < 0x20 or number == 0x7F:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
