"""Which parts of an object a CEL rule reads.

A compiled rule is walked once; the answer is a tree of fields. With it only those parts are handed to the CEL
library, which converts whatever it gets in full, a hundred times more than most rules need, and rules whose
parts did not change need not run. Whatever the analysis does not understand counts as read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple

from pykueue.api.protobuf_wire import wire_fields

from .node import Node

# Field numbers of the published messages Any, CheckedExpr, Expr and Constant (cel/expr/*.proto).
_ANY_VALUE: Final = 2
_CHECKED_EXPR: Final = 4
_CONST: Final = 3
_LIST: Final = 7
_STRING_VALUE: Final = 6

_INDEX: Final = frozenset({"_[_]", "_[?_]"})
_OPTIONAL_SELECT: Final = "_?._"


@dataclass(slots=True, eq=False)
class Reads:
    """What is read of a value: all of it, some fields, every element; or only whether and how large it is."""

    whole: bool = False
    fields: dict[str, Reads] = field(default_factory=dict)
    #: Of each list element or map value.
    element: Reads | None = None
    #: Whether the number of its elements matters.
    size: bool = False
    #: Made from the fields when they are first projected; no field is added afterwards.
    _parts: _Parts | None = None

    def child(self, name: str) -> Reads:
        """What is read of the field `name`; added if nothing was yet."""
        return self.fields.setdefault(name, Reads())

    def parts(self) -> _Parts:
        """The fields as `project` goes through them."""
        if self._parts is None:
            whole = tuple(name for name, below in self.fields.items() if below.whole)
            others = tuple((name, below) for name, below in self.fields.items() if not below.whole)
            flat = len(whole) > 1 and not (others or self.element or self.size or self.whole)
            self._parts = _Parts(whole, others, itemgetter(*whole) if flat else None)
        return self._parts

    def each(self) -> Reads:
        """What is read of every element of a list or map; added if nothing was yet."""
        if self.element is None:
            self.element = Reads()
        return self.element


class _Parts(NamedTuple):
    """The fields that are read of a value."""

    whole: tuple[str, ...]
    others: tuple[tuple[str, Reads], ...]
    #: The values of all fields, where all are read whole and nothing else is.
    flat: Callable[[Any], tuple[Any, ...]] | None


def reads_of(serialized: bytes, variables: tuple[str, ...]) -> dict[str, Reads]:
    """What a serialized, checked expression reads of each variable; those it does not name are left out."""
    analysis = _Analysis(variables)
    checked = _one(memoryview(serialized), _ANY_VALUE)
    expr = None if checked is None else _one(checked, _CHECKED_EXPR)
    if expr is None:
        raise ValueError("the serialized expression is not a CheckedExpr")
    analysis.consume(expr, {})
    return analysis.found


class _Analysis:
    def __init__(self, variables: tuple[str, ...]) -> None:
        self._variables = variables
        self.found: dict[str, Reads] = {}

    def consume(self, expr: Any, scope: Mapping[str, Reads | None]) -> None:
        """The value of the expression itself is needed."""
        place = self._place(expr, scope)
        if place is not None:
            place.whole = True

    def _place(self, expr: Any, scope: Mapping[str, Reads | None]) -> Reads | None:
        """The part of a variable that an expression stands for, or None for a value of its own."""
        for number, _, body in wire_fields(expr):
            if isinstance(body, int):
                continue
            match number:  # ident, select, call, list, struct, comprehension
                case 4:
                    return self._ident(_text(body, 1), scope)
                case 5:
                    return self._select(body, scope)
                case 6:
                    return self._call(body, scope)
                case 7:
                    for inner in _all(body, 1):
                        self.consume(inner, scope)
                    return None
                case 8:
                    for entry in _all(body, 2):
                        for key in (3, 4):
                            for inner in _all(entry, key):
                                self.consume(inner, scope)
                    return None
                case 9:
                    return self._comprehension(body, scope)
        return None

    def _ident(self, name: str, scope: Mapping[str, Reads | None]) -> Reads | None:
        if name in scope:
            return scope[name]
        return self.found.setdefault(name, Reads()) if name in self._variables else None

    def _select(self, body: Any, scope: Mapping[str, Reads | None]) -> Reads | None:
        operand = _one(body, 1)
        place = self._place(operand, scope) if operand is not None else None
        if place is None:
            return None
        child = place.child(_text(body, 2))
        # has(a.b) asks whether b is there, not what it is.
        return None if _one(body, 3) else child

    def _call(self, body: Any, scope: Mapping[str, Reads | None]) -> Reads | None:
        function, arguments = _text(body, 2), [*_all(body, 1), *_all(body, 3)]
        if function in _INDEX and len(arguments) == 2:
            place = self._place(arguments[0], scope)
            name = _constant_text(arguments[1])
            if name is None:
                self.consume(arguments[1], scope)
            if place is None:
                return None
            return place.each() if name is None else place.child(name)
        if function == _OPTIONAL_SELECT and len(arguments) == 2:
            place, name = self._place(arguments[0], scope), _constant_text(arguments[1])
            return None if place is None or name is None else place.child(name)
        if function == "size" and len(arguments) == 1:
            place = self._place(arguments[0], scope)
            if place is not None:
                place.size = True
            return None
        for argument in arguments:
            self.consume(argument, scope)
        return None

    def _comprehension(self, body: Any, scope: Mapping[str, Reads | None]) -> Reads | None:
        variable, accumulator = _text(body, 1), _text(body, 3)
        ranged, start = _one(body, 2), _one(body, 4)
        place = self._place(ranged, scope) if ranged is not None else None
        inner: dict[str, Reads | None] = dict(scope)
        # Going through a value needs all its elements, if only to count them.
        inner[variable] = None if place is None else place.each()
        if place is not None:
            place.size = True
        inner[accumulator] = None
        if start is not None:
            if ranged is not None and _is_empty_list(ranged):
                # cel.bind: the accumulator is another name for the value.
                inner[accumulator] = self._place(start, scope)
            else:
                self.consume(start, scope)
        for number in (5, 6):
            step = _one(body, number)
            if step is not None and not (ranged is not None and _is_empty_list(ranged)):
                self.consume(step, inner)
        result = _one(body, 7)
        return self._place(result, inner) if result is not None else None


def _all(body: Any, wanted: int) -> list[Any]:
    return [value for number, _, value in wire_fields(body) if number == wanted]


def _one(body: Any, wanted: int) -> Any:
    found = _all(body, wanted)
    return found[-1] if found else None


def _text(body: Any, wanted: int) -> str:
    value = _one(body, wanted)
    return "" if value is None or isinstance(value, int) else str(value, "utf-8")


def _constant_text(expr: Any) -> str | None:
    constant = _one(expr, _CONST)
    if constant is None:
        return None
    value = _one(constant, _STRING_VALUE)
    return None if value is None or isinstance(value, int) else str(value, "utf-8")


def _is_empty_list(expr: Any) -> bool:
    body = _one(expr, _LIST)
    return body is not None and not _all(body, 1)


def undeclared(reads: Reads, node: Node) -> Iterator[str]:
    """Names of fields that are read and that a schema does not have."""
    if node.type not in ("object", "array"):
        return
    for name, below in reads.fields.items():
        child = node.child(name)
        if child is not None:
            yield from undeclared(below, child)
        elif not node.open and node.type == "object":
            yield name
    inner = node.items if node.type == "array" else node.values
    if reads.element is not None and inner is not None:
        yield from undeclared(reads.element, inner)


def project(value: Any, reads: Reads) -> Any:
    """The parts of a value that are read, in containers like the original's; the value itself if all are."""
    if reads.whole:
        return value
    if type(value) is dict:
        if reads.element is not None or reads.size:
            return {name: _project_entry(name, inner, reads) for name, inner in value.items()}
        whole, others, _ = reads._parts or reads.parts()
        found = {name: value[name] for name in whole if name in value} if whole else {}
        for name, below in others:
            if name in value:
                inner = value[name]
                kind = type(inner)
                found[name] = project(inner, below) if kind is dict or kind is list else inner
        return found
    if type(value) is list:
        each = reads.element
        if each is None:
            return [None] * len(value)
        names, _, flat = each._parts or each.parts()
        if flat is not None:
            try:
                return [dict(zip(names, flat(inner), strict=True)) for inner in value]
            except (KeyError, TypeError):  # some lack a field, or are no objects
                pass
        return [project(inner, each) for inner in value]
    return value


def _project_entry(name: str, value: Any, reads: Reads) -> Any:
    """The entry of a map that is also gone through: it may be read both by its name and as one of all."""
    below, each = reads.fields.get(name), reads.element
    if below is None or each is None:
        only = below or each
        return None if only is None else project(value, only)
    return value
