"""Reservations: quota of a node of a tree that is kept free in windows of time.

For Capacity, what workloads below the node use counts as used of the reservation; for Maintenance the
reservation comes on top. Source of the rules: docs/reference/policies.md 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pykueue.api.reservations import Reservation, windows
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota.flavor_resources import FlavorResources
from pykueue.engine.quota.tree import Node
from pykueue.engine.quota.usage import FlavorUsage, units
from pykueue.engine.undo_log import UndoLog


class PlannedWindow(NamedTuple):
    """A window in which quota of a node is kept free."""

    name: str
    """Of the Reservation."""
    start: float
    """In seconds since 1970."""
    end: float
    amounts: tuple[tuple[FlavorUsage, int], ...]
    maintenance: bool

    def demand(self) -> list[tuple[FlavorUsage, int]]:
        """What is still to be kept free, given what the node uses."""
        if self.maintenance:
            return list(self.amounts)
        return [(usage, amount - usage.usage) for usage, amount in self.amounts if amount > usage.usage]


class Windows:
    """All Reservations."""

    def __init__(self, undo_log: UndoLog, flavor_resources: FlavorResources) -> None:
        self._undo_log = undo_log
        self._flavor_resources = flavor_resources
        self._objects: dict[str, Reservation] = {}

    @property
    def on(self) -> bool:
        """Whether there is any Reservation."""
        return bool(self._objects)

    def set(self, name: str, obj: Reservation | None) -> bool:
        """A Reservation appeared, changed, or is gone (None); whether that may change decisions."""
        known = self._objects.get(name)
        self._undo_log.replace(self._objects, name, obj)
        return (known is None) != (obj is None) or (
            known is not None and obj is not None and known.spec != obj.spec
        )

    def objects(self) -> list[Reservation]:
        """All Reservations, by name."""
        return [obj for _, obj in sorted(self._objects.items())]

    def binding(self, queue: ClusterQueue, now: float) -> list[PlannedWindow]:
        """The windows that workloads of a ClusterQueue must keep free, from now on."""
        nodes: dict[str, Node] = {}
        for member in queue.tree.queues:
            nodes[f"ClusterQueue/{member.name}"] = member
            for cohort in member.ancestors():
                nodes[f"Cohort/{cohort.name}"] = cohort
        above = {queue, *queue.ancestors()}
        found = [
            window
            for obj in self.objects()
            for node in [nodes.get(_node_name(obj))]
            if node is not None and (obj.spec.purpose == "Maintenance" or node not in above)
            for window in self._planned(obj, node, now)
        ]
        return sorted(found, key=lambda window: (window.start, window.name))

    def _planned(self, obj: Reservation, node: Node, now: float) -> Iterator[PlannedWindow]:
        amounts = []
        for flavor in obj.spec.flavors:
            for resource in flavor.resources:
                index = self._flavor_resources.index_of(flavor.name, resource.name)
                usage = node.flavor_usages.get(index)
                if usage is not None:
                    amounts.append((usage, units(resource.name, resource.quantity)))
        if not amounts:
            return
        maintenance = obj.spec.purpose == "Maintenance"
        for start, end in windows(obj.spec, now):
            yield PlannedWindow(obj.metadata.name, max(start, now), end, tuple(amounts), maintenance)


def _node_name(obj: Reservation) -> str:
    if obj.spec.cohort is not None:
        return f"Cohort/{obj.spec.cohort}"
    return f"ClusterQueue/{obj.spec.cluster_queue}"
