"""ValidatingAdmissionPolicies: CEL that allows or denies requests, without a webhook.

A policy is in force through its bindings; each binding evaluates it, with each of its parameter objects.
Source: docs/reference/kubernetes-api-machinery.md, section 16, and the Kubernetes documentation of policies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pykueue.api.cel.program import RuleError
from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.cel.admission_policies import Evaluation, EvaluationError, Expressions
from pykueue.embedded.cel.authorizer import Decide, authorizer, deciding
from pykueue.embedded.kinds.admissionpolicies import GROUP, MAX_MESSAGE
from pykueue.embedded.objects.errors import qualified
from pykueue.embedded.objects.selectors import selector_matches
from pykueue.kube.errors import ApiError

POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
#: HTTP code of the reasons that a validation may give.
_CODES: Final = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


class Refusal(NamedTuple):
    """A validation that failed."""

    message: str
    reason: str = ""


class Policy:
    """A stored policy with its bindings."""

    def __init__(self, obj: Object, bindings: list[Object]) -> None:
        self.name: str = obj["metadata"]["name"]
        self.spec: Object = obj.get("spec") or {}
        self.bindings = bindings
        self.ignores_failure = self.spec.get("failurePolicy") == "Ignore"
        try:
            self.expressions: Expressions | None = Expressions(self.spec)
            self.fault = ""
        except RuleError as error:
            self.expressions, self.fault = None, str(error)

    @property
    def match(self) -> Object:
        """What the policy is for."""
        found: Object = self.spec.get("matchConstraints") or {}
        return found


class Request(NamedTuple):
    """What policies are evaluated for."""

    #: An AdmissionRequest.
    review: Object
    #: In the version that the policy wants.
    form: Endpoint
    namespace: Object | None


class Policies:
    """All policies that are in force, and what they say to a request."""

    def __init__(self, core: Core, decide: Decide) -> None:
        self._core = core
        self._decide = decide
        self.stored: list[Policy] = []

    def load(self) -> None:
        """Take the stored policies and bindings as they are now."""
        bindings: dict[str, list[Object]] = {}
        for binding in self._core.all_settled(GROUP, BINDINGS):
            bindings.setdefault((binding.get("spec") or {}).get("policyName") or "", []).append(binding)
        self.stored = [
            Policy(obj, found)
            for obj in self._core.all_settled(GROUP, POLICIES)
            if (found := bindings.get(obj["metadata"]["name"]))
        ]

    async def evaluate(self, policy: Policy, binding: Object, request: Request, warnings: list[str]) -> None:
        """Evaluate a policy for a request that both match. Raises ApiError when it denies."""
        refusals = [found async for found in self._refusals(policy, binding, request)]
        actions = (binding.get("spec") or {}).get("validationActions") or ()
        name = binding["metadata"]["name"]
        for refusal in refusals:
            if "Deny" in actions:
                raise _denied(policy.name, name, request, refusal)
            if "Warn" in actions:
                warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' "
                    f"with binding '{name}': {refusal.message}"
                )

    async def _refusals(self, policy: Policy, binding: Object, request: Request) -> Any:
        try:
            if policy.expressions is None:
                raise EvaluationError(policy.fault)
            params = self._params(policy, binding, request)
        except EvaluationError as error:
            if not policy.ignores_failure:
                yield Refusal(str(error))
            return
        for value in params:
            for refusal in self._evaluate(policy, policy.expressions, request, value):
                yield refusal
            # One evaluation is bounded; others are served between those of many parameters.
            await asyncio.sleep(0)

    def _evaluate(
        self, policy: Policy, expressions: Expressions, request: Request, params: Object | None
    ) -> Iterator[Refusal]:
        review = request.review
        evaluation = Evaluation(
            expressions,
            {
                "object": review["object"],
                "oldObject": review["oldObject"],
                "request": review,
                "params": params,
                "namespaceObject": request.namespace,
                "authorizer": authorizer(review),
            },
        )
        with deciding(self._decide):
            matched, fault = self._matches(expressions, evaluation)
            if fault and not policy.ignores_failure:
                yield Refusal(fault)
            if not matched or fault:
                return
            for validation, program, message in expressions.validations:
                try:
                    held = evaluation.result(program)
                    if not isinstance(held, bool):
                        raise EvaluationError("the result is not a bool")
                except EvaluationError as error:
                    if not policy.ignores_failure:
                        text = f"expression '{validation['expression']}' resulted in error: {error}"
                        yield Refusal(text, validation.get("reason") or "")
                    continue
                if not held:
                    text = self._message(validation, evaluation, message)
                    yield Refusal(text, validation.get("reason") or "")

    def _matches(self, expressions: Expressions, evaluation: Evaluation) -> tuple[bool, str]:
        """Whether all match conditions hold; and what went wrong, unless one of them is false."""
        faults = []
        for name, program in expressions.conditions:
            try:
                if evaluation.result(program) is not True:
                    return False, ""
            except EvaluationError as error:
                faults.append(f"match condition {name}: {error}")
        return True, "; ".join(faults)

    def _message(self, validation: Object, evaluation: Evaluation, program: Any) -> str:
        if program is not None:
            try:
                found = evaluation.result(program)
                if isinstance(found, str):
                    text = found.strip()
                    if text and "\n" not in text and len(text) <= MAX_MESSAGE:
                        return text
            except EvaluationError:
                pass  # the message of the validation, or its expression, is used instead
        given = str(validation.get("message") or "").strip()
        return given or f"failed expression: {str(validation['expression']).strip()}"

    # --- parameters -------------------------------------------------------------------------------------

    def _params(self, policy: Policy, binding: Object, request: Request) -> list[Object | None]:
        """The parameter objects of a binding; [None] without, [] where it does not apply without them."""
        kind, ref = policy.spec.get("paramKind"), (binding.get("spec") or {}).get("paramRef")
        if kind is None or ref is None:
            return [None]
        group, _, version = str(kind["apiVersion"]).rpartition("/")
        endpoint = self._core.registry.by_kind(group, version, kind["kind"])
        if endpoint is None:
            raise EvaluationError(
                f"failed to configure policy: failed to find resource referenced by paramKind: "
                f"'{kind['apiVersion']}, Kind={kind['kind']}'"
            )
        namespace = ref.get("namespace") or ""
        if endpoint.namespaced:
            namespace = namespace or request.review.get("namespace") or ""
            if not namespace:
                raise EvaluationError(
                    "failed to configure binding: cannot use namespaced paramRef in policy binding that "
                    "matches cluster-scoped resources"
                )
        elif namespace:
            raise EvaluationError(
                "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped "
                "`paramKind`"
            )
        found: list[Object | None] = []
        if ref.get("name"):
            one = self._core.find(endpoint.group, endpoint.plural, namespace, ref["name"])
            found = [endpoint.from_storage(one)] if one is not None else []
        else:
            selector = ref.get("selector") or {}
            found = [
                endpoint.from_storage(one)
                for one in self._core.all(endpoint.group, endpoint.plural, namespace)
                if selector_matches(selector, one["metadata"].get("labels") or {})
            ]
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise EvaluationError(
                "failed to configure binding: no params found for policy binding with `Deny` "
                "parameterNotFoundAction"
            )
        return found


def _denied(policy: str, binding: str, request: Request, refusal: Refusal) -> ApiError:
    form, name = request.form, request.review.get("name") or ""
    text = f"ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {refusal.message}"
    reason = refusal.reason or "Invalid"
    shown = f'{qualified(form.plural, form.group)} "{name}" is forbidden: {text}'
    details: Mapping[str, Any] = {
        "name": name,
        "group": form.group,
        "kind": form.plural,
        "causes": [{"message": text}],
    }
    return ApiError(_CODES[reason], reason, shown, {key: value for key, value in details.items() if value})
