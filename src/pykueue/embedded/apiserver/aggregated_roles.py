"""ClusterRoles with an aggregationRule: their rules are those of the ClusterRoles they select.

Kept in step with every write of a ClusterRole, in the same step.
Source: reference/kubernetes-api-machinery.md, section 17.
"""

from __future__ import annotations

from typing import Any

from pykueue.embedded.apiserver.contract import Object
from pykueue.embedded.apiserver.core import Core
from pykueue.embedded.apiserver.rbac import GROUP
from pykueue.embedded.apiserver.registry import Endpoint
from pykueue.embedded.apiserver.selectors import selector_matches
from pykueue.embedded.store.records import Record

_PLURAL = "clusterroles"


class AggregatedRoles:
    """Writes the rules of aggregated ClusterRoles."""

    def __init__(self, core: Core) -> None:
        self._core = core
        core.on_stored(f"{GROUP}/{_PLURAL}", self._on_stored)

    def load(self) -> None:
        """Bring stored roles up to date that an earlier version of the server left without rules."""
        endpoint = self._core.registry.storage(GROUP, _PLURAL)
        assert endpoint is not None
        for record in endpoint.table.records():
            self._on_stored(endpoint, record, None)

    def _on_stored(self, endpoint: Endpoint, new: Record | None, old: Record | None) -> None:
        # Aggregates may select aggregates: writing one brings us back here for those that select it.
        touched = [one.peek() for one in (new, old) if one is not None]
        for record in endpoint.table.records():
            role = record.peek()
            selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
            if not selectors:
                continue
            same = any(one["metadata"]["name"] == role["metadata"]["name"] for one in touched)
            if not same and not any(_selected(selectors, one) for one in touched):
                continue
            rules = self._rules(endpoint, role, selectors)
            if rules != (role.get("rules") or []):
                current = endpoint.table.get(record.key)
                if current is None:
                    continue
                changed = {**role, "metadata": dict(role["metadata"]), "rules": rules}
                stored = self._core.store.put(endpoint.table, record.key, changed)
                self._core.stored(endpoint, stored, current)

    def _rules(self, endpoint: Endpoint, role: Object, selectors: Any) -> list[Object]:
        rules: list[Object] = []
        for record in endpoint.table.records():
            other = record.peek()
            if other["metadata"]["name"] != role["metadata"]["name"] and _selected(selectors, other):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
        return rules


def _selected(selectors: Any, role: Object) -> bool:
    labels = role["metadata"].get("labels") or {}
    return any(selector_matches(one, labels) for one in selectors)
