"""kubectl's JSONPath templates: text with `{...}` expressions, `{range}` and `{end}`.

A parser of our own: the JSONPath libraries implement the query language only, neither templates nor kubectl's
dialect of it (escaped dots, `['a','b']` unions, filters without a `$`), and print results differently.
Source: https://kubernetes.io/docs/reference/kubectl/jsonpath/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from .errors import PluginError

Step = Callable[[list[Any], Any], list[Any]]

_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?$")
_SLICE = re.compile(r"(-?\d*)(:(-?\d*)(:(-?\d*))?)?$")
_OPERATORS = ("==", "!=", "<=", ">=", "<", ">")


@dataclass
class _Node:
    """Text, an expression that is printed, or a range over an expression."""

    text: str = ""
    steps: list[Step] | None = None
    body: list[_Node] | None = None


class JsonPath:
    """A parsed template. Raises PluginError where it cannot be parsed."""

    def __init__(self, template: str, *, allow_missing: bool = True) -> None:
        self._template = template
        self._allow_missing = allow_missing
        self._nodes = self._parse()

    def render(self, obj: Any, *, as_json: bool = False) -> str:
        """The text of an object; with `as_json` each expression as a JSON array of its results."""
        return "".join(self._texts(self._nodes, obj, obj, as_json))

    def values(self, obj: Any) -> list[Any]:
        """The results of all expressions, without any text."""
        return [value for node in self._nodes if node.steps for value in self._walk(node.steps, obj, obj)]

    def _texts(self, nodes: Sequence[_Node], current: Any, root: Any, as_json: bool) -> Iterator[str]:
        for node in nodes:
            if node.steps is None:
                yield node.text
                continue
            values = self._walk(node.steps, current, root)
            if node.body is not None:
                for value in values:
                    yield from self._texts(node.body, value, root, as_json)
            elif as_json:
                yield json.dumps(values, indent=4, ensure_ascii=False) + "\n"
            else:
                yield " ".join(text_of(value) for value in values)

    def _walk(self, steps: Sequence[Step], current: Any, root: Any) -> list[Any]:
        values = [current]
        for step in steps:
            values = step(values, root)
        return values

    def _parse(self) -> list[_Node]:
        stack: list[list[_Node]] = [[]]
        rest = self._template
        while rest:
            before, brace, rest = rest.partition("{")
            if before:
                stack[-1].append(_Node(before))
            if not brace:
                break
            expression, rest = self._expression(rest)
            word = expression.strip()
            if word == "end":
                if len(stack) == 1:
                    raise self._error("not in range, nothing to end")
                stack.pop()
            elif re.match(r"range(\s|$)", word):
                body: list[_Node] = []
                stack[-1].append(_Node(steps=self._steps(word[len("range") :]), body=body))
                stack.append(body)
            elif word[:1] in ("'", '"'):
                stack[-1].append(_Node(_unquoted(word)))
            else:
                stack[-1].append(_Node(steps=self._steps(word)))
        if len(stack) > 1:
            raise self._error("unclosed range")
        return stack[0]

    def _expression(self, text: str) -> tuple[str, str]:
        """What is inside of the braces, and what follows them."""
        for position, char in _outside_quotes(text):
            if char == "}":
                return text[:position], text[position + 1 :]
        raise self._error("unclosed action")

    def _steps(self, text: str) -> list[Step]:
        """The steps of a path such as `.items[*].metadata['name']`."""
        rest = text.strip()
        steps: list[Step] = []
        if not rest:
            return steps
        if rest[0] not in "$@.[":
            raise self._error(f"unrecognized expression {text.strip()!r}")
        if rest[0] == "$":
            steps.append(lambda values, root: [root])
        rest = rest[1:] if rest[0] in "$@" else rest
        while rest:
            if rest.startswith(".."):
                steps.append(lambda values, root: [one for value in values for one in _descendants(value)])
                rest = rest[1:] if not rest.startswith("..[") else rest[2:]
                if rest == ".":
                    break
            elif rest.startswith("["):
                inner, rest = self._brackets(rest)
                steps.append(self._bracket(inner.strip()))
            elif rest.startswith("."):
                name, rest = _field_name(rest[1:])
                if name == "*":
                    steps.append(lambda values, root: [one for value in values for one in _children(value)])
                elif name:
                    steps.append(self._field(name))
            else:
                raise self._error(f"unexpected {rest!r}")
        return steps

    def _brackets(self, text: str) -> tuple[str, str]:
        depth = 0
        for position, char in _outside_quotes(text):
            if char in "[(":
                depth += 1
            elif char in "])":
                depth -= 1
                if depth == 0:
                    return text[1:position], text[position + 1 :]
        raise self._error("unterminated array")

    def _bracket(self, inner: str) -> Step:
        if inner == "*":
            return lambda values, root: [one for value in values for one in _children(value)]
        if inner.startswith("?(") and inner.endswith(")"):
            return self._filter(inner[2:-1])
        parts = _split(inner)
        if len(parts) > 1:
            steps = [self._bracket(part) for part in parts]
            return lambda values, root: [
                one for value in values for step in steps for one in step([value], root)
            ]
        if inner[:1] in ("'", '"'):
            return self._field(_unquoted(inner))
        match = _SLICE.match(inner)
        if inner and match:
            return self._slice(match)
        raise self._error(f"invalid array index {inner}")

    def _field(self, name: str) -> Step:
        def step(values: list[Any], root: Any) -> list[Any]:
            found = [value[name] for value in values if isinstance(value, dict) and name in value]
            if not found and values and not self._allow_missing:
                raise self._failure(f"{name} is not found")
            return found

        return step

    def _slice(self, match: re.Match[str]) -> Step:
        def step(values: list[Any], root: Any) -> list[Any]:
            found: list[Any] = []
            for value in values:
                if value is None:
                    continue
                if not isinstance(value, list):
                    raise self._failure(f"{text_of(value)} is not array or slice")
                found += self._sliced(value, match)
            return found

        return step

    def _sliced(self, value: list[Any], match: re.Match[str]) -> list[Any]:
        numbers = [int(match[group]) if match[group] else None for group in (1, 3, 5)]
        if match[2] is not None:
            if numbers[2] is not None and numbers[2] <= 0:
                raise self._failure("step must be > 0")
            return value[numbers[0] : numbers[1] : numbers[2]]
        index = numbers[0] or 0
        if not -len(value) <= index < len(value):
            raise self._failure(f"array index out of bounds: index {index}, length {len(value)}")
        return [value[index]]

    def _filter(self, text: str) -> Step:
        left, operator, right = _comparison(text)
        compare = _COMPARE[operator] if operator else None
        left_of = self._operand(left)
        right_of = self._operand(right) if operator else None

        def keeps(item: Any, root: Any) -> bool:
            found = left_of(item, root)
            if compare is None or right_of is None:
                return bool(found)
            other = right_of(item, root)
            if len(found) > 1 or len(other) > 1:
                raise self._failure("can only compare one element")
            return bool(found and other) and compare(found[0], other[0])

        def step(values: list[Any], root: Any) -> list[Any]:
            items = [item for value in values for item in _children(value)]
            return [item for item in items if keeps(item, root)]

        return step

    def _operand(self, text: str) -> Callable[[Any, Any], list[Any]]:
        text = text.strip()
        if text[:1] in ("'", '"'):
            literal: Any = _unquoted(text)
        elif text in ("true", "false"):
            literal = text == "true"
        elif _NUMBER.match(text):
            literal = float(text) if "." in text else int(text)
        else:
            # A field that an item lacks is a reason to leave the item out, not an error.
            lenient = copy(self)
            lenient._allow_missing = True
            steps = lenient._steps(text)
            return lambda item, root: lenient._walk(steps, item, root)
        return lambda item, root: [literal]

    def _error(self, problem: str) -> PluginError:
        return PluginError(f"error parsing jsonpath {self._template}, {problem}")

    def _failure(self, problem: str) -> PluginError:
        return PluginError(f'error executing jsonpath "{self._template}": {problem}')


def relaxed(expression: str) -> str:
    """A column's expression as a template: the braces and the leading dot may be left out."""
    inner = expression.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    if not inner or inner == ".":
        raise PluginError(
            f"unexpected path string, expected a 'name1.name2' or '.name1.name2', not {expression!r}"
        )
    return "{" + (inner if inner[0] in ".$@[" else f".{inner}") + "}"


