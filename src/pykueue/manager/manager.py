"""The manager: everything that turns jobs, queues and decisions into a running cluster.

It knows only a transport. Started anywhere, at any time, as often as one likes, it reads the cluster and goes
on from there: nothing it needs is kept anywhere but in the API.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from dataclasses import replace

from pykueue.api import unsupported
from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.jobs.pod import POD
from pykueue.kube.client import Client
from pykueue.kube.events import EventRecorder
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.transport import Transport

from .cluster import Cluster
from .configuration import Configuration
from .configuration.gates import GROUPS
from .connection import Connection
from .jobs.controller import JobController
from .metrics import Metrics
from .pods.controller import PodController, PodGroupController
from .pods.statefulsets import StatefulSetController
from .queues.controller import QueueController
from .scheduler.decision_log import DecisionLog
from .scheduler.engine_options import engine_options
from .scheduler.loop import Scheduler
from .scheduler.pending_reasons import Explainer
from .webhooks import Registration, webhooks
from .workloads import conditions
from .workloads.controller import WorkloadController
from .workloads.reservations import Reservations

#: Events written per second in the long run, and at once: people read them, a busy cluster drops the rest.
EVENT_RATE = 50.0
EVENT_BURST = 500

log = logging.getLogger(__name__)

#: Workers per controller where the configuration's groupKindConcurrency says nothing.
WORKERS = 8


def controllers(integration: JobIntegration) -> tuple[type[JobController], ...]:
    """The controllers of the jobs of a kind."""
    return (PodController, PodGroupController) if integration.kind is POD else (JobController,)


def without_effect(configuration: Configuration, kinds: JobKinds = BUILT_IN) -> Iterator[str]:
    """What a valid configuration asks for and this version does not do; a line for each.

    `kinds` are the job kinds that can be queued.
    """
    for index, name in enumerate(configuration.integrations.frameworks):
        if name not in kinds.frameworks:
            yield f"integrations.frameworks[{index}]: {name} is not queued by this version"
    for name, value in configuration.feature_gates.items():
        ignored = [gate for gate in GROUPS.get(name, [name]) if gate in unsupported.GATES]
        if ignored == [name]:
            yield f"featureGates.{name}: the behaviour of this gate is not part of this version"
        elif ignored and value:
            yield f"featureGates.{name}: the behaviour of {', '.join(ignored)} is not part of this version"
    if configuration.resources.device_class_mappings:
        yield "resources.deviceClassMappings: claims of devices are not counted by this version"
    if configuration.multi_kueue.cluster_profile is not None:
        yield "multiKueue.clusterProfile: no workload is sent to another cluster by this version"


class Manager:
    """All controllers and the scheduler against one API server."""

    def __init__(
        self,
        transport: Transport,
        configuration: Configuration,
        clock: Clock,
        rng: random.Random,
        kinds: JobKinds = BUILT_IN,
    ) -> None:
        self.configuration = configuration
        self._clock = clock
        limits = configuration.client_connection
        limiter = None
        if limits.qps is not None and limits.qps > 0:
            limiter = TokenBucket(clock, limits.qps, limits.burst or max(1, int(limits.qps)))
        self.connection = Connection(transport, clock, limiter)
        events = Client(transport, TokenBucket(clock, EVENT_RATE, EVENT_BURST), clock=clock)
        self._all_kinds = kinds
        self.kinds = kinds.enabled(configuration.integrations.frameworks, configuration.feature_gates)
        self.cluster = Cluster(self.connection, self.kinds, configuration)
        self.kinds = self.cluster.kinds
        writer = self.connection.writer
        options = engine_options(configuration)
        # No controller replaces the pods of an old slice by those of a new one yet.
        options = replace(options, unsupported=options.unsupported | {unsupported.ELASTIC_JOBS})
        self.engine = Engine(options)

        def recorder(component: str) -> EventRecorder:
            found = EventRecorder(events, clock, component, random.Random(rng.getrandbits(64)))
            self._recorders.append(found)
            return found

        self._recorders: list[EventRecorder] = []
        self.metrics = Metrics(self.cluster, self.engine, clock)
        DecisionLog(self.cluster.workloads, acts=lambda: self.metrics.role != "follower")
        admission, workloads = recorder("kueue-admission"), recorder("kueue-workload-controller")
        # The scheduler's handlers come first: controllers then act on what the engine knows already.
        reservations = Reservations(self.cluster)
        self.scheduler = Scheduler(
            self.engine, self.cluster, writer, admission, clock, self.metrics, reservations
        )
        self.explainer = Explainer(self.engine, self.cluster, writer, admission, clock)
        self.queues = QueueController(self.cluster, writer, clock, self.engine)
        self.scheduler.on_undone(self.queues.decision_undone)
        reservations.on_agreement(
            lambda workload: self.queues.decision_undone(conditions.cluster_queue(workload), workload)
        )
        self.workloads = WorkloadController(
            self.engine,
            self.cluster,
            writer,
            reservations,
            workloads,
            clock,
            random.Random(rng.getrandbits(64)),
            self._workers("Workload.kueue.x-k8s.io"),
        )
        self.jobs = [
            controller(
                integration,
                self.cluster,
                writer,
                reservations,
                recorder(f"{integration.kind.framework}-kueue-controller"),
                clock,
                self._workers(f"{integration.kind.resource.kind}.{integration.kind.resource.group}"),
            )
            for integration in self.kinds.jobs.values()
            for controller in controllers(integration)
        ]
        self.stateful_sets: StatefulSetController | None = None
        if self.cluster.stateful_sets is not None:
            self.stateful_sets = StatefulSetController(
                self.cluster.stateful_sets,
                self.cluster,
                writer,
                recorder("statefulset-kueue-controller"),
                clock,
                self._workers("StatefulSet.apps"),
            )

    def _workers(self, group_kind: str) -> int:
        return self.configuration.controller.group_kind_concurrency.get(group_kind, WORKERS)

    def webhooks(self) -> list[Registration]:
        """Its admission rules, answering from its caches."""
        return webhooks(self.configuration, self.cluster, self.kinds)

    def unused_paths(self) -> set[str]:
        """Where the API server asks about kinds that are not queued here, if its webhooks are older."""
        found = webhooks(self.configuration, self.cluster, self._all_kinds)
        return {one.path for one in found} - {one.path for one in self.webhooks()}

    async def synced(self) -> None:
        """Wait until the whole cluster has been read once."""
        await self.connection.synced()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.run_caches())
            tasks.create_task(self.run_leader())

    async def run_caches(self) -> None:
        """Know the cluster, as every replica does: admission rules and metrics answer from the caches."""
        for text in without_effect(self.configuration, self._all_kinds):
            log.warning("configuration: %s", text)
        await self.connection.run()

    async def run_leader(self) -> None:
        """Decide and write, as one replica at a time does."""
        self.metrics.role = "leader" if self.configuration.leader_election.leader_elect else "standalone"
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.scheduler.run())
            tasks.create_task(self.explainer.run())
            tasks.create_task(self.queues.run())
            tasks.create_task(self.workloads.run())
            for controller in self.jobs:
                tasks.create_task(controller.run())
            if self.stateful_sets is not None:
                tasks.create_task(self.stateful_sets.run())
            for recorder in self._recorders:
                tasks.create_task(recorder.run())
