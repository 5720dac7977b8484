"""One replica of the manager on a cluster: it knows and answers always, and acts while it leads."""

from __future__ import annotations

import asyncio
import random
import socket

from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.leases import LeaderElector
from pykueue.kube.transport import Transport

from .configuration import Configuration
from .manager import Manager
from .serving import Serving


class Replica:
    """A manager with its servers and, where the configuration says so, an election among replicas."""

    def __init__(
        self, transport: Transport, configuration: Configuration, clock: Clock, rng: random.Random
    ) -> None:
        self.manager = Manager(transport, configuration, clock, rng)
        self.serving = Serving(self.manager)
        election = configuration.leader_election
        self._elector: LeaderElector | None = None
        if election.leader_elect:
            self._elector = LeaderElector(
                Client(transport, clock=clock),
                clock,
                election.resource_namespace or configuration.namespace,
                election.resource_name,
                f"{socket.gethostname()}_{rng.getrandbits(64):016x}",
                duration=election.lease_duration,
                deadline=election.renew_deadline,
                retry=election.retry_period,
            )

    async def run(self) -> None:
        """Work until cancelled. Raises LeadershipLost when another replica took over."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.manager.follow())
            tasks.create_task(self.serving.run())
            if self._elector is None:
                tasks.create_task(self.manager.lead())
            else:
                tasks.create_task(self._elector.run(self.manager.lead))
