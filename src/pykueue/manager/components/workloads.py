"""The workload controller as a component."""

from __future__ import annotations

from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    PODS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from pykueue.jobs.kinds import JobKinds
from pykueue.manager.rights import allow
from pykueue.manager.workloads.controller import WorkloadController

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component, Context


def workloads(kinds: JobKinds, workers: int) -> Component:
    """The component for the life of Workloads, with `workers` concurrent reconciles."""
    return Component(
        "workloads",
        "Applies checks, stop policies, time limits, back-off, deactivation and retention to Workloads.",
        _build,
        watches=(
            WORKLOADS,
            LOCAL_QUEUES,
            CLUSTER_QUEUES,
            COHORTS,
            RESOURCE_FLAVORS,
            ADMISSION_CHECKS,
            TOPOLOGIES,
            WORKLOAD_PRIORITY_CLASSES,
            PODS,
            *kinds.resources,
        ),
        writes=(
            allow(WORKLOADS, "patch", "delete"),
            WRITE_WORKLOAD_STATUS,
            # Jobs of Workloads that were deactivated, when their retention has elapsed.
            *(allow(each.kind.resource, "delete") for each in kinds.jobs.values()),
            RECORD_EVENTS,
        ),
        workers=workers,
    )


def _build(context: Context) -> WorkloadController:
    return WorkloadController(
        context.engine,
        context.cluster,
        context.connection.writer,
        context.reservations,
        context.recorder("kueue-workload-controller"),
        context.clock,
        context.random(),
        context.workers,
    )
