"""The controller of one job kind as a component."""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.api.budgets import BUDGETS
from pykueue.api.jobkinds import JobKind
from pykueue.api.jobkinds.ray import RAY_CLUSTERS, RAY_JOB, RAY_SERVICE
from pykueue.api.resources import (
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.kinds import JobKinds
from pykueue.manager.jobs.context import JobContext
from pykueue.manager.jobs.controller import JobController
from pykueue.manager.rights import READ, Rule, allow, merged

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component, Context


def jobs(
    integration: JobIntegration,
    kinds: JobKinds,
    workers: int,
    controller: type[JobController] = JobController,
    name: str = "",
    purpose: str = "",
) -> Component:
    """`kinds` are all that are queued: a job may be part of a job of another kind."""
    kind = integration.kind

    def build(context: Context) -> JobController:
        of_kind = JobContext(
            integration,
            context.cluster,
            context.connection.writer,
            context.reservations,
            context.recorder(f"{kind.framework}-kueue-controller"),
            context.clock,
        )
        return controller(of_kind, context.workers)

    return Component(
        name or kind.framework,
        purpose or f"Makes the Workload of each {kind.resource.kind}, and starts and stops it as admitted.",
        build,
        watches=(
            *kinds.resources,
            WORKLOADS,
            RESOURCE_FLAVORS,
            WORKLOAD_PRIORITY_CLASSES,
            PRIORITY_CLASSES,
            NAMESPACES,
            BUDGETS,
            PODS,
            *((RAY_CLUSTERS,) if kind in (RAY_JOB, RAY_SERVICE) else ()),
        ),
        writes=(
            *_write_jobs(kind),
            owner_rule(kind),
            allow(WORKLOADS, "create", "patch", "delete"),
            WRITE_WORKLOAD_STATUS,
            RECORD_EVENTS,
        ),
        workers=workers,
    )


def kind_rights(kind: JobKind) -> list[Rule]:
    """What the manager does with objects of a job kind, and nothing else.

    It writes the status of those that run on worker clusters.
    """
    status = [allow(kind.resource, "patch", subresource="status")] if kind.managed_by is not None else []
    return merged([allow(kind.resource, *READ), *_write_jobs(kind), *status, owner_rule(kind)])


def _write_jobs(kind: JobKind) -> Iterator[Rule]:
    """To start and stop jobs of a kind."""
    yield allow(kind.resource, "patch")
    if kind.elastic:
        yield allow(PODS, "patch")  # the scheduling gates of their pods
    if kind.writes_status:
        yield allow(kind.resource, "patch", subresource="status")
    if kind.suspend is None:  # what cannot be suspended may have to be deleted
        yield allow(kind.resource, "delete")


def owner_rule(kind: JobKind) -> Rule:
    """Workloads name their jobs as owners that wait for their deletion.

    This right is needed where the admission plug-in OwnerReferencesPermissionEnforcement is on.
    """
    return allow(kind.resource, "update", subresource="finalizers")
