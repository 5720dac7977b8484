"""What pods use of leaves, counted for a while: of units of a workload that is being placed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pykueue.engine.topology.demands import Unit
from pykueue.engine.topology.nodes import Amounts
from pykueue.engine.topology.placement import Placed
from pykueue.engine.topology.tree import LeafUsage, add_usage

#: What pods use of a leaf: (the usage of the leaf, amounts of one pod, pods).
Use = tuple[LeafUsage, Amounts, int]


def change(usage: LeafUsage, which: dict[str, int], amounts: Amounts, pods: int) -> None:
    """Count pods in a part of the usage of a leaf; its numbers are counted again."""
    add_usage(which, amounts, pods)
    for leaf in usage.leaves:
        leaf.tree.touch(leaf)


def assume(uses: Iterable[Use], assumed: list[Use]) -> None:
    """Count uses for the units that are placed after them, and list them in `assumed`."""
    for usage, amounts, pods in uses:
        assumed.append((usage, amounts, pods))
        change(usage, usage.assumed, amounts, pods)


def drop_assumed(assumed: Iterable[Use]) -> None:
    """The exact inverse of all calls of `assume` with that list."""
    for usage, amounts, pods in assumed:
        change(usage, usage.assumed, amounts, -pods)


def used_by(unit: Unit, placed: Placed) -> Iterator[Use]:
    """What a placed unit uses of each leaf."""
    for leaf, pods in placed.workers:
        assert leaf.usage is not None
        yield leaf.usage, unit.workers.amounts, pods
    if placed.leader is not None and unit.leader is not None:
        assert placed.leader.usage is not None
        yield placed.leader.usage, unit.leader.amounts, 1
