"""The cluster's own controllers, pod scheduler and nodes in the place of `JobRunner`: slower, real pods."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from pykueue.api.objects import Object
from pykueue.api.resources import Resource
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.controllers import Controllers
from pykueue.embedded.nodes import SimulatedNodes
from pykueue.embedded.nodes.pool import NodePool, Simulation, ensure_nodes
from pykueue.embedded.operators.catalog import named
from pykueue.embedded.operators.controller import Operators
from pykueue.embedded.podscheduler import PodScheduler

from .scenario import FLAVOR_LABEL, FLAVORS

#: Room for every pod of each flavor there could be, deleted ones that are still ending included.
POOLS = [
    NodePool(
        name=f"node-{flavor}",
        count=2,
        labels={FLAVOR_LABEL: flavor},
        allocatable={"cpu": "200", "memory": "200Gi", "pods": "200"},
        simulation=Simulation(run_time="1s-15s", ready_delay="0s-2s", stop_delay="0s-3s", failure_rate=0.02),
    )
    for flavor in FLAVORS
]


class RealPods:
    """Runs the pods of all jobs, those of `kinds` by stand-in operators. Their requests are reliable."""

    def __init__(
        self,
        server: Server,
        clock: Clock,
        rng: random.Random,
        kinds: tuple[str, ...] = (),
        pools: Sequence[NodePool] = POOLS,
    ) -> None:
        self._pools = pools
        self._server = server
        self._clock = clock
        self._rng = rng
        self._operators = named(kinds)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Declare the nodes and let everything work."""

        def fork() -> random.Random:
            return random.Random(self._rng.getrandbits(64))

        transport, clock = self._server.transport, self._clock
        await ensure_nodes(transport("system:nodes"), clock, self._pools)
        controllers = Controllers(transport("system:kube-controller-manager"), clock, fork())
        components: list[Controllers | PodScheduler | SimulatedNodes | Operators] = [
            controllers,
            PodScheduler(transport("system:kube-scheduler"), clock, fork()),
            SimulatedNodes(transport("system:nodes"), clock, fork(), events=False),
        ]
        if self._operators:
            stand_ins = transport("system:stand-in-operators")
            components.append(Operators(self._operators, stand_ins, clock, fork(), controllers.informers))
        for component in components:
            self._tasks.append(asyncio.create_task(component.run()))

    def job_stored(self, resource: Resource, before: Object | None, after: Object | None) -> None:
        """Nothing: the controllers watch the API."""

    def workload_stored(self, before: Object | None, after: Object | None) -> None:
        """Nothing: the controllers watch the API."""

    def stop(self) -> list[asyncio.Task[None]]:
        """End everything; returns what has to be awaited."""
        for task in self._tasks:
            task.cancel()
        return self._tasks
