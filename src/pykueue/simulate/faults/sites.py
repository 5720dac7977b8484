"""One cluster of several in a run: an API server over a store that can be restored, its manager, its jobs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any

from pykueue.api.objects import Object, controller_of
from pykueue.api.resources import CRDS, JOBS, PODS, WORKLOADS, Resource
from pykueue.clock import VIRTUAL_EPOCH, Clock
from pykueue.cluster import webhook_of
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.nodes.pool import NodePool, Simulation
from pykueue.embedded.store.memory import MemoryStore
from pykueue.embedded.store.records import Record
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.client import Client
from pykueue.kube.http import REQUEST_TIMEOUT
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.components import Component
from pykueue.manager.configuration import Configuration
from pykueue.manager.manager import Manager
from pykueue.manager.multikueue.remote import Connect

from .jobrunner import JobRunner
from .realpods import RealPods
from .stage import copied, fail_webhooks, objects_of, open_server
from .trace import Trace
from .transport import NO_FAULTS, FaultyTransport, Rates

#: A stored write of a job or Workload: before and after.
Stored = Callable[[Object | None, Object | None], None]


class Line:
    """The network between two clusters, which can be cut or hang."""

    def __init__(self) -> None:
        self.is_cut = False
        self.hangs = False
        #: Seconds that each request takes.
        self.latency = 0.0
        #: Method and end of the path of a request after which the line is cut, before the answer.
        self.cut_after = ("", "")
        self._cut = asyncio.Event()

    def cut(self) -> None:
        """Break all watches; every request fails until `restore`."""
        self.is_cut = True
        self._cut.set()

    def hang(self) -> None:
        """Answer no request any more; watches stay silent."""
        self.hangs = True

    def restore(self) -> None:
        """Let requests through again after `cut`."""
        self.is_cut = False
        self._cut = asyncio.Event()

    def transport(self, inner: Transport) -> Transport:
        """A transport over this line."""
        return _LineTransport(self, inner)


class _LineTransport:
    def __init__(self, line: Line, inner: Transport) -> None:
        self._line = line
        self._inner = inner

    async def call(self, request: Request) -> Any:
        self._refuse_cut()
        if self._line.hangs:
            await asyncio.sleep(REQUEST_TIMEOUT)
            raise TimeoutError
        if self._line.latency:
            await asyncio.sleep(self._line.latency)
        answer = await self._inner.call(request)
        method, end = self._line.cut_after
        if request.method == method and request.path.endswith(end):
            self._line.cut()
        self._refuse_cut()
        return answer

    def _refuse_cut(self) -> None:
        if self._line.is_cut:
            raise ConnectionError("the line is cut")

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        self._refuse_cut()
        over = asyncio.ensure_future(self._line._cut.wait())
        try:
            async with aclosing(self._inner.watch(request)) as events:
                while True:
                    following = asyncio.ensure_future(anext(events, None))
                    try:
                        await asyncio.wait([following, over], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        if not following.done():
                            following.cancel()
                            await asyncio.gather(following, return_exceptions=True)
                        elif not following.cancelled():
                            following.exception()  # it may have failed at the same moment
                    if over.done():
                        raise ConnectionError("the line was cut")
                    event = following.result()
                    if event is None:
                        return
                    yield event
        finally:
            over.cancel()

    async def close(self) -> None:
        await self._inner.close()


#: Where pods run, if there are pods.
_NODES = [
    NodePool(
        name="node",
        allocatable={"cpu": "200", "memory": "200Gi", "pods": "200"},
        simulation=Simulation(run_time="1s-20s", ready_delay="0s-2s", stop_delay="0s-3s", failure_rate=0.02),
    )
]


class _Garbage(JobRunner):
    """Collects the Workloads of deleted Jobs; their pods run elsewhere."""

    def job_stored(self, resource: Any, before: Object | None, after: Object | None) -> None:
        if after is None:
            super().job_stored(resource, before, after)


class Site:
    """One cluster. `job_stored` and `workload_stored` are called with each write of such an object.

    Its clock differs from that of the run by `offset` seconds. `rates` are the faults between its manager and
    its API server.
    """

    job_stored: Stored
    workload_stored: Stored

    def __init__(
        self,
        name: str,
        store: MemoryStore,
        rng: random.Random,
        configuration: Configuration,
        trace: Trace,
        offset: float = 0.0,
        resources: Iterable[Resource] = (JOBS,),
    ) -> None:
        self.name = name
        self.clock = Clock(VIRTUAL_EPOCH.timestamp() + offset)
        self.rates: Rates = NO_FAULTS
        self.line = Line()
        self.connect: Connect | None = None
        self.components: Iterable[Component] | None = None
        self.deaths = 0
        self._resources = tuple(resources)
        self._store = _identified(store, name)
        self._rng = rng
        self._configuration = configuration
        self._trace = trace
        self._crashed = asyncio.Event()

    @property
    def runs_jobs(self) -> bool:
        """Whether pods run here: not in a cluster that connects to workers."""
        return self.connect is None

    async def start(self) -> None:
        """Serve the store, and start the manager."""
        self.server: Server = await open_server(self._store, self.clock, self._fork())
        self.client = Client(self.server.transport("user"), clock=self.clock)
        runner = Client(self.server.transport("runner"), clock=self.clock)
        if PODS in self._resources:
            pools = _NODES if self.runs_jobs else ()
            self.runner: JobRunner | RealPods = RealPods(self.server, self.clock, self._fork(), pools=pools)
            await self.runner.start()
        else:
            kind = JobRunner if self.runs_jobs else _Garbage
            self.runner = kind(runner, self.clock, self._fork(), 0.0)
        core = self.server.core
        for resource in self._resources:
            core.on_stored(f"{resource.group}/{resource.plural}", partial(self._on_job, resource))
        core.on_stored(f"{WORKLOADS.group}/{WORKLOADS.plural}", self._on_workload)
        for resource in self._resources:
            for job in (await self.client.list(resource)).items:
                self.runner.job_stored(resource, None, job)
        self.start_manager()
        fail_webhooks(self.server, self.manager)

    async def stop(self) -> None:
        """End everything; the store remains."""
        await self.stop_manager()
        await asyncio.gather(*self.runner.stop(), return_exceptions=True)
        await self.server.stop()

    def snapshot(self) -> MemoryStore:
        """The state of now."""
        return copied(self._store)

    async def set_back(self, store: MemoryStore) -> None:
        """Restart everything with an earlier state."""
        await self.stop()
        self._store = store
        self._crashed.clear()
        await self.start()

    # The manager

    def start_manager(self) -> None:
        """Start the manager over a transport with the present rates of faults."""
        self.transport = FaultyTransport(
            self.server.transport("manager"),
            self.clock,
            self._fork(),
            self.rates,
            self._trace,
            self._crashed.set,
        )
        options = [] if self.connect is None else [self.connect]
        self.manager = Manager(
            self.transport,
            self._configuration,
            self.clock,
            self._fork(),
            BUILT_IN,
            self.components,
            *options,
        )
        self._task = asyncio.create_task(self.manager.run())
        self._task.add_done_callback(self._manager_ended)
        self._serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        """Answer the API server once the manager knows the cluster."""
        await self.manager.synced()
        for hook in self.manager.webhooks():
            self.server.admission.register(webhook_of(hook))

    async def stop_manager(self) -> None:
        """Kill the manager, wherever it is."""
        self.transport.die()
        self._task.cancel()
        self._serving.cancel()
        await asyncio.gather(self._task, self._serving, return_exceptions=True)
        fail_webhooks(self.server, self.manager)
        await self.transport.drained()

    async def restart_dead(self) -> None:
        """Restart the manager whenever it dies, until cancelled."""
        while True:
            await self._crashed.wait()
            self._crashed.clear()
            self.deaths += 1
            await self.stop_manager()
            await self.clock.sleep(self._rng.uniform(0.1, 10.0))
            self.start_manager()

    def kill_manager(self) -> None:
        """Let the manager die at any moment; `restart_dead` restarts it."""
        self.transport.die()
        self._crashed.set()

    def _manager_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._trace.violate(f"the manager of {self.name} ended: {task.exception()!r}")

    def _fork(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    def _on_job(self, resource: Resource, new: Any, old: Any) -> None:
        before, after = objects_of(old, new)
        self.runner.job_stored(resource, before, after)
        if controller_of(after or before or {}) is None:
            self.job_stored(before, after)

    def _on_workload(self, new: Any, old: Any) -> None:
        before, after = objects_of(old, new)
        self.runner.workload_stored(before, after)
        self.workload_stored(before, after)


def _identified(store: MemoryStore, name: str) -> MemoryStore:
    """The store with a UID of the cluster: a manager knows its own cluster by the UID of a definition."""
    table = store.table(f"{CRDS.group}/{CRDS.plural}")
    key = ("", f"{WORKLOADS.plural}.{WORKLOADS.group}")
    record = table.get(key)
    assert record is not None
    definition = record.object
    metadata = {**definition["metadata"], "uid": f"of-{name}"}
    table.set(Record(key, record.revision, {**definition, "metadata": metadata}))
    return store


def watched(site: Site, job_stored: Callable[..., None], workload_stored: Callable[..., None]) -> Site:
    """The site, its writes reported with it as the first argument."""
    site.job_stored = partial(job_stored, site)
    site.workload_stored = partial(workload_stored, site)
    return site
