"""What a CEL rule may cost at most: an upper estimate from its expression and the sizes its schema allows.

One unit is about one step of the evaluation: reading a field, calling a function, one turn of a loop, ten
characters of a text gone through. Where a schema sets no limit, the largest request is the limit. The scale
and the budgets are those of a cluster, so that what is refused here is, by and large, refused there.
Source: reference/kubernetes-api-machinery.md, section 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from pykueue.embedded.apiserver.protobuf import wire_fields
from pykueue.embedded.apiserver.schema_node import Node

#: What one rule may cost at all its places in an object, and all rules of a schema together.
RULE_BUDGET: Final = 10_000_000
SCHEMA_BUDGET: Final = 100_000_000

#: Bytes a request has at most, as far as sizes are estimated.
_REQUEST: Final = 3 * 1024 * 1024
#: Steps for each character of a text that is gone through, and of a pattern it is matched with.
_TEXT, _PATTERN = 0.1, 0.25
_NEW_LIST, _NEW_MAP = 10, 30

# Field numbers of the published messages CheckedExpr and Expr (cel/expr/*.proto).
_ANY_VALUE, _CHECKED_EXPR, _STRING_CONSTANT = 2, 4, 6

_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_CONVERSIONS: Final = frozenset({"timestamp", "duration", "int", "uint", "double", "bool", "type", "isURL"})
_INDEX: Final = frozenset({"_[_]", "_[?_]"})
_SELECT_OPTIONAL: Final = "_?._"
#: What is read from a text once; what is asked of it afterwards has the same price whatever its length.
_PARSED: Final = frozenset(
    {"quantity", "isQuantity", "url", "ip", "isIP", "cidr", "isCIDR", "semver", "isSemver"}
)
#: What compares the elements of a list with one another or with another value.
_OF_ELEMENTS: Final = frozenset({"isSorted", "sum", "min", "max", "indexOf", "lastIndexOf"})


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a value can be: characters of a text, elements of a list or map; what its elements are."""

    size: float = 1
    text: bool = False
    #: Of a list's elements and a map's values.
    element: Shape | None = None
    #: Where it is in the schema, if it is there.
    node: Node | None = None


_SCALAR: Final = Shape()


def count(node: Node) -> int:
    """The most elements of a list or entries of a map at a place."""
    if node.limit is not None:
        return node.limit
    if node.type == "array":
        return (_REQUEST - 2) // ((node.items.least if node.items else 1) + 1)
    return (_REQUEST - 2) // ((node.values.least if node.values else 1) + 6)


def occurrences(node: Node) -> float:
    """How often a place may be in the largest request."""
    return _REQUEST / (node.least + 1)


def shape_of(node: Node | None) -> Shape:
    """The largest value at a place."""
    if node is None:
        return Shape(_REQUEST)
    match node.type:
        case "array":
            return Shape(count(node), element=shape_of(node.items), node=node)
        case "object":
            return Shape(count(node) if node.values is not None else len(node.properties) or 1, node=node)
        case "string" | "int-or-string" | "quantity":
            return Shape(_REQUEST if node.limit is None else node.limit, text=True, node=node)
        case "":
            return Shape(_REQUEST, node=node)
    return _SCALAR


def estimate(serialized: bytes, variables: Mapping[str, Shape]) -> float:
    """The most a serialized, checked expression costs, once."""
    checked = _one(memoryview(serialized), _ANY_VALUE)
    expr = None if checked is None else _one(checked, _CHECKED_EXPR)
    if expr is None:
        raise ValueError("the serialized expression is not a CheckedExpr")
    cost, _ = _Estimate().of(expr, variables)
    return cost


def _through(size: float) -> int:
    """Steps to go through a text."""
    return ceil(_TEXT * size)


Cost = tuple[float, Shape]


