"""Who may do what: role-based access control over the stored roles and bindings.

Source: docs/reference/kubernetes-api-machinery.md, section 17.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.call import Call, User
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.objects.errors import not_found, qualified
from pykueue.kube.errors import ApiError

from .rules import GROUP, Access, Rule, rule_allows

#: May do everything, whatever the roles say.
MASTERS = "system:masters"


class Decision(NamedTuple):
    """Whether it is allowed, and by which binding."""

    allowed: bool
    reason: str = ""


class _Grant(NamedTuple):
    rules: Sequence[Rule]
    reason: str


#: Accesses remembered as allowed.
_REMEMBERED: Final = 4096


class Authorizer:
    """Answers from the settled roles and bindings; compiled again when any of them changed."""

    def __init__(self, core: Core) -> None:
        self._core = core
        names = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
        self._tables = [core.store.table(f"{GROUP}/{name}") for name in names]
        self._seen: list[int] = []
        self._cluster: dict[tuple[str, str], list[_Grant]] = {}
        self._local: dict[str, dict[tuple[str, str], list[_Grant]]] = {}
        #: What is allowed whatever the name of the object: user, groups, and the access without its name.
        self._allowed: set[tuple[str, tuple[str, ...], tuple[str, ...]]] = set()

    def _refresh(self) -> None:
        seen = [table.revision for table in self._tables]
        if seen == self._seen:
            return
        self._seen = seen
        self._cluster, self._local, self._allowed = {}, {}, set()
        for binding in self._core.all_settled(GROUP, "clusterrolebindings"):
            self._add(self._cluster, binding, "")
        for binding in self._core.all_settled(GROUP, "rolebindings"):
            namespace = binding["metadata"]["namespace"]
            self._add(self._local.setdefault(namespace, {}), binding, namespace)

    def _add(self, grants: dict[tuple[str, str], list[_Grant]], binding: Object, namespace: str) -> None:
        reference = binding["roleRef"]
        try:
            rules = self.role_rules(reference["kind"], reference["name"], namespace)
        except ApiError:
            return
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        name = binding["metadata"]["name"] + (f"/{namespace}" if namespace else "")
        for subject in binding.get("subjects") or ():
            who, shown = subject["name"], subject["kind"]
            key = (shown, who)
            if shown == "ServiceAccount":
                owner = subject.get("namespace") or namespace
                if not owner:
                    continue
                key = ("User", f"system:serviceaccount:{owner}:{who}")
                who = f"{who}/{owner}"
            reason = (
                f'RBAC: allowed by {kind} "{name}" of {reference["kind"]} "{reference["name"]}" to '
                f'{shown} "{who}"'
            )
            grants.setdefault(key, []).append(_Grant(rules, reason))

    def role_rules(self, kind: str, name: str, namespace: str) -> list[Rule]:
        """The rules of a role. 404 when there is no such role."""
        plural = "roles" if kind == "Role" else "clusterroles"
        role = self._core.find_settled(GROUP, plural, namespace if kind == "Role" else "", name)
        if role is None:
            raise not_found(GROUP, plural, name)
        return list(role.get("rules") or ())

    def grants(self, user: User, namespace: str) -> Iterator[_Grant]:
        """All grants a user has in a namespace (and in the cluster)."""
        self._refresh()
        keys = [("User", user.name), *(("Group", group) for group in user.groups)]
        scopes: list[dict[tuple[str, str], list[_Grant]]] = [self._cluster]
        if namespace and namespace in self._local:
            scopes.append(self._local[namespace])
        for scope in scopes:
            for key in keys:
                yield from scope.get(key, ())

    def decide(self, user: User, access: Access) -> Decision:
        """Whether the user may."""
        if MASTERS in user.groups:
            return Decision(True)
        found = self._allowing(user, access)
        return Decision(False) if found is None else Decision(True, found[0].reason)

    def _allowing(self, user: User, access: Access) -> tuple[_Grant, Rule] | None:
        """The first grant and its rule that allow an access."""
        for grant in self.grants(user, access.namespace):
            for rule in grant.rules:
                if rule_allows(rule, access):
                    return grant, rule
        return None

    def require(self, user: User, access: Access) -> None:
        """Refuse what the user may not do (403)."""
        if MASTERS not in user.groups:
            self._find(user, access)

    def _find(self, user: User, access: Access) -> bool:
        """Whether what allows an access allows it for any name. 403 when nothing allows it."""
        found = self._allowing(user, access)
        if found is None:
            raise _forbidden(user, access)
        return not found[1].get("resourceNames")

    def decide_expression(self, user_info: Object, verb: str, asked: Object) -> Decision:
        """`decide` for the CEL variable `authorizer` (`cel.authorizer.Decide`)."""
        user = User(user_info.get("username", ""), tuple(user_info.get("groups") or ()))
        return self.decide(user, Access(verb, **asked))

    def rules(self, user: User, namespace: str) -> list[Rule]:
        """The rules that hold for a user in a namespace (and in the cluster), of all grants."""
        return [rule for grant in self.grants(user, namespace) for rule in grant.rules]

    def check(self, call: Call, verb: str = "") -> None:
        """Refuse a request its user may not make (403). `verb` is the request's own unless given."""
        if MASTERS in call.user.groups:
            return
        endpoint, target = call.endpoint, call.target
        namespace = target.namespace
        if endpoint.plural == "namespaces" and not endpoint.group:
            namespace = target.name  # a namespace is in itself: rights within it reach it
        verb, user = verb or call.verb(), call.user
        self._refresh()
        resource = (verb, endpoint.group, endpoint.plural, target.subresource, namespace)
        for_any_name = (user.name, user.groups, resource)
        if for_any_name in self._allowed:
            return
        if self._find(user, Access(*resource, call.requested_name)):
            if len(self._allowed) >= _REMEMBERED:
                self._allowed.clear()
            self._allowed.add(for_any_name)


def _forbidden(user: User, access: Access) -> ApiError:
    """403 in the words of a cluster."""
    if access.path is not None:
        message = f'forbidden: User "{user.name}" cannot {access.verb} path "{access.path}"'
        return ApiError(403, "Forbidden", message)
    name = access.name
    subject = qualified(access.resource, access.group) + (f' "{name}"' if name else "")
    where = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
    details = {"kind": access.resource}
    if name:
        details["name"] = name
    if access.group:
        details["group"] = access.group
    return ApiError(
        403,
        "Forbidden",
        f'{subject} is forbidden: User "{user.name}" cannot {access.verb} resource '
        f'"{access.full_resource}" in API group "{access.group}" {where}',
        details,
    )
