"""The CEL variable `authorizer`: authorization checks in expressions.

`authorizer.group("apps").resource("deployments").namespace("a").check("create").allowed()`, and
`authorizer.requestResource.check("bypass")` for what the request itself is about. A question is a map that
each step adds to; the last step, `check`, asks the authorizer of the evaluation in progress.
Source: docs/reference/kubernetes-api-machinery.md, section 16, and the Kubernetes documentation of CEL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pykueue.api.cel.functions import T, method

Map = dict[str, Any]
#: Takes a user (UserInfo), a verb and what it is asked of (`group` to `path` as the steps below set them);
#: returns whether the user may, and why.
Decide = Callable[[Map, str, Map], tuple[bool, str]]

_STEPS = ("group", "resource", "subresource", "namespace", "name", "path")

_deciding: ContextVar[Decide] = ContextVar("deciding")


@contextmanager
def deciding(decide: Decide) -> Iterator[None]:
    """Have `check` answered by a function while expressions are evaluated."""
    token = _deciding.set(decide)
    try:
        yield
    finally:
        _deciding.reset(token)


def authorizer(request: Mapping[str, Any]) -> Map:
    """The variable's value for an admission request: its user, and the resource it is about."""
    who = {"user": request["userInfo"]}
    resource = request["resource"]
    asked = {
        "group": resource["group"],
        "resource": resource["resource"],
        "subresource": request.get("subResource") or "",
        "namespace": request.get("namespace") or "",
        "name": request.get("name") or "",
    }
    return {**who, "requestResource": {**who, **asked}}


for _step in _STEPS:
    method(_step, T.MAP, T.MAP, T.STRING)(lambda question, value, step=_step: {**question, step: value})


@method("serviceAccount", T.MAP, T.MAP, T.STRING, T.STRING)
def _service_account(question: Map, namespace: str, name: str) -> Map:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {**question, "user": {"username": f"system:serviceaccount:{namespace}:{name}", "groups": groups}}


@method("check", T.MAP, T.MAP, T.STRING)
def _check(question: Map, verb: str) -> Map:
    asked = {step: question[step] for step in _STEPS if step in question}
    allowed, reason = _deciding.get()(question["user"], verb, asked)
    return {"allowed": allowed, "reason": reason}


@method("allowed", T.BOOL, T.MAP)
def _allowed(decision: Map) -> bool:
    return decision["allowed"] is True


@method("reason", T.STRING, T.MAP)
def _reason(decision: Map) -> str:
    return str(decision["reason"])


@method("errored", T.BOOL, T.MAP)
def _errored(_: Map) -> bool:
    return False  # the decision is made in this process: nothing can go wrong on the way


@method("error", T.STRING, T.MAP)
def _error(_: Map) -> str:
    return ""
