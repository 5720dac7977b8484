"""CEL in descriptions of job kinds: tests and numbers, with limits on what they read and cost.

What an expression reads is unknown when it is compiled, as most definitions state no sizes. So every list,
map and text that it reads may have at most `MAX_SIZE` elements or characters: its cost is estimated for
values of that size when it is compiled, and larger ones are refused when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cel_expr_python import cel

from pykueue.api.cel.cost import shape_of
from pykueue.api.cel.node import Node
from pykueue.api.cel.program import MAX_EXPRESSION, Program, RuleError, compiled
from pykueue.api.cel.reads import project

from .errors import ExpressionError

#: Elements of a list or map, and characters of a text, that an expression may read.
MAX_SIZE: Final = 4096
#: Values that one evaluation may read, at all levels together.
MAX_VALUES: Final = 50_000
#: Estimated steps of one evaluation: enough for a loop over `MAX_SIZE` elements, not for a loop in a loop.
MAX_COST: Final = 10_000_000
#: Characters of an expression.
MAX_LENGTH: Final = min(1024, MAX_EXPRESSION)
VARIABLES: Final = ("self", "element")


def _anything() -> Node:
    """A value of any type and of `MAX_SIZE`, made of the same."""
    node = Node("string", limit=MAX_SIZE)
    node.values = node
    return node


_ANYTHING: Final = _anything()
_SHAPES: Final = dict.fromkeys(VARIABLES, shape_of(_ANYTHING))


def program(text: str, result: Any) -> Program:
    """The compiled expression, whose result is of a CEL type. Raises ExpressionError."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"must not be longer than {MAX_LENGTH} characters")
    found = compiled(text, variables=VARIABLES)
    if isinstance(found, RuleError):
        raise ExpressionError(str(found))
    if not found.returns(result):
        raise ExpressionError(f"must evaluate to {'a boolean' if result == cel.Type.BOOL else 'an integer'}")
    cost = found.cost(_ANYTHING, _SHAPES)
    if cost > MAX_COST:
        text = "more than 100" if cost > 100 * MAX_COST else f"{cost / MAX_COST:.1f}"
        raise ExpressionError(
            f"estimated cost exceeds the limit by a factor of {text}; "
            "go through one list at a time, and do not join long texts"
        )
    return found


def evaluate(found: Program, values: Mapping[str, Any]) -> Any:
    """The result of an expression. Raises ExpressionError."""
    data = {}
    left = MAX_VALUES
    for name in VARIABLES:
        reads = found.reads(name)
        if reads is not None:
            data[name] = project(values.get(name), reads)
            left = _checked(data[name], left)
    result, fault = found.run_over(data)
    if fault:
        raise ExpressionError(fault)
    return result


def _checked(value: Any, left: int) -> int:
    """How many more values may be read after this one. Raises ExpressionError."""
    stack = [value]
    while stack:
        one = stack.pop()
        left -= 1
        if left < 0:
            raise ExpressionError(f"more than {MAX_VALUES} values are read")
        if isinstance(one, str | list | dict) and len(one) > MAX_SIZE:
            raise ExpressionError(f"a value of {len(one)} characters or elements is read; at most {MAX_SIZE}")
        if isinstance(one, dict):
            stack.extend(one)
            stack.extend(one.values())
        elif isinstance(one, list):
            stack.extend(one)
    return left


class Condition:
    """A test in CEL; it does not hold where a field that it reads is missing."""

    def __init__(self, text: str) -> None:
        self.program = program(text, cel.Type.BOOL)

    def holds(self, job: Mapping[str, Any]) -> bool:
        try:
            return evaluate(self.program, {"self": job, "element": None}) is True
        except ExpressionError:
            return False


class Number:
    """A number of pods in CEL."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.program = program(text, cel.Type.INT)

    def of(self, job: Mapping[str, Any], element: Mapping[str, Any]) -> int:
        """The number for a job and the element of its pod set. Raises ExpressionError."""
        try:
            result = evaluate(self.program, {"self": job, "element": element})
        except ExpressionError as error:
            raise ExpressionError(f"{self.text}: {error}") from None
        if not isinstance(result, int) or isinstance(result, bool) or not 0 <= result < 2**31:
            raise ExpressionError(f"{self.text}: must evaluate to an integer of at least 0, is {result!r}")
        return result
