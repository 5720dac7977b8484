"""The parts of a cluster put together: what `pykueue up` runs in real time and tests run in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.api.jobkinds.trainjob import TRAIN_JOB
from pykueue.api.resources import CRDS, JOB_SETS, KUEUE_GROUP, Resource
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.apiserver.webhooks.admission import Webhook
from pykueue.embedded.autoscaler import Autoscaler
from pykueue.embedded.autoscaler.definition import definition as provisioning_definition
from pykueue.embedded.controllers import Controllers
from pykueue.embedded.controllers.manager import CLUSTER_PACE, Pace
from pykueue.embedded.jobset.admission import webhooks as jobset_webhooks
from pykueue.embedded.jobset.definition import definition as jobset_definition
from pykueue.embedded.kinds.scheduling import GATE as NATIVE_GROUPS
from pykueue.embedded.nodes import SimulatedNodes
from pykueue.embedded.nodes.pool import NodePool
from pykueue.embedded.nodes.processes import ProcessLogs, ProcessNodes
from pykueue.embedded.nodes.scaling import NodePools, declare
from pykueue.embedded.operators.catalog import KINDS as OPERATED_KINDS
from pykueue.embedded.operators.catalog import named as operators_of
from pykueue.embedded.operators.controller import Operators
from pykueue.embedded.operators.definitions import definitions as job_kind_definitions
from pykueue.embedded.operators.definitions import is_ours
from pykueue.embedded.podgroups.admission import webhooks as pod_group_webhooks
from pykueue.embedded.podgroups.definitions import DEFAULT_QUEUE, VOLCANO_QUEUES
from pykueue.embedded.podgroups.definitions import definitions as pod_group_definitions
from pykueue.embedded.podscheduler import PodScheduler
from pykueue.embedded.store.memory import MemoryStore
from pykueue.jobs.kinds import BUILT_IN
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Transport
from pykueue.manager.configuration import Configuration, load

if TYPE_CHECKING:  # the manager is imported where it is a part: a server alone starts sooner and is smaller
    from pykueue.manager.components import Runnable
    from pykueue.manager.manager import Manager
    from pykueue.manager.multikueue.remote import Connect
    from pykueue.manager.serving.admission import Admission
    from pykueue.manager.webhooks.review import Registration

#: The parts a cluster is made of; `pykueue up --only` chooses among them.
PARTS = ("apiserver", "kube", "manager")

#: The job kinds that are queued where the manager's configuration names none: all that such a cluster runs.
FRAMEWORKS = BUILT_IN.frameworks

#: The feature gates of Kubernetes that can be opened.
FEATURE_GATES = (NATIVE_GROUPS,)

#: The job kinds of other projects that can be used without their operators.
JOB_KINDS = (JOB_SETS.kind, *OPERATED_KINDS)
#: Those that need JobSets: a TrainJob is run by one.
_NEED_JOB_SETS = frozenset({JOB_SETS.kind, TRAIN_JOB.resource.kind})

#: Gives a transport to the API server that speaks as the named user.
TransportFor = Callable[[str], Transport]


class Cluster:
    """Chosen parts of one cluster on the running event loop.

    With the part `apiserver` the other parts reach it in process; without it `transport_for` says how they
    reach the one that runs elsewhere. `pods_folder` is where pods that run as processes have their files;
    without it there is no place for a pool that wants them. `pace` is the Job controller's; None lifts it.
    `pools` take the place of the node pools declared before; None leaves those as they are.
    `feature_gates` are those of Kubernetes that are to be open (`FEATURE_GATES`). `job_kinds` are those of
    other projects that are served, each with a stand-in for its operator. Without `autoscaler`, pods
    that find no node and ProvisioningRequests are left to another one. `connect` opens the manager's
    connections to worker clusters; None: over HTTP.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        configuration: Configuration | None = None,
        pools: Iterable[NodePool] | None = None,
        store: MemoryStore | None = None,
        parts: Collection[str] = PARTS,
        transport_for: TransportFor | None = None,
        pods_folder: Path | None = None,
        pace: Pace | None = CLUSTER_PACE,
        feature_gates: Collection[str] = (),
        job_kinds: Collection[str] = JOB_KINDS,
        autoscaler: bool = True,
        connect: Connect | None = None,
    ) -> None:
        self.server = Server(store, clock, rng, feature_gates=feature_gates) if "apiserver" in parts else None
        self._feature_gates = feature_gates
        self.transport: TransportFor = transport_for or self._in_process
        self._pools = None if pools is None else list(pools)
        self._clock = clock
        self._runs_jobs = "kube" in parts
        self._operators = operators_of(job_kinds) if "kube" in parts else ()
        self._serves_job_sets = not _NEED_JOB_SETS.isdisjoint(job_kinds)
        self._parts: list[Runnable] = []
        if self.server is not None and pods_folder is not None:
            transport = self.transport("system:apiserver")
            self.server.pipeline.log_source = ProcessLogs(pods_folder, transport, clock)
        #: The manager, where it is one of the parts.
        self.manager: Manager | None = None
        self._admission: Admission | None = None
        #: Names of the manager's admission rules that the API server asks.
        self._rules: set[str] = set()
        if self.server is not None:
            self.server.pipeline.runs_pods = "kube" in parts
        if "kube" in parts:
            runtimes = {"simulated", *(pool.runtime for pool in self._pools or ())}
            controllers = Controllers(
                self.transport("system:kube-controller-manager"),
                clock,
                _fork(rng),
                pace=pace,
                job_sets=self._serves_job_sets,
            )
            self._parts += [
                controllers,
                PodScheduler(
                    self.transport("system:kube-scheduler"),
                    clock,
                    _fork(rng),
                    native_groups=NATIVE_GROUPS in feature_gates,
                ),
                SimulatedNodes(self.transport("system:nodes"), clock, _fork(rng)),
                NodePools(self.transport("system:nodes"), clock, runtimes),
            ]
            if autoscaler:
                self._parts.append(Autoscaler(self.transport("system:cluster-autoscaler"), clock))
            if self._operators:
                transport = self.transport("system:stand-in-operators")
                informers = controllers.informers
                self._parts.append(Operators(self._operators, transport, clock, _fork(rng), informers))
            if "process" in runtimes:
                if pods_folder is None:
                    raise ValueError("pools of the runtime `process` need a pods_folder")
                nodes = ProcessNodes(self.transport("system:nodes"), clock, _fork(rng), pods_folder)
                self._parts.append(nodes)
                if self.server is not None:
                    self.server.pipeline.enter = nodes.enter
        if "manager" in parts:
            self._add_manager(configuration or load(None, frameworks=FRAMEWORKS), clock, rng, connect)

    def _add_manager(
        self, configuration: Configuration, clock: Clock, rng: random.Random, connect: Connect | None
    ) -> None:
        from pykueue.manager.manager import Manager
        from pykueue.manager.multikueue.kubeconfig import connect as connect_over_http
        from pykueue.manager.serving.admission import Admission

        transport = self.transport("system:serviceaccount:kueue-system:kueue-controller-manager")
        connect = connect or connect_over_http
        self.manager = Manager(transport, configuration, clock, _fork(rng), connect=connect)
        self._parts.append(self.manager)
        if self.server is None:
            self._admission = Admission(self.manager, Client(transport, clock=clock), clock, local=True)
            self._parts.append(self._admission)
        else:
            self.server.pipeline.metrics.include(self.manager.metrics.registry)

    async def start(self) -> None:
        """Make the API ready to be used: kinds served, admission rules in place, nodes declared."""
        if self.server is not None:
            self.server.register_conversion(KUEUE_GROUP, convert)
            await self.server.start()
            await self.server.install_crds(crds())
            for webhook in jobset_webhooks(self.server) if self._serves_job_sets else ():
                self.server.admission.register(webhook)
            if NATIVE_GROUPS in self._feature_gates:
                for webhook in pod_group_webhooks(self.server):
                    self.server.admission.register(webhook)
            if self.manager is not None:
                from pykueue.manager.serving.admission import remove_local

                client = Client(self.transport("system:apiserver"), clock=self._clock)
                await remove_local(client, self.manager.configuration)
                self._register_rules(self.server, self.manager)
                self.manager.cluster.on_kinds_changed(
                    partial(self._register_rules, self.server, self.manager)
                )
        if self._runs_jobs:
            await self._install_kinds()
        if self._pools is not None:
            await declare(self.transport("system:nodes"), self._clock, self._pools)

    def _register_rules(self, server: Server, manager: Manager) -> None:
        """Let the API server ask the manager's admission rules, also those of kinds described later."""
        rules = manager.webhooks()
        for name in self._rules - {rule.name for rule in rules}:
            server.admission.unregister(name)
        self._rules = {rule.name for rule in rules}
        for rule in rules:
            server.admission.register(webhook_of(rule))

    async def _install_kinds(self) -> None:
        """Install the definitions of the kinds that controllers work on, here or on another API server."""
        definitions = [provisioning_definition(), *pod_group_definitions()]
        if self._serves_job_sets:
            definitions.append(jobset_definition())
        client = Client(self.transport("system:kube-controller-manager"), clock=self._clock)
        if self.server is not None:
            await self.server.install_crds(definitions)
        else:
            for one in definitions:
                await _ensure(client, CRDS, one)
        for one in job_kind_definitions(each.kind for each in self._operators):
            await _ensure_ours(client, one)
        try:
            await _ensure(client, VOLCANO_QUEUES, DEFAULT_QUEUE)
        except ApiError as error:
            # A server elsewhere may take a moment to serve what was just defined.
            if not error.not_found:
                raise

    async def run(self) -> None:
        """Let the parts work until cancelled; `start` comes first."""
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts:
                tasks.create_task(part.run())
            # The API server works by itself; alone it leaves nothing to do here.
            await asyncio.get_running_loop().create_future()

    async def synced(self) -> None:
        """Wait until the manager knows the cluster, and the API server asks its rules."""
        if self.manager is not None:
            await self.manager.synced()
        if self._admission is not None:
            await self._admission.ready.wait()

    async def stop(self) -> None:
        """Close the API server; what was running has been cancelled before."""
        if self.server is not None:
            await self.server.stop()

    def _in_process(self, user: str) -> Transport:
        if self.server is None:
            raise ValueError("without the part `apiserver`, transport_for must be given")
        return self.server.transport(user)


def webhook_of(rule: Registration) -> Webhook:
    """An admission rule of the manager as a webhook of an API server in the same process."""
    return Webhook(
        rule.name,
        rule.mutating,
        rule.rules,
        rule.review,
        rule.namespace_selector,
        rule.object_selector,
    )


async def _ensure(client: Client, resource: Resource, obj: dict[str, Any]) -> None:
    """Create the object unless it is there."""
    try:
        await client.create(resource, obj)
    except ApiError as error:
        if not error.already_exists:
            raise


async def _ensure_ours(client: Client, definition: dict[str, Any]) -> None:
    """Install the definition of a job kind, or renew ours; that of a real operator stays."""
    found = await client.find(CRDS, definition["metadata"]["name"])
    if found is None or is_ours(found):
        await client.apply(CRDS, definition, field_manager="pykueue", force=True)


def _fork(rng: random.Random) -> random.Random:
    """A separate generator for each part, so that one part's draws do not shift another's."""
    return random.Random(rng.getrandbits(64))
