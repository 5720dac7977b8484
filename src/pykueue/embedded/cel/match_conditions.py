"""`matchConditions` of webhook configurations: CEL over an admission request. Compiling and checking them.

The variables are `object`, `oldObject`, `request` and `authorizer`.
Source: docs/reference/kubernetes-api-machinery.md, section 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pykueue.api.cel.program import Program, RuleError, compiled, program_of
from pykueue.api.objects import Object
from pykueue.embedded.objects.errors import Cause, invalid, required

from . import authorizer as authorizer  # its functions are known to expressions once it is imported

_VARIABLES = ("object", "oldObject", "request", "authorizer")


def condition_program(expression: str) -> Program:
    """The compiled expression of a condition. Raises RuleError."""
    return program_of(expression, variables=_VARIABLES)


def compile_ahead(conditions: Sequence[Object]) -> Iterator[Program | RuleError]:
    """Compile the conditions of a webhook, one in each step; both functions below find them compiled."""
    for condition in conditions:
        yield compiled(condition.get("expression") or "", variables=_VARIABLES)


def check_conditions(path: str, conditions: Sequence[Object]) -> list[Cause]:
    """What is wrong with the conditions at a path of a webhook configuration."""
    causes = []
    for number, condition in enumerate(conditions):
        where = f"{path}[{number}]"
        if not condition.get("name"):
            causes.append(required(f"{where}.name"))
        expression = condition.get("expression") or ""
        if not expression.strip():
            causes.append(required(f"{where}.expression"))
            continue
        try:
            condition_program(expression)
        except RuleError as error:
            causes.append(invalid(f"{where}.expression", expression, str(error)))
    return causes
