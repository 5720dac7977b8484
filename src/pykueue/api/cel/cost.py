"""What a CEL rule may cost at most: an upper estimate from its expression and the sizes its schema allows.

One unit is about one step of the evaluation: reading a field, calling a function, one turn of a loop, ten
characters of a text gone through. Where a schema sets no limit, the largest request is the limit. The scale,
the budgets and the blind spots are those of a cluster: definitions published for clusters are made to fit
them. Source: docs/reference/kubernetes-api-machinery.md, section 15.

A size is looked up at a place of the schema, by the fields read from `self`. What an expression makes has a
size where the function that makes it tells one, and none otherwise: it may then be without end. What is read
*from* what an expression makes is looked up as if it had been read from `self`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from pykueue.api.protobuf_wire import wire_fields

from .names import escape
from .node import Node

#: What one rule may cost at all its places in an object, and all rules of a schema together.
RULE_BUDGET: Final = 10_000_000
SCHEMA_BUDGET: Final = 100_000_000

#: Bytes a request has at most, as far as sizes are estimated.
_REQUEST: Final = 3 * 1024 * 1024
#: The size of what may be without end; no cost and no size is larger.
_ENDLESS: Final = 2.0**64
#: The most characters a text can grow to. A cluster stops at run time; here nothing would.
_LONGEST: Final = 2.0**32
#: Steps for each character of a text that is gone through, and of a pattern it is matched with.
_TEXT, _PATTERN = 0.1, 0.25
#: Characters of the longest pattern of a named format.
_FORMAT_PATTERN: Final = 128
_NEW_LIST, _NEW_MAP = 10, 30
#: What an address range holds in bytes, twice: for comparing it with another.
_RANGE_BYTES: Final = 32

# Field numbers of the published messages CheckedExpr and Expr (cel/expr/*.proto).
_ANY_VALUE, _CHECKED_EXPR = 2, 4
_NULL_CONSTANT, _STRING_CONSTANT, _BYTES_CONSTANT = 1, 6, 7

_EQUALITIES: Final = frozenset({"_==_", "_!=_"})
_ORDERS: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
_INDEX: Final = frozenset({"_[_]", "_[?_]"})
_SELECT_OPTIONAL: Final = "_?._"
#: What goes once through the text it is given, and what makes a text of that size of it.
_PARSED: Final = frozenset({"quantity", "isQuantity", "ip", "isIP", "cidr", "isCIDR", "bytes"})
_CHANGED: Final = frozenset({"lowerAscii", "upperAscii", "substring", "trim", "url", "jsonpatch.escapeKey"})
#: What compares the elements of a list with one another or with another value.
_OF_ELEMENTS: Final = frozenset({"isSorted", "sum", "min", "max", "indexOf", "lastIndexOf"})
#: What hands on a value that is in an optional one.
_UNPACKED: Final = frozenset({"value", "orValue", "or", "optional.of", "optional.ofNonZeroValue", "dyn"})
#: What makes a text of which no size is known.
_TEXTS: Final = frozenset(
    {"string", "charAt", "reverse", "strings.quote", "base64.encode", "getScheme", "getHost", "getHostname"}
    | {"getPort", "getEscapedPath"}
)

_SCALAR, _LIST, _MAP, _ANYTHING, _TEXT_KIND = "scalar", "list", "map", "", "text"


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a value can be: characters of a text, elements of a list or map."""

    size: float = 1
    kind: str = _SCALAR
    #: What is known of its type.
    node: Node | None = None
    #: Where sizes below it are looked up; None where an expression made it.
    place: Node | None = None
    #: The elements of a list that an expression made.
    element: Shape | None = None
    #: The fewest characters of a text.
    least: float = 0
    #: Characters of a text as it grows, whatever a cluster takes its size for.
    most: float = 0


_NUMBER: Final = Shape()
#: Where fields are that a schema does not know.
_NOWHERE: Final = Node()
#: Bytes of an empty text; a time or a duration has more.
_EMPTY_TEXT: Final = 2


