"""Users beside whom nodes fail, are tainted, cordoned and deleted."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pykueue.api.objects import Object
from pykueue.api.resources import NODES
from pykueue.clock import Clock
from pykueue.embedded.nodes.pool import NodePool, ensure_nodes
from pykueue.kube.client import Client

from .scenario import Scenario
from .trace import Trace
from .users import Users


class NodeUsers(Users):
    """Users of a cluster with these nodes; in the end all of them are sound again."""

    pools: Sequence[NodePool]

    def __init__(
        self, client: Client, clock: Clock, rng: random.Random, scenario: Scenario, trace: Trace
    ) -> None:
        super().__init__(client, clock, rng, scenario, trace)
        nodes = (self._fail_node, self._taint_node, self._cordon_node, self._delete_node, self._heal_nodes)
        self._acts = (*self._acts, *nodes * 5)

    async def _change_node(self, what: str, patch: Object) -> str:
        node = await self._one(NODES)
        if node is None:
            return ""
        await self._patch(NODES, node, patch)
        return f"{what} node {node['metadata']['name']}"

    async def _fail_node(self) -> str:
        how = self._rng.choice(("crash", "unreachable", "not-ready"))
        annotations = {"sim.pykueue.io/fail": how}
        return await self._change_node(f"({how}) fails", {"metadata": {"annotations": annotations}})

    async def _taint_node(self) -> str:
        effect = self._rng.choice(("NoSchedule", "NoExecute"))
        taints = [{"key": "example.com/repair", "effect": effect}]
        return await self._change_node(f"taints ({effect})", {"spec": {"taints": taints}})

    async def _cordon_node(self) -> str:
        return await self._change_node("cordons", {"spec": {"unschedulable": True}})

    async def _delete_node(self) -> str:
        node = await self._one(NODES)
        if node is None:
            return ""
        await self._client.delete(NODES, node["metadata"]["name"], None)
        return f"deletes node {node['metadata']['name']}"

    async def _heal_nodes(self) -> str:
        for node in await self._all(NODES):
            spec: Object = {"unschedulable": None, "taints": None}
            await self._patch(
                NODES, node, {"metadata": {"annotations": {"sim.pykueue.io/fail": None}}, "spec": spec}
            )
        await ensure_nodes(self._client.transport, self._clock, self.pools)
        return "heals all nodes"

    async def mend(self) -> None:
        await self._heal_nodes()  # first: a queue that is deleted waits for jobs, and those for nodes
        await super().mend()
