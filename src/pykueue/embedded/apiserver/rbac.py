"""Who may do what: role-based access control over the stored roles and bindings.

Source: reference/kubernetes-api-machinery.md, section 17.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pykueue.embedded.apiserver.call import Call, User
from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.core import Core
from pykueue.embedded.apiserver.status import qualified
from pykueue.kube.errors import ApiError

GROUP = "rbac.authorization.k8s.io"
#: May do everything, whatever the roles say.
MASTERS = "system:masters"

Rule = dict[str, Any]


class Access(NamedTuple):
    """One thing somebody wants to do, on a resource or on a path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """Whether it is allowed, and by which binding."""

    allowed: bool
    reason: str = ""


class _Grant(NamedTuple):
    rules: Sequence[Rule]
    reason: str


def rule_allows(rule: Rule, access: Access) -> bool:
    """Whether one rule allows the access."""
    verbs = rule.get("verbs") or ()
    if access.verb not in verbs and "*" not in verbs:
        return False
    if access.path:
        return any(
            path == access.path or (path.endswith("*") and access.path.startswith(path[:-1]))
            for path in rule.get("nonResourceURLs") or ()
        )
    groups = rule.get("apiGroups") or ()
    if access.group not in groups and "*" not in groups:
        return False
    full = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    if not any(
        one in ("*", full) or (access.subresource and one == f"*/{access.subresource}")
        for one in rule.get("resources") or ()
    ):
        return False
    names = rule.get("resourceNames") or ()
    return not names or access.name in names


