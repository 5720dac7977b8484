"""The manager: everything that turns jobs, queues and decisions into a running cluster.

It knows only a transport. Started anywhere, at any time, as often as one likes, it reads the cluster and goes
on from there: nothing it needs is kept anywhere but in the API.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

from pykueue.clock import Clock
from pykueue.engine import Engine
from pykueue.jobs.base import JobIntegration, Registry
from pykueue.jobs.job import BatchJob
from pykueue.jobs.jobset import JobSet
from pykueue.jobs.pod import PlainPod
from pykueue.kube.client import Client
from pykueue.kube.events import EventRecorder
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.transport import Transport

from .cluster import Cluster
from .configuration import Configuration
from .engine_options import engine_options
from .explaining import Explainer
from .jobs_controller import JobController
from .metrics import Metrics
from .pods_controller import PodController, PodGroupController
from .queues_controller import QueueController
from .scheduler import Scheduler
from .statefulsets_controller import StatefulSetController
from .webhooks import Registration, webhooks
from .workloads_controller import WorkloadController
from .writes import Writer

#: Job kinds that are built in, by their name in `integrations.frameworks`.
INTEGRATIONS: dict[str, type[JobIntegration]] = {each.name: each for each in (BatchJob, JobSet, PlainPod)}
#: Kinds that queue through their pods, by the same names.
SERVING = ("deployment", "statefulset")
#: All that can be queued here.
QUEUED = (*INTEGRATIONS, *SERVING)

#: Events written per second in the long run, and at once: people read them, a busy cluster drops the rest.
EVENT_RATE = 50.0
EVENT_BURST = 500

#: Workers per controller where the configuration's groupKindConcurrency says nothing.
WORKERS = 8


def registry(configuration: Configuration) -> Registry:
    """The integrations that the configuration switches on."""
    names = dict.fromkeys(configuration.integrations.frameworks)
    if not names.keys().isdisjoint(SERVING):
        names[PlainPod.name] = None
    return Registry(INTEGRATIONS[name]() for name in names if name in INTEGRATIONS)


def controllers(integration: JobIntegration) -> tuple[type[JobController], ...]:
    """What looks after the jobs of a kind."""
    return (PodController, PodGroupController) if integration.name == PlainPod.name else (JobController,)


class Manager:
    """All controllers and the scheduler against one API server."""

    def __init__(
        self, transport: Transport, configuration: Configuration, clock: Clock, rng: random.Random
    ) -> None:
        self.configuration = configuration
        self._clock = clock
        limits = configuration.client_connection
        limiter = None
        if limits.qps is not None and limits.qps > 0:
            limiter = TokenBucket(clock, limits.qps, limits.burst or max(1, int(limits.qps)))
        client = Client(transport, limiter, clock=clock)
        events = Client(transport, TokenBucket(clock, EVENT_RATE, EVENT_BURST), clock=clock)
        self.registry = registry(configuration)
        self.cluster = Cluster(client, clock, self.registry, configuration)
        writer = Writer(client)
        self.engine = Engine(engine_options(configuration))

        def recorder(component: str) -> EventRecorder:
            found = EventRecorder(events, clock, component, random.Random(rng.getrandbits(64)))
            self._recorders.append(found)
            return found

        self._recorders: list[EventRecorder] = []
        self.metrics = Metrics(self.cluster, self.engine, clock)
        admission, workloads = recorder("kueue-admission"), recorder("kueue-workload-controller")
        # The scheduler's handlers come first: controllers then act on what the engine knows already.
        self.scheduler = Scheduler(self.engine, self.cluster, writer, admission, clock, self.metrics)
        self.explainer = Explainer(self.engine, self.cluster, writer, clock)
        self.queues = QueueController(self.cluster, writer, clock, self.engine)
        self.scheduler.on_undone(self.queues.decision_undone)
        self.workloads = WorkloadController(
            self.cluster,
            writer,
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
                recorder(f"{integration.name}-kueue-controller"),
                clock,
                self._workers(f"{integration.resource.kind}.{integration.resource.group}"),
            )
            for integration in self.registry
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
        return webhooks(self.configuration, self.cluster, self.registry)

    def unused_paths(self) -> set[str]:
        """Where the API server asks about kinds that are not queued here, if its webhooks are older."""
        integrations = replace(self.configuration.integrations, frameworks=QUEUED)
        everything = replace(self.configuration, integrations=integrations)
        found = webhooks(everything, self.cluster, registry(everything))
        return {one.path for one in found} - {one.path for one in self.webhooks()}

    async def synced(self) -> None:
        """Wait until the whole cluster has been read once."""
        await self.cluster.synced()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.follow())
            tasks.create_task(self.lead())

    async def follow(self) -> None:
        """Know the cluster, as every replica does: admission rules and metrics answer from the caches."""
        await self.cluster.run()

    async def lead(self) -> None:
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
