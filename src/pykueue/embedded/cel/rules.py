"""The validation rules of custom kinds: x-kubernetes-validations, compiled once and run on objects.

All rules that can be are joined into one program over the whole object, which nearly always says that all is
well at the price of one call; only when it does not are rules run one by one, to say which failed and where.
On an update, rules of parts that did not change are not run (ratcheting), and neither program nor rules see
more of an object than they read.

Source: docs/reference/kubernetes-api-machinery.md, sections 15 and 22.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cel_expr_python import cel

from pykueue.api.cel.cost import RULE_BUDGET, SCHEMA_BUDGET, occurrences, shape_of
from pykueue.api.cel.library import rewrite
from pykueue.api.cel.names import KEYWORDS, escape
from pykueue.api.cel.node import ABSENT, Node
from pykueue.api.cel.program import Program, RuleError, compiled, program_of
from pykueue.api.cel.reads import undeclared
from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import Cause, duplicate, forbidden, invalid, required
from pykueue.embedded.objects.jsonpath import field_path
from pykueue.embedded.objects.values import type_name
from pykueue.embedded.schema.ratcheting import correlated
from pykueue.embedded.schema.walk import Trail, trail_text

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Values of a schema that are gone through in one step.
_PLACES_TOGETHER = 10_000


def compile_ahead(schema: Any) -> Iterator[Program | RuleError | None]:
    """Compile the rules of an OpenAPI schema, one in each step, for `check_rules` and `compile_rules`.

    None after many places without one.
    """
    places, seen = [schema], 0
    while places:
        place = places.pop()
        seen += 1
        if seen % _PLACES_TOGETHER == 0:
            yield None
        if isinstance(place, list):
            places.extend(place)
        elif isinstance(place, dict):
            places.extend(place.values())
            rules = place.get("x-kubernetes-validations")
            for rule in rules if isinstance(rules, list) else ():
                if isinstance(rule, dict):
                    for name in ("rule", "messageExpression"):
                        if isinstance(rule.get(name), str):
                            yield compiled(rule[name], rule.get("optionalOldSelf") is True)


@dataclass(slots=True)
class _Rule:
    """One entry of x-kubernetes-validations."""

    text: str
    program: Program
    escaped: bool
    message: str
    message_program: Program | None
    reason: str
    steps: tuple[str, ...]

    def failure(self, value: Any, old: Any, trail: Trail) -> Cause | None:
        """The cause when the rule does not hold for a value."""
        result, fault = self.program.run(value, old)
        if result is True:
            return None
        for step in self.steps:
            trail = (trail, step)
        where = trail_text(trail) or "<nil>"
        shown = type_name(value)
        if fault:
            return invalid(where, shown, f"{fault} evaluating rule: {self.message or self.text}")
        detail = self._message(value, old)
        match self.reason:
            case "FieldValueForbidden":
                return forbidden(where, detail)
            case "FieldValueRequired":
                return required(where, detail)
            case "FieldValueDuplicate":
                return duplicate(where, shown)
        return invalid(where, shown, detail)

    def _message(self, value: Any, old: Any) -> str:
        if self.message_program is not None:
            text, _ = self.message_program.run(value, old)
            if isinstance(text, str) and text.strip() and "\n" not in text:
                return text.strip()
        return self.message or f"failed rule: {self.text.strip()}"


def _compile_rule(raw: Mapping[str, Any]) -> _Rule:
    text = str(raw.get("rule") or "")
    optional_old = bool(raw.get("optionalOldSelf"))
    expression = raw.get("messageExpression")
    path = raw.get("fieldPath")
    return _Rule(
        text,
        program_of(text, optional_old),
        "__" in text or "__" in (expression or ""),
        str(raw.get("message") or ""),
        program_of(expression, optional_old) if expression else None,
        str(raw.get("reason") or "FieldValueInvalid"),
        field_path(path) if path else (),
    )


@dataclass(slots=True)
class _Place:
    """A schema place with rules at or below it."""

    node: Node
    rules: list[_Rule] = field(default_factory=list)
    children: dict[str, _Place] = field(default_factory=dict)
    values: _Place | None = None
    items: _Place | None = None


def _places(node: Node, above: set[int]) -> _Place | None:
    if id(node) in above:
        return None
    above.add(id(node))
    place = _Place(node, [_compile_rule(raw) for raw in node.rules])
    for name, child in node.properties.items():
        below = _places(child, above)
        if below is not None:
            place.children[name] = below
    place.values = _places(node.values, above) if node.values is not None else None
    place.items = _places(node.items, above) if node.items is not None else None
    above.discard(id(node))
    found = place.rules or place.children or place.values or place.items
    return place if found else None


class Rules:
    """All rules of one version of a kind."""

    def __init__(self, root: _Place) -> None:
        self._root = root
        self._joined: dict[tuple[frozenset[str], bool], Program | None] = {}

    def check(self, obj: Object, old: Object | None) -> list[Cause]:
        """A cause for every rule that does not hold."""
        # Fields of the root whose rules have to run; the root's own rules always do.
        parts = frozenset(
            name
            for name in self._root.children
            if name in obj and (old is None or obj[name] is not old.get(name, ABSENT))
        )
        program = self._joined_program(parts, old is not None)
        if program is not None and program.holds({"self": obj, "oldSelf": old}):
            return []
        causes: list[Cause] = []
        _run(self._root, obj, ABSENT if old is None else old, None, causes)
        return causes

    def _joined_program(self, parts: frozenset[str], update: bool) -> Program | None:
        key = (parts, update)
        if key not in self._joined:
            try:
                texts = list(_joined(self._root, update, parts))
                self._joined[key] = Program(" && ".join(texts) or "true")
            except (RuleError, _NotJoinableError):
                self._joined[key] = None
        return self._joined[key]


def compile_rules(node: Node) -> Rules | None:
    """The rules at and below a node, or None when there are none. RuleError when one does not compile."""
    root = _places(node, set())
    return None if root is None else Rules(root)


# All rules as one expression


class _NotJoinableError(Exception):
    """Some rule has to be run by itself."""


def _joined(place: _Place, update: bool, parts: frozenset[str] | None = None) -> Iterator[str]:
    """Expressions over `self` and `oldSelf` that all hold when no rule fails.

    On an update the rules that need no old value are also asked of parts that are new. Where old and new
    elements correspond by key, the expression cannot say so.
    """
    for transition in (False, True) if update else (False,):
        yield from _joined_kind(place, transition, parts)


def _joined_kind(place: _Place, transition: bool, parts: frozenset[str] | None = None) -> Iterator[str]:
    for rule in place.rules:
        if rule.escaped or rule.program.optional_old:
            raise _NotJoinableError
        if rule.program.transition == transition:
            yield f"({rewrite(rule.text)}\n)"
    for name, child in place.children.items():
        if parts is not None and name not in parts:
            continue
        below = " && ".join(_joined_kind(child, transition))
        if not below:
            continue
        if not _IDENTIFIER.fullmatch(name) or name in KEYWORDS:
            raise _NotJoinableError
        inner = f"cel.bind(self, self.{name}, {below})"
        if transition:
            inner = f"!has(oldSelf.{name}) || cel.bind(oldSelf, oldSelf.{name}, {inner})"
        yield f"(!has(self.{name}) || {inner})"
    for each, keyed in ((place.items, False), (place.values, True)):
        below = " && ".join(_joined_kind(each, transition)) if each is not None else ""
        if not below:
            continue
        if transition:
            raise _NotJoinableError
        yield f"self.all(_key, cel.bind(self, self[_key], {below}))" if keyed else f"self.all(self, {below})"


# One rule after the other


def _run(place: _Place, value: Any, old: Any, trail: Trail, causes: list[Cause]) -> None:
    if value is old or value is None:
        return
    for rule in place.rules:
        if rule.program.transition and not rule.program.optional_old and old is ABSENT:
            continue
        new, before = value, old
        if rule.escaped:
            new, before = _escaped(value, place.node), _escaped(old, place.node)
        if old is not ABSENT and rule.program.changes_nothing(new, before):
            continue
        cause = rule.failure(new, before, trail)
        if cause is not None:
            causes.append(cause)
    if type(value) is dict:
        fields = old if type(old) is dict else {}
        for name, child in place.children.items():
            if name in value:
                _run(child, value[name], fields.get(name, ABSENT), (trail, name), causes)
        if place.values is not None:
            for name, inner in value.items():
                if name not in place.node.properties:
                    _run(place.values, inner, fields.get(name, ABSENT), (trail, name), causes)
    elif type(value) is list and place.items is not None:
        elements = old if type(old) is list else []
        for index, inner in enumerate(value):
            _run(place.items, inner, correlated(inner, elements, place.node), (trail, index), causes)


def _escaped(value: Any, node: Node | None) -> Any:
    """A value with its property names spelt as rules spell them."""
    if node is None:
        return value
    if type(value) is dict:
        return {
            escape(name) if name in node.properties else name: _escaped(inner, node.child(name))
            for name, inner in value.items()
        }
    if type(value) is list:
        return [_escaped(inner, node.items) for inner in value]
    return value


# Rules that may be installed


class Costs:
    """What the rules of one schema may cost together."""

    def __init__(self) -> None:
        self.total = 0.0

    def causes(self, path: str) -> list[Cause]:
        """The cause when it is too much."""
        if self.total <= SCHEMA_BUDGET:
            return []
        return [
            forbidden(
                path,
                "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds "
                f"budget by factor of {_factor(self.total / SCHEMA_BUDGET)} {_SIMPLER}",
            )
        ]


_SIMPLER: Final = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
    "strings are declared)"
)


def _factor(factor: float) -> str:
    if factor > 100:
        return "more than 100x"
    return f"{factor:.1f}x" if factor >= 1.5 else f"{factor:f}x"


def check_rules(
    raw: Any, node: Node, path: str, times: float | None, uncorrelated: str, costs: Costs
) -> list[Cause]:
    """Why the x-kubernetes-validations of one place are refused.

    `path` is where they stand, `times` how often the place may be in an object, if limited, `uncorrelated`
    the path of the list around it whose old elements cannot be told from new ones.
    """
    causes: list[Cause] = []
    shape = shape_of(node)
    both = {"self": shape, "oldSelf": shape}
    maybe = {"self": shape, "oldSelf": replace(shape, place=None)}
    for index, one in enumerate(raw):
        where = f"{path}[{index}]"
        if not isinstance(one, dict):
            causes.append(invalid(where, one, "must be an object"))
            continue
        if not isinstance(one.get("rule"), str) or not one["rule"].strip():
            causes.append(required(f"{where}.rule", "rule is not specified"))
            continue
        optional_old = one.get("optionalOldSelf") is True
        for name, kind in (("rule", cel.Type.BOOL), ("messageExpression", cel.Type.STRING)):
            text = one.get(name)
            if text is None:
                continue
            try:
                program = program_of(str(text), optional_old)
            except RuleError as error:
                causes.append(invalid(f"{where}.{name}", text, str(error)))
                continue
            if not program.returns(kind):
                word = "bool" if name == "rule" else "string"
                causes.append(invalid(f"{where}.{name}", text, f"must evaluate to a {word}"))
            # What makes an old value optional here costs nothing on a cluster.
            priced, shapes = (program_of(str(text)), maybe) if optional_old else (program, both)
            cost = priced.cost(node, shapes) * (occurrences(node) if times is None else times)
            costs.total += cost
            if cost > RULE_BUDGET:
                detail = f"estimated {name} cost exceeds budget by factor of {_factor(cost / RULE_BUDGET)}"
                causes.append(forbidden(f"{where}.{name}", f"{detail} {_SIMPLER}"))
            if uncorrelated and program.transition and not optional_old:
                detail = "oldSelf cannot be used on the uncorrelatable portion of the schema within"
                causes.append(invalid(f"{where}.{name}", text, f"{detail} {uncorrelated}"))
            if "__" not in str(text):
                causes.extend(_undeclared(program, node, f"{where}.{name}", str(text)))
        message = one.get("message")
        if isinstance(message, str) and "\n" in message:
            causes.append(invalid(f"{where}.message", message, "message must not contain line breaks"))
        if one.get("fieldPath"):
            try:
                steps = field_path(str(one["fieldPath"]))
            except ValueError as error:
                causes.append(invalid(f"{where}.fieldPath", one["fieldPath"], str(error)))
            else:
                if _leads_nowhere(steps, node):
                    causes.append(invalid(f"{where}.fieldPath", one["fieldPath"], "must be a valid path"))
    return causes


def _leads_nowhere(steps: tuple[str, ...], node: Node) -> bool:
    at: Node | None = node
    for step in steps:
        if at is None or (at.open and at.child(step) is None):
            return False
        at = at.child(step)
        if at is None:
            return True
    return False


def _undeclared(program: Program, node: Node, where: str, text: str) -> Iterator[Cause]:
    """A rule that names a field the schema does not have can only ever fail."""
    for variable in ("self", "oldSelf"):
        reads = program.reads(variable)
        if reads is not None:
            for name in undeclared(reads, node):
                yield invalid(where, text, f"compilation failed: undefined field '{name}'")
