"""`matchConditions` of webhooks: CEL over the request that says whether a webhook is asked at all.

The variables are `object`, `oldObject`, `request` and `authorizer`. One condition that is false decides,
whatever goes wrong with others; otherwise an error is a failure of the webhook, for its policy to judge.
Source: docs/reference/kubernetes-api-machinery.md, section 16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykueue.api.objects import Object
from pykueue.embedded.cel.authorizer import Decide, authorizer, deciding
from pykueue.embedded.cel.match_conditions import condition_program

from .admission import WebhookFailedError


def match(conditions: Sequence[Object], decide: Decide) -> Callable[[Object], bool]:
    """A function that returns whether all conditions hold for an admission request.

    `decide` answers what they ask the authorizer. It raises WebhookFailedError when that cannot be decided.
    """
    programs = [(one["name"], condition_program(one["expression"])) for one in conditions]

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
