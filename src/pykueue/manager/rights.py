"""Rights as RBAC rules: what a component of the manager declares, and the rules of a role that follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.resources import Resource

#: Verbs of a watch cache and of those who read an object again.
READ = ("get", "list", "watch")
#: All verbs, in the order in which rules list them.
_VERBS = (*READ, "create", "update", "patch", "delete")


class Rule(NamedTuple):
    """One rule of a role."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    #: Empty: whatever they are called.
    names: tuple[str, ...] = ()

    def object(self) -> Object:
        """The rule as a role holds it."""
        rule: Object = {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule


def allow(resource: Resource, *verbs: str, subresource: str = "") -> Rule:
    """The verbs on objects of a resource, or on one of its subresources."""
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    return Rule(resource.group, (plural,), verbs)


def merged(rules: Iterable[Rule], granted: Iterable[Rule] = ()) -> list[Rule]:
    """The same rights in as few rules as possible, sorted by group and resource; without those `granted`."""
    verbs = _verbs(rules)
    for key, known in _verbs(granted).items():
        verbs[key] = verbs.get(key, set()) - known
    resources: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for group, resource, names in sorted(verbs):
        allowed = tuple(sorted(verbs[group, resource, names], key=_VERBS.index))
        if allowed:
            resources.setdefault((group, allowed, names), []).append(resource)
    return [Rule(group, tuple(found), allowed, names) for (group, allowed, names), found in resources.items()]


def _verbs(rules: Iterable[Rule]) -> dict[tuple[str, str, tuple[str, ...]], set[str]]:
    """The verbs by group, resource and names of objects."""
    found: dict[tuple[str, str, tuple[str, ...]], set[str]] = {}
    for rule in rules:
        for resource in rule.resources:
            found.setdefault((rule.group, resource, rule.names), set()).update(rule.verbs)
    return found