def text_of(value: Any) -> str:
    """A result as kubectl prints it: texts and numbers bare, maps and lists as compact JSON."""
    match value:
        case dict() | list():
            return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        case bool():
            return "true" if value else "false"
        case None:
            return "<nil>"
        case float() if value.is_integer() and abs(value) < 1e21:
            return str(int(value))
    return str(value)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    for child in _children(value):
        yield from _descendants(child)


def _field_name(text: str) -> tuple[str, str]:
    """A name up to the next dot or bracket that no backslash precedes, and the rest."""
    name = ""
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text):
            name += text[position + 1]
            position += 2
            continue
        if char in ".[":
            break
        name += char
        position += 1
    return name.strip(), text[position:]


def _outside_quotes(text: str) -> Iterator[tuple[int, str]]:
    """The characters outside of quotes, with positions. A quote after a backslash does not end a string."""
    quote = ""
    for position, char in enumerate(text):
        if quote:
            if char == quote and text[position - 1] != "\\":
                quote = ""
        elif char in "'\"":
            quote = char
        else:
            yield position, char


def _split(text: str) -> list[str]:
    """The parts of a union, split at commas outside of quotes."""
    parts, start = [], 0
    for position, char in _outside_quotes(text):
        if char == ",":
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()]


def _comparison(text: str) -> tuple[str, str, str]:
    """Both sides of the first operator outside of quotes; no operator for a test of existence."""
    for position, _ in _outside_quotes(text):
        for operator in _OPERATORS:
            if text.startswith(operator, position):
                return text[:position], operator, text[position + len(operator) :]
    return text, "", ""


def _comparable(left: Any, right: Any) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (left, right))
    return numbers or type(left) is type(right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def checked(left: Any, right: Any) -> bool:
        if not _comparable(left, right):
            raise PluginError("error executing jsonpath: incompatible types for comparison")
        return compare(left, right)

    return checked


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": _ordered(lambda left, right: bool(left == right)),
    "!=": _ordered(lambda left, right: bool(left != right)),
    "<": _ordered(lambda left, right: bool(left < right)),
    ">": _ordered(lambda left, right: bool(left > right)),
    "<=": _ordered(lambda left, right: bool(left <= right)),
    ">=": _ordered(lambda left, right: bool(left >= right)),
}


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _unquoted(text: str) -> str:
    """A quoted text with its escapes resolved."""
    inner = text[1:-1] if len(text) > 1 and text[-1] == text[0] else text[1:]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), inner)
