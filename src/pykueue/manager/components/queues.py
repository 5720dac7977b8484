"""The queue controller as a component."""

from __future__ import annotations

from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
)
from pykueue.manager.queues.controller import QueueController
from pykueue.manager.rights import allow

from .component import Component


def queues() -> Component:
    """The component that writes the status and finalizers of queues, cohorts, flavors and checks."""
    with_finalizer = (CLUSTER_QUEUES, RESOURCE_FLAVORS, ADMISSION_CHECKS, TOPOLOGIES)
    with_status = (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS)
    return Component(
        "queues",
        "Writes the status of queues and cohorts, and the finalizers of what is in use.",
        lambda c: QueueController(c.cluster, c.clock, c.engine, c.reservations, c.workers),
        watches=(
            CLUSTER_QUEUES,
            LOCAL_QUEUES,
            COHORTS,
            RESOURCE_FLAVORS,
            ADMISSION_CHECKS,
            TOPOLOGIES,
            WORKLOADS,
        ),
        writes=(
            *(allow(resource, "patch") for resource in with_finalizer),
            *(allow(resource, "patch", subresource="status") for resource in with_status),
        ),
        workers=4,
    )