def count(node: Node) -> int:
    """The most elements of a list or entries of a map at a place."""
    if node.limit is not None:
        return node.limit
    if node.type == "array":
        return (_REQUEST - 2) // ((node.items.least if node.items else 1) + 1)
    return (_REQUEST - 2) // ((node.values.least if node.values else 1) + 6)


def occurrences(node: Node) -> float:
    """How often a place may be in the largest request."""
    return _REQUEST // (node.least + 1)


def shape_of(node: Node) -> Shape:
    """The largest value at a place."""
    return _at(node, node)


def _at(node: Node | None, place: Node) -> Shape:
    """A value of a type, with the size of a place."""
    kind = _kind(node)
    size: float
    match place.type:
        case _ if place is _NOWHERE:
            size = 1 if kind == _SCALAR else _ENDLESS
        case "array":
            size = count(place)
        case "object":
            size = count(place) if place.values is not None else 0
        case "string" if place.limit is not None:
            size = place.limit
        case "string" | "int-or-string" | "quantity":
            size = _REQUEST - 2
        case _:
            size = 0
    return Shape(size, kind, node, place, most=size)


def _kind(node: Node | None) -> str:
    match node.type if node is not None else "":
        case "array":
            return _LIST
        case "object":
            return _MAP
        case "boolean" | "integer" | "number":
            return _SCALAR
        case "string" if node is not None:
            # Times and durations are texts in objects only.
            return _TEXT_KIND if node.least <= _EMPTY_TEXT else _SCALAR
        case "int-or-string" | "quantity":
            return _TEXT_KIND
    return _ANYTHING


def _made(kind: str, size: float = _ENDLESS, node: Node | None = None, element: Shape | None = None) -> Shape:
    """What an expression makes. A scalar is one step, whatever it is made of."""
    if kind == _SCALAR and size == _ENDLESS:
        return replace(_NUMBER, node=node)
    return Shape(min(size, _ENDLESS), kind, node, None, element, most=min(size, float(_REQUEST)))


def estimate(serialized: bytes, root: Node, variables: Mapping[str, Shape]) -> float:
    """The most a serialized, checked expression costs, once. `root` is where `self` is."""
    checked = _one(memoryview(serialized), _ANY_VALUE)
    expr = None if checked is None else _one(checked, _CHECKED_EXPR)
    if expr is None:
        raise ValueError("the serialized expression is not a CheckedExpr")
    cost, _ = _Estimate(root).of(expr, variables)
    return cost


def _through(size: float, factor: float = _TEXT) -> float:
    """Steps to go through a text."""
    return ceil(factor * min(size, _ENDLESS))


Cost = tuple[float, Shape]


