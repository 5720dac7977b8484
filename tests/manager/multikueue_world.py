"""A manager cluster and worker clusters, each with its own API server, in one virtual-time event loop."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import yaml
from checks_world import activity, strategy
from manager_stack import QUEUES, CountingTransport, Object, Stack, job, new_server

from pykueue.api import conditions
from pykueue.api.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CRDS,
    JOB_SETS,
    JOBS,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    SECRETS,
    WORKLOADS,
)
from pykueue.clock import Clock, run_virtual
from pykueue.embedded.apiserver.auth.authentication import Authenticator
from pykueue.embedded.apiserver.inprocess import InProcessTransport
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.jobset.definition import definition as jobset_definition
from pykueue.embedded.operators.definitions import definitions
from pykueue.embedded.store.memory import MemoryStore
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.multikueue.access import Endpoint, WorkerAccess, worker_rules
from pykueue.manager.multikueue.kubeconfig import Target
from pykueue.simulate.faults.sites import Line
from queue_manifests import admission_check

ORIGIN = "kueue.x-k8s.io/multikueue-origin"
GROUP = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "kueue-system"
FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob")
_KINDS = BUILT_IN.enabled(FRAMEWORKS)
#: Signs the tokens of workers.
_KEY = b"a key of a test, long enough to sign"
INTEGRATIONS = f"integrations: {{frameworks: [{', '.join(FRAMEWORKS)}]}}\n"


class _TokenTransport:
    """Requests as the user whose bearer token is sent, as over HTTP."""

    def __init__(self, server: Server, authenticator: Authenticator, token: str) -> None:
        self._server = server
        self._authenticator = authenticator
        self._token = token

    def _inner(self) -> Transport:
        user = self._authenticator.by_token(self._token)
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return InProcessTransport(self._server.pipeline, user)

    async def call(self, request: Request) -> Any:
        return await self._inner().call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self._inner().watch(request)

    async def close(self) -> None:
        pass


class Clusters:
    """The manager's cluster and its workers by name."""

    def __init__(self, clock: Clock, configuration: str) -> None:
        self.clock = clock
        found = [line for line in configuration.splitlines() if line.startswith("featureGates:")]
        #: Feature gates hold on workers too.
        self._worker_configuration = "\n".join(found)
        self.lines: dict[str, Line] = {}
        self.workers: dict[str, _ManagerStack] = {}
        self.access: dict[str, WorkerAccess] = {}
        #: Counts what the manager writes on workers.
        self.counted: dict[str, CountingTransport] = {}
        #: When the Workloads of the manager's cluster were created and admitted, by uid.
        self._created: dict[str, float] = {}
        self._admitted: dict[str, float] = {}
        self.manager = _ManagerStack(clock, INTEGRATIONS + configuration, self.connect)

    def connect(self, target: Target) -> Transport:
        name = target.server.removeprefix("https://").partition(".")[0]
        server = self.workers[name].server
        # A token that the worker issued, or any other text for a user with all rights.
        inner: Transport = server.transport(f"manager-on-{name}")
        if target.token.count(".") == 2:
            authenticator = Authenticator(server.core, _KEY)
            inner = _TokenTransport(server, authenticator, target.token)
        counted = self.counted.setdefault(name, CountingTransport(inner))
        counted.inner = inner
        return self.lines[name].transport(counted)

    async def start(self, *workers: str, quota: int = 10) -> None:
        await _start(self.manager)
        self.manager.server.core.on_stored(f"{WORKLOADS.group}/{WORKLOADS.plural}", self._on_workload)
        await self.manager.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}, **_kind(NAMESPACES)})
        await self.manager.apply(QUEUES.replace("nominalQuota: 10", "nominalQuota: 100"))
        for number, name in enumerate(workers):
            await self.add_worker(name, seed=number + 2, quota=quota)
        if workers:
            await self.set_up(*workers)

    async def add_worker(self, name: str, seed: int = 9, quota: int = 10) -> None:
        self.lines[name] = Line()
        configuration = INTEGRATIONS + self._worker_configuration
        worker = self.workers[name] = _ManagerStack(self.clock, configuration, self.connect, seed)
        await _start(worker)
        worker.server.pipeline.use_authenticator(Authenticator(worker.server.core, _KEY))
        await worker.apply(QUEUES.replace("nominalQuota: 10", f"nominalQuota: {quota}"))

    async def set_up(self, *clusters: str) -> None:
        """The check `mk` over these clusters on the manager's queue, and their kubeconfigs."""
        for name in clusters:
            await self.register(name)
        await self.add_check(self.manager, *clusters)

    async def add_check(self, site: Stack, *clusters: str) -> None:
        """The check `mk` over these clusters on the queue of a cluster."""
        await site.client.create(MULTIKUEUE_CONFIGS, config(*clusters))
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config"}
        check = admission_check("mk", "kueue.x-k8s.io/multikueue", parameters=parameters)
        await site.client.create(ADMISSION_CHECKS, check)
        await site.patch(CLUSTER_QUEUES, "cq", {"spec": strategy(mk=[])})
        await site.settle(5)

    async def register(self, name: str) -> None:
        """Let the manager use a worker with an account that has the rights of dispatching only."""
        endpoint = Endpoint(f"https://{name}.test", "")
        access = WorkerAccess(
            name,
            endpoint,
            self.workers[name].client,
            self.manager.client,
            worker_rules(_KINDS, self.manager.configuration),
        )
        self.access[name] = access
        await access.grant()
        await access.renew()
        await access.register()

    async def describe(self, name: str, site: Stack | None = None, **changes: Any) -> None:
        """Create the Secret and the MultiKueueCluster of a worker, by default for the manager."""
        client = (site or self.manager).client
        await client.create(SECRETS, secret(name, kubeconfig(name, **changes)))
        await client.create(MULTIKUEUE_CLUSTERS, cluster(name))

    async def stop(self) -> None:
        await self.manager.stop()
        for worker in self.workers.values():
            await worker.stop()

    async def wait(self, seconds: float = 5.0) -> None:
        await self.clock.sleep(seconds)

    # What is seen

    async def active(self, name: str) -> tuple[str, str, str]:
        """Status, reason and message of the condition Active of a MultiKueueCluster."""
        return activity(await self.manager.get(MULTIKUEUE_CLUSTERS, name))

    async def check_active(self, name: str = "mk") -> tuple[str, str, str]:
        return activity(await self.manager.get(ADMISSION_CHECKS, name))

    async def status(self, name: str = "a") -> Object:
        """The status of the manager's Workload of a job."""
        return (await self.manager.workload(name)).get("status") or {}

    async def state(self, name: str = "a") -> str:
        (check,) = (one for one in (await self.status(name))["admissionChecks"] if one["name"] == "mk")
        return str(check["state"])

    async def copies(self) -> list[str]:
        """The workers with a copy of a Workload."""
        return [name for name, w in self.workers.items() if await w.workloads()]

    async def jobs(self) -> list[str]:
        """The workers with a Job."""
        return [name for name, w in self.workers.items() if (await w.client.list(JOBS)).items]

    async def workers_of(self, name: str) -> list[str]:
        """The workers with a Job of this name."""
        return [
            worker for worker, stack in self.workers.items() if await stack.client.find(JOBS, name, "default")
        ]

    def writes(self) -> dict[str, Counter[str]]:
        """Writes of the manager so far, in its cluster and on each worker."""
        found = {name: Counter(transport.writes) for name, transport in self.counted.items()}
        return {"manager": Counter(self.manager.transport.writes), **found}

    def dispatch_times(self) -> list[float]:
        """Seconds from the creation of each admitted Workload of the manager's cluster to its admission."""
        return [self._admitted[uid] - self._created[uid] for uid in self._admitted]

    def _on_workload(self, new: Any, old: Any) -> None:
        if new is not None:
            uid = new.object["metadata"]["uid"]
            self._created.setdefault(uid, self.clock.time())
            if conditions.is_admitted(new.object):
                self._admitted.setdefault(uid, self.clock.time())

    async def make_busy(self, *names: str, cpu: int = 10) -> None:
        """Take the quota of workers."""
        for name in names:
            await self.workers[name].apply(job("busy", 1, cpu=str(cpu)))
        await self.wait(2)

    async def copy(self, worker: str, job: str = "a") -> Object:
        """The copy of the Workload of a job on a worker."""
        name = (await self.manager.workload(job))["metadata"]["name"]
        return await self.workers[worker].get(WORKLOADS, name)

    async def has_copy(self, worker: str, job: str = "a") -> bool:
        """Whether a worker has a copy of the Workload of a job."""
        name = (await self.manager.workload(job))["metadata"]["name"]
        return any(one["metadata"]["name"] == name for one in await self.workers[worker].workloads())

    async def edit_copy(self, worker: str, job: str, patch: Object, subresource: str | None = None) -> None:
        name = (await self.manager.workload(job))["metadata"]["name"]
        await self.workers[worker].patch(WORKLOADS, name, patch, subresource)


