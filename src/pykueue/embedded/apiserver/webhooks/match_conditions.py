"""`matchConditions` of webhooks: CEL over the request that says whether a webhook is asked at all.

The variables are `object`, `oldObject`, `request` and `authorizer`. One condition that is false decides,
whatever goes wrong with others; otherwise an error is a failure of the webhook, for its policy to judge.
Source: docs/reference/kubernetes-api-machinery.md, section 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.cel.authorizer import Decide, authorizer, deciding
from pykueue.embedded.apiserver.cel.rules import Program, RuleError, compiled, program_of
from pykueue.embedded.apiserver.objects.errors import Cause, invalid, required

from .admission import WebhookFailedError

_VARIABLES = ("object", "oldObject", "request", "authorizer")


def _program(expression: str) -> Program:
    return program_of(expression, variables=_VARIABLES)


def compile_ahead(conditions: Sequence[Object]) -> Iterator[Program | RuleError]:
    """Compile the conditions of a webhook, one in each step, for `check_conditions` and `match`."""
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
            _program(expression)
        except RuleError as error:
            causes.append(invalid(f"{where}.expression", expression, str(error)))
    return causes


def match(conditions: Sequence[Object], decide: Decide) -> Callable[[Object], bool]:
    """A function that tells whether all conditions hold for an admission request.

    `decide` answers what they ask the authorizer. It raises WebhookFailedError when that cannot be told.
    """
    programs = [(one["name"], _program(one["expression"])) for one in conditions]

    def matches(request: Object) -> bool:
        values = {
            "object": request["object"],
            "oldObject": request["oldObject"],
            "request": request,
            "authorizer": authorizer(request),
        }
        faults = []
        with deciding(decide):
            for name, program in programs:
                result, fault = program.run_over(values)
                if result is False:
                    return False
                if result is not True:
                    faults.append(f"{name}: {fault or 'the result is not a bool'}")
        if faults:
            raise WebhookFailedError(f"evaluating match conditions: {', '.join(faults)}")
        return True

    return matches
