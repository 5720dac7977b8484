"""Go templates over objects, for `-o go-template`: actions, pipelines, variables and the usual functions.

Written here because no maintained Python library reads Go templates. `define`, `template` and `block` are not
supported. Whole numbers are printed as such; kubectl prints those above a million as 1e+06.
Source: https://pkg.go.dev/text/template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import PluginError
from .gofunctions import FUNCTIONS, MISSING, printed, truth

_ACTION = re.compile(
    r"""\{\{(-(?=\s))?(\s*/\*(?:[^*]|\*(?!/))*\*/\s*-?|(?:"(?:\\.|[^"\\])*"|`[^`]*`|[^"`}]|\}(?!\}))*)\}\}""",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:\\.|[^"\\])*"|`[^`]*`)
    |(?P<number>[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)
    |(?P<variable>\$\w*)
    |(?P<field>\.\w+)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<sign>:=|[=|(),.])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}


@dataclass
class _Node:
    """Text, an action, or a block with a body and an alternative."""

    keyword: str
    text: str = ""
    pipeline: _Pipeline | None = None
    body: list[_Node] = field(default_factory=list)
    otherwise: list[_Node] = field(default_factory=list)


@dataclass
class _Operand:
    """A value: a literal, a variable, the current object, a function or a pipeline, with fields of it."""

    kind: str
    value: Any = None
    fields: list[str] = field(default_factory=list)


@dataclass
class _Pipeline:
    """Commands that pass on their values, and the variables that get the last one."""

    commands: list[list[_Operand]]
    variables: list[str] = field(default_factory=list)
    declares: bool = True


class _Jump(Exception):
    """`break` or `continue`."""


class GoTemplate:
    """A parsed template. Raises PluginError where it cannot be parsed."""

    def __init__(self, template: str, *, allow_missing: bool = True) -> None:
        self._allow_missing = allow_missing
        nodes = list(_nodes(template))
        self._nodes, rest = _block(nodes, 0, ())
        if rest != len(nodes):
            raise _error(f"unexpected {{{{{nodes[rest].keyword}}}}}")

    def render(self, obj: Any) -> str:
        """The text of an object. Raises PluginError where the template does not fit it."""
        return "".join(self._run(self._nodes, obj, {"$": obj}))

    def _run(self, nodes: Sequence[_Node], dot: Any, scope: dict[str, Any]) -> Iterator[str]:
        for node in nodes:
            match node.keyword:
                case "text":
                    yield node.text
                case "break" | "continue":
                    raise _Jump(node.keyword)
                case "if" | "with":
                    inner = dict(scope)
                    value = self._value(node.pipeline, dot, inner)
                    chosen = node.body if truth(value) else node.otherwise
                    at = value if node.keyword == "with" and truth(value) else dot
                    yield from self._scoped(chosen, at, inner, scope)
                case "range":
                    yield from self._range(node, dot, scope)
                case _:
                    value = self._value(node.pipeline, dot, scope)
                    if node.pipeline is not None and not node.pipeline.variables:
                        yield printed(value)

    def _scoped(
        self, nodes: Sequence[_Node], dot: Any, inner: dict[str, Any], outer: dict[str, Any]
    ) -> Iterator[str]:
        """A block: what it assigns to variables from outside stays."""
        try:
            yield from self._run(nodes, dot, inner)
        finally:
            outer |= {name: inner[name] for name in outer}

    def _range(self, node: _Node, dot: Any, scope: dict[str, Any]) -> Iterator[str]:
        assert node.pipeline is not None
        names = node.pipeline.variables
        value = self._value(_Pipeline(node.pipeline.commands), dot, scope)
        if isinstance(value, Mapping):
            pairs: list[tuple[Any, Any]] = sorted(value.items())
        elif isinstance(value, list):
            pairs = list(enumerate(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            pairs = [(i, i) for i in range(value)]
        elif value is None or value is MISSING:
            pairs = []
        else:
            raise _error(f"range can't iterate over {printed(value)}")
        if not pairs:
            yield from self._scoped(node.otherwise, dot, dict(scope), scope)
        for key, one in pairs:
            inner = dict(scope)
            inner |= dict(zip(names, (key, one) if len(names) == 2 else (one,), strict=False))
            try:
                yield from self._scoped(node.body, one, inner, scope)
            except _Jump as jump:
                if str(jump) == "break":
                    return

    def _value(self, pipeline: _Pipeline | None, dot: Any, scope: dict[str, Any]) -> Any:
        assert pipeline is not None
        value: Any = MISSING
        for position, command in enumerate(pipeline.commands):
            last = [value] if position else []
            value = self._command(command, dot, scope, last)
        for name in pipeline.variables:
            if not pipeline.declares and name not in scope:
                raise _error(f"undefined variable {name}")
            scope[name] = value
        return value

    def _command(self, command: Sequence[_Operand], dot: Any, scope: dict[str, Any], last: list[Any]) -> Any:
        first, *rest = command
        if first.kind != "function":
            if rest or last:
                raise _error("can't give argument to non-function")
            return self._operand(first, dot, scope)
        if first.value in ("and", "or"):
            # The rest is not evaluated once the value is known.
            value: Any = MISSING
            for each in rest:
                value = self._operand(each, dot, scope)
                if truth(value) == (first.value == "or"):
                    return value
            return last[0] if last else value
        arguments = [self._operand(each, dot, scope) for each in rest]
        return self._call(first, [*arguments, *last])

    def _operand(self, operand: _Operand, dot: Any, scope: dict[str, Any]) -> Any:
        match operand.kind:
            case "literal":
                value = operand.value
            case "dot":
                value = dot
            case "variable":
                if operand.value not in scope:
                    raise _error(f"undefined variable {operand.value}")
                value = scope[operand.value]
            case "pipeline":
                value = self._value(operand.value, dot, dict(scope))
            case _:
                value = self._call(operand, [])
        for name in operand.fields:
            value = self._field(value, name)
        return value

    def _field(self, value: Any, name: str) -> Any:
        if isinstance(value, Mapping):
            if name in value:
                return value[name]
            if self._allow_missing:
                return MISSING
            raise _error(f'map has no entry for key "{name}"')
        if value is MISSING or value is None:
            if self._allow_missing:
                return MISSING
            raise _error(f"nil data; no entry for key {name!r}")
        raise _error(f"can't evaluate field {name} in {printed(value)}")

    def _call(self, operand: _Operand, arguments: Sequence[Any]) -> Any:
        try:
            return FUNCTIONS[operand.value](*arguments)
        except TypeError:
            raise _error(f"wrong number or type of arguments for {operand.value}") from None
        except (LookupError, ValueError) as error:
            raise _error(f"error calling {operand.value}: {error}") from None


def _nodes(template: str) -> Iterator[_Node]:
    """Texts and actions in their order; blocks are not joined yet."""
    position, trim = 0, False
    while (start := template.find("{{", position)) >= 0:
        match = _ACTION.match(template, start)
        if match is None:
            raise _error("unclosed action")
        text = template[position:start]
        text = text.lstrip() if trim else text
        yield _Node("text", text.rstrip() if match[1] else text)
        inner = match[2]
        position, trim = match.end(), inner[-1:] == "-" and inner[-2:-1].isspace()
        inner = (inner[:-1] if trim else inner).strip()
        if not (inner.startswith("/*") and inner.endswith("*/")):
            yield _action(inner)
    rest = template[position:]
    yield _Node("text", rest.lstrip() if trim else rest)


def _action(text: str) -> _Node:
    keyword, _, rest = text.partition(" ")
    if keyword in ("if", "with", "range"):
        return _Node(keyword, pipeline=_Parser(rest).pipeline())
    if keyword == "else" and rest.split(" ")[0] in ("if", "with"):
        return _Node("else", rest.strip())
    if keyword in ("end", "else", "break", "continue"):
        return _Node(keyword)
    if keyword in ("define", "template", "block"):
        raise _error(f"{keyword} is not supported")
    if not text:
        raise _error("missing value for command")
    return _Node("value", pipeline=_Parser(text).pipeline())


def _block(nodes: Sequence[_Node], start: int, ends: Sequence[str]) -> tuple[list[_Node], int]:
    """The nodes up to one of the keywords that end a block, and where that one is."""
    found: list[_Node] = []
    position = start
    while position < len(nodes):
        node = nodes[position]
        if node.keyword in ("end", "else"):
            if node.keyword in ends:
                return found, position
            raise _error(f"unexpected {{{{{node.keyword}}}}}")
        if node.keyword in ("if", "with", "range"):
            position = _close(node, nodes, position + 1)
        found.append(node)
        position += 1
    if ends:
        raise _error("unexpected EOF")
    return found, position


def _close(node: _Node, nodes: Sequence[_Node], start: int) -> int:
    """Fill in a block's body and alternative; the position of its `end`."""
    node.body, position = _block(nodes, start, ("end", "else"))
    closing = nodes[position]
    if closing.keyword == "end":
        return position
    if closing.text:
        chained = _action(closing.text)
        node.otherwise = [chained]
        return _close(chained, nodes, position + 1)
    node.otherwise, position = _block(nodes, position + 1, ("end",))
    return position


class _Parser:
    """Reads a pipeline."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, bool]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise _error(f"unexpected {text[position:].strip()!r} in operand")
            spaced = position == 0 or match.start(match.lastgroup) > position
            self._tokens.append((match.lastgroup, match[match.lastgroup], spaced))
            position = match.end()
        self._at = 0

    def pipeline(self) -> _Pipeline:
        found = self._pipeline()
        if self._at < len(self._tokens):
            raise _error(f"unexpected {self._peek()[1]!r} in command")
        return found

    def _pipeline(self) -> _Pipeline:
        variables, declares = self._variables()
        commands = [self._command()]
        while self._peek()[1] == "|":
            self._at += 1
            commands.append(self._command())
        return _Pipeline(commands, variables, declares)

    def _variables(self) -> tuple[list[str], bool]:
        """`$a, $b :=` or `$a =` at the front."""
        names: list[str] = []
        position = self._at
        while position < len(self._tokens) and self._tokens[position][0] == "variable":
            names.append(self._tokens[position][1])
            position += 1
            sign = self._tokens[position][1] if position < len(self._tokens) else ""
            if sign in (":=", "="):
                self._at = position + 1
                return names, sign == ":="
            if sign != ",":
                break
            position += 1
        return [], True

    def _command(self) -> list[_Operand]:
        operands: list[_Operand] = []
        while self._at < len(self._tokens) and self._peek()[1] not in ("|", ")"):
            operands.append(self._operand())
        if not operands:
            raise _error("missing value for command")
        return operands

    def _operand(self) -> _Operand:
        kind, text, _ = self._peek()
        self._at += 1
        if kind == "string":
            operand = _Operand("literal", _string(text))
        elif kind == "number":
            operand = _Operand("literal", float(text) if re.search(r"[.e]", text) else int(text))
        elif kind == "variable":
            operand = _Operand("variable", text)
        elif kind == "field":
            operand = _Operand("dot", fields=[text[1:]])
        elif text == ".":
            operand = _Operand("dot")
        elif text == "(":
            operand = _Operand("pipeline", self._pipeline())
            if self._peek()[1] != ")":
                raise _error("unclosed left paren")
            self._at += 1
        elif text in ("true", "false", "nil"):
            operand = _Operand("literal", {"true": True, "false": False, "nil": None}[text])
        elif text in FUNCTIONS:
            operand = _Operand("function", text)
        elif kind == "word":
            raise _error(f'function "{text}" not defined')
        else:
            raise _error(f"unexpected {text!r} in operand")
        while self._peek()[0] == "field" and not self._peek()[2]:
            operand.fields.append(self._peek()[1][1:])
            self._at += 1
        return operand

    def _peek(self) -> tuple[str, str, bool]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "", True)


def _string(text: str) -> str:
    if text[0] == "`":
        return text[1:-1]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text[1:-1])


def _error(problem: str) -> PluginError:
    return PluginError(f"error in go-template: {problem}")