class Authorizer:
    """Answers from the stored roles and bindings; compiled again when any of them changed."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._seen: tuple[int, ...] = ()
        self._cluster: dict[tuple[str, str], list[_Grant]] = {}
        self._local: dict[str, dict[tuple[str, str], list[_Grant]]] = {}

    def _refresh(self) -> None:
        store = self._core.store
        names = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
        seen = tuple(store.table(f"{GROUP}/{name}").revision for name in names)
        if seen == self._seen:
            return
        self._seen = seen
        self._cluster, self._local = {}, {}
        for binding in self._core.all(GROUP, "clusterrolebindings"):
            self._add(self._cluster, binding, "")
        for binding in self._core.all(GROUP, "rolebindings"):
            namespace = binding["metadata"]["namespace"]
            self._add(self._local.setdefault(namespace, {}), binding, namespace)

    def _add(self, grants: dict[tuple[str, str], list[_Grant]], binding: Object, namespace: str) -> None:
        reference = binding["roleRef"]
        rules = self.role_rules(reference["kind"], reference["name"], namespace)
        if not rules:
            return
        kind = "RoleBinding" if namespace else "ClusterRoleBinding"
        name = binding["metadata"]["name"] + (f"/{namespace}" if namespace else "")
        for subject in binding.get("subjects") or ():
            who, shown = subject["name"], subject["kind"]
            key = (shown, who)
            if shown == "ServiceAccount":
                owner = subject.get("namespace") or namespace
                key = ("User", f"system:serviceaccount:{owner}:{who}")
                who = f"{who}/{owner}"
            reason = (
                f'RBAC: allowed by {kind} "{name}" of {reference["kind"]} "{reference["name"]}" to '
                f'{shown} "{who}"'
            )
            grants.setdefault(key, []).append(_Grant(rules, reason))

    def role_rules(self, kind: str, name: str, namespace: str) -> list[Rule]:
        """The rules of a role."""
        plural = "roles" if kind == "Role" else "clusterroles"
        role = self._core.find(GROUP, plural, namespace if kind == "Role" else "", name)
        return list((role or {}).get("rules") or ())

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
        for grant in self.grants(user, access.namespace):
            if any(rule_allows(rule, access) for rule in grant.rules):
                return Decision(True, grant.reason)
        return Decision(False)

    def covers(self, user: User, rules: Iterable[Rule], namespace: str) -> list[str]:
        """What of the rules the user does not have; empty when everything is covered."""
        missing = []
        for rule in rules:
            for access in _pieces(rule, namespace):
                if not self.decide(user, access).allowed:
                    missing.append(
                        f"{{{access.verb} {access.path or qualified(access.resource, access.group)}}}"
                    )
        return missing

    def check(self, call: Call) -> None:
        """Refuse a request its user may not make (403)."""
        user = call.user
        if MASTERS in user.groups:
            return
        target, endpoint, verb = call.target, call.endpoint, call.verb()
        name = target.name
        if not name and verb in ("list", "watch", "deletecollection"):
            for term in call.query.get("fieldSelector", "").split(","):
                if term.startswith("metadata.name="):
                    name = term.partition("=")[2].lstrip("=")
        access = Access(verb, endpoint.group, endpoint.plural, target.subresource, target.namespace, name)
        if self.decide(user, access).allowed:
            return
        raise forbidden(user, access, target.name)


def _pieces(rule: Rule, namespace: str) -> Iterator[Access]:
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Access(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for full in rule.get("resources") or ():
                resource, _, subresource = full.partition("/")
                for name in rule.get("resourceNames") or ("",):
                    yield Access(verb, group, resource, subresource, namespace, name)


def forbidden(user: User, access: Access, name: str) -> ApiError:
    """403 in the words of a cluster."""
    if access.path:
        message = f'forbidden: User "{user.name}" cannot {access.verb} path "{access.path}"'
        return ApiError(403, "Forbidden", message)
    full = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
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
        f'{subject} is forbidden: User "{user.name}" cannot {access.verb} resource "{full}" in API group '
        f'"{access.group}" {where}',
        details,
    )


_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_WORK = [
    (
        "",
        [
            "configmaps", "endpoints", "events", "limitranges", "persistentvolumeclaims", "pods", "pods/log",
            "pods/status", "replicationcontrollers", "replicationcontrollers/scale", "resourcequotas",
            "serviceaccounts", "services",
        ],
    ),
    (
        "apps",
        [
            "controllerrevisions", "daemonsets", "deployments", "deployments/scale", "replicasets",
            "replicasets/scale", "statefulsets", "statefulsets/scale",
        ],
    ),
    ("autoscaling", ["horizontalpodautoscalers"]),
    ("batch", ["cronjobs", "jobs", "jobs/status"]),
    ("events.k8s.io", ["events"]),
    ("networking.k8s.io", ["ingresses"]),
    ("policy", ["poddisruptionbudgets"]),
    ("coordination.k8s.io", ["leases"]),
]  # fmt: skip


def _role(name: str, rules: list[Rule], labels: dict[str, str] | None = None) -> Object:
    role = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    if labels:
        role["metadata"] = {"name": name, "labels": labels}
    return role


def _aggregated(name: str, *labels: str) -> Object:
    selectors = [{"matchLabels": {f"{GROUP}/{label}": "true"}} for label in labels]
    role = _role(name, [])
    return {**role, "aggregationRule": {"clusterRoleSelectors": selectors}}


def _bound(name: str, *subjects: tuple[str, str]) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": kind, "name": who} for kind, who in subjects],
    }


def first_roles() -> list[Object]:
    """The roles and bindings every cluster starts with."""
    view = [{"apiGroups": [group], "resources": resources, "verbs": _READ} for group, resources in _WORK]
    edit = [{"apiGroups": [group], "resources": resources, "verbs": _WRITE} for group, resources in _WORK]
    edit.append({"apiGroups": [""], "resources": ["secrets"], "verbs": [*_READ, *_WRITE]})
    edit.append({"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]})
    admin = [
        {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": [*_READ, *_WRITE]},
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["localsubjectaccessreviews"],
            "verbs": ["create"],
        },
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
    ]
    paths = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/"]
    public = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    everything = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    reviews = [
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            "verbs": ["create"],
        },
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ]
    label = f"{GROUP}/aggregate-to-"
    return [
        _role("cluster-admin", everything),
        _aggregated("admin", "aggregate-to-admin"),
        {
            **_aggregated("edit", "aggregate-to-edit"),
            "metadata": {"name": "edit", "labels": {f"{label}admin": "true"}},
        },
        {
            **_aggregated("view", "aggregate-to-view"),
            "metadata": {"name": "view", "labels": {f"{label}edit": "true"}},
        },
        _role("system:aggregate-to-admin", admin, {f"{label}admin": "true"}),
        _role("system:aggregate-to-edit", edit, {f"{label}edit": "true"}),
        _role("system:aggregate-to-view", view, {f"{label}view": "true"}),
        _role("system:discovery", [{"nonResourceURLs": [*paths, *public[:3]], "verbs": ["get"]}]),
        _role("system:public-info-viewer", [{"nonResourceURLs": public, "verbs": ["get"]}]),
        _role("system:basic-user", reviews),
        _bound("cluster-admin", ("Group", MASTERS)),
        _bound("system:discovery", ("Group", "system:authenticated")),
        _bound("system:basic-user", ("Group", "system:authenticated")),
        _bound(
            "system:public-info-viewer",
            ("Group", "system:authenticated"),
            ("Group", "system:unauthenticated"),
        ),
    ]
