"""The nodes of flavors in figures, for reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pykueue.api.quantity import Quantity
from pykueue.engine.flavors.host_ports import is_host_port
from pykueue.engine.quota.usage import to_quantity
from pykueue.engine.topology.capacity import NodeCapacity
from pykueue.engine.topology.demands import NodeReservation


class LeafView(NamedTuple):
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
    pods: dict[str, int]
    """Assigned pods by workload (`namespace/name`)."""


def leaf_views(nodes: NodeCapacity, reserved: Iterable[tuple[str, NodeReservation]]) -> Iterator[LeafView]:
    """The domains of the lowest levels, in the order of flavors and of values.

    `reserved` are (key of a workload, what it reserves of the nodes).
    """
    assigned: dict[tuple[str, tuple[str, ...]], dict[str, int]] = {}
    for key, reservation in reserved:
        for placed in reservation:
            for values, pods in placed.domains:
                by_workload = assigned.setdefault((placed.flavor, values), {})
                by_workload[key] = by_workload.get(key, 0) + pods
    for tree in nodes.trees.values():
        for leaf in tree.by_level[-1]:
            used = leaf.usage.amounts if leaf.usage is not None else {}
            yield LeafView(
                tree.flavor,
                tree.topology,
                tree.levels,
                leaf.values,
                _quantities(leaf.capacity),
                _quantities(used),
                assigned.get((tree.flavor, leaf.values[-1:] if tree.hostnames else leaf.values), {}),
            )


def _quantities(amounts: Mapping[str, int]) -> dict[str, Quantity]:
    """Amounts of resources as quantities, in the order of names."""
    return {
        name: to_quantity(name, amount) for name, amount in sorted(amounts.items()) if not is_host_port(name)
    }
