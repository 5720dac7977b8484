"""Answers to reviews: whose a token is, and what a user may do."""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.call import Answer, Call, User
from pykueue.embedded.objects.errors import bad_request, invalid, invalid_object

from .authentication import AUDIENCES, Authenticator
from .rbac import Authorizer, Decision
from .rules import Access


def _access(spec: Object) -> Access:
    attributes = spec.get("resourceAttributes")
    if attributes is not None:
        return Access(
            attributes.get("verb") or "",
            attributes.get("group") or "",
            attributes.get("resource") or "",
            attributes.get("subresource") or "",
            attributes.get("namespace") or "",
            attributes.get("name") or "",
        )
    attributes = spec.get("nonResourceAttributes") or {}
    return Access(attributes.get("verb") or "", path=attributes.get("path") or "")


def _user(info: Object) -> User:
    return User(
        info.get("username") or info.get("user") or "", tuple(info.get("groups") or ()), info.get("uid") or ""
    )


def _check_attributes(call: Call, spec: Object) -> None:
    """422 unless the spec is about a resource or about a path."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) != (path is None):
        return
    if resource is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        cause = invalid("spec.resourceAttributes", None, detail)
    else:
        detail = "cannot be specified in combination with resourceAttributes"
        cause = invalid("spec.nonResourceAttributes", path, detail)
    raise invalid_object(call.endpoint.group, call.endpoint.kind.kind, "", [cause])


class Reviews:
    """Answers POSTs of review kinds."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        #: Set once the server has credentials to check.
        self.authenticator: Authenticator | None = None

    def answer(self, call: Call, obj: Object) -> Answer:
        """The review with its status; `obj` is the decoded body."""
        kind = call.endpoint.kind.kind
        spec: Object = obj.get("spec") or {}
        status: Any
        match kind:
            case "SelfSubjectReview":
                status = {"userInfo": call.user.info()}
            case "TokenReview":
                status = self._token(spec)
            case "SelfSubjectRulesReview":
                status = self._rules(call.user, spec.get("namespace") or "")
            case "SelfSubjectAccessReview":
                _check_attributes(call, spec)
                status = self._allowed(call.user, spec)
            case _:
                status = self._allowed_for(call, spec)
        return Answer(201, None, call.endpoint.from_storage({**obj, "status": status}))

    def _token(self, spec: Object) -> Object:
        token, audiences = spec.get("token") or "", spec.get("audiences") or AUDIENCES
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        identity = self.authenticator.identify(token, audiences) if self.authenticator else None
        if identity is None:
            return {"authenticated": False, "user": {}}
        return {"authenticated": True, "user": identity.user.info(), "audiences": identity.audiences}

    def _allowed(self, user: User, spec: Object) -> Object:
        decision: Decision = self._authorizer.decide(user, _access(spec))
        status: Object = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status

    def _allowed_for(self, call: Call, spec: Object) -> Object:
        kind = call.endpoint.kind.kind
        if not spec.get("user") and not spec.get("groups"):
            cause = invalid(
                "spec.user", spec.get("user") or "", "at least one of user or group must be specified"
            )
            raise invalid_object(call.endpoint.group, kind, "", [cause])
        _check_attributes(call, spec)
        access = _access(spec)
        if kind == "LocalSubjectAccessReview" and access.namespace != call.target.namespace:
            cause = invalid(
                "spec.resourceAttributes.namespace",
                access.namespace,
                "must match the namespace of the request",
            )
            raise invalid_object(call.endpoint.group, kind, "", [cause])
        return self._allowed(_user(spec), spec)

    def _rules(self, user: User, namespace: str) -> Object:
        if not namespace:
            raise bad_request("no namespace on request")
        resource_rules, path_rules = [], []
        for rule in self._authorizer.rules(user, namespace):
            if rule.get("nonResourceURLs"):
                path_rules.append({"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]})
            else:
                keys = ("verbs", "apiGroups", "resources", "resourceNames")
                resource_rules.append({key: rule[key] for key in keys if rule.get(key)})
        return {"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": False}
