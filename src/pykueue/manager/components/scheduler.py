"""The scheduler and the explainer as components."""

from __future__ import annotations

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.budgets import BUDGET_LEDGERS, BUDGETS
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    DEVICE_CLASSES,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_FLAVORS,
    RESOURCE_SLICES,
    RUNTIME_CLASSES,
    TOPOLOGIES,
    WORKLOADS,
)
from pykueue.jobs.kinds import JobKinds
from pykueue.manager.scheduler.loop import CONCURRENCY, Scheduler
from pykueue.manager.scheduler.pending_reasons import Explainer

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component, Context

#: Events of both are those of one source.
_SOURCE = "kueue-admission"


def scheduler(kinds: JobKinds) -> Component:
    """The component that runs the engine; it watches the resources of `kinds`."""
    return Component(
        "scheduler",
        "Feeds the engine with every change, and writes its decisions: admissions, preemptions, reasons.",
        _scheduler,
        watches=(
            WORKLOADS,
            LOCAL_QUEUES,
            CLUSTER_QUEUES,
            COHORTS,
            RESOURCE_FLAVORS,
            ADMISSION_CHECKS,
            TOPOLOGIES,
            NAMESPACES,
            LIMIT_RANGES,
            RUNTIME_CLASSES,
            DEVICE_CLASSES,
            RESOURCE_CLAIM_TEMPLATES,
            RESOURCE_SLICES,
            PREEMPTION_POLICIES,
            BACKFILL_POLICIES,
            RESERVATIONS,
            BUDGETS,
            BUDGET_LEDGERS,
            NODES,
            PODS,
            *kinds.resources,
        ),
        writes=(WRITE_WORKLOAD_STATUS, RECORD_EVENTS),
        workers=CONCURRENCY,
    )


def explainer() -> Component:
    """The component that writes why a Workload is pending."""
    return Component(
        "explainer",
        "Writes why a Workload is pending that the scheduler had no reason to evaluate.",
        lambda c: Explainer(c.engine, c.cluster, c.connection.writer, c.recorder(_SOURCE), c.clock),
        watches=(WORKLOADS,),
        writes=(WRITE_WORKLOAD_STATUS, RECORD_EVENTS),
    )


def _scheduler(context: Context) -> Scheduler:
    return Scheduler(
        context.engine,
        context.cluster,
        context.connection.writer,
        context.recorder(_SOURCE),
        context.clock,
        context.metrics,
        context.reservations,
    )
