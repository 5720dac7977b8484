"""The nodes of flavors in figures, for reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pykueue.api.quantity import Quantity
from pykueue.engine.quota.usage import to_quantity
from pykueue.engine.topology.capacity import NodeCapacity


class LeafAmounts(NamedTuple):
    """A domain of the lowest level of a topology."""

    flavor: str
    topology: str
    levels: tuple[str, ...]
    values: tuple[str, ...]
    """Of all levels, widest first."""
    available: dict[str, Quantity]
    """What its nodes have beside what pods outside workloads use."""
    used: dict[str, Quantity]
    """By workloads that hold quota."""


def leaf_amounts(nodes: NodeCapacity) -> Iterator[LeafAmounts]:
    """The domains of the lowest levels, in the order of flavors and of values."""
    for tree in nodes.trees.values():
        for leaf in tree.by_level[-1]:
            used = leaf.usage.amounts if leaf.usage is not None else {}
            yield LeafAmounts(
                tree.flavor,
                tree.topology,
                tree.levels,
                leaf.values,
                {name: to_quantity(name, amount) for name, amount in sorted(leaf.capacity.items())},
                {name: to_quantity(name, amount) for name, amount in sorted(used.items())},
            )