class _Blocking:
    """A transport on which some writes fail before they reach the server."""

    def __init__(self, inner: Transport, blocked: set[str]) -> None:
        self._inner = inner
        self._blocked = blocked

    async def call(self, request: Request) -> Any:
        parts = request.path.split("/")
        if any(
            request.method == method and parts[-2:-1] == [plural]
            for method, plural in map(str.split, self._blocked)
        ):
            raise ConnectionError("the connection was cut")
        return await self._inner.call(request)

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        return self._inner.watch(request)

    async def close(self) -> None:
        await self._inner.close()


class _ManagerStack(Stack):
    def __init__(
        self, clock: Clock, configuration: str, connect: Callable[[Target], Transport], seed: int = 1
    ) -> None:
        super().__init__(clock, configuration, seed, BUILT_IN)
        self._connect = connect
        #: Writes of the manager that fail: method and plural.
        self.blocked: set[str] = set()

    async def start_server(self) -> Server:
        """One that shares no uid with another: they tell whether two are the same cluster."""
        return await new_server(MemoryStore(), self.clock, self.seed)

    def manager_transport(self) -> Transport:
        return _Blocking(super().manager_transport(), self.blocked)

    def connect(self, target: Target) -> Transport:
        return self._connect(target)


async def _start(stack: Stack) -> None:
    await stack.start()
    await stack.client.create(CRDS, jobset_definition())
    for one in definitions([BUILT_IN.jobs["kubeflow.org/pytorchjob"].kind]):
        await stack.client.create(CRDS, one)


