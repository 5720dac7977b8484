"""Nobody gives away more than they have: roles and bindings are checked against their writer's own rights.

The verbs `escalate` (on roles) and `bind` (on roles referred to) lift the check, as does being a master.
"""

from __future__ import annotations

from pykueue.embedded.apiserver.admission import Webhook
from pykueue.embedded.apiserver.call import User
from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.rbac import GROUP, MASTERS, Access, Authorizer

_KINDS = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"]


def escalation_check(authorizer: Authorizer) -> Webhook:
    """The check as a validating webhook of this process."""

    async def review(asked: Object) -> Object:
        request = asked["request"]
        info = request["userInfo"]
        user = User(info["username"], tuple(info.get("groups") or ()))
        missing = [] if MASTERS in user.groups else _missing(authorizer, user, request)
        response: Object = {"uid": request["uid"], "allowed": not missing}
        if missing:
            response["status"] = {
                "code": 403,
                "reason": "Forbidden",
                "message": f'user "{user.name}" (groups={list(user.groups)}) is attempting to grant RBAC '
                f"permissions not currently held: {', '.join(missing)}",
            }
        return {"response": response}

    rule = {
        "operations": ["CREATE", "UPDATE"],
        "apiGroups": [GROUP],
        "apiVersions": ["v1"],
        "resources": _KINDS,
    }
    return Webhook("rbac-escalation-check", False, [rule], review)


def _missing(authorizer: Authorizer, user: User, request: Object) -> list[str]:
    obj, namespace = request["object"], request.get("namespace") or ""
    reference = obj.get("roleRef")
    if reference is None:
        plural = "roles" if namespace else "clusterroles"
        if authorizer.decide(user, Access("escalate", GROUP, plural, "", namespace, request["name"])).allowed:
            return []
        return authorizer.covers(user, obj.get("rules") or (), namespace)
    plural = f"{reference['kind'].lower()}s"
    if authorizer.decide(user, Access("bind", GROUP, plural, "", namespace, reference["name"])).allowed:
        return []
    rules = authorizer.role_rules(reference["kind"], reference["name"], namespace)
    return authorizer.covers(user, rules, namespace)
