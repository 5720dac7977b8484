"""MultiKueue as a component."""

from __future__ import annotations

from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    SECRETS,
    WORKLOADS,
)
from pykueue.jobs.kinds import JobKinds
from pykueue.manager.ancestors import dispatched_externals
from pykueue.manager.configuration import Configuration
from pykueue.manager.multikueue import MultiKueue
from pykueue.manager.multikueue.remote import dispatched_kinds, is_dispatched
from pykueue.manager.multikueue.sources import CLUSTER_PROFILES
from pykueue.manager.rights import allow

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component, Context

_PROFILES = "MultiKueueClusterProfile"
_WRITE_QUOTA = (allow(CLUSTER_QUEUES, "patch"), allow(CLUSTER_QUEUES, "patch", subresource="status"))


def multikueue(kinds: JobKinds, workers: int, configuration: Configuration) -> Component:
    """The component for a manager with these job kinds."""
    automates_quota = configuration.gates["MultiKueueManagerQuotaAutomation"]
    jobs = [each.kind.resource for each in kinds.jobs.values() if is_dispatched(each)]
    external = dispatched_externals(configuration)
    others = [kind.resource for kind in dispatched_kinds(kinds, configuration) if kind.resource not in jobs]
    return Component(
        "multikueue",
        "Connects to worker clusters, dispatches Workloads and jobs to them, and brings their status back.",
        _build,
        watches=(
            ADMISSION_CHECKS,
            CLUSTER_QUEUES,
            MULTIKUEUE_CLUSTERS,
            MULTIKUEUE_CONFIGS,
            WORKLOADS,
            *(each.kind.resource for each in kinds.jobs.values()),
            *others,
            *((LOCAL_QUEUES,) if automates_quota else ()),
        ),
        own_namespace=(SECRETS, *((CLUSTER_PROFILES,) if configuration.gates[_PROFILES] else ())),
        writes=(
            allow(ADMISSION_CHECKS, "patch", subresource="status"),
            allow(MULTIKUEUE_CLUSTERS, "patch", subresource="status"),
            *(allow(resource, "patch", subresource="status") for resource in (*jobs, *external)),
            WRITE_WORKLOAD_STATUS,
            RECORD_EVENTS,
            *(_WRITE_QUOTA if automates_quota else ()),
        ),
        workers=workers,
    )


def _build(context: Context) -> MultiKueue:
    return MultiKueue(
        context.cluster,
        context.recorder("kueue-multikueue"),
        context.clock,
        context.metrics.observer,
        context.connect,
        context.reservations,
        context.workers,
    )
