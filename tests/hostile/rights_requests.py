"""Random rights and requests: users, roles, bindings, and what users then try.

A request carries both what is sent and what it means, as it was chosen: the server has to find the one in the
other. All of it follows from a `random.Random`.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from rights_model import RBAC, Ask, Binding, Policy, Role, Rule, Subject, User

Object = dict[str, Any]

NAMESPACES = ("default", "a", "b")
#: Of objects. Each collection has one of every name.
NAMES = ("x", "y", "mine")
#: Names that rules may list besides: none of them is an object's.
_ODD_NAMES = ("", "*", "x,metadata.name=y", r"x\,y", "none")
_USERS = ("ann", "bob", "cy", "system:serviceaccount:default:robot", "system:serviceaccount:a:robot")
_GROUPS = ("red", "blue", "system:serviceaccounts:a")
_PATHS = ("/metrics", "/version", "/version/", "/apis", "/a/b", "/a", "/readyz")
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_AGGREGATED = ("view", "edit", "admin")
_LEVELS = ("one", "two")


class Resource(NamedTuple):
    group: str
    plural: str
    namespaced: bool = True
    version: str = "v1"
    #: Subresources and the verbs to try on them.
    subresources: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str) -> str:
        where = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.root}{where}/{self.plural}"


_STATUS = ("status", ("get", "update", "patch"))
RESOURCES = (
    Resource("", "configmaps"),
    Resource("", "secrets"),
    Resource("", "serviceaccounts", subresources=(("token", ("create",)),)),
    Resource("batch", "jobs", subresources=(_STATUS,)),
    Resource("apps", "deployments", subresources=(_STATUS, ("scale", ("get", "update", "patch")))),
    Resource("coordination.k8s.io", "leases"),
    Resource("", "namespaces", namespaced=False, subresources=(_STATUS, ("finalize", ("update",)))),
    Resource("", "nodes", namespaced=False, subresources=(_STATUS,)),
    Resource(RBAC, "clusterroles", namespaced=False),
)
_OF_RULES = tuple(
    [one.plural for one in RESOURCES]
    + [f"{one.plural}/{name}" for one in RESOURCES for name, _ in one.subresources]
    + ["*/status", "*/scale", "*", "users", "groups", "pods/log"]
)


_POLICY = ["rolebindings", "roles", "clusterroles", "clusterrolebindings"]


class Request(NamedTuple):
    """What is sent, and what it is about."""

    ask: Ask
    method: str
    path: str
    query: dict[str, str]
    body: Any = None
    content: str = "application/merge-patch+json"
    #: What else it takes: an apply of what is not there is a creation as well.
    also: Ask | None = None


class Selector(NamedTuple):
    text: str
    #: The name it requires; empty where it requires none.
    name: str


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", r"\,").replace("=", r"\=")


def selector(rng: random.Random) -> Selector:
    """A field selector in one of the ways it can be written."""
    name = rng.choice((*NAMES, *NAMES, *_ODD_NAMES))
    # With the name in another value.
    other = rng.choice(("metadata.namespace!=zzz", r"metadata.namespace!=z\,metadata.name\=x", "", ""))
    match rng.randrange(7):
        case 0:
            return Selector(other, "")
        case 1:
            return Selector(f"metadata.name!={_escaped(name)}", "")
        case 2:
            return Selector(f"metadata.namespace!={_escaped(f'z,metadata.name={name}')}", "")
        case 3:  # malformed
            odd = ("metadata.name", f"metadata.name={name}=", "metadata.name=x\\", r"metadata.name=\x")
            return Selector(rng.choice((*odd, rf"metadata.namespace!=z\,metadata.name={name}")), "")
        case _:
            operator = rng.choice(("=", "=="))
            terms = [f"metadata.name{operator}{_escaped(name)}", *([other] if other else [])]
            rng.shuffle(terms)
            return Selector(",".join(terms), name)


class Generator:
    """Random policies and requests."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._made = 0

    def user(self) -> User:
        groups = tuple(one for one in _GROUPS if self.rng.random() < 0.4)
        return User(self.rng.choice(_USERS), (*groups, "system:authenticated"))

    # -- policy

    def rule(self, namespaced: bool = False) -> Rule:
        rng = self.rng
        if not namespaced and rng.random() < 0.15:
            paths = rng.sample((*_PATHS, "*", "/a*", "/version*", "/a/*"), rng.randint(1, 2))
            return {"verbs": rng.sample(("get", "post", "*"), rng.randint(1, 2)), "nonResourceURLs": paths}
        groups = rng.choice(([""], ["batch", "apps"], ["*"], ["", RBAC], ["coordination.k8s.io", ""]))
        resources = ["*"] if rng.random() < 0.15 else rng.sample(_OF_RULES, rng.randint(2, 6))
        names: list[str] = []
        match rng.randrange(10):
            case 0 | 1:
                verbs = rng.sample(("create", "update", "escalate", "bind", "create"), rng.randint(2, 3))
                groups, resources = [RBAC], _POLICY[: rng.randint(1, 4)]
                names = rng.choice(([], [], [], [""], ["random-1", "view"]))
            case 2:
                verbs = rng.choice((["impersonate"], ["impersonate", "get"]))
                groups, resources = (
                    [""],
                    rng.sample(("users", "groups", "serviceaccounts"), rng.randint(1, 3)),
                )
                names = rng.choice(([], ["ann", "red"], ["robot"]))
            case 3:
                verbs = ["*"]
            case 4 | 5 | 6 | 7:
                verbs = rng.choice((["get", "list", "watch"], rng.sample(VERBS, 4)))
                groups = ["*"]
                names = rng.sample((*NAMES, *_ODD_NAMES), rng.randint(1, 2))
            case _:
                verbs = rng.sample((*VERBS, "*", "escalate", "bind"), rng.randint(2, 5))
        rule: Rule = {"verbs": verbs, "apiGroups": groups, "resources": resources}
        if names:
            rule["resourceNames"] = names
        return rule

    def role(self, cluster: bool = True, aggregates: bool = True) -> Role:
        """A role; aggregated ones select roles of the level below, which never aggregate themselves."""
        rng = self.rng
        rules = [self.rule(not cluster) for _ in range(rng.randint(1, 3))]
        if cluster and aggregates and rng.random() < 0.25:
            level = rng.choice(_LEVELS)
            labels = {"level": "two"} if level == "one" else {}
            return Role([], labels, [{"level": level}])
        labels = {}
        if cluster and rng.random() < 0.3:
            labels["level"] = "one"
        if cluster and rng.random() < 0.1:
            labels[f"{RBAC}/aggregate-to-{rng.choice(_AGGREGATED)}"] = "true"
        return Role(rules, labels)

    def subject(self) -> Subject:
        name = self.rng.choice(_USERS)
        if self.rng.random() < 0.3:
            return Subject("Group", self.rng.choice(_GROUPS))
        if name.startswith("system:serviceaccount:") and self.rng.random() < 0.7:
            return Subject("ServiceAccount", "robot", name.split(":")[2])
        return Subject("User", name)

    def binding(self, policy: Policy, namespace: str, missing: float = 0.05) -> Binding:
        rng = self.rng
        known = [one for one in policy.roles if one[0] in ("", namespace)]
        where, name = rng.choice(known)
        if rng.random() < 0.1:
            where, name = "", rng.choice((*_AGGREGATED, "cluster-admin", "system:node-proxier"))
        if rng.random() < missing:
            name = "missing"
        subjects = [self.subject() for _ in range(rng.randint(1, 3))]
        if name == "cluster-admin" and not namespace:
            subjects = [Subject("User", "dora")]
        return Binding(("Role" if where else "ClusterRole", name), subjects)

    def new_name(self) -> str:
        self._made += 1
        return f"random-{self._made}"

    # -- requests

    def request(self) -> Request:
        """A request on what there is; whatever it writes is tried only."""
        rng = self.rng
        resource = rng.choice(RESOURCES)
        namespace = rng.choice(NAMESPACES) if resource.namespaced else ""
        if resource.subresources and rng.random() < 0.4:
            return self._on_subresource(resource, namespace)
        verb = rng.choice((*VERBS, "list", "watch", "list", "watch", "get", "apply"))
        name = rng.choice(NAMES)
        base = Ask(verb, resource.group, resource.plural, "", namespace, name)
        path, dry = resource.path(namespace), {"dryRun": "All"}
        match verb:
            case "list" | "watch":
                if resource.namespaced and rng.random() < 0.2:
                    base, path = base._replace(namespace=""), resource.path("")
                chosen = selector(rng) if rng.random() < 0.7 else Selector("", "")
                query = {"fieldSelector": chosen.text} if chosen.text else {}
                if verb == "watch":
                    query["watch"] = rng.choice(("1", "true", "", "yes"))
                elif rng.random() < 0.2:
                    query["watch"] = rng.choice(("false", "0"))
                return Request(base._replace(name=chosen.name), "GET", path, query)
            case "deletecollection":
                chosen = selector(rng)
                query = {**dry, **({"fieldSelector": chosen.text} if chosen.text else {})}
                return Request(base._replace(name=""), "DELETE", path, query)
            case "create":
                body = body_of(resource, self.new_name())
                return Request(base._replace(name=""), "POST", path, dry, body)
            case "apply":
                return self._apply(resource, base, path)
        ask = _named(base, resource)
        path = f"{path}/{name}"
        match verb:
            case "get":
                return Request(ask, "GET", path, {})
            case "update":
                return Request(ask, "PUT", path, dry, body_of(resource, name))
            case "patch":
                return Request(ask, "PATCH", path, dry, {"metadata": {"annotations": {"a": "b"}}})
        return Request(ask, "DELETE", path, dry)

    def _apply(self, resource: Resource, base: Ask, path: str) -> Request:
        name = self.rng.choice(NAMES) if self.rng.random() < 0.5 else "none"
        ask = _named(base._replace(verb="patch", name=name), resource)
        also = ask._replace(verb="create") if name == "none" else None
        query = {"dryRun": "All", "fieldManager": "random", "force": "true"}
        body = body_of(resource, name)
        return Request(ask, "PATCH", f"{path}/{name}", query, body, "application/apply-patch+yaml", also)

    def _on_subresource(self, resource: Resource, namespace: str) -> Request:
        rng = self.rng
        subresource, verbs = rng.choice(resource.subresources)
        verb, name = rng.choice(verbs), rng.choice(NAMES)
        ask = _named(Ask(verb, resource.group, resource.plural, subresource, namespace, name), resource)
        path, dry = f"{resource.path(namespace)}/{name}/{subresource}", {"dryRun": "All"}
        match verb:
            case "get":
                return Request(ask, "GET", path, {})
            case "create":
                return Request(ask, "POST", path, dry, {})
            case "update":
                return Request(ask, "PUT", path, dry, body_of(resource, name))
        return Request(ask, "PATCH", path, dry, {"metadata": {"annotations": {"a": "b"}}})

    def path_request(self) -> Ask:
        return Ask(self.rng.choice(("get", "post")), path=self.rng.choice(_PATHS))


