"""PodDisruptionBudgets in preemption: which victims would violate one.

Rules: docs/reference/cluster-workloads.md 4.7, "Preemption"; violations are avoided where possible, not ruled
out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pykueue.api.objects import Object
from pykueue.api.selectors import Selector
from pykueue.embedded.podscheduler.podinfo import PodInfo
from pykueue.embedded.podscheduler.terms import label_selector


class _Budget(NamedTuple):
    #: None selects nothing.
    selector: Selector | None
    allowed: int
    #: Pods whose going is allowed for already.
    going: frozenset[str]


class Budgets:
    """The PodDisruptionBudgets by namespace and name."""

    def __init__(self) -> None:
        self._budgets: dict[str, dict[str, _Budget]] = {}

    def put(self, manifest: Object) -> None:
        """A budget appeared or changed."""
        metadata, status = manifest["metadata"], manifest.get("status") or {}
        self._budgets.setdefault(metadata["namespace"], {})[metadata["name"]] = _Budget(
            label_selector((manifest.get("spec") or {}).get("selector")),
            status.get("disruptionsAllowed") or 0,
            frozenset(status.get("disruptedPods") or ()),
        )

    def remove(self, namespace: str, name: str) -> None:
        """A budget went."""
        found = self._budgets.get(namespace, {})
        found.pop(name, None)
        if not found:
            self._budgets.pop(namespace, None)

    def violated_by(self, pods: Iterable[PodInfo]) -> set[str]:
        """Uids of those that could not go if all of them went, in their order, one after the other."""
        if not self._budgets:
            return set()
        left: dict[tuple[str, str], int] = {}
        found = set()
        for pod in pods:
            for name, budget in self._budgets.get(pod.namespace, {}).items():
                if budget.selector is None or pod.name in budget.going:
                    continue
                if budget.selector.matches(pod.labels):
                    key = (pod.namespace, name)
                    left[key] = left.get(key, budget.allowed) - 1
                    if left[key] < 0:
                        found.add(pod.uid)
        return found
