"""Which admission checks of a ClusterQueue apply to a workload (docs/reference/kueue-semantics.md 11.4)."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

#: Name of a check, and the flavors it is for; none: for all.
CheckRule = tuple[str, AbstractSet[str]]


def required_with(rules: Iterable[CheckRule], assigned: Iterable[str]) -> list[str]:
    """The checks for any of the flavors assigned to the workload."""
    flavors = frozenset(assigned)
    return [name for name, on in rules if not on or on & flavors]


def required_without(rules: Iterable[CheckRule], flavors: AbstractSet[str]) -> list[str]:
    """The checks for all `flavors` of the ClusterQueue, where none are assigned yet."""
    return [name for name, on in rules if not on or flavors <= on]
