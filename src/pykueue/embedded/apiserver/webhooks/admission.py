"""Admission: asking webhooks before a write is stored, in process or over HTTPS alike.

A `Webhook` takes and returns AdmissionReview v1 objects. Mutating ones run first, one after the other by
configuration name; validating ones follow once the object has its final form. Matching and answers follow
docs/reference/kubernetes-api-machinery.md, section 16.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.call import Call, User
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.apiserver.registry.endpoints import Endpoint
from pykueue.embedded.objects.errors import bad_request, internal_error, invalid_object
from pykueue.embedded.objects.metadata import new_uid
from pykueue.embedded.objects.patch import json_patch
from pykueue.embedded.objects.selectors import selector_matches
from pykueue.kube.errors import ApiError

from .policies import Policies, Policy, Request

Review = Callable[[Object], Awaitable[Object]]


class WebhookFailedError(Exception):
    """The webhook could not be asked, or its answer makes no sense."""


@dataclass(frozen=True)
class Webhook:
    """One registered webhook.

    `rules` as in webhook configurations (operations, apiGroups, apiVersions, resources, scope). `review`
    takes and returns an AdmissionReview; a mutating one in this process may answer the changed object
    itself under `response.object` instead of a patch.
    """

    name: str
    mutating: bool
    rules: list[dict[str, Any]]
    review: Review
    namespace_selector: Mapping[str, Any] | None = None
    object_selector: Mapping[str, Any] | None = None
    #: Whether an object concerns a webhook in this process, which is not asked about others.
    concerns: Callable[[Object], bool] | None = None
    #: Whether a webhook that cannot be asked lets the request pass.
    ignore_failure: bool = False
    #: Whether it may be asked about a dry run.
    side_effects: bool = False
    #: `Equivalent` also matches requests in other versions of the resource, converted; `Exact` does not.
    exact: bool = False
    reinvoke: bool = False
    #: Further conditions on the request; all must hold.
    conditions: Callable[[Object], bool] | None = None
    #: Whether one of the conditions is false for whatever this user requests.
    spares: Callable[[User], bool] | None = None


@dataclass(slots=True)
class Attributes:
    """The request's attributes in an AdmissionReview, besides the object."""

    operation: str
    call: Call
    name: str
    namespace: str
    old: Object | None
    dry_run: bool
    options: Object = field(default_factory=dict)


#: Configurations of webhooks are never subject to webhooks.
_EXEMPT = frozenset(
    (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    )
)


def _listed(values: Iterable[str], value: str) -> bool:
    return "*" in values or value in values


def _resource_matches(patterns: Iterable[str], plural: str, subresource: str) -> bool:
    for pattern in patterns:
        resource, _, sub = pattern.partition("/")
        if resource not in ("*", plural):
            continue
        if pattern == "*" and not subresource:
            return True
        if sub == subresource or (sub == "*" and (subresource or resource == "*")):
            return True
    return False


class _Matching(NamedTuple):
    """Webhooks and policies whose rules match requests of one kind, with the version that each gets."""

    mutating: list[tuple[Webhook, Endpoint]]
    validating: list[tuple[Webhook, Endpoint]]
    policies: list[tuple[Policy, Endpoint]]


class _Match(NamedTuple):
    """Which requests a policy or a binding is for; the fields are those of `Webhook`."""

    rules: list[dict[str, Any]]
    namespace_selector: Mapping[str, Any] | None
    object_selector: Mapping[str, Any] | None
    exact: bool


def _match_of(match: Object) -> _Match:
    return _Match(
        match.get("resourceRules") or [],
        match.get("namespaceSelector"),
        match.get("objectSelector"),
        match.get("matchPolicy") == "Exact",
    )


def _named(rule: Mapping[str, Any], name: str) -> bool:
    names = rule.get("resourceNames")
    return not names or name in names