def _named(ask: Ask, resource: Resource) -> Ask:
    """What a request on a named object is about: a namespace is in itself."""
    return ask._replace(namespace=ask.name) if resource.plural == "namespaces" else ask


_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
}


def body_of(resource: Resource, name: str) -> Object:
    """A valid object of a resource."""
    kinds = {"leases": "Lease", "namespaces": "Namespace", "nodes": "Node", "clusterroles": "ClusterRole"}
    kinds |= {"configmaps": "ConfigMap", "secrets": "Secret", "serviceaccounts": "ServiceAccount"}
    kinds |= {"jobs": "Job", "deployments": "Deployment"}
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    obj: Object = {"apiVersion": version, "kind": kinds[resource.plural], "metadata": {"name": name}}
    if resource.plural == "jobs":
        obj["spec"] = {"suspend": True, "template": _TEMPLATE}
    if resource.plural == "deployments":
        template = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Always"}}
        obj["spec"] = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return obj


def role_object(namespace: str, name: str, role: Role) -> Object:
    obj: Object = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {"name": name, "labels": dict(role.labels)},
        "rules": role.rules,
    }
    if role.selectors is not None:
        obj["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": one} for one in role.selectors]}
    return obj


def binding_object(namespace: str, name: str, binding: Binding) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": binding.role[0], "name": binding.role[1]},
        "subjects": [
            {"kind": "ServiceAccount", "name": one.name, "namespace": one.namespace}
            if one.kind == "ServiceAccount"
            else {"kind": one.kind, "name": one.name, "apiGroup": RBAC}
            for one in binding.subjects
        ],
    }
