"""Rights that a write needs beyond its own verb.

A user who writes or binds a role must have its rights, unless `escalate` on the role, or `bind` on the role
referred to, lifts that. An aggregation rule can select any role, so it takes all rights.
Source: k8s.io/kubernetes/pkg/registry/rbac.
"""

from __future__ import annotations

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.call import Call
from pykueue.embedded.objects.errors import forbidden_request
from pykueue.kube.errors import ApiError

from .rbac import MASTERS, Authorizer
from .rules import EVERYTHING, GROUP, Access, described, uncovered

_ROLES = ("roles", "clusterroles")
_BINDINGS = ("rolebindings", "clusterrolebindings")

#: Metadata that garbage collection changes: anyone who may update a role may change it.
_COLLECTED = ("ownerReferences", "finalizers", "managedFields")


class Escalation:
    """Checks the writes of an authorizer's users."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def confirm_create(self, call: Call) -> None:
        """Refuse to create an object by an update or a patch to a user who may not create it (403)."""
        self._authorizer.check(call, "create")

    def confirm(self, call: Call, new: Object, old: Object | None) -> None:
        """Refuse a role or binding that gives away more than its writer has (403).

        404 when the role that is bound does not exist. `old` is the object before, None if it is new.
        """
        endpoint = call.endpoint
        if endpoint.group != GROUP or MASTERS in call.user.groups:
            return
        if old is not None and _same_policy(new, old):
            return
        if endpoint.plural in _ROLES:
            self._confirm_role(call, new, old)
        elif endpoint.plural in _BINDINGS:
            self._confirm_binding(call, new)

    def _confirm_role(self, call: Call, role: Object, old: Object | None) -> None:
        plural, target = call.endpoint.plural, call.target
        # A create by POST names nothing, so `escalate` by resourceNames does not cover it.
        escalate = Access("escalate", GROUP, plural, "", target.namespace, target.name)
        if self._authorizer.decide(call.user, escalate).allowed:
            return
        name = role["metadata"]["name"]
        self._confirm_held(call, role.get("rules") or [], name)
        if _selectors(role) or _selectors(old):
            owned = self._authorizer.rules(call.user, target.namespace)
            if uncovered(owned, EVERYTHING):
                detail = "must have cluster-admin privileges to use the aggregationRule"
                raise forbidden_request(GROUP, plural, name, detail)

    def _confirm_binding(self, call: Call, binding: Object) -> None:
        reference, namespace = binding["roleRef"], call.target.namespace
        plural = f"{reference['kind'].lower()}s"
        bind = Access("bind", GROUP, plural, "", namespace, reference["name"])
        if self._authorizer.decide(call.user, bind).allowed:
            return
        rules = self._authorizer.role_rules(reference["kind"], reference["name"], namespace)
        self._confirm_held(call, rules, binding["metadata"]["name"])

    def _confirm_held(self, call: Call, rules: list[Object], name: str) -> None:
        user = call.user
        missing = uncovered(self._authorizer.rules(user, call.target.namespace), rules)
        if missing:
            raise _refusal(call, name, described(missing))


def _refusal(call: Call, name: str, missing: str) -> ApiError:
    groups = " ".join(f'"{one}"' for one in call.user.groups)
    return forbidden_request(
        GROUP,
        call.endpoint.plural,
        name,
        f'user "{call.user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently '
        f"held:\n{missing}",
    )


def _selectors(role: Object | None) -> list[Object]:
    rule: Object = (role or {}).get("aggregationRule") or {}
    return rule.get("clusterRoleSelectors") or []


def _same_policy(new: Object, old: Object) -> bool:
    """Whether nothing but the metadata of garbage collection changes."""
    kept = [
        {**one, "metadata": {key: value for key, value in one["metadata"].items() if key not in _COLLECTED}}
        for one in (new, old)
    ]
    return kept[0] == kept[1]
