"""The controllers of topology-aware scheduling as components."""

from __future__ import annotations

from pykueue.api.resources import CLUSTER_QUEUES, NODES, PODS, RESOURCE_FLAVORS, WORKLOADS
from pykueue.manager.rights import allow
from pykueue.manager.topology.failures import NodeFailures
from pykueue.manager.topology.ungater import Ungater

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component


def ungater(workers: int) -> Component:
    """The component that lets pods go to their domains."""
    return Component(
        "topology-ungater",
        "Pins pods to the domains, or gives them the flavors, that their Workload has; removes their gates; "
        "ends pods whose flavor is lost, and gives back its quota.",
        lambda c: Ungater(
            c.cluster,
            c.connection.writer,
            c.recorder("kueue-topology-ungater"),
            c.metrics,
            c.clock,
            c.workers,
        ),
        watches=(CLUSTER_QUEUES, NODES, PODS, RESOURCE_FLAVORS, WORKLOADS),
        writes=(
            WRITE_WORKLOAD_STATUS,
            allow(PODS, "patch"),
            allow(PODS, "patch", subresource="status"),
            RECORD_EVENTS,
        ),
        workers=workers,
    )


def node_failures(workers: int) -> Component:
    """The component that replaces failed nodes."""
    return Component(
        "node-failures",
        "Lists failed nodes with the Workloads assigned to them, and ends pods that wait for such nodes.",
        lambda c: NodeFailures(
            c.cluster, c.connection.writer, c.recorder("kueue-node-failures"), c.clock, c.workers
        ),
        watches=(NODES, PODS, RESOURCE_FLAVORS, WORKLOADS),
        writes=(WRITE_WORKLOAD_STATUS, allow(PODS, "patch", subresource="status"), RECORD_EVENTS),
        workers=workers,
    )
