"""RBAC rules as values: what one allows, and which rights of one the rules of another cover.

Source: docs/reference/kubernetes-api-machinery.md, section 17; k8s.io/component-helpers/auth/rbac/validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

GROUP = "rbac.authorization.k8s.io"

Rule = dict[str, Any]

#: Everything there is.
EVERYTHING: tuple[Rule, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)


class Access(NamedTuple):
    """One thing a user wants to do, on a resource, or on a path that is not a resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    #: None for resources.
    path: str | None = None

    @property
    def full_resource(self) -> str:
        """With its subresource, as rules write it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def rule_allows(rule: Rule, access: Access) -> bool:
    """Whether one rule allows the access."""
    if not _has(rule.get("verbs"), access.verb):
        return False
    if access.path is not None:
        return any(_path_covers(one, access.path) for one in rule.get("nonResourceURLs") or ())
    resources, names = rule.get("resources") or (), rule.get("resourceNames") or ()
    return (
        _has(rule.get("apiGroups"), access.group)
        and (
            _has(resources, access.full_resource)
            or (bool(access.subresource) and f"*/{access.subresource}" in resources)
        )
        and (not names or access.name in names)
    )


def uncovered(owned: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The rights of `wanted` that no rule of `owned` has, each as a rule of one right."""
    return [one for rule in wanted for one in _rights(rule) if not any(_covers(own, one) for own in owned)]


def described(rights: Iterable[Rule]) -> str:
    """Rights as a refusal lists them: those that differ by verb only together, in order, one a line."""
    verbs: dict[tuple[str, ...], list[str]] = {}
    for right in rights:
        parts = tuple(
            f"{shown}:{_quoted(right[field])}" for field, shown in _SHOWN.items() if right.get(field)
        )
        known = verbs.setdefault(parts, [])
        known += [verb for verb in right["verbs"] if verb not in known]
    lines = ("{" + ", ".join((*parts, f"Verbs:{_quoted(known)}")) + "}" for parts, known in verbs.items())
    return "\n".join(sorted(lines))


_SHOWN = {
    "apiGroups": "APIGroups",
    "resources": "Resources",
    "nonResourceURLs": "NonResourceURLs",
    "resourceNames": "ResourceNames",
}


def _quoted(values: Iterable[str]) -> str:
    return "[" + " ".join(orjson.dumps(one).decode() for one in values) + "]"


def _has(values: Sequence[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _path_covers(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def _resource_covers(resources: Sequence[str], resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return _has(resources, resource) or (bool(slash) and f"*/{subresource}" in resources)


def _rights(rule: Rule) -> Iterator[Rule]:
    """A rule in pieces of one verb, one resource or path, and one name if it says names."""
    names = [[one] for one in rule.get("resourceNames") or ()] or [[]]
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                for name in names:
                    right = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                    yield {**right, "resourceNames": name} if name else right
    for path in rule.get("nonResourceURLs") or ():
        for verb in rule.get("verbs") or ():
            yield {"nonResourceURLs": [path], "verbs": [verb]}


def _covers(owned: Rule, right: Rule) -> bool:
    if not _has(owned.get("verbs"), right["verbs"][0]):
        return False
    if "nonResourceURLs" in right:
        path = right["nonResourceURLs"][0]
        return any(_path_covers(one, path) for one in owned.get("nonResourceURLs") or ())
    own_names = owned.get("resourceNames") or ()
    return (
        _has(owned.get("apiGroups"), right["apiGroups"][0])
        and _resource_covers(owned.get("resources") or (), right["resources"][0])
        and (not own_names or ("resourceNames" in right and right["resourceNames"][0] in own_names))
    )
