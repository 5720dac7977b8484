"""Domains for a workload slice that replaces another one: running pods stay where they are.

Source of the rules: docs/reference/topology-aware-scheduling.md 16. Unlike in Kueue, the pods of the old
slice count once while the new one is placed, not twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pykueue.engine.topology.demands import PlacedPodSet, Unit
from pykueue.engine.topology.tree import FlavorTree


class Continued(NamedTuple):
    """What a unit keeps of the slice that it replaces."""

    workers: PlacedPodSet
    """As many pods as it needs at most; those at the end of the list are left first."""
    leader: PlacedPodSet | None
    missing: int
    """Workers that have no domain yet."""


def problem_of(units: Sequence[Unit]) -> str:
    """Why units of an elastic job cannot be placed; empty if they can."""
    for unit in units:
        if unit.workers.level.mode in ("required", "preferred"):
            return "a workload slice that replaces another can only have unconstrained topology"
    return ""


def continued(unit: Unit, held: Sequence[PlacedPodSet], tree: FlavorTree) -> Continued | None:
    """What the unit keeps of `held`; None if it must be placed afresh."""
    if unit.workers.level.mode != "unconstrained":
        return None
    by_name = {each.name: each for each in held if each.flavor == unit.flavor and each.levels}
    names = [unit.workers.name, *([unit.leader.name] if unit.leader is not None else [])]
    if any(name not in by_name for name in names):
        return None
    if any(tree.leaf(values) is None for name in names for values, _ in by_name[name].domains):
        return None
    needs = unit.workers
    if by_name[needs.name].amounts != needs.amounts:
        return None
    domains, missing = [], unit.pods
    for values, pods in by_name[needs.name].domains:
        if missing:
            domains.append((values, min(pods, missing)))
            missing -= min(pods, missing)
    workers = by_name[needs.name]._replace(domains=tuple(domains))
    return Continued(workers, by_name[unit.leader.name] if unit.leader is not None else None, missing)
