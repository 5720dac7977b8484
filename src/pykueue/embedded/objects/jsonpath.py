"""The JSONPath of Kubernetes, as printer columns, scale paths and selectable fields use it.

Understood: `.a.b`, `['a']`, `[0]`, `[-1]`, `[1:3]`, `[*]`, `.*`, `..a`, `[?(@.type=="Ready")]` with the
comparisons ==, !=, <, <=, >, >= or none for presence, a backslash before a dot in a name, enclosing braces.
Source: docs/reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: Finds every value a path leads to, in order. Missing fields lead nowhere.
Evaluator = Callable[[Any], list[Any]]
_Step = Callable[[Any], Iterable[Any]]

_NAME = re.compile(r"(?:\\.|[^.\[\]\\{}'\"\s()])+")
_QUOTED = re.compile(r"\[\s*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\s*\]")
_INDEX = re.compile(r"\[\s*(-?\d{1,9})\s*\]")
_SLICE = re.compile(r"\[\s*(?:(-?\d{1,9})\s*)?:\s*(?:(-?\d{1,9})\s*)?\]")
_WILD = re.compile(r"\[\s*\*\s*\]|\.\*")
_FILTER = re.compile(r"\[\?\(")
#: A comparison, or a quoted text, which may contain what looks like one.
_COMPARISON = re.compile(r"""(==|!=|<=|>=|<|>)|"[^"]*"|'[^']*'""")

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def json_path(path: str) -> Evaluator:
    """Compile a path. ValueError says where it cannot be read."""
    steps, names = _parse(path)
    if names is not None:
        return _plain(names)

    def evaluate(obj: Any) -> list[Any]:
        found = [obj]
        for step in steps:
            found = [value for one in found for value in step(one)]
        return found

    return evaluate


def field_path(path: str) -> tuple[str, ...]:
    """The names in a path of nothing but fields, such as `.spec.replicas`. ValueError for other paths."""
    names = _parse(path)[1]
    if not names:
        raise ValueError(f"{path!r} is not a path of fields such as .spec.replicas")
    return tuple(names)


def _plain(names: list[str]) -> Evaluator:
    def evaluate(obj: Any) -> list[Any]:
        for name in names:
            if type(obj) is not dict or name not in obj:
                return []
            obj = obj[name]
        return [obj]

    return evaluate


def _parse(path: str) -> tuple[list[_Step], list[str] | None]:
    """The steps of a path, and its field names if it has nothing but fields."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    if text.startswith(("$", "@")):
        text = text[1:]
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[_Step] = []
    names: list[str] | None = []
    at = 0
    while at < len(text):
        if text.startswith("..", at) and (match := _NAME.match(text, at + 2)):
            names = None
            steps.append(_descend(_unescape(match[0])))
        elif match := _WILD.match(text, at):
            names = None
            steps.append(_everything)
        elif (text[at] == "." and (match := _NAME.match(text, at + 1))) or (match := _QUOTED.match(text, at)):
            quoted = match.re is _QUOTED
            name = _unescape((match[1] if match[1] is not None else match[2]) if quoted else match[0])
            steps.append(_field(name))
            if names is not None:
                names.append(name)
        elif match := _INDEX.match(text, at):
            names = None
            steps.append(_index(int(match[1])))
        elif match := _SLICE.match(text, at):
            names = None
            bounds = slice(*(int(part) if part else None for part in match.groups()))
            steps.append(_slice(bounds))
        elif match := _FILTER.match(text, at):
            names = None
            end = _filter_end(path, text, match.end())
            steps.append(_filter(path, text[match.end() : end]))
            at = end + 2
            continue
        elif text == ".":
            break
        else:
            raise ValueError(f"the JSON path {path!r} cannot be read from {text[at:]!r} on")
        at = match.end()
    return steps, names


def field_steps(path: str) -> list[str]:
    """The fields that a path of names alone (`.spec.replicas`) leads through."""
    return path.strip(".").split(".")


def field_at(obj: Any, steps: Iterable[str]) -> Any:
    """What is at the end of `field_steps`; None where the way there ends early."""
    for step in steps:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _filter_end(path: str, text: str, at: int) -> int:
    """Where the condition of a filter ends: at the first `)]` outside quotes."""
    quote = ""
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif text.startswith(")]", at):
            return at
        at += 1
    raise ValueError(f"the JSON path {path!r} has a filter that does not end")


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _field(name: str) -> _Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[name],) if type(value) is dict and name in value else ()

    return step


def _index(index: int) -> _Step:
    def step(value: Any) -> Iterable[Any]:
        if type(value) is not list or not -len(value) <= index < len(value):
            return ()
        return (value[index],)

    return step


def _slice(bounds: slice) -> _Step:
    def step(value: Any) -> Iterable[Any]:
        return value[bounds] if type(value) is list else ()

    return step


def _everything(value: Any) -> Iterable[Any]:
    if type(value) is list:
        return value
    return value.values() if type(value) is dict else ()


def _descend(name: str) -> _Step:
    def step(value: Any) -> Iterator[Any]:
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if type(one) is dict and name in one:
                yield one[name]
            waiting.extend(inner for inner in reversed(list(_everything(one))) if type(inner) in (dict, list))

    return step


def _filter(path: str, text: str) -> _Step:
    left_text, right_text, comparison = text, "", ""
    for match in _COMPARISON.finditer(text):
        if match[1]:
            left_text, right_text = text[: match.start()].rstrip(), text[match.end() :].lstrip()
            comparison = match[1]
            break
    left = _operand(path, left_text)
    right = _operand(path, right_text) if comparison else None

    def step(value: Any) -> Iterator[Any]:
        for one in _everything(value):
            found = left(one)
            if right is None:
                if found:
                    yield one
            elif found and (wanted := right(one)) and _compare(comparison, found[0], wanted[0]):
                yield one

    return step


def _compare(comparison: str, left: Any, right: Any) -> bool:
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (left, right))
    if type(left) is not type(right) and not numbers:
        return comparison == "!="
    try:
        return _OPERATORS[comparison](left, right)
    except TypeError:
        return False


_CONSTANTS = {"true": True, "false": False, "null": None}


def _operand(path: str, text: str) -> Evaluator:
    text = text.strip()
    if text.startswith(("@", "$")):
        return json_path(text)
    value: Any
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        value = _unescape(text[1:-1])
    elif text in _CONSTANTS:
        value = _CONSTANTS[text]
    else:
        try:
            value = int(text) if len(text) < 20 else float(text)
        except ValueError:
            try:
                value = float(text)
            except ValueError:
                raise ValueError(
                    f"the JSON path {path!r} compares with {text!r}, which is no value"
                ) from None
    return lambda _: [value]
