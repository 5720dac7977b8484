"""ClusterRoles with an aggregationRule: their rules are those of the ClusterRoles they select.

Kept in step with every settled write of a ClusterRole.
Source: docs/reference/kubernetes-api-machinery.md, section 17.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.objects import Key, Object
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
            self._write(record.key)

    def _on_stored(self, new: Record | None, old: Record | None) -> None:
        # Aggregates may select aggregates: writing one brings us back here for those that select it.
        touched = [one.peek() for one in (new, old) if one is not None]
        for record in self._roles.records():
            selectors, name = _selectors(record.peek()), record.key[1]
            if selectors and any(
                one["metadata"]["name"] == name or _selected(selectors, one) for one in touched
            ):
                self._write(record.key)

    def _write(self, key: Key) -> None:
        """Give a role with an aggregationRule the rules that it should have."""
        record = self._roles.get(key)
        role = {} if record is None else record.peek()
        selectors = _selectors(role)
        if not selectors:
            return
        rules = self._rules(role, selectors)
        if rules != (role.get("rules") or []):
            changed = {**role, "metadata": dict(role["metadata"]), "rules": rules}
            self._core.store.put(self._roles, key, changed)

    def _rules(self, role: Object, selectors: Any) -> list[Object]:
        rules: list[Object] = []
        for record in self._roles.records():
            other = record.peek()
            if other["metadata"]["name"] != role["metadata"]["name"] and _selected(selectors, other):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
        return rules


def _selectors(role: Object) -> Any:
    return (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()


def _selected(selectors: Any, role: Object) -> bool:
    labels = role["metadata"].get("labels") or {}
    return any(selector_matches(one, labels) for one in selectors)
