"""The manager: everything that turns jobs, queues and decisions into a running cluster.

It knows only a transport. Started anywhere, at any time, as often as one likes, it reads the cluster and goes
on from there: nothing it needs is kept anywhere but in the API.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from pykueue.api import unsupported
from pykueue.api.objects import Object
from pykueue.clock import Clock
from pykueue.engine import Engine, decision_log
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.kube.client import Client
from pykueue.kube.events import EventRecorder
from pykueue.kube.limiter import TokenBucket
from pykueue.kube.transport import Transport

from .cluster import Cluster
from .components import Component, Context, Runnable
from .components.builtin import components as builtin
from .components.builtin import workers_of
from .components.jobs import jobs
from .configuration import Configuration
from .configuration.gates import GROUPS
from .connection import Connection
from .jobs.controller import JobController
from .metrics import Metrics
from .multikueue.kubeconfig import connect as connect_over_http
from .multikueue.remote import Connect
from .scheduler.decision_log import DecisionLog
from .scheduler.engine_options import engine_options
from .webhooks import JobAdvice, Registration, webhooks
from .workloads.reservations import Reservations

#: Events written per second in the long run, and at once: people read them, a busy cluster drops the rest.
EVENT_RATE = 50.0
EVENT_BURST = 500

log = logging.getLogger(__name__)


def without_effect(configuration: Configuration, kinds: JobKinds = BUILT_IN) -> Iterator[str]:
    """What a valid configuration asks for and this version does not do; a line for each.

    `kinds` are the job kinds that can be queued.
    """
    gates = {kind.framework: kind.gate for kind in kinds if kind.gate}
    for index, name in enumerate(configuration.integrations.frameworks):
        if name not in kinds.frameworks:
            yield f"integrations.frameworks[{index}]: {name} is not queued by this version"
        elif not configuration.feature_gates.get(gates.get(name, ""), True):
            yield f"integrations.frameworks[{index}]: {name} is switched off by featureGates.{gates[name]}"
    for name, value in configuration.feature_gates.items():
        ignored = [gate for gate in GROUPS.get(name, [name]) if gate in unsupported.GATES]
        if ignored == [name]:
            yield f"featureGates.{name}: the behaviour of this gate is not part of this version"
        elif ignored and value:
            yield f"featureGates.{name}: the behaviour of {', '.join(ignored)} is not part of this version"


class Manager:
    """All components against one API server.

    `connect` opens connections to worker clusters. `components` are what it is made of; None: those that the
    configuration and `kinds` lead to. `running` has what each of them built, by name.
    """

    def __init__(
        self,
        transport: Transport,
        configuration: Configuration,
        clock: Clock,
        rng: random.Random,
        kinds: JobKinds = BUILT_IN,
        components: Iterable[Component] | None = None,
        connect: Connect = connect_over_http,
    ) -> None:
        self.configuration = configuration
        self._clock = clock
        self._rng = rng
        limits = configuration.client_connection
        limiter = None
        if limits.qps is not None and limits.qps > 0:
            limiter = TokenBucket(clock, limits.qps, limits.burst or max(1, int(limits.qps)))
        self.connection = Connection(transport, clock, limiter)
        self._events = Client(transport, TokenBucket(clock, EVENT_RATE, EVENT_BURST), clock=clock)
        self._all_kinds = kinds
        self.kinds = kinds.enabled(configuration.integrations.frameworks, configuration.feature_gates)
        self.cluster = Cluster(self.connection, self.kinds, configuration)
        self.kinds = self.cluster.kinds
        options = engine_options(configuration)
        self.engine = Engine(options, decision_log.DecisionLog())
        self.metrics = Metrics(self.cluster, self.engine, clock)
        DecisionLog(self.cluster.workloads, acts=lambda: self.metrics.role != "follower")
        self._every_replica = _Tasks()
        self._leader = _Tasks()
        self._recorders: dict[tuple[_Tasks, str], EventRecorder] = {}
        self._context = Context(
            self.connection,
            self.cluster,
            self.engine,
            Reservations(self.cluster),
            self.metrics,
            clock,
            partial(self._recorder, self._leader),
            self._fork,
            connect=connect,
            host=self,
        )
        #: What the authors of jobs should know in a dry run, where something above can say it.
        self.advice: JobAdvice | None = None
        self._components: dict[str, Component] = {}
        self.running: dict[str, Runnable] = {}
        for component in builtin(configuration, self.kinds) if components is None else components:
            self.add(component)

    def _fork(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    def _recorder(self, tasks: _Tasks, source: str) -> EventRecorder:
        """One recorder for all that runs together and shares a source."""
        found = self._recorders.get((tasks, source))
        if found is None:
            found = EventRecorder(self._events, self._clock, source, self._fork())
            self._recorders[tasks, source] = found
            tasks.add(found)
        return found

    def now(self) -> float:
        """The time, in seconds since 1970."""
        return self._clock.time()

    @property
    def components(self) -> Sequence[Component]:
        """What it is made of."""
        return list(self._components.values())

    def add(self, component: Component) -> None:
        """Build a component and, where the manager runs already, start it.

        Raises ValueError when there is one of the same name, or when it adds a watch cache that it does not
        declare: the role of the manager would not cover it.
        """
        if component.name in self._components:
            raise ValueError(f"component {component.name}: there is another one of this name")
        before = self.connection.resources
        tasks = self._leader if component.needs_leader else self._every_replica
        recorder = partial(self._recorder, tasks)
        built = component.build(replace(self._context, workers=component.workers, recorder=recorder))
        undeclared = self.connection.resources - before - set(component.watches)
        if undeclared:
            names = ", ".join(sorted(resource.plural for resource in undeclared))
            raise ValueError(f"component {component.name}: watches {names}, which it does not declare")
        self._components[component.name] = component
        self.running[component.name] = built
        tasks.add(built)

    async def remove(self, name: str) -> None:
        """Stop a component, and drop what it built; its watch caches stay."""
        self._components.pop(name)
        built = self.running.pop(name)
        await self._leader.remove(built)
        await self._every_replica.remove(built)
        if isinstance(built, JobController):
            built.close()

    def start_kind(self, job: JobIntegration) -> None:
        """Queue jobs of a kind that the cluster has been told of (`Cluster.add_kind`)."""
        self.add(jobs(job, self.kinds, workers_of(self.configuration, job.kind.resource)))

    async def stop_kind(self, job: JobIntegration) -> None:
        """Queue jobs of a kind no longer."""
        await self.remove(job.kind.framework)

    def webhooks(self) -> list[Registration]:
        """Its admission rules, answering from its caches."""
        return webhooks(self.configuration, self.cluster, self.kinds, self._advise)

    async def _advise(self, integration: JobIntegration, job: Object) -> Sequence[str]:
        return () if self.advice is None else await self.advice(integration, job)

    def unused_paths(self) -> set[str]:
        """Where the API server asks about kinds that are not queued here, if its webhooks are older."""
        found = webhooks(self.configuration, self.cluster, self._all_kinds)
        return {one.path for one in found} - {one.path for one in self.webhooks()}

    async def synced(self) -> None:
        """Wait until the whole cluster has been read once."""
        await self.cluster.synced()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.run_caches())
            tasks.create_task(self.run_leader())

    async def run_caches(self) -> None:
        """Know the cluster, as every replica does: admission rules and metrics answer from the caches."""
        for text in without_effect(self.configuration, self._all_kinds):
            log.warning("configuration: %s", text)
        await self._every_replica.run()

    async def run_leader(self) -> None:
        """Decide and write, as one replica at a time does."""
        self.metrics.role = "leader" if self.configuration.leader_election.leader_elect else "standalone"
        await self._leader.run()


class _Tasks:
    """What runs together, also what is added while the others run."""

    def __init__(self) -> None:
        self._runnables: list[Runnable] = []
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def add(self, runnable: Runnable) -> None:
        self._runnables.append(runnable)
        if self._group is not None:
            self._start(self._group, runnable)

    def _start(self, group: asyncio.TaskGroup, runnable: Runnable) -> None:
        self._tasks[id(runnable)] = group.create_task(runnable.run())

    async def remove(self, runnable: Runnable) -> None:
        """Run it no longer, if it is one of these."""
        self._runnables = [one for one in self._runnables if one is not runnable]
        task = self._tasks.pop(id(runnable), None)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def run(self) -> None:
        """Work until cancelled, or until one of them fails."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for runnable in self._runnables:
                    self._start(group, runnable)
        finally:
            self._group = None
            self._tasks.clear()