class _Estimate:
    """The cost of expressions and the shapes of their values."""

    def __init__(self, root: Node) -> None:
        self._root = root

    def of(self, expr: Any, scope: Mapping[str, Shape]) -> Cost:
        cost, shape = self._of(expr, scope)
        return min(cost, _ENDLESS), shape

    def _of(self, expr: Any, scope: Mapping[str, Shape]) -> Cost:
        for number, _, body in wire_fields(expr):
            if isinstance(body, int):
                continue
            match number:  # constant, ident, select, call, list, struct, comprehension
                case 3:
                    return 0, _constant(body)
                case 4:
                    return 1, scope.get(_text(body, 1), _NUMBER)
                case 5:
                    cost, operand = self.of(_one(body, 1), scope)
                    if _all(body, 3) == [1]:  # has(): nothing is read
                        return cost, _NUMBER
                    return cost + 1, self._field(operand, _text(body, 2))
                case 6:
                    return self._call(body, scope)
                case 7:
                    parts = [self.of(inner, scope) for inner in _all(body, 1)]
                    element = parts[0][1] if parts else None
                    cost = sum(cost for cost, _ in parts) + _NEW_LIST
                    return cost, _made(_LIST, len(parts), element=element)
                case 8:
                    entries = [
                        self.of(inner, scope)
                        for entry in _all(body, 2)
                        for key in (3, 4)
                        for inner in _all(entry, key)
                    ]
                    return sum(cost for cost, _ in entries) + _NEW_MAP, _made(_MAP, len(entries) / 2)
                case 9:
                    return self._comprehension(body, scope)
        return 0, _NUMBER

    def _field(self, shape: Shape, name: str) -> Shape:
        return self._step(shape, _property(shape.node, name), _property(shape.place, name))

    def _entry(self, shape: Shape) -> Shape:
        """An element of a list, a value of a map."""
        if shape.element is not None:
            return replace(_at(None, self._root), kind=shape.element.kind, node=shape.element.node)
        return self._step(shape, _inner(shape.node), _inner(shape.place))

    def _step(self, shape: Shape, node: Node | None, place: Node | None) -> Shape:
        if shape.place is None:
            return _at(node, self._root)
        return _at(node, _NOWHERE if place is None else place)

    def _looped(self, shape: Shape) -> Shape:
        """What a loop's variable stands for: elements of lists, keys of maps."""
        if shape.kind != _MAP:
            return self._entry(shape)
        if shape.place is None:
            return replace(_at(None, self._root), kind=_TEXT_KIND)
        return Shape(0, _TEXT_KIND, None, _NOWHERE, most=_REQUEST)

    def _call(self, body: Any, scope: Mapping[str, Shape]) -> Cost:
        name = _text(body, 2)
        parts = [self.of(inner, scope) for inner in (*_all(body, 1), *_all(body, 3))]
        given, shapes = sum(cost for cost, _ in parts), [shape for _, shape in parts]
        if name == "_?_:_" and len(shapes) == 3:
            larger = max(shapes[1:], key=lambda one: one.size)
            cost = parts[0][0] + max(parts[1][0], parts[2][0])
            known = larger.node or shapes[1].node or shapes[2].node
            return cost, replace(larger, node=known, place=None)
        if name in ("_&&_", "_||_"):
            return given, _NUMBER
        if name == _SELECT_OPTIONAL and len(shapes) == 2:
            found = self._field(shapes[0], _text(_one(_all(body, 3)[-1], 3), _STRING_CONSTANT))
            return given + 1, _made(found.kind, node=found.node)
        if not shapes:
            return given + 1, _made(_TEXT_KIND) if name in _TEXTS else _NUMBER
        cost, shape = self._work(name, shapes)
        if shape.most > _LONGEST:
            cost = _ENDLESS
        return given + cost, shape

    def _work(self, name: str, shapes: list[Shape]) -> Cost:
        """What a function itself costs, and what it makes."""
        first, last = shapes[0], shapes[-1]
        if name in _INDEX:
            found = self._entry(first)
            return 1, found if name == "_[_]" else _made(found.kind, node=found.node)
        if name in _EQUALITIES:
            return _through(min(first.size, last.size)), _NUMBER
        if name in _ORDERS:
            texts = _TEXT_KIND in (first.kind, last.kind)
            return (_through(min(first.size, last.size)) if texts else 1), _NUMBER
        if name in ("@in", "_in_"):
            return (1 if last.kind == _MAP else last.size), _NUMBER
        if name == "_+_" and len(shapes) == 2:
            return _sum(first, last)
        if name in ("matches", "find", "findAll"):
            cost = _through(first.size + 1) * _through(last.size, _PATTERN)
            kind = {"matches": _SCALAR, "find": _TEXT_KIND}.get(name, _LIST)
            return cost, _NUMBER if kind == _SCALAR else _made(kind, first.size, element=_made(_TEXT_KIND))
        if name == "contains":
            return _through(first.size) * _through(last.size), _NUMBER
        if name in ("startsWith", "endsWith"):
            return _through(last.size), _NUMBER
        if name in _CHANGED:
            return _through(first.size), _made(_TEXT_KIND, first.size)
        if name == "replace" and len(shapes) >= 3:
            return _through(first.size, 2 * _TEXT), _replaced(*shapes[:3])
        if name == "split":
            return _through(first.size, 2 * _TEXT), _made(_LIST, first.size, element=_made(_TEXT_KIND))
        if name == "join":
            separator = last.size if len(shapes) > 1 else 0
            size = first.size * self._size_of_elements(first) + separator * max(0, first.size - 1)
            return _through(size), _made(_TEXT_KIND, size)
        if name == "format":
            return _through(first.size), _made(_TEXT_KIND)
        if name in _OF_ELEMENTS:
            if first.kind == _TEXT_KIND:
                return _through(first.size), _NUMBER
            element = self._entry(first)
            turn = 1 + (_through(self._size_of_elements(first)) if element.kind == _TEXT_KIND else 0)
            return first.size * turn, _made(element.kind) if name in ("min", "max") else _NUMBER
        if name in _PARSED:
            return _through(first.size), _NUMBER
        if name == "ip.isCanonical":
            return _through(first.size, 2 * _TEXT), _NUMBER
        if name == "validate":
            return _through(_through(last.size), _PATTERN * _FORMAT_PATTERN), _NUMBER
        if name in ("containsIP", "containsCIDR"):
            more = _through(last.size) if last.kind == _TEXT_KIND else 0
            return _through(_RANGE_BYTES) * (1 if name == "containsIP" else 2) + more, _NUMBER
        if name in _UNPACKED:
            known = next((one for one in shapes if one.kind != _SCALAR), first)
            return 1, _made(known.kind, node=known.node, element=known.element)
        return 1, _made(_TEXT_KIND) if name in _TEXTS else _NUMBER

    def _size_of_elements(self, shape: Shape) -> float:
        return _ENDLESS if shape.place is None else self._entry(shape).size

    def _comprehension(self, body: Any, scope: Mapping[str, Shape]) -> Cost:
        variable, accumulator = _text(body, 1), _text(body, 3)
        cost, ranged = self.of(_one(body, 2), scope)
        begin, start = self.of(_one(body, 4), scope)
        turns = ranged.size
        if _is_empty_list(_one(body, 2)):  # a variable that the rule declares
            gathered = replace(_at(start.node, self._root), kind=start.kind, element=start.element)
            gathered = replace(gathered, most=start.most)
        else:
            gathered = _made(start.kind)
        inner = {**scope, variable: self._looped(ranged), accumulator: gathered}
        while_cost, _ = self.of(_one(body, 5), inner)
        step, grown = self.of(_one(body, 6), inner)
        if turns:
            inner[accumulator] = replace(grown, place=None)
        last, result = self.of(_one(body, 7), inner)
        total = cost + begin + turns * (while_cost + step) + last
        return total, replace(result, size=turns, place=None)


