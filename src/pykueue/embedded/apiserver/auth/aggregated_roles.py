"""ClusterRoles with an aggregationRule: their rules are those of the ClusterRoles they select.

Kept in step with every settled write of a ClusterRole.
Source: docs/reference/kubernetes-api-machinery.md, section 17.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Object
from pykueue.embedded.apiserver.registry.core import Core
from pykueue.embedded.objects.selectors import selector_matches
from pykueue.embedded.store.records import Record

from .rules import GROUP

_PLURAL = "clusterroles"


class AggregatedRoles:
    """Writes the rules of aggregated ClusterRoles."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._roles = core.store.table(f"{GROUP}/{_PLURAL}")
        self._roles.listen(self._on_stored)
        core.on_lost(self.load)

    def load(self) -> None:
        """Bring stored roles up to date whose rules were lost or never written."""
        for record in self._roles.records():
            self._on_stored(record, None)

    def _on_stored(self, new: Record | None, old: Record | None) -> None:
        # Aggregates may select aggregates: writing one brings us back here for those that select it.
        touched = [one.peek() for one in (new, old) if one is not None]
        for record in self._roles.records():
            role = record.peek()
            selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
            if not selectors:
                continue
            same = any(one["metadata"]["name"] == role["metadata"]["name"] for one in touched)
            if not same and not any(_selected(selectors, one) for one in touched):
                continue
            rules = self._rules(role, selectors)
            if rules != (role.get("rules") or []) and self._roles.get(record.key) is not None:
                changed = {**role, "metadata": dict(role["metadata"]), "rules": rules}
                self._core.store.put(self._roles, record.key, changed)

    def _rules(self, role: Object, selectors: Any) -> list[Object]:
        rules: list[Object] = []
        for record in self._roles.records():
            other = record.peek()
            if other["metadata"]["name"] != role["metadata"]["name"] and _selected(selectors, other):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
        return rules


def _selected(selectors: Any, role: Object) -> bool:
    labels = role["metadata"].get("labels") or {}
    return any(selector_matches(one, labels) for one in selectors)
