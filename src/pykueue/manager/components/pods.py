"""The controllers of pods, pod groups, StatefulSets and LeaderWorkerSets as components."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pykueue.api.jobkinds import LEADER_WORKER_SET, JobKind
from pykueue.api.resources import (
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.pod_owners import STATEFUL_SET
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster
from pykueue.manager.pods.controller import PodController, PodGroupController
from pykueue.manager.pods.leaderworkersets import LeaderWorkerSetController
from pykueue.manager.pods.recovery import FailureRecovery
from pykueue.manager.pods.sets import SetController
from pykueue.manager.pods.statefulsets import StatefulSetController
from pykueue.manager.rights import Rule, allow

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component, Context
from .jobs import jobs, owner_rule


def pods(integration: JobIntegration, kinds: JobKinds, workers: int) -> Iterator[Component]:
    """Two controllers of one kind: pods on their own, and groups of pods."""
    purpose = "Makes the Workload of each pod that is in no group; removes its gate, or deletes it."
    yield jobs(integration, kinds, workers, PodController, "pod", purpose)
    purpose = "The same for pod groups, which have one Workload for all of their pods."
    yield jobs(integration, kinds, workers, PodGroupController, "pod-group", purpose)


def failure_recovery(workers: int) -> Component:
    """The component that deletes pods of unreachable nodes, with `workers` concurrent reconciles."""
    return Component(
        "failure-recovery",
        "Deletes pods that do not end because their node is unreachable, where their annotation allows it.",
        lambda c: FailureRecovery(c.connection, c.recorder("kueue-failure-recovery"), c.clock, c.workers),
        watches=(PODS, NODES),
        writes=(allow(PODS, "delete"), allow(PODS, "patch", subresource="status"), RECORD_EVENTS),
        workers=workers,
    )


def stateful_sets(workers: int) -> Component:
    """The component for StatefulSets, with `workers` concurrent reconciles."""
    purpose = "Makes the Workload of each StatefulSet, and its pods a group."
    writes = (allow(WORKLOADS, "create", "patch"), WRITE_WORKLOAD_STATUS)
    return _sets(
        STATEFUL_SET, purpose, StatefulSetController, lambda cluster: cluster.stateful_sets, writes, workers
    )


def leader_worker_sets(workers: int) -> Component:
    """The component for LeaderWorkerSets, with `workers` concurrent reconciles."""
    purpose = "Makes a Workload for each group of a LeaderWorkerSet, and the group's pods its members."
    writes = (allow(WORKLOADS, "create", "patch", "delete"),)
    return _sets(
        LEADER_WORKER_SET,
        purpose,
        LeaderWorkerSetController,
        lambda cluster: cluster.leader_worker_sets,
        writes,
        workers,
    )


def _sets(
    kind: JobKind,
    purpose: str,
    controller: type[SetController],
    informer: Callable[[Cluster], Informer | None],
    writes: tuple[Rule, ...],
    workers: int,
) -> Component:
    """The controller of one kind of sets; `writes` is what it does to Workloads."""

    def build(context: Context) -> SetController:
        sets = informer(context.cluster)
        assert sets is not None, "the kind is enabled"
        return controller(
            sets,
            context.cluster,
            context.connection.writer,
            context.recorder(f"{kind.resource.kind.lower()}-kueue-controller"),
            context.clock,
            context.workers,
        )

    return Component(
        kind.framework,
        purpose,
        build,
        watches=(
            kind.resource,
            PODS,
            WORKLOADS,
            WORKLOAD_PRIORITY_CLASSES,
            PRIORITY_CLASSES,
            NAMESPACES,
        ),
        writes=(allow(PODS, "patch"), owner_rule(kind), *writes, RECORD_EVENTS),
        workers=workers,
    )