def _kind(resource: Any) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def cluster(name: str, location: str | None = None, kind: str = "Secret") -> Object:
    source = {"kubeConfig": {"location": location or f"{name}-kubeconfig", "locationType": kind}}
    return {
        "apiVersion": GROUP,
        "kind": "MultiKueueCluster",
        "metadata": {"name": name},
        "spec": {"clusterSource": source},
    }


def config(*clusters: str, name: str = "config") -> Object:
    return {
        "apiVersion": GROUP,
        "kind": "MultiKueueConfig",
        "metadata": {"name": name},
        "spec": {"clusters": list(clusters)},
    }


def kubeconfig(name: str, *, server: str | None = None, user: Object | None = None, **fields: Any) -> Object:
    server = f"https://{name}.test" if server is None else server
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **fields}}],
        "users": [{"name": "u", "user": {"token": "t0ken"} if user is None else user}],
    }


def secret(name: str, content: Object | str, key: str = "kubeconfig") -> Object:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    return {
        **_kind(SECRETS),
        "metadata": {"name": f"{name}-kubeconfig", "namespace": NAMESPACE},
        "data": {key: base64.b64encode(text.encode()).decode()},
    }


def jobset(name: str, pods: int = 1) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "resources": _CPU}]}
    template = {"spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod}}}
    return {
        **_kind(JOB_SETS),
        "metadata": {"name": name, "namespace": "default", "labels": _QUEUE},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": template}]},
    }


def pytorch_job(name: str) -> Object:
    pod = {"containers": [{"name": "pytorch", "image": "i", "resources": _CPU}]}
    role = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": pod}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default", "labels": _QUEUE},
        "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}},
    }


_CPU = {"requests": {"cpu": "1"}}
_QUEUE = {"kueue.x-k8s.io/queue-name": "lq"}


def dispatched(
    test: Callable[[Clusters], Awaitable[None]], *workers: str, configuration: str = "", quota: int = 10
) -> None:
    """Run a test with these workers in virtual time."""

    async def main(clock: Clock) -> None:
        world = Clusters(clock, configuration)
        try:
            await world.start(*workers, quota=quota)
            await test(world)
        finally:
            await world.stop()

    run_virtual(main)
