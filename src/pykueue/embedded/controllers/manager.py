"""All built-in controllers of the embedded cluster, as one component."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple, Protocol

from pykueue.api.resources import (
    AUTOSCALERS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
)
from pykueue.clock import Clock
from pykueue.embedded.controllers.apps.autoscaling import AutoscalerController
from pykueue.embedded.controllers.apps.deployments import DeploymentController
from pykueue.embedded.controllers.apps.replicasets import ReplicaSetController
from pykueue.embedded.controllers.apps.statefulsets import StatefulSetController
from pykueue.embedded.controllers.claims import ClaimController
from pykueue.embedded.controllers.cronjobs import CronJobController
from pykueue.embedded.controllers.garbage import GarbageCollector
from pykueue.embedded.controllers.inventory import Inventory
from pykueue.embedded.controllers.jobs.controller import JobController
from pykueue.embedded.controllers.jobset.controller import JobSetController
from pykueue.embedded.controllers.jobset.placement import PlacementController
from pykueue.embedded.controllers.namespaces import NamespaceController
from pykueue.embedded.controllers.nodelife import node_controllers
from pykueue.embedded.controllers.quota import QuotaController
from pykueue.embedded.controllers.ttl import TtlController
from pykueue.kube.client import Client
from pykueue.kube.delay import DelayedTransport
from pykueue.kube.events import EventRecorder
from pykueue.kube.informer import InformerFactory
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.transport import Transport


class Pace(NamedTuple):
    """How fast the Job controller may go: all its requests, for all Jobs and events, share one limit."""

    #: Requests per second in the long run, and at once after a pause.
    qps: float
    burst: int
    #: Seconds a request takes, at least and at most.
    request_time: tuple[float, float]


#: As on a cluster. Which pods of Jobs that start close together come first depends on it
#: (docs/reference/cluster-workloads.md, 1.1 and 5.2, row W7d).
CLUSTER_PACE = Pace(20.0, 30, (0.005, 0.020))


class Component(Protocol):
    """Something that works until cancelled."""

    async def run(self) -> None:
        """Work until cancelled."""


class Controllers:
    """Runs the Job controller, the garbage collector, the namespace controller and their like.

    `pace` None lifts the Job controller's request limit: right for throughput, wrong for scenarios that
    depend on how pods of several Jobs interleave. `job_sets` is False where a real JobSet controller runs.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        rng: random.Random,
        *,
        pace: Pace | None = CLUSTER_PACE,
        job_sets: bool = True,
    ) -> None:
        client = Client(transport, clock=clock, page_size=None)
        #: The watch caches of all of them.
        self.informers = informers = InformerFactory(client, clock=clock)
        inventory = Inventory(client, informers, clock)

        def recorder(component: str, through: Client) -> EventRecorder:
            return EventRecorder(through, clock, component, random.Random(rng.random()))

        job_client = client
        if pace is not None:
            slow = DelayedTransport(transport, clock, random.Random(rng.random()), *pace.request_time)
            limiter = TokenBucket(clock, pace.qps, pace.burst)
            job_client = Client(slow, limiter, clock=clock, page_size=None)
        jobs, pods = informers.informer(JOBS), informers.informer(PODS)
        garbage_events = recorder("garbage-collector-controller", client)
        job_events = recorder("job-controller", job_client)
        claim_events = recorder("resource_claim", client)
        cron_events = recorder("cronjob-controller", client)
        core: tuple[Component, ...] = (
            informers,
            inventory,
            garbage_events,
            GarbageCollector(client, inventory, garbage_events, clock),
            NamespaceController(client, informers.informer(NAMESPACES), inventory, clock),
            job_events,
            JobController(job_client, jobs, pods, job_events, clock, random.Random(rng.random())),
            TtlController(client, jobs, clock),
            QuotaController(client, informers.informer(RESOURCE_QUOTAS), pods, inventory, clock),
            cron_events,
            CronJobController(client, informers.informer(CRON_JOBS), jobs, cron_events, clock),
            claim_events,
            ClaimController(client, pods, informers.informer(RESOURCE_CLAIMS), claim_events, clock),
        )
        set_events = recorder("jobset", client)
        replica_sets = informers.informer(REPLICA_SETS)
        deployments = informers.informer(DEPLOYMENTS)
        stateful_sets = informers.informer(STATEFUL_SETS)
        revisions = informers.informer(CONTROLLER_REVISIONS)
        events = {
            name: recorder(f"{name}-controller", client)
            for name in ("replicaset", "deployment", "statefulset", "autoscaler")
        }
        serving: tuple[Component, ...] = (
            *events.values(),
            ReplicaSetController(client, replica_sets, pods, events["replicaset"], clock),
            DeploymentController(client, deployments, replica_sets, pods, events["deployment"], clock),
            StatefulSetController(client, stateful_sets, revisions, pods, events["statefulset"], clock),
            AutoscalerController(client, informers.informer(AUTOSCALERS), events["autoscaler"], clock),
        )
        jobset: tuple[Component, ...] = (
            set_events,
            JobSetController(
                client,
                informers.informer(JOB_SETS, optional=True),
                jobs,
                informers.informer(SERVICES),
                informers.informer(PERSISTENT_VOLUME_CLAIMS),
                set_events,
                clock,
            ),
            PlacementController(client, pods, clock),
        )
        self._components: tuple[Component, ...] = (
            *core,
            *serving,
            *(jobset if job_sets else ()),
            *node_controllers(client, informers, inventory, lambda name: recorder(name, client), clock),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for component in self._components:
                group.create_task(component.run())
