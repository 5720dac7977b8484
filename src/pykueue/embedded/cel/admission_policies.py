"""CEL in ValidatingAdmissionPolicies: compiling the expressions of a policy, and evaluating them.

Variables: `object`, `oldObject`, `request`, `params`, `namespaceObject`, `authorizer`, and in everything but
match conditions `variables`, which are evaluated when an expression reads them.
Source: docs/reference/kubernetes-api-machinery.md, section 16, and the Kubernetes documentation of policies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from pykueue.api.cel.program import Program, RuleError, compiled, program_of
from pykueue.api.objects import Object

from . import authorizer as authorizer  # its functions are known to expressions once it is imported

_REQUEST: Final = ("object", "oldObject", "request", "params", "namespaceObject", "authorizer")
_VARIABLES: Final = (*_REQUEST, "variables")


def condition_program(expression: str) -> Program:
    """A match condition, which must give a bool. Raises RuleError."""
    return _bool(program_of(expression, variables=_REQUEST))


def bool_program(expression: str) -> Program:
    """A validation, which must give a bool. Raises RuleError."""
    return _bool(program_of(expression, variables=_VARIABLES))


def _bool(found: Program) -> Program:
    if found.result_type != "bool":
        raise RuleError(f"must evaluate to bool but got {found.result_type}")
    return found


def text_program(expression: str) -> Program:
    """An expression that must give a string. Raises RuleError."""
    found = program_of(expression, variables=_VARIABLES)
    if found.result_type != "string":
        raise RuleError(f"must evaluate to string but got {found.result_type}")
    return found


def value_program(expression: str) -> Program:
    """The expression of a variable or an audit annotation. Raises RuleError."""
    return program_of(expression, variables=_VARIABLES)


def undefined(program: Program, defined: Collection[str]) -> str:
    """A variable that an expression reads and that is not defined, or empty."""
    reads = program.reads("variables")
    names = reads.fields if reads is not None else ()
    return next((name for name in names if name not in defined), "")


def compile_ahead(spec: Object) -> Iterator[object]:
    """Compile the expressions of a policy, one in each step; the functions above find them compiled."""
    for condition in spec.get("matchConditions") or ():
        yield compiled(condition.get("expression") or "", variables=_REQUEST)
    for variable in spec.get("variables") or ():
        yield compiled(variable.get("expression") or "", variables=_VARIABLES)
    for validation in spec.get("validations") or ():
        yield compiled(validation.get("expression") or "", variables=_VARIABLES)
        if validation.get("messageExpression"):
            yield compiled(validation["messageExpression"], variables=_VARIABLES)
    for each in spec.get("auditAnnotations") or ():
        yield compiled(each.get("valueExpression") or "", variables=_VARIABLES)


class EvaluationError(Exception):
    """An expression could not be evaluated; the text says why."""


class Expressions:
    """The compiled expressions of one policy. Raises RuleError for one that does not compile."""

    def __init__(self, spec: Object) -> None:
        self.conditions = [
            (each["name"], condition_program(each["expression"]))
            for each in spec.get("matchConditions") or ()
        ]
        self.variables = {
            each["name"]: value_program(each["expression"]) for each in spec.get("variables") or ()
        }
        self.validations = [
            (
                each,
                bool_program(each["expression"]),
                text_program(each["messageExpression"]) if each.get("messageExpression") else None,
            )
            for each in spec.get("validations") or ()
        ]


class Evaluation:
    """Evaluates expressions of a policy over the values of one request; each variable at most once."""

    def __init__(self, expressions: Expressions, values: Mapping[str, Any]) -> None:
        self._expressions = expressions
        self._values = values
        self._variables: dict[str, Any] = {}
        self._faults: dict[str, str] = {}

    def result(self, program: Program) -> Any:
        """The value of an expression. Raises EvaluationError."""
        values = self._values
        reads = program.reads("variables")
        wanted: list[str] = []
        if reads is not None:
            wanted = list(self._expressions.variables) if reads.whole else list(reads.fields)
            for name in wanted:
                self._evaluate(name)
            values = {**values, "variables": self._variables}
        found, fault = program.run_over(values)
        if fault:
            # A variable that failed is missing, which is an error only where its value is needed.
            missing = next((name for name in wanted if fault == f"no such key: {name}"), "")
            raise EvaluationError(self._faults.get(missing, fault))
        return found

    def _evaluate(self, name: str) -> None:
        """Evaluate a variable, and first those that it reads, which come before it."""
        if name in self._variables or name in self._faults or name not in self._expressions.variables:
            return
        try:
            self._variables[name] = self.result(self._expressions.variables[name])
        except EvaluationError as error:
            self._faults[name] = f'composited variable "{name}" fails to evaluate: {error}'
