"""The connection to one worker cluster: established, watched, lost and established again.

Connected means that every watch of the worker is established. One that breaks ends the connection, and
everything known of the worker is unknown until the next one. Source: docs/reference/admission-checks.md 14.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pykueue.api.backoff import exponential_delay
from pykueue.api.jobkinds import LEADER_WORKER_SET, JobKind
from pykueue.api.kueue import names
from pykueue.api.objects import Key, Object, key_of, spec_differs
from pykueue.api.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource
from pykueue.clock import Clock
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.identifiers import IDENTIFIERS, Identifiers
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.jobs.leaderworkerset import LeaderWorkerSet
from pykueue.jobs.pod import POD
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.ancestors import dispatched_externals
from pykueue.manager.configuration import Configuration
from pykueue.manager.connection import Connection

from .kubeconfig import KubeConfigError, Target

#: Seconds within which all watches must be established, the first time and at most.
ESTABLISH, ESTABLISH_CAP = 60.0, 600.0
#: Seconds before the second attempt to connect after a failure, and at most; the first is made at once.
RETRY, RETRY_CAP = 5.0, 320.0

#: Seconds between looks at whether kinds may be read that could not be read before.
RECHECK = 60.0

#: Seconds for which a reconciliation waits for the answers of a worker. One that is near answers within them.
PATIENCE = 0.02

#: Opens a transport to a worker. Raises KubeConfigError.
Connect = Callable[[Target], Transport]

T = TypeVar("T")

log = logging.getLogger(__name__)


def retry_delay(failures: int) -> float:
    """Seconds before the next attempt after so many failures in a row."""
    return 0.0 if failures <= 1 else exponential_delay(RETRY, RETRY_CAP, failures - 2)


class _Guard:
    """A transport that reports when a list or a watch fails: the connection is broken then."""

    def __init__(self, inner: Transport, broken: Callable[[str], None]) -> None:
        self._inner = inner
        self._broken = broken

    async def call(self, request: Request) -> Any:
        try:
            return await self._inner.call(request)
        except (ConnectionError, TimeoutError) as error:
            self._broken(str(error) or type(error).__name__)
            raise
        except ApiError as error:
            # Without a right to write one kind, the others are dispatched; without valid credentials none is.
            if error.code == 401 or (error.code == 403 and request.method == "GET"):
                self._broken(str(error))
            raise

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        try:
            async with aclosing(self._inner.watch(request)) as events:
                async for event in events:
                    yield event
        except (ConnectionError, TimeoutError) as error:
            self._broken(f"a watch broke: {error or type(error).__name__}")
            raise
        except ApiError as error:
            if error.code in (401, 403):
                self._broken(str(error))
            raise

    async def close(self) -> None:
        await self._inner.close()


class BusyError(Exception):
    """A worker has not answered yet; the Workload is reconciled again when it has."""


class Session:
    """What is known of a worker while the connection lasts: its copies of Workloads and jobs.

    `touched` is called with the key of a Workload when a late answer about it has arrived.
    """

    def __init__(
        self,
        name: str,
        connection: Connection,
        kinds: Iterable[JobKind],
        origin: str,
        touched: Callable[[Key], None],
        name_limit: int,
        queues_changed: Callable[[], None] | None = None,
        identifiers: Identifiers = IDENTIFIERS,
    ) -> None:
        self.name = name
        self.client = connection.client
        self._touched = touched
        #: Requests about a Workload that have not been answered yet, and whether they create its job.
        self._under_way: dict[Key, tuple[asyncio.Task[Any], bool]] = {}
        self._late: set[Key] = set()
        #: Errors that came too late for the reconciliation that led to them: the next one gets them.
        self._failures: dict[Key, BaseException] = {}
        self.writer = connection.writer
        selector = f"{names.MULTIKUEUE_ORIGIN_LABEL}={origin}"
        self.workloads = connection.informer(WORKLOADS, label_selector=selector)
        self.jobs: dict[str, Informer] = {}
        self._name_limit = name_limit
        self._identifiers = identifiers
        for kind in kinds:
            jobs = connection.informer(kind.resource, label_selector=selector, optional=kind.custom)
            jobs.add_index("workload", self.keys_of)
            self.jobs[kind.framework] = jobs
        #: LocalQueues and ClusterQueues of the worker, where they are watched.
        self.local_queues: Informer | None = None
        self.cluster_queues: Informer | None = None
        if queues_changed is not None:
            self.local_queues = connection.informer(LOCAL_QUEUES)
            self.cluster_queues = connection.informer(CLUSTER_QUEUES)
            for informer in (self.local_queues, self.cluster_queues):
                informer.on_event(_on_spec(queues_changed))

    def jobs_of(self, key: Key) -> list[tuple[Informer, Object]]:
        """The copies of jobs that are bound to a Workload."""
        return [(jobs, job) for jobs in self.jobs.values() for job in jobs.by_index("workload", key)]

    def holds(self, key: Key) -> bool:
        """Whether there may be something of a Workload on the worker."""
        return self.workloads.get(*key) is not None or self.may_run(key)

    def may_run(self, key: Key) -> bool:
        """Whether there may be a copy of the job of a Workload on the worker."""
        return self.is_creating(key) or bool(self.jobs_of(key))

    def is_creating(self, key: Key) -> bool:
        """Whether a request that creates a copy of the job of a Workload has not been answered yet."""
        return key in self._under_way and self._under_way[key][1]

    async def carry_out(
        self, key: Key, work: Callable[[], Coroutine[Any, Any, T]], creates_job: bool = False
    ) -> T:
        """The result of requests about a Workload, one at a time. Raises BusyError, and the errors of `work`.

        A worker that does not answer is waited for once and not again before it has answered, so that it
        delays no Workload that other workers could run. An error in a late answer is raised by the next call,
        so that what failed is tried again after a delay.
        """
        if key in self._under_way:
            raise BusyError
        if (failure := self._failures.pop(key, None)) is not None:
            raise failure
        task = asyncio.get_running_loop().create_task(work())
        self._under_way[key] = task, creates_job
        task.add_done_callback(lambda _: self._answered(key))
        await asyncio.wait({task}, timeout=0.0 if self._late else PATIENCE)
        if task.cancelled():
            raise ConnectionError("the connection to the worker was lost")
        if task.done():
            return task.result()
        self._late.add(key)
        raise BusyError

    def _answered(self, key: Key) -> None:
        task, _ = self._under_way.pop(key)
        # Asked for in any case: the reconciliation that waited for it may have been cancelled.
        failure = None if task.cancelled() else task.exception()
        if key not in self._late:
            return
        self._late.discard(key)
        if not task.cancelled():
            if failure is not None:
                self._failures[key] = failure
            self._touched(key)

    def forget(self, key: Key) -> None:
        """Nothing of a Workload is left on the worker: earlier errors do not matter any more."""
        self._failures.pop(key, None)

    def close(self) -> None:
        """Do not wait for answers any more."""
        for task, _ in list(self._under_way.values()):
            task.cancel()

    def workload_keys(self) -> set[Key]:
        """The Workloads of which there are copies, or copies of jobs that are bound to them."""
        found = {key_of(copy) for copy in self.workloads.list()}
        for jobs in self.jobs.values():
            for job in jobs.list():
                found.update(self.keys_of(job))
        return found

    def keys_of(self, job: Mapping[str, Any]) -> list[Key]:
        """The Workloads that a copy of a job belongs to: one, or those of the groups of a LeaderWorkerSet."""
        namespace, name = job["metadata"].get("namespace") or "", self._identifiers.prebuilt_name(job)
        if job.get("kind") == LEADER_WORKER_SET.resource.kind:
            names_of_groups = LeaderWorkerSet().workload_names(job, self._name_limit)
            return [(namespace, name) for name in names_of_groups]
        return [(namespace, name)] if name else []


def is_dispatched(integration: JobIntegration) -> bool:
    """Whether jobs of the kind can run on a worker: they can be handed over, and be bound to a Workload.

    Pods can without a field for that.
    """
    kind = integration.kind
    return kind is POD or (kind.managed_by is not None and kind.prebuilt)


def external_name(resource: Resource) -> str:
    """The name of a kind that is queued by another controller, as in `multiKueue.externalFrameworks`."""
    return f"{resource.kind}.{resource.version}.{resource.group}"


def dispatched_kinds(kinds: JobKinds, configuration: Configuration) -> list[JobKind]:
    """The kinds of objects that are created on workers."""
    sets = (each.kind for each in kinds.pod_owners.values() if each.makes_workloads)
    external = (
        JobKind(external_name(one), one, managed_by=("spec", "managedBy"))
        for one in dispatched_externals(configuration)
    )
    return [*(each.kind for each in kinds.jobs.values() if is_dispatched(each)), *sets, *external]


def _on_spec(changed: Callable[[], None]) -> Callable[[str, Any, Any], None]:
    """A handler of events that calls back where more than a status has changed."""

    def on_event(type_: str, old: Any, new: Any) -> None:
        if spec_differs(old, new):
            changed()

    return on_event


@dataclass(frozen=True)
class Hooks:
    """What is called about a worker cluster."""

    #: With its name, when its connection is established or lost.
    changed: Callable[[str], None]
    #: With the key of the Workload of every copy that changes there.
    touched: Callable[[Key], None]
    #: With its name; raises KubeConfigError and ConnectionError for a cluster that cannot be a worker.
    verify: Callable[[str, Client], Awaitable[None]]
    #: Most characters of the name of a Workload.
    name_limit: int
    #: When its queues have changed; None: they are not watched.
    queues_changed: Callable[[], None] | None = None
    identifiers: Identifiers = IDENTIFIERS


class RemoteCluster:
    """One worker cluster."""

    def __init__(
        self,
        name: str,
        kinds: Callable[[], Sequence[JobKind]],
        origin: str,
        connect: Connect,
        clock: Clock,
        hooks: Hooks,
    ) -> None:
        self.name = name
        self._kinds = kinds
        self._origin = origin
        self._connect = connect
        self._clock = clock
        self._hooks = hooks
        self._task: asyncio.Task[None] | None = None
        self.target: Target | None = None
        #: What is known of it; None while it is not connected.
        self.session: Session | None = None
        #: Kinds that users added and that may not be read there: their jobs go to other workers.
        self.denied: list[str] = []
        #: Since when it has not been connected, on the monotonic clock; None while it is.
        self.lost_since: float | None = clock.monotonic()
        #: Why it is not connected: reason and message of the condition Active; None while the first attempt
        #: to connect with this kubeconfig lasts, and while it is connected.
        self.problem: tuple[str, str] | None = None

    def use(self, target: Target) -> None:
        """Connect with this kubeconfig; nothing happens where it is the one in use."""
        if self.target is not None and self.target.fingerprint == target.fingerprint and self._task:
            return
        self.close()
        self.target = target
        self.problem = None
        self._task = asyncio.get_running_loop().create_task(self._run(target))

    def refuse(self, problem: tuple[str, str]) -> None:
        """Do not connect, for this reason."""
        self.close()
        self.target = None
        self.problem = problem

    def reconnect(self) -> None:
        """Connect again where the kinds that are watched there have changed."""
        target, session = self.target, self.session
        if session is None or target is None:
            return
        if {*session.jobs, *self.denied} != {kind.framework for kind in self._kinds()}:
            self.close()
            self.use(target)

    def lost_for(self) -> float:
        """Seconds for which it has not been connected, 0 while it is."""
        return 0.0 if self.lost_since is None else self._clock.monotonic() - self.lost_since

    def close(self) -> None:
        """End the connection."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._lose()

    def _lose(self) -> None:
        if self.session is None:
            return
        self.session = None
        self.lost_since = self._clock.monotonic()
        self._hooks.changed(self.name)

    async def _run(self, target: Target) -> None:
        failures = 0
        while True:
            established = False
            limit = exponential_delay(ESTABLISH, ESTABLISH_CAP, failures)
            try:
                async for _ in self._connected(target, limit):
                    established = True
            except KubeConfigError as error:
                self.problem = (error.reason, str(error))
                self._hooks.changed(self.name)
                return
            except (ApiError, ConnectionError, TimeoutError) as error:
                text = str(error) or type(error).__name__
            except Exception:
                log.exception("worker %s: unexpected error", self.name)
                text = "unexpected error, see the log of the manager"
            failures = 1 if established else failures + 1
            delay = retry_delay(failures)
            self.problem = (
                "ClientConnectionFailed",
                f"{text}; attempts: {failures}, next in {delay:g} s",
            )
            log.warning("worker %s: %s", self.name, self.problem[1])
            self._lose()
            self._hooks.changed(self.name)
            await self._clock.sleep(delay)

    async def _connected(self, target: Target, limit: float) -> AsyncGenerator[None, None]:
        """Yields once when connected, then runs until the connection breaks. Raises ConnectionError."""
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[str] = loop.create_future()

        def on_broken(text: str) -> None:
            if not broken.done():
                broken.set_result(text)

        transport = self._connect(target)
        kinds = await self._readable(Client(transport, clock=self._clock), limit)
        connection = Connection(_Guard(transport, on_broken), self._clock)
        hooks = self._hooks
        session = Session(
            self.name,
            connection,
            kinds,
            self._origin,
            hooks.touched,
            hooks.name_limit,
            hooks.queues_changed,
            hooks.identifiers,
        )
        caches = loop.create_task(connection.run())
        synced = loop.create_task(connection.synced())
        try:
            either: list[asyncio.Future[Any]] = [broken, synced]
            await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                raise ConnectionError(broken.result())
            if synced.done():
                await self._hooks.verify(self.name, Client(transport, clock=self._clock))
            else:
                raise ConnectionError(f"watches are not established after {limit:g} s")
            session.workloads.on_event(self._workload_event)
            for jobs in session.jobs.values():
                jobs.on_event(partial(self._job_event, session))
            self.session, self.lost_since, self.problem = session, None, None
            self._hooks.changed(self.name)
            yield
            while not broken.done():
                await asyncio.wait({broken}, timeout=RECHECK if self.denied else None)
                if not broken.done() and await self._readable(Client(transport, clock=self._clock)) != kinds:
                    raise ConnectionError("the account's rights have changed")
            raise ConnectionError(broken.result())
        finally:
            self._lose()
            session.close()
            for task in (caches, synced):
                task.cancel()
            await asyncio.gather(caches, synced, return_exceptions=True)
            await transport.close()

    async def _readable(self, client: Client, limit: float | None = None) -> list[JobKind]:
        """The kinds that are watched there: without those that users added and the account may not read.

        The rights for all others are part of the set-up: without them the worker is not connected. Raises
        ApiError, ConnectionError and TimeoutError.
        """
        kinds = self._kinds()
        denied = []
        async with asyncio.timeout(limit):
            for kind in kinds:
                if kind.framework in BUILT_IN.frameworks:
                    continue
                try:
                    await client.call(Request("GET", kind.resource.path(None), {"limit": "1"}))
                except ApiError as error:
                    if error.code == 403:
                        denied.append(kind)
                    elif not error.not_found:
                        raise
        if self.denied != [kind.framework for kind in denied]:
            self.denied = [kind.framework for kind in denied]
            for name in self.denied:
                log.warning("worker %s: jobs of the kind %s may not be read there", self.name, name)
        return [kind for kind in kinds if kind not in denied]

    def _workload_event(self, type_: str, old: Any, new: Any) -> None:
        self._hooks.touched(key_of(old if new is None else new))

    def _job_event(self, session: Session, type_: str, old: Any, new: Any) -> None:
        for job in (old, new):
            for key in () if job is None else session.keys_of(job):
                self._hooks.touched(key)
