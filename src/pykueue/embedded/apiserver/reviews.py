"""Answers to reviews: who somebody is, and what they may do."""

from __future__ import annotations

from typing import Any

from pykueue.embedded.apiserver.authentication import Authenticator
from pykueue.embedded.apiserver.call import Answer, Call, User
from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.rbac import Access, Authorizer, Decision
from pykueue.embedded.apiserver.status import invalid, invalid_object


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
                status = self._allowed(call.user, spec)
            case _:
                status = self._allowed_for(call, spec)
        return Answer(201, None, call.endpoint.from_storage({**obj, "status": status}))

    def _token(self, spec: Object) -> Object:
        user = self.authenticator.by_token(spec.get("token") or "") if self.authenticator else None
        if user is None:
            return {"authenticated": False, "user": {}}
        return {"authenticated": True, "user": user.info(), "audiences": list(spec.get("audiences") or ())}

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
        resource_rules, path_rules = [], []
        for grant in self._authorizer.grants(user, namespace):
            for rule in grant.rules:
                if rule.get("nonResourceURLs"):
                    path_rules.append({"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]})
                else:
                    keys = ("verbs", "apiGroups", "resources", "resourceNames")
                    resource_rules.append({key: rule[key] for key in keys if rule.get(key)})
        return {"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": False}
