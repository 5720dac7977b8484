"""The components of a manager: one list, from which its role and its documentation follow too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pykueue.api.backfill_policies import BACKFILL_POLICIES
from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.jobkinds.ray import RAY_SERVICE
from pykueue.api.preemption_policies import PREEMPTION_POLICIES
from pykueue.api.reservations import RESERVATIONS
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    CRDS,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from pykueue.jobs.kinds import JobKinds
from pykueue.jobs.pod import POD
from pykueue.jobs.pod_owners import STATEFUL_SET
from pykueue.manager.ancestors import external_resources
from pykueue.manager.configuration import Configuration
from pykueue.manager.jobs.controller import JobController
from pykueue.manager.jobs.rayservices import RayServiceController

from .backfill import advance_reservations, backfill_policies
from .budgets import budgets
from .checks import provisioning
from .component import Component
from .jobkinds import job_kinds
from .jobs import jobs
from .multikueue import multikueue
from .pods import failure_recovery, leader_worker_sets, pods, stateful_sets
from .preemptions import preemption_policies
from .queues import queues
from .scheduler import explainer, scheduler
from .topology import node_failures, ungater
from .variants import variants
from .workloads import workloads

#: Workers of a controller where the configuration's groupKindConcurrency says nothing.
WORKERS = 8


def components(configuration: Configuration, kinds: JobKinds) -> Iterator[Component]:
    """All components; `kinds` are those job kinds that the configuration enables."""

    def workers(group_kind: str) -> int:
        return configuration.controller.group_kind_concurrency.get(group_kind, WORKERS)

    external = external_resources(configuration.integrations.external_frameworks)
    yield caches((*kinds.resources, *external))
    yield scheduler(kinds)
    yield explainer()
    yield queues()
    yield preemption_policies()
    yield backfill_policies()
    yield advance_reservations()
    yield budgets()
    yield workloads(kinds, workers("Workload.kueue.x-k8s.io"))
    yield variants(workers("Workload.kueue.x-k8s.io"))
    yield provisioning(workers("ProvisioningRequest.autoscaling.x-k8s.io"))
    if configuration.gates["TopologyAwareScheduling"]:
        yield ungater(workers("Workload.kueue.x-k8s.io"))
        if configuration.gates["TASFailedNodeReplacement"]:
            yield node_failures(workers("Node"))
    if configuration.gates["FailureRecoveryPolicy"]:
        yield failure_recovery(workers("Pod"))
    if configuration.gates["MultiKueue"]:
        yield multikueue(kinds, workers("Workload.kueue.x-k8s.io"), configuration)
    yield job_kinds(configuration.integrations.job_kind_files)
    for integration in kinds.jobs.values():
        group, kind = integration.kind.resource.group_kind
        of_kind = workers(f"{kind}.{group}")
        if integration.kind is POD:
            yield from pods(integration, kinds, of_kind)
        else:
            controller = RayServiceController if integration.kind is RAY_SERVICE else JobController
            yield jobs(integration, kinds, of_kind, controller)
    if STATEFUL_SET.framework in kinds.pod_owners:
        yield stateful_sets(workers("StatefulSet.apps"))
    if LEADER_WORKER_SET.framework in kinds.pod_owners:
        group, kind = LEADER_WORKER_SET.resource.group_kind
        yield leader_worker_sets(workers(f"{kind}.{group}"))


def workers_of(configuration: Configuration, resource: Resource) -> int:
    """Reconciliations at a time of the controller of a kind."""
    name = f"{resource.kind}.{resource.group}"
    return configuration.controller.group_kind_concurrency.get(name, WORKERS)


def caches(jobs: Iterable[Resource]) -> Component:
    """What `Cluster` watches, for all others; `jobs` are the kinds of jobs and of what they refer to."""
    return Component(
        "caches",
        "Keeps the watch caches that all components, admission rules and metrics read.",
        lambda context: context.connection,
        watches=(
            WORKLOADS,
            LOCAL_QUEUES,
            CLUSTER_QUEUES,
            COHORTS,
            RESOURCE_FLAVORS,
            ADMISSION_CHECKS,
            TOPOLOGIES,
            WORKLOAD_PRIORITY_CLASSES,
            PRIORITY_CLASSES,
            NAMESPACES,
            LIMIT_RANGES,
            RUNTIME_CLASSES,
            PREEMPTION_POLICIES,
            BACKFILL_POLICIES,
            RESERVATIONS,
            PODS,
            NODES,  # once a flavor refers to a Topology
            CRDS,  # whether what is optional is served
            *jobs,
        ),
        needs_leader=False,
    )