class Admission:
    """All registered webhooks, asked in the order of their names."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._registered: list[Webhook] = []
        self._configured: list[Webhook] = []
        self._matching: dict[tuple[str, Endpoint, str], _Matching] = {}
        self._registry_changes = -1
        self._policies: Policies | None = None

    def policies_changed(self) -> None:
        """The policies in force, or their bindings, are others."""
        self._matching.clear()

    def register(self, webhook: Webhook) -> None:
        """Ask an in-process webhook from now on; replaces one of the same name and type."""
        self._registered = [
            one for one in self._registered if (one.name, one.mutating) != (webhook.name, webhook.mutating)
        ]
        self._registered.append(webhook)
        self._registered.sort(key=lambda one: one.name)
        self._matching.clear()

    def unregister(self, name: str) -> None:
        """Ask the in-process webhooks of that name no longer."""
        self._registered = [one for one in self._registered if one.name != name]
        self._matching.clear()

    def enforce(self, policies: Policies) -> None:
        """Evaluate these policies, as they are when a request comes, before validating webhooks."""
        self._policies = policies
        self._matching.clear()

    def configure(self, webhooks: list[Webhook]) -> None:
        """Set the webhooks that stored configurations describe."""
        self._configured = webhooks
        self._matching.clear()

    def _find(self, operation: str, endpoint: Endpoint, subresource: str) -> _Matching:
        registry = self._core.registry
        if registry.changes != self._registry_changes:
            self._matching.clear()
            self._registry_changes = registry.changes
        key = (operation, endpoint, subresource)
        found = self._matching.get(key)
        if found is None:
            mutating: list[tuple[Webhook, Endpoint]] = []
            validating: list[tuple[Webhook, Endpoint]] = []
            if endpoint.plural not in _EXEMPT:
                for webhook in (*self._registered, *self._configured):
                    form = self._form(webhook, operation, endpoint, subresource)
                    if form is not None:
                        (mutating if webhook.mutating else validating).append((webhook, form))
            policies: list[tuple[Policy, Endpoint]] = []
            if self._policies is not None and endpoint.plural not in _EXEMPT:
                for policy in self._policies.stored:
                    form = self._form(_match_of(policy.match), operation, endpoint, subresource)
                    if form is not None:
                        policies.append((policy, form))
            found = self._matching[key] = _Matching(mutating, validating, policies)
        return found

    def _form(
        self, match: Webhook | _Match, operation: str, endpoint: Endpoint, subresource: str
    ) -> Endpoint | None:
        """The version of the resource in which a webhook or policy gets the object; None: no rule matches."""
        versions = [endpoint]
        if not match.exact:
            versions += [
                one
                for one in self._core.registry
                if one.storage is endpoint.storage and one.version != endpoint.version
            ]
        for form in versions:
            for rule in match.rules:
                scope = rule.get("scope") or "*"
                if (
                    _listed(rule.get("operations") or (), operation)
                    and _listed(rule.get("apiGroups") or (), form.group)
                    and _listed(rule.get("apiVersions") or (), form.version)
                    and _resource_matches(rule.get("resources") or (), form.plural, subresource)
                    and (scope == "*" or (scope == "Namespaced") == form.namespaced)
                ):
                    return form
        return None

    def wanted(self, operation: str, call: Call, dry_run: bool) -> bool:
        """Whether any webhook or policy is for such requests of this user."""
        mutating, validating, policies = self._find(operation, call.endpoint, call.target.subresource)
        # In a dry run a webhook with side effects is refused to every user.
        if mutating or policies or (dry_run and validating):
            return True
        return any(webhook.spares is None or not webhook.spares(call.user) for webhook, _ in validating)

    async def mutate(self, attributes: Attributes, obj: Object) -> Object:
        """The object (in stored form) after all mutating webhooks. Raises ApiError when one denies."""
        call = attributes.call
        hooks = self._find(attributes.operation, call.endpoint, call.target.subresource).mutating
        if not hooks:
            return obj
        first = obj
        changed_by = -1
        for number, (webhook, form) in enumerate(hooks):
            before = obj
            obj = await self._ask_mutating(webhook, form, attributes, obj)
            if obj is not before:
                changed_by = number
        if obj is not first:
            for number, (webhook, form) in enumerate(hooks):
                if webhook.reinvoke and number < changed_by:
                    obj = await self._ask_mutating(webhook, form, attributes, obj)
        return obj

    async def validate(self, attributes: Attributes, obj: Object | None) -> None:
        """Evaluate policies and ask all validating webhooks. Raises ApiError when one denies."""
        call = attributes.call
        found = self._find(attributes.operation, call.endpoint, call.target.subresource)
        for policy, form in found.policies:
            await self._enforce(policy, form, attributes, obj)
        for webhook, form in found.validating:
            await self._ask(webhook, form, attributes, obj)

    async def _enforce(
        self, policy: Policy, form: Endpoint, attributes: Attributes, obj: Object | None
    ) -> None:
        assert self._policies is not None
        if not self._policy_selects(policy.match, attributes, obj):
            return
        request: Request | None = None
        for binding in policy.bindings:
            match = (binding.get("spec") or {}).get("matchResources")
            if match is not None and not self._binding_selects(match, attributes, obj):
                continue
            if request is None:
                if form.fetch is not None:
                    await form.ready([one for one in (obj, attributes.old) if one is not None])
                review = self._review(form, attributes, obj)["request"]
                namespace = None
                if attributes.namespace:
                    namespace = self._core.find("", "namespaces", "", attributes.namespace)
                request = Request(review, form, namespace)
            await self._policies.evaluate(policy, binding, request, attributes.call.warnings)

    def _binding_selects(self, match: Object, attributes: Attributes, obj: Object | None) -> bool:
        """Whether a request is one of those to which a binding restricts its policy."""
        call, rules = attributes.call, _match_of(match)
        if rules.rules:
            form = self._form(rules, attributes.operation, call.endpoint, call.target.subresource)
            if form is None:
                return False
        return self._policy_selects(match, attributes, obj)

    def _policy_selects(self, match: Object, attributes: Attributes, obj: Object | None) -> bool:
        """Whether selectors and resource names of a policy or a binding are those of the request."""
        selected = _match_of(match)
        if not self._selected(selected, attributes, obj, attributes.old):
            return False
        call = attributes.call
        operation, endpoint, subresource = attributes.operation, call.endpoint, call.target.subresource
        excluded = [rule for rule in match.get("excludeResourceRules") or () if _named(rule, attributes.name)]
        without = selected._replace(rules=excluded)
        if excluded and self._form(without, operation, endpoint, subresource) is not None:
            return False
        if not any(rule.get("resourceNames") for rule in selected.rules):
            return True
        included = [rule for rule in selected.rules if _named(rule, attributes.name)]
        return self._form(selected._replace(rules=included), operation, endpoint, subresource) is not None

    async def _ask_mutating(
        self, webhook: Webhook, form: Endpoint, attributes: Attributes, obj: Object
    ) -> Object:
        try:
            response = await self._ask(webhook, form, attributes, obj)
        except (TypeError, ValueError, AttributeError, LookupError):
            # Custom objects are checked only when they have been mutated: this one may not be of its kind.
            storage = attributes.call.endpoint.storage
            causes = storage.schema.validate(obj)
            if not causes:
                raise
            name = str(obj["metadata"].get("name") or "")
            raise invalid_object(storage.group, storage.kind.kind, name, causes) from None
        if response is None:
            return obj
        if "object" in response:
            changed = response["object"]
        elif response.get("patch"):
            try:
                patch = orjson.loads(base64.b64decode(response["patch"]))
                changed = json_patch(form.from_storage(obj), patch)
            except (ValueError, ApiError) as error:
                raise internal_error(
                    f'failed calling webhook "{webhook.name}": the patch cannot be applied: {error}'
                ) from error
        else:
            return obj
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
            raise internal_error(f'failed calling webhook "{webhook.name}": the result is not an object')
        if changed is obj:
            return obj
        if form.fetch is not None:
            await form.fetch((changed,), form.storage.api_version)
        return form.to_storage(changed)

    async def _ask(
        self, webhook: Webhook, form: Endpoint, attributes: Attributes, obj: Object | None
    ) -> Object | None:
        """The response, or None when the webhook is not concerned (or failed and may be ignored)."""
        old, spares = attributes.old, webhook.spares
        if spares is not None and not attributes.dry_run and spares(attributes.call.user):
            return None
        if webhook.concerns is not None and obj is not None and not webhook.concerns(obj):
            return None
        if not self._selected(webhook, attributes, obj, old):
            return None
        if attributes.dry_run and webhook.side_effects:
            raise bad_request(
                f'admission webhook "{webhook.name}" does not support dry run, but the effects of a dry run '
                "must not be stored"
            )
        if spares is not None and attributes.dry_run and spares(attributes.call.user):
            return None
        if form.fetch is not None:
            await form.ready([one for one in (obj, old) if one is not None])
        review = self._review(form, attributes, obj)
        request = review["request"]
        try:
            if webhook.conditions is not None and not webhook.conditions(request):
                return None
            answer = await webhook.review(review)
            response = answer.get("response")
            if not isinstance(response, dict) or response.get("uid", request["uid"]) != request["uid"]:
                raise WebhookFailedError("expected a response with the uid of the request")
        except WebhookFailedError as error:
            if webhook.ignore_failure:
                return None
            raise internal_error(f'failed calling webhook "{webhook.name}": {error}') from error
        for warning in response.get("warnings") or ():
            attributes.call.warnings.append(str(warning))
        if response.get("allowed") is True:
            return response
        status = response.get("status") or {}
        message = status.get("message") or status.get("reason") or ""
        text = f"denied the request: {message}" if message else "denied the request without explanation"
        code = int(status.get("code") or 0)
        raise ApiError(
            code if code >= 400 else 400,
            str(status.get("reason") or ""),
            f'admission webhook "{webhook.name}" {text}',
            status.get("details"),
        )

    def _selected(
        self, match: Webhook | _Match, attributes: Attributes, obj: Object | None, old: Object | None
    ) -> bool:
        if match.object_selector:
            labels = [(one.get("metadata") or {}).get("labels") or {} for one in (obj, old) if one]
            if not any(selector_matches(match.object_selector, one) for one in labels):
                return False
        if match.namespace_selector:
            endpoint = attributes.call.endpoint
            if endpoint.plural == "namespaces" and not endpoint.group:
                namespace = obj or old
            elif attributes.namespace:
                namespace = self._core.find("", "namespaces", "", attributes.namespace)
            else:
                return True
            labels_of = ((namespace or {}).get("metadata") or {}).get("labels") or {}
            return selector_matches(match.namespace_selector, labels_of)
        return True

    def _review(self, form: Endpoint, attributes: Attributes, obj: Object | None) -> Object:
        call, old = attributes.call, attributes.old
        asked = call.endpoint
        subresource = call.target.subresource
        request: Object = {
            "uid": new_uid(self._core.rng),
            "kind": {"group": form.group, "version": form.version, "kind": form.kind.kind},
            "resource": {"group": form.group, "version": form.version, "resource": form.plural},
            "requestKind": {"group": asked.group, "version": asked.version, "kind": asked.kind.kind},
            "requestResource": {"group": asked.group, "version": asked.version, "resource": asked.plural},
            "name": attributes.name,
            "operation": attributes.operation,
            "userInfo": call.user.info(),
            "object": form.from_storage(obj) if obj is not None else None,
            "oldObject": form.from_storage(old) if old is not None else None,
            "dryRun": attributes.dry_run,
            "options": attributes.options or None,
        }
        if attributes.namespace:
            request["namespace"] = attributes.namespace
        if subresource:
            request["subResource"] = request["requestSubResource"] = subresource
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
