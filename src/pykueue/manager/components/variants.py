"""The controller of concurrent admission as a component."""

from __future__ import annotations

from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from pykueue.manager.rights import allow
from pykueue.manager.variants.controller import VariantController

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component


def variants(workers: int) -> Component:
    """The component for the variants of Workloads, with `workers` concurrent reconciles."""
    return Component(
        "variants",
        "Makes variants of Workloads, one for each flavor, and admits the Workloads as their variants are.",
        lambda c: VariantController(
            c.cluster,
            c.connection.writer,
            c.reservations,
            c.recorder("concurrent-admission-controller"),
            c.clock,
            c.workers,
        ),
        watches=(WORKLOADS, LOCAL_QUEUES, CLUSTER_QUEUES),
        writes=(allow(WORKLOADS, "create", "patch", "delete"), WRITE_WORKLOAD_STATUS, RECORD_EVENTS),
        workers=workers,
    )
