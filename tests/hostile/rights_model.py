"""RBAC written plainly: what a policy allows, and which roles and bindings a user may write.

Slow and without state, to be compared with the API server (and, in tests/realcluster, with kube-apiserver).
Rules are as in roles; source: the Kubernetes documentation of RBAC authorization.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Rule = dict[str, Any]


class User(NamedTuple):
    name: str
    groups: tuple[str, ...] = ()


class Ask(NamedTuple):
    """What a request is about."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    #: Of a request that is about no resource.
    path: str | None = None


class Subject(NamedTuple):
    kind: str
    name: str
    namespace: str = ""


@dataclass
class Role:
    rules: list[Rule]
    labels: dict[str, str] = field(default_factory=dict)
    #: matchLabels of the roles it aggregates; None where it has rules of its own.
    selectors: list[dict[str, str]] | None = None


@dataclass
class Binding:
    #: Kind and name.
    role: tuple[str, str]
    subjects: list[Subject]


def has(values: Iterable[str], value: str) -> bool:
    return any(one in ("*", value) for one in values)


def path_matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern.rstrip("*")) if pattern.endswith("*") else pattern == path


def allows(rule: Rule, ask: Ask) -> bool:
    if not has(rule["verbs"], ask.verb):
        return False
    if ask.path is not None:
        return any(path_matches(one, ask.path) for one in rule.get("nonResourceURLs", ()))
    wanted = {"*", ask.resource}
    if ask.subresource:
        wanted = {"*", f"{ask.resource}/{ask.subresource}", f"*/{ask.subresource}"}
    names = rule.get("resourceNames") or [ask.name]
    return (
        has(rule.get("apiGroups", ()), ask.group)
        and bool(wanted.intersection(rule.get("resources", ())))
        and ask.name in names
    )


def single_rights(rule: Rule) -> Iterator[Rule]:
    """The rule as rules of one verb, one resource or path, and at most one name."""
    for verb in rule["verbs"]:
        for path in rule.get("nonResourceURLs", ()):
            yield {"verbs": [verb], "nonResourceURLs": [path]}
        for group in rule.get("apiGroups", ()):
            for resource in rule.get("resources", ()):
                right = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                for name in rule.get("resourceNames") or [None]:
                    yield right if name is None else {**right, "resourceNames": [name]}


def covers(owned: Rule, right: Rule) -> bool:
    """Whether a rule grants all that a single right does: the right's own texts are asked for."""
    if "nonResourceURLs" in right:
        return allows(owned, Ask(right["verbs"][0], path=right["nonResourceURLs"][0]))
    if owned.get("resourceNames") and "resourceNames" not in right:
        return False
    resource, _, subresource = right["resources"][0].partition("/")
    name = right.get("resourceNames", [""])[0]
    return allows(owned, Ask(right["verbs"][0], right["apiGroups"][0], resource, subresource, name=name))


EVERYTHING: list[Rule] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
RBAC = "rbac.authorization.k8s.io"


class Policy:
    """Roles and bindings by namespace and name; the namespace is empty for those of the cluster."""

    def __init__(self) -> None:
        self.roles: dict[tuple[str, str], Role] = {}
        self.bindings: dict[tuple[str, str], Binding] = {}

    def rules(self, namespace: str, name: str) -> list[Rule]:
        role = self.roles.get((namespace, name))
        if role is None or role.selectors is None:
            return role.rules if role else []
        return [
            rule
            for (where, other), one in self.roles.items()
            if where == "" and other != name and any(s.items() <= one.labels.items() for s in role.selectors)
            for rule in self.rules("", other)
        ]

    def rules_of(self, user: User, namespace: str) -> list[Rule]:
        """The rules that hold for a user in a namespace, or for what is in none."""
        return [
            rule
            for (where, _), binding in self.bindings.items()
            if where in ("", namespace) and any(_is(user, one, where) for one in binding.subjects)
            for rule in self.rules(where if binding.role[0] == "Role" else "", binding.role[1])
        ]

    def allowed(self, user: User, ask: Ask) -> bool:
        if "system:masters" in user.groups:
            return True
        return any(allows(rule, ask) for rule in self.rules_of(user, ask.namespace))

    def holds(self, user: User, rules: Iterable[Rule], namespace: str) -> bool:
        owned = self.rules_of(user, namespace)
        return all(
            any(covers(own, right) for own in owned) for rule in rules for right in single_rights(rule)
        )

    def may_give(self, user: User, ask: Ask, new: Role, old: Role | None) -> bool:
        """Whether a user who may make the request `ask` on a role may make it this one."""
        if "system:masters" in user.groups or new == old or self.allowed(user, ask._replace(verb="escalate")):
            return True
        gathers = new.selectors is not None or (old is not None and old.selectors is not None)
        rules = new.rules + (EVERYTHING if gathers else [])
        return self.holds(user, rules, ask.namespace)

    def binding_code(self, user: User, namespace: str, new: Binding, old: Binding | None) -> int:
        """What a user who may write bindings is answered for this one: 200, 403 or 404."""
        kind, name = new.role
        bind = Ask("bind", RBAC, f"{kind.lower()}s", "", namespace, name)
        if "system:masters" in user.groups or new == old or self.allowed(user, bind):
            return 200
        where = namespace if kind == "Role" else ""
        if (where, name) not in self.roles:
            return 404
        return 200 if self.holds(user, self.rules(where, name), namespace) else 403

    def may_act_as(self, user: User, other: User) -> bool:
        namespace, colon, account = other.name.removeprefix("system:serviceaccount:").partition(":")
        asks = [Ask("impersonate", "", "users", name=other.name)]
        if other.name.startswith("system:serviceaccount:") and colon:
            asks = [Ask("impersonate", "", "serviceaccounts", "", namespace, account)]
        asks += [Ask("impersonate", "", "groups", name=one) for one in other.groups]
        return all(self.allowed(user, ask) for ask in asks)


def _is(user: User, subject: Subject, where: str) -> bool:
    match subject.kind:
        case "User":
            return user.name == subject.name
        case "Group":
            return subject.name in user.groups
        case _:
            owner = subject.namespace or where
            return bool(owner) and user.name == f"system:serviceaccount:{owner}:{subject.name}"