class _Estimate:
    """The cost of expressions and the shapes of their values."""

    def of(self, expr: Any, scope: Mapping[str, Shape]) -> Cost:
        for number, _, body in wire_fields(expr):
            if isinstance(body, int):
                continue
            match number:  # constant, ident, select, call, list, struct, comprehension
                case 3:
                    texts = _all(body, _STRING_CONSTANT)
                    return 0, Shape(len(texts[-1]), text=True) if texts else _SCALAR
                case 4:
                    return 1, scope.get(_text(body, 1), _SCALAR)
                case 5:
                    cost, operand = self.of(_one(body, 1), scope)
                    return cost + 1, _field(operand, _text(body, 2))
                case 6:
                    return self._call(body, scope)
                case 7:
                    parts = [self.of(inner, scope) for inner in _all(body, 1)]
                    element = _larger([shape for _, shape in parts])
                    return sum(cost for cost, _ in parts) + _NEW_LIST, Shape(len(parts), element=element)
                case 8:
                    entries = [
                        self.of(inner, scope)
                        for entry in _all(body, 2)
                        for key in (3, 4)
                        for inner in _all(entry, key)
                    ]
                    element = _larger([shape for _, shape in entries])
                    return sum(cost for cost, _ in entries) + _NEW_MAP, Shape(len(entries), element=element)
                case 9:
                    return self._comprehension(body, scope)
        return 0, _SCALAR

    def _call(self, body: Any, scope: Mapping[str, Shape]) -> Cost:
        name = _text(body, 2)
        parts = [self.of(inner, scope) for inner in (*_all(body, 1), *_all(body, 3))]
        before, shapes = sum(cost for cost, _ in parts) + 1, [shape for _, shape in parts]
        if name == "_?_:_" and len(shapes) == 3:
            cost = parts[0][0] + max(parts[1][0], parts[2][0])
            return cost, _larger(shapes[1:])
        if name in ("_&&_", "_||_"):
            return before - 1, _SCALAR
        if name in ("!_", "@not_strictly_false", "size") or name in _CONVERSIONS:
            return before, _SCALAR
        if name in _INDEX and len(shapes) == 2:
            return before, _entry(shapes[0])
        if name == _SELECT_OPTIONAL and len(shapes) == 2:
            return before, _entry(shapes[0])
        if name in _COMPARISONS:
            return before - 1 + _through(min(shape.size for shape in shapes)), _SCALAR
        if name in ("@in", "_in_") and len(shapes) == 2:
            return before - 1 + (1 if _is_map(shapes[1]) else shapes[1].size), _SCALAR
        if name == "_+_" and len(shapes) == 2:
            return self._sum(before, *shapes)
        texts = [shape.size for shape in shapes if shape.text]
        if name == "matches" and len(texts) == 2:
            return before - 1 + _through(texts[0] + 1) * ceil(_PATTERN * texts[1]), _SCALAR
        if name == "contains" and len(texts) == 2:
            return before - 1 + _through(texts[0]) * _through(texts[1]), _SCALAR
        if name in ("startsWith", "endsWith") and len(texts) == 2:
            return before - 1 + _through(texts[1]), _SCALAR
        if name == "replace" and len(texts) == 3:
            size = texts[0] * max(1, texts[2] + (1 if not texts[1] else 0))
            return before + _TEXT * size, Shape(size, text=True)
        if name == "join" and shapes:
            inner = shapes[0].element or _SCALAR
            size = shapes[0].size * (inner.size + (texts[-1] if texts else 0))
            return before + _TEXT * size, Shape(size, text=True)
        if name == "format" and len(shapes) == 2:
            inner = shapes[1].element or _SCALAR
            size = shapes[0].size + shapes[1].size * inner.size
            return before + _TEXT * size, Shape(size, text=True)
        if name == "split" and texts:
            # Through the text and through its parts, whose lengths are not known beforehand.
            return before + 2 * _through(texts[0]), Shape(texts[0], element=Shape(1, text=True))
        if name in _OF_ELEMENTS and shapes and not shapes[0].text:
            element = shapes[0].element or _SCALAR
            turn = _through(element.size) if element.text else 1
            return before - 1 + shapes[0].size * turn, element
        if name in _PARSED and texts:
            return before - 1 + _through(texts[0]), _SCALAR
        # Anything else goes through what it is given, and makes nothing larger than it.
        through = sum(
            _through(shape.size) if shape.text else shape.size for shape in shapes if shape.size > 1
        )
        return before - 1 + max(1, through), _larger(shapes)

    def _sum(self, cost: float, left: Shape, right: Shape) -> Cost:
        size = left.size + right.size
        if left.text or right.text:
            return cost + _TEXT * size, Shape(size, text=True)
        if left is _SCALAR and right is _SCALAR:
            return cost, _SCALAR
        return cost, Shape(size, element=_larger([left.element or _SCALAR, right.element or _SCALAR]))

    def _comprehension(self, body: Any, scope: Mapping[str, Shape]) -> Cost:
        variable, accumulator = _text(body, 1), _text(body, 3)
        cost, ranged = self.of(_one(body, 2), scope)
        begin, start = self.of(_one(body, 4), scope)
        turns = 0 if _is_empty_list(_one(body, 2)) else ranged.size
        inner = {**scope, variable: _looped(ranged), accumulator: start}
        while_cost, _ = self.of(_one(body, 5), inner)
        step, grown = self.of(_one(body, 6), inner)
        # A turn adds to what was gathered before as much as the first one did.
        added = max(0.0, grown.size - start.size)
        end = Shape(start.size + turns * added, grown.text, grown.element, grown.node) if turns else start
        last, result = self.of(_one(body, 7), {**scope, accumulator: end})
        return cost + begin + turns * (while_cost + step) + last, result


def _field(shape: Shape, name: str) -> Shape:
    node = shape.node
    if node is not None and node.properties.get(name) is not None:
        return shape_of(node.properties[name])
    return _entry(shape)


def _entry(shape: Shape) -> Shape:
    """An element of a list, a value of a map."""
    if shape.element is not None:
        return shape.element
    node = shape.node
    if node is None:
        return _SCALAR
    return shape_of(node.items if node.type == "array" else node.values)


def _is_map(shape: Shape) -> bool:
    return shape.node is not None and shape.node.type == "object"


def _looped(shape: Shape) -> Shape:
    """What a loop's variable stands for: elements of lists, keys of maps."""
    if shape.node is not None and _is_map(shape):
        return Shape(_REQUEST / max(1, count(shape.node)), text=True)
    return _entry(shape)


def _larger(shapes: list[Shape]) -> Shape:
    return max(shapes, key=lambda one: one.size, default=_SCALAR)


def _all(body: Any, wanted: int) -> list[Any]:
    return [value for number, _, value in wire_fields(body) if number == wanted]


def _one(body: Any, wanted: int) -> Any:
    found = _all(body, wanted)
    return found[-1] if found else memoryview(b"")


def _text(body: Any, wanted: int) -> str:
    value = _one(body, wanted)
    return "" if isinstance(value, int) else str(value, "utf-8")


def _is_empty_list(expr: Any) -> bool:
    lists = _all(expr, 7)
    return bool(lists) and not _all(lists[-1], 1)
