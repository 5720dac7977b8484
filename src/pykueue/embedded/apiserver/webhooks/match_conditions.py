"""`matchConditions` of webhooks: CEL over the request that says whether a webhook is asked at all.

The variables are `object`, `oldObject`, `request` and `authorizer`. One condition that is false decides,
whatever goes wrong with others; otherwise an error is a failure of the webhook, for its policy to judge.
Source: docs/reference/kubernetes-api-machinery.md, section 16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Final

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.call import User
from pykueue.embedded.cel.authorizer import Decide, authorizer, deciding
from pykueue.embedded.cel.match_conditions import condition_program

from .admission import WebhookFailedError

#: Names of users for which a webhook's answer is remembered, and their characters at most.
_REMEMBERED: Final = 256
_LONGEST: Final = 256


def spare(conditions: Sequence[Object]) -> Callable[[User], bool] | None:
    """A function that returns whether a condition is false for all that a user requests; None without such.

    Conditions that only ask for the name of the user are answered before a review is made.
    """
    programs = [condition_program(one["expression"]) for one in conditions]
    of_user = [program for program in programs if program.reads_only("request", "userInfo", "username")]
    if not of_user:
        return None

    @lru_cache(maxsize=_REMEMBERED)
    def spares_name(name: str) -> bool:
        values = {"request": {"userInfo": {"username": name}}}
        return any(program.answer_over(values)[0] is False for program in of_user)

    def spares(user: User) -> bool:
        # Nothing but the name counts, so the answer for a short one is kept as long as the webhook is.
        return spares_name(user.name) if len(user.name) <= _LONGEST else spares_name.__wrapped__(user.name)

    return spares


def match(conditions: Sequence[Object], decide: Decide) -> Callable[[Object], bool]:
    """A function that returns whether all conditions hold for an admission request.

    `decide` answers what they ask the authorizer. It raises WebhookFailedError when that cannot be decided.
    """
    programs = [(one["name"], condition_program(one["expression"])) for one in conditions]
    asks = any(program.reads("authorizer") is not None for _, program in programs)

    def matches(request: Object) -> bool:
        values = {
            "object": request["object"],
            "oldObject": request["oldObject"],
            "request": request,
        }
        faults = []
        # What the authorizer answers may change; everything else follows from the request.
        if asks:
            values["authorizer"] = authorizer(request)
        with deciding(decide) if asks else nullcontext():
            for name, program in programs:
                run = program.answer_over if program.reads("authorizer") is None else program.run_over
                result, fault = run(values)
                if result is False:
                    return False
                if result is not True:
                    faults.append(f"{name}: {fault or 'the result is not a bool'}")
        if faults:
            raise WebhookFailedError(f"evaluating match conditions: {', '.join(faults)}")
        return True

    return matches
