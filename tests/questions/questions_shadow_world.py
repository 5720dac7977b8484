"""A cluster that `pykueue shadow` follows in virtual time, where a story plays the manager's part."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from web_visibility_world import KUEUE, WORKLOADS, World, queues

from pykueue.api.resources import KUEUE_GROUP
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.engine import Options
from pykueue.kube.client import Client
from pykueue.kube.transport import MERGE_PATCH
from pykueue.manager.configuration import load
from pykueue.questions.cluster_state import followed_kinds
from pykueue.questions.shadow import KUEUE_FLUSH_DELAY, Report, Settings, Shadow
from pykueue.questions.shadow.followers import LogFile

#: What Kueue writes of a workload that does not fit.
NO_FIT = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default"
#: Longer than changes are held back.
SETTLED = 4.0


class Followed(World):
    """A cluster that a shadow follows."""

    shadow: Shadow

    async def follow(
        self, version: str = "v1beta2", options: Options | None = None, log: Path | None = None
    ) -> asyncio.Task[None]:
        """Follow Kueue's kinds in a version, and the manager's log."""
        client = Client(self._transport, clock=self.clock)
        kinds = [
            kind._replace(version=version) if kind.group == KUEUE_GROUP else kind
            for kind in await followed_kinds(client)
        ]
        file = LogFile(str(log)) if log is not None else None
        self.shadow = Shadow(client, options or Options(), kinds, Settings(), self.clock, log=file)
        task = asyncio.create_task(self.shadow.run())
        await self.pause(1)
        return task

    async def report(self) -> Report:
        await self.pause(SETTLED)
        return self.shadow.report()

    async def admit(self, name: str, cpu: str = "1", queue: str = "cq", flavor: str = "default") -> None:
        """Write the admission that a manager writes."""
        given = {"name": "main", "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": cpu}, "count": 1}
        await self.status(
            name,
            {
                "admission": {"clusterQueue": queue, "podSetAssignments": [given]},
                "conditions": [condition("QuotaReserved"), condition("Admitted")],
            },
        )

    async def requeue(self, name: str, message: str) -> None:
        await self.status(name, {"conditions": [condition("QuotaReserved", "False", "Pending", message)]})

    async def preempt(self, name: str, by: str) -> None:
        """Write the eviction that a manager writes."""
        found = await self.get(f"{WORKLOADS}/{by}")
        uid = found["metadata"]["uid"]
        message = f"Preempted to accommodate a workload (UID: {uid}, JobUID: u) due to prioritization"
        old = (await self.get(f"{WORKLOADS}/{name}"))["status"]["conditions"]
        evicted = [condition("Evicted", reason="Preempted"), condition("Preempted", "True", "X", message)]
        await self.status(name, {"conditions": [*old, *evicted]})

    async def status(self, name: str, status: dict[str, Any]) -> None:
        await self.request("PATCH", f"{WORKLOADS}/{name}/status", {"status": status}, MERGE_PATCH)


def condition(type: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, str]:
    time = "2026-01-01T00:00:00Z"
    reason = reason or type
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def without_manager(
    story: Callable[[Followed], Awaitable[None]], log: Path | None = None, **queue: Any
) -> None:
    """Tell a story on a cluster where the story plays Kueue's part: a ClusterQueue `cq` of 1 cpu."""

    async def main(clock: Clock) -> None:
        cluster = Cluster(clock=clock, rng=random.Random(1), configuration=load(None), parts=("apiserver",))
        await cluster.start()
        work = asyncio.create_task(cluster.run())
        task = None
        try:
            await cluster.synced()
            world = Followed(cluster, clock)
            for obj in queues():
                if obj["kind"] == "ClusterQueue":
                    obj["spec"].update(queue)
                place = "/namespaces/default" if "namespace" in obj["metadata"] else ""
                await world.request("POST", f"{KUEUE}{place}/{obj['kind'].lower()}s", obj)
            task = await world.follow(options=Options(flush_delay=KUEUE_FLUSH_DELAY), log=log)
            await story(world)
        finally:
            for each in filter(None, (task, work)):
                each.cancel()
                await asyncio.gather(each, return_exceptions=True)
            await cluster.stop()

    run_virtual(main)
