"""One replica of the manager on a cluster: it knows and answers always, and acts while it leads."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pykueue.api.resources import NAMESPACES
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError, first_error
from pykueue.kube.leases import LeaderElector
from pykueue.kube.shutdown import DrainingTransport
from pykueue.kube.transport import Transport
from pykueue.prometheus import Family

from .certificates.mounted import MountedCertificates
from .components import Runnable
from .configuration import Configuration
from .install_names import InstallNames
from .manager import Manager
from .serving import Serving, ServingTls

log = logging.getLogger(__name__)

#: Seconds that writes under way have to come back when the replica stops.
WRITE_TIME = 3.0
#: Seconds between giving up the lease and closing the servers: until then requests still come this way.
LEAVING_TIME = 1.0


class CacheSyncError(Exception):
    """The cluster could not be read in time. The process should end and start again."""


class _Leadership:
    """Whether a replica leads, under the name that dashboards know."""

    def __init__(self, name: str, leads: Callable[[], bool]) -> None:
        self._name, self._leads = name, leads

    def collect(self) -> Iterator[Family]:
        """The metric as it is now."""
        family = Family("gauge", "leader_election_master_status", "1 while this replica leads.", ("name",))
        family.add((self._name,), float(self._leads()))
        yield family


class Replica:
    """A manager with its servers and certificates and, where so configured, an election among replicas.

    `servers` make further servers of this process, from the replica they answer for.
    """

    def __init__(
        self,
        transport: Transport,
        configuration: Configuration,
        clock: Clock,
        rng: random.Random,
        servers: Sequence[Callable[[Replica], Runnable]] = (),
    ) -> None:
        self.configuration = configuration
        self.clock = clock
        #: For what is not the manager's work and goes on while that ends: leases, certificates, reviews.
        self.client = Client(transport, clock=clock)
        self._writes = DrainingTransport(transport)
        self.manager = Manager(self._writes, configuration, clock, rng)
        #: What every server of this process serves with.
        self.tls = ServingTls(configuration.tls)
        self.serving = Serving(self.manager, self.client, self.tls)
        self._parts: list[Runnable] = [self.serving, self._certificates()]
        self._parts += [server(self) for server in servers]
        self._stop = asyncio.Event()
        self._export_leadership()
        self._elector: LeaderElector | None = None
        election = configuration.leader_election
        if election.leader_elect:
            self._elector = LeaderElector(
                self.client,
                clock,
                election.resource_namespace or configuration.namespace,
                election.resource_name,
                f"{socket.gethostname()}_{rng.getrandbits(64):016x}",
                duration=election.lease_duration,
                deadline=election.renew_deadline,
                retry=election.retry_period,
            )

    def _export_leadership(self) -> None:
        """Adds to the metrics whether this replica leads, under the name that dashboards know."""
        name = self.configuration.leader_election.resource_name
        self.manager.metrics.registry.register(_Leadership(name, lambda: self.leads))

    def _certificates(self) -> Runnable:
        configuration = self.configuration
        if configuration.internal_cert_management.enable:
            from .certificates.managed import ManagedCertificates  # with the library that makes certificates

            return ManagedCertificates(self.client, self.clock, InstallNames.of(configuration), self.tls.use)
        return MountedCertificates(Path(configuration.webhook.cert_dir), self.clock, self.tls.use)

    @property
    def leads(self) -> bool:
        """Whether it decides and writes now."""
        return self._elector is None or self._elector.leading

    def stop(self) -> None:
        """End in order: `run` returns once writes have come back and the lease is free."""
        self._stop.set()

    def dump(self) -> None:
        """Write to the log how things stand in the queues."""
        log.info(
            "%s; the cluster has been read: %s", self.manager.metrics.role, self.manager.cluster.has_synced
        )
        for resource in sorted(self.manager.connection.unserved):
            log.info("not served by the cluster: %s %s", resource.api_version, resource.kind)
        for queue in self.manager.cluster.cluster_queues.list():
            name = queue["metadata"]["name"]
            view = self.manager.engine.cluster_queue(name)
            if view is not None:
                log.info(
                    "cluster queue %s: %d pending, %d of them active; %d with quota, %d admitted",
                    name,
                    view.pending,
                    view.active,
                    view.reserving,
                    view.admitted,
                )

    async def run(self) -> None:
        """Work until stopped, or until cancelled, which ends it wherever it is.

        Raises LeadershipLost when another replica took over, CacheSyncError when the cluster cannot be read,
        and OSError when an address cannot be bound.
        """
        await self._ensure_namespace()
        try:
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(part.run()) for part in self._parts]
                others.append(tasks.create_task(self.manager.run_caches()))
                others.append(tasks.create_task(self._synced()))
                leading = tasks.create_task(self._run_leader())
                await self._stop.wait()
                await self._end(leading, others)
        except BaseExceptionGroup as group:
            raise first_error(group) from None

    async def _run_leader(self) -> None:
        if self._elector is None:
            await self.manager.run_leader()
        else:
            await self._elector.run(self.manager.run_leader)

    async def _end(self, leading: asyncio.Task[None], others: Sequence[asyncio.Task[None]]) -> None:
        """Finish writes in progress, release the lease, and only then stop the servers."""
        log.info("stopping")
        self.serving.leave()
        if not await self._writes.drain(WRITE_TIME):
            log.warning("requests in progress did not finish within %g s", WRITE_TIME)
        leading.cancel()
        await asyncio.wait([leading])
        await self.clock.sleep(LEAVING_TIME)
        for task in others:
            task.cancel()

    async def _synced(self) -> None:
        """Raises CacheSyncError unless the caches fill in time."""
        limit = self.configuration.controller.cache_sync_timeout
        try:
            async with asyncio.timeout(limit):
                await self.manager.synced()
        except TimeoutError:
            raise CacheSyncError(f"the caches did not synchronize within {limit:g} s") from None

    async def _ensure_namespace(self) -> None:
        """The namespace of lease and Secret: made where there is none and it may be, as for a first try."""
        name = self.configuration.namespace
        try:
            await self.client.get(NAMESPACES, name)
        except (ApiError, ConnectionError, TimeoutError) as error:
            if not isinstance(error, ApiError) or not error.not_found:
                return
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            try:
                await self.client.create(NAMESPACES, namespace)
            except (ApiError, ConnectionError, TimeoutError) as refused:
                log.warning("namespace %s does not exist: %s", name, refused)
