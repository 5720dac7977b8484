"""The whole stack in one virtual loop: embedded API server and manager, with or without pods.

Without pods a test plays the Job controller itself (`Stack.job_status`), so it says what happens when.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from textwrap import dedent
from typing import Any, TypeVar

from pykueue.api import resources
from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.resources import (
    CLUSTER_QUEUES,
    EVENTS,
    JOBS,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    Resource,
)
from pykueue.api.yaml import load_documents
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import webhook_of
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.jobs.kinds import BUILT_IN, JobKinds
from pykueue.kube.client import Client
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.components import Component
from pykueue.manager.configuration import parse
from pykueue.manager.manager import Manager
from pykueue.manager.multikueue.kubeconfig import Target
from pykueue.simulate.faults.stage import copied
from queue_manifests import QUEUES

Object = dict[str, Any]
#: YAML, one object, or several.
Manifests = str | Object | list[Object]
T = TypeVar("T")

V1BETA2 = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def job(
    name: str,
    parallelism: int = 1,
    cpu: str = "1",
    queue: str | None = "lq",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A Job whose pods ask for `cpu` each."""
    queued = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    template = spec.pop("template", None) or {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
        }
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {**queued, **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {"parallelism": parallelism, "completions": parallelism, "template": template, **spec},
    }


class CountingTransport:
    """Counts the writes that go through it."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.writes: Counter[str] = Counter()
        self.calls = 0

    async def call(self, request: Request) -> Any:
        self.calls += 1
        if request.method != "GET":
            parts = request.path.split("/")
            plural = next((p for p in parts if p in _PLURALS), parts[-1])
            status = "/status" if request.path.endswith("/status") else ""
            self.writes[f"{request.method} {plural}{status}"] += 1
        return await self.inner.call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self.inner.watch(request)

    async def close(self) -> None:
        await self.inner.close()


_RESOURCES = {
    value.kind: value
    for name, value in vars(resources).items()
    if isinstance(value, Resource) and name != "EVENTS_V1"
}
_PLURALS = {
    "workloads",
    "jobs",
    "clusterqueues",
    "localqueues",
    "events",
    "resourceflavors",
    "admissionchecks",
}


_installed: list[MemoryStore] = []


async def new_server(store: MemoryStore, clock: Clock, seed: int) -> Server:
    """A started API server with the manager's kinds."""
    server = Server(store, clock, random.Random(seed))
    await server.start()
    await server.install_crds(crds())
    return server


async def installed_store(clock: Clock) -> MemoryStore:
    """A new store that holds what such a server does: everything is installed once."""
    if not _installed:
        _installed.append(MemoryStore())
        await (await new_server(_installed[0], clock, 0)).stop()
    return copied(_installed[0])


