"""The controllers of pods, pod groups, StatefulSets and LeaderWorkerSets as components."""

from __future__ import annotations

from collections.abc import Iterator

from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.resources import (
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    STATEFUL_SETS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.pod_owners import STATEFUL_SET
from pykueue.manager.pods.controller import PodController, PodGroupController
from pykueue.manager.pods.leaderworkersets import LeaderWorkerSetController
from pykueue.manager.pods.statefulsets import StatefulSetController
from pykueue.manager.rights import allow

from .component import RECORD_EVENTS, WRITE_WORKLOAD_STATUS, Component, Context
from .jobs import jobs, owner_rule


def pods(integration: JobIntegration, kinds: JobKinds, workers: int) -> Iterator[Component]:
    """Two controllers of one kind: pods on their own, and groups of pods."""
    purpose = "Makes the Workload of each pod that is in no group; removes its gate, or deletes it."
    yield jobs(integration, kinds, workers, PodController, "pod", purpose)
    purpose = "The same for pod groups, which have one Workload for all of their pods."
    yield jobs(integration, kinds, workers, PodGroupController, "pod-group", purpose)


def stateful_sets(workers: int) -> Component:
    return Component(
        STATEFUL_SET.framework,
        "Makes the Workload of each StatefulSet, and its pods a group.",
        _stateful_sets,
        watches=(
            STATEFUL_SETS,
            PODS,
            WORKLOADS,
            WORKLOAD_PRIORITY_CLASSES,
            PRIORITY_CLASSES,
            NAMESPACES,
        ),
        writes=(
            allow(PODS, "patch"),
            owner_rule(STATEFUL_SET),
            allow(WORKLOADS, "create", "patch"),
            WRITE_WORKLOAD_STATUS,
            RECORD_EVENTS,
        ),
        workers=workers,
    )


def leader_worker_sets(workers: int) -> Component:
    return Component(
        LEADER_WORKER_SET.framework,
        "Makes a Workload for each group of a LeaderWorkerSet, and the group's pods its members.",
        _leader_worker_sets,
        watches=(
            LEADER_WORKER_SET.resource,
            PODS,
            WORKLOADS,
            WORKLOAD_PRIORITY_CLASSES,
            PRIORITY_CLASSES,
            NAMESPACES,
        ),
        writes=(
            allow(PODS, "patch"),
            owner_rule(LEADER_WORKER_SET),
            allow(WORKLOADS, "create", "patch", "delete"),
            RECORD_EVENTS,
        ),
        workers=workers,
    )


def _leader_worker_sets(context: Context) -> LeaderWorkerSetController:
    sets = context.cluster.leader_worker_sets
    assert sets is not None, "the kind is enabled"
    return LeaderWorkerSetController(
        sets,
        context.cluster,
        context.connection.writer,
        context.recorder("leaderworkerset-kueue-controller"),
        context.clock,
        context.workers,
    )


def _stateful_sets(context: Context) -> StatefulSetController:
    sets = context.cluster.stateful_sets
    assert sets is not None, "the kind is enabled"
    return StatefulSetController(
        sets,
        context.cluster,
        context.connection.writer,
        context.recorder("statefulset-kueue-controller"),
        context.clock,
        context.workers,
    )