def _constant(body: Any) -> Shape:
    for number, _, value in wire_fields(body):
        if number in (_STRING_CONSTANT, _BYTES_CONSTANT) and not isinstance(value, int):
            size = len(str(value, "utf-8", "replace")) if number == _STRING_CONSTANT else len(value)
            return Shape(size, _TEXT_KIND, least=size, most=size)
        if number == _NULL_CONSTANT:
            return _made(_ANYTHING)
    return _NUMBER


def _sum(left: Shape, right: Shape) -> Cost:
    size = left.size + right.size
    if _TEXT_KIND in (left.kind, right.kind):
        return _through(size), replace(_made(_TEXT_KIND, size), most=left.most + right.most)
    if _LIST in (left.kind, right.kind):
        element = left.element or right.element
        return 1, _made(_LIST, size, left.node or right.node, element)
    return 1, _NUMBER


def _replaced(text: Shape, old: Shape, new: Shape) -> Shape:
    """The longest text that replacing makes. An empty text is between any two characters."""
    if not old.least:
        size = (text.size + 1) * new.size + text.size
        most = (text.most + 1) * new.most + text.most
    elif new.size <= old.least:
        size, most = text.size, text.most
    else:
        size = ceil(text.size / old.least) * new.size
        most = max(text.most, text.most / old.least * new.most)
    return replace(_made(_TEXT_KIND, size), most=most)


def _property(node: Node | None, name: str) -> Node | None:
    if node is None:
        return None
    found = node.properties.get(name)
    if found is None and "__" in name:
        found = next((one for key, one in node.properties.items() if escape(key) == name), None)
    return node.values if found is None else found


def _inner(node: Node | None) -> Node | None:
    if node is None:
        return None
    return node.items if node.type == "array" else node.values


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
