"""The controllers of topology-aware scheduling as components."""

from __future__ import annotations

from pykueue.api.resources import NODES, PODS, RESOURCE_FLAVORS, WORKLOADS
from pykueue.manager.rights import allow
from pykueue.manager.topology.ungater import Ungater

from .component import Component


def ungater(workers: int) -> Component:
    """The component that lets pods go to their domains."""
    return Component(
        "topology-ungater",
        "Pins the pods of Workloads with a topology assignment to their domains, and removes their gates.",
        lambda c: Ungater(c.cluster, c.connection.writer, c.metrics, c.clock, c.workers),
        watches=(NODES, PODS, RESOURCE_FLAVORS, WORKLOADS),
        writes=(allow(PODS, "patch"),),
        workers=workers,
    )
