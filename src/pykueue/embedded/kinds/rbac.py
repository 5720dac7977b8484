"""Built-in kinds of rights: roles and bindings.

Rules: k8s.io/kubernetes/pkg/apis/rbac/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, Column, Kind
from pykueue.embedded.kinds.podvalidation import validate_label_selector
from pykueue.embedded.kinds.printing import age_cell
from pykueue.embedded.objects.errors import Cause, invalid, not_supported, required
from pykueue.embedded.objects.metadata import name_fault


class Role(Kind):
    """rbac.authorization.k8s.io/v1 Role."""

    group = "rbac.authorization.k8s.io"
    kind = "Role"
    plural = "roles"
    name_rule = "path"
    has_generation = False
    create_on_update = True
    columns = (NAME_COLUMN, Column("Created At"))

    def validate(self, obj: Object) -> list[Cause]:
        return [
            cause
            for number, rule in enumerate(obj.get("rules") or ())
            for cause in self._rule_causes(rule, f"rules[{number}]")
        ]

    def _rule_causes(self, rule: Object, path: str) -> Iterator[Cause]:
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            if self.namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, detail)
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, detail)
            return
        if not rule.get("apiGroups"):
            yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{path}.resources", "resource rules must supply at least one resource")

    def cells(self, obj: Object, now: float) -> list[Any]:
        return [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp", "")]


class ClusterRole(Role):
    """rbac.authorization.k8s.io/v1 ClusterRole."""

    kind = "ClusterRole"
    plural = "clusterroles"
    namespaced = False

    def validate(self, obj: Object) -> list[Cause]:
        causes = super().validate(obj)
        rule = obj.get("aggregationRule")
        if rule is None:
            return causes
        path = "aggregationRule.clusterRoleSelectors"
        selectors = rule.get("clusterRoleSelectors") or ()
        if not selectors:
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            causes.append(required(path, detail))
        for number, selector in enumerate(selectors):
            causes += validate_label_selector(selector, f"{path}[{number}]")
        return causes


class RoleBinding(Kind):
    """rbac.authorization.k8s.io/v1 RoleBinding."""

    group = "rbac.authorization.k8s.io"
    kind = "RoleBinding"
    plural = "rolebindings"
    name_rule = "path"
    has_generation = False
    create_on_update = True
    #: Kinds of role that it may refer to.
    role_kinds: tuple[str, ...] = ("Role", "ClusterRole")
    columns = (
        NAME_COLUMN,
        Column("Role"),
        AGE_COLUMN,
        Column("Users", priority=1),
        Column("Groups", priority=1),
        Column("ServiceAccounts", priority=1),
    )

    def default(self, obj: Object) -> Object:
        group = self.group
        role = obj.get("roleRef") or {}
        subjects = [
            {**one, "apiGroup": group}
            if one.get("kind") in ("User", "Group") and not one.get("apiGroup")
            else one
            for one in obj.get("subjects") or ()
        ]
        changed = dict(obj)
        if role and not role.get("apiGroup"):
            changed["roleRef"] = {**role, "apiGroup": group}
        if subjects:
            changed["subjects"] = subjects
        return obj if changed == obj else changed

    def validate(self, obj: Object) -> list[Cause]:
        reference = obj.get("roleRef") or {}
        group, kind, name = (reference.get(field) or "" for field in ("apiGroup", "kind", "name"))
        causes = []
        if group != self.group:
            causes.append(not_supported("roleRef.apiGroup", group, [self.group]))
        if kind not in self.role_kinds:
            causes.append(not_supported("roleRef.kind", kind, self.role_kinds))
        if not name:
            causes.append(required("roleRef.name"))
        elif fault := name_fault(name, "path"):
            causes.append(invalid("roleRef.name", name, fault))
        for number, subject in enumerate(obj.get("subjects") or ()):
            causes += self._subject_causes(subject, f"subjects[{number}]")
        return causes

    def _subject_causes(self, subject: Object, path: str) -> Iterator[Cause]:
        group, kind, name = (subject.get(field) or "" for field in ("apiGroup", "kind", "name"))
        if not name:
            yield required(f"{path}.name")
        if kind not in ("ServiceAccount", "User", "Group"):
            yield not_supported(f"{path}.kind", kind, ["ServiceAccount", "User", "Group"])
        elif kind != "ServiceAccount":
            if group != self.group:
                yield not_supported(f"{path}.apiGroup", group, [self.group])
        else:
            if name and (fault := name_fault(name, "subdomain")):
                yield invalid(f"{path}.name", name, fault)
            if group:
                yield not_supported(f"{path}.apiGroup", group, [""])
            if not self.namespaced and not subject.get("namespace"):
                yield required(f"{path}.namespace")

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        if new.get("roleRef") != old.get("roleRef"):
            return [invalid("roleRef", new.get("roleRef"), "cannot change roleRef")]
        return []

    def cells(self, obj: Object, now: float) -> list[Any]:
        role = obj.get("roleRef") or {}
        subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
        for one in obj.get("subjects") or ():
            name = one.get("name", "")
            if one.get("kind") == "ServiceAccount":
                name = f"{one.get('namespace', '')}/{name}"
            subjects.setdefault(one.get("kind", ""), []).append(name)
        return [
            obj["metadata"]["name"],
            f"{role.get('kind')}/{role.get('name')}",
            age_cell(obj, now),
            ", ".join(subjects["User"]),
            ", ".join(subjects["Group"]),
            ", ".join(subjects["ServiceAccount"]),
        ]


class ClusterRoleBinding(RoleBinding):
    """rbac.authorization.k8s.io/v1 ClusterRoleBinding."""

    kind = "ClusterRoleBinding"
    plural = "clusterrolebindings"
    namespaced = False
    role_kinds = ("ClusterRole",)