class Stack:
    """A running cluster and its manager."""

    server: Server

    def __init__(self, clock: Clock, configuration: str, seed: int, kinds: JobKinds | None = None) -> None:
        self.clock = clock
        self.rng = random.Random(seed)
        text = V1BETA2 + dedent(configuration) if "kind:" not in configuration else configuration
        self.kinds = kinds or BUILT_IN
        self.configuration = parse(text) if kinds is None else parse(text, frameworks=kinds.frameworks)
        self.seed = seed
        self._manager_task: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self) -> None:
        self.server = await self.start_server()
        self.server.register_conversion("kueue.x-k8s.io", convert)
        self.client = Client(self.server.transport(), clock=self.clock)
        await self.start_manager()

    async def start_server(self) -> Server:
        """Start the API server with the manager's kinds."""
        server = Server(await installed_store(self.clock), self.clock, random.Random(self.seed))
        await server.start()
        return server

    async def start_manager(self) -> None:
        """Start the manager, again after `stop_manager`."""
        self.transport = CountingTransport(self.manager_transport())
        self.manager = Manager(
            self.transport,
            self.configuration,
            self.clock,
            random.Random(self.rng.random()),
            self.kinds,
            self.components(),
            self.connect,
        )
        for hook in self.manager.webhooks():
            self.server.admission.register(webhook_of(hook))
        self._manager_task = asyncio.create_task(self.manager.run())
        await self.manager.synced()

    def manager_transport(self) -> Transport:
        """How the manager reaches the server: as a user with all rights."""
        return self.server.transport("pykueue-manager")

    def connect(self, target: Target) -> Transport:
        """How the manager reaches worker clusters: there are none."""
        raise ConnectionError(f"no route to {target.server}")

    def components(self) -> Iterable[Component] | None:
        """What the manager is made of; None: what its configuration leads to."""
        return None

    async def stop_manager(self) -> None:
        """End the manager as a crash would: wherever it is."""
        assert self._manager_task is not None
        self._manager_task.cancel()
        with suppress(asyncio.CancelledError):
            await self._manager_task
        self._manager_task = None

    def run(self, component: Any) -> None:
        """Run another component beside the manager."""
        self._tasks.append(asyncio.create_task(component.run()))

    async def stop(self) -> None:
        if self._manager_task is not None:
            if self._manager_task.done():
                self._manager_task.result()
            await self.stop_manager()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self.server.stop()

    def unregister_webhooks(self) -> None:
        """Remove the webhooks of Workloads and ClusterQueues, which cannot answer without a manager."""
        for hook in ("vworkload.kb.io", "vclusterqueue.kb.io", "mclusterqueue.kb.io"):
            self.server.admission.unregister(hook)

    # What users do

    async def apply(self, manifests: Manifests) -> None:
        """Create objects."""
        if isinstance(manifests, str):
            objects = load_documents(dedent(manifests))
        else:
            objects = [manifests] if isinstance(manifests, dict) else manifests
        for obj in objects:
            resource = _RESOURCES[obj["kind"]]
            group, _, version = obj["apiVersion"].rpartition("/")
            resource = resource._replace(group=group, version=version)
            await self.client.create(resource, obj)

    async def patch(
        self, resource: Resource, name: str, patch: Object, subresource: str | None = None
    ) -> Object:
        namespace = "default" if resource.namespaced else None
        return await self.client.patch(resource, name, namespace, patch, subresource=subresource)

    async def delete(self, resource: Resource, name: str) -> None:
        namespace = "default" if resource.namespaced else None
        await self.client.delete(resource, name, namespace, propagation="Background")

    async def settle(self, seconds: float = 2.0) -> None:
        """Let virtual time pass."""
        await self.clock.sleep(seconds)

    # What users see

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.client.get(resource, name, "default" if resource.namespaced else None)

    async def job(self, name: str) -> Object:
        return await self.get(JOBS, name)

    async def workloads(self) -> list[Object]:
        return (await self.client.list(WORKLOADS)).items

    async def workload(self, job_name: str) -> Object:
        """The Workload of a job (or the one of this name)."""
        for workload in await self.workloads():
            owners = workload["metadata"].get("ownerReferences") or [{"name": workload["metadata"]["name"]}]
            if any(owner["name"] == job_name for owner in owners):
                return workload
        raise AssertionError(f"no workload of {job_name}")

    async def conditions(self, job_name: str) -> dict[str, tuple[str, str]]:
        """Status and reason by condition type."""
        workload = await self.workload(job_name)
        return {
            c["type"]: (c["status"], c["reason"])
            for c in (workload.get("status") or {}).get("conditions") or ()
        }

    async def message(self, job_name: str, kind: str = "QuotaReserved") -> str:
        workload = await self.workload(job_name)
        return str(next(c["message"] for c in workload["status"]["conditions"] if c["type"] == kind))

    async def suspended(self, name: str) -> bool:
        return bool((await self.job(name))["spec"].get("suspend"))

    async def cluster_queue(self, name: str = "cq") -> Object:
        return await self.get(CLUSTER_QUEUES, name)

    async def local_queue(self, name: str = "lq") -> Object:
        return await self.get(LOCAL_QUEUES, name)

    async def pods(self) -> list[Object]:
        return (await self.client.list(PODS)).items

    async def events(self, name: str) -> list[str]:
        """Reasons of the events about objects of this name, oldest first."""
        found = (await self.client.list(EVENTS)).items
        mine = [e for e in found if e["involvedObject"]["name"] == name]
        return [e["reason"] for e in sorted(mine, key=lambda e: (e["firstTimestamp"], int(_version(e))))]

    # The Job controller, played by the test

    async def job_status(self, name: str, **status: Any) -> None:
        """Write a Job's status as its controller would."""
        await self.patch(JOBS, name, {"status": status}, "status")

    async def run_job(self, name: str, ready: int | None = None) -> None:
        """The Job's pods are there, and so many of them ready (all, where nothing is said)."""
        obj = await self.job(name)
        assert not obj["spec"]["suspend"], f"{name} is suspended"
        count = obj["spec"]["parallelism"]
        status = obj.get("status") or {}
        await self.job_status(
            name,
            active=count,
            ready=count if ready is None else ready,
            startTime=status.get("startTime") or self.now(),
        )

    async def finish_job(self, name: str, failed: bool = False) -> None:
        """The Job ends."""
        obj = await self.job(name)
        if not (obj.get("status") or {}).get("startTime"):
            await self.run_job(name)
            obj = await self.job(name)
        now = self.now()
        kinds = ("FailureTarget", "Failed") if failed else ("SuccessCriteriaMet", "Complete")
        reason = "BackoffLimitExceeded" if failed else "CompletionsReached"
        known = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] not in kinds]
        fresh = [
            {"type": kind, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": now}
            for kind in kinds
        ]
        done = (
            {"failed": 1}
            if failed
            else {"succeeded": obj["spec"].get("completions", 1), "completionTime": now}
        )
        await self.job_status(name, active=0, ready=0, conditions=[*known, *fresh], **done)

    async def stop_pods(self, name: str) -> None:
        """The pods of a suspended Job are gone."""
        obj = await self.job(name)
        known = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] != "Suspended"]
        condition = {
            "type": "Suspended",
            "status": "True",
            "reason": "JobSuspended",
            "message": "m",
            "lastTransitionTime": self.now(),
        }
        await self.job_status(name, active=0, ready=0, conditions=[*known, condition])

    def now(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def _version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


@asynccontextmanager
async def stack(
    clock: Clock,
    configuration: str = "",
    queues: Manifests = QUEUES,
    seed: int = 1,
    kinds: JobKinds | None = None,
) -> AsyncIterator[Stack]:
    """A started stack with its queues."""
    found = Stack(clock, configuration, seed, kinds)
    await found.start()
    try:
        await found.apply(queues)
        await found.settle()
        yield found
    finally:
        await found.stop()


def story(
    test: Callable[[Stack], Awaitable[T]],
    configuration: str = "",
    queues: Manifests = QUEUES,
    seed: int = 1,
    kinds: JobKinds | None = None,
) -> T:
    """Run a test against a stack in virtual time."""

    async def main(clock: Clock) -> T:
        async with stack(clock, configuration, queues, seed, kinds) as running:
            return await test(running)

    return run_virtual(main)
