"""An embedded cluster in virtual time with stand-in operators and simulated nodes; it queues no jobs."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from pykueue.api.jobkinds import DESCRIBED, LEADER_WORKER_SET
from pykueue.api.resources import EVENTS, PODS, Resource
from pykueue.clock import Clock
from pykueue.cluster import JOB_KINDS, Cluster
from pykueue.embedded.nodes.pool import NodePool
from restartable_cluster import RestartableCluster, play_on

Object = dict[str, Any]

RUN_TIME = "sim.pykueue.io/run-time"
EXIT_CODE = "sim.pykueue.io/exit-code"
RESOURCES: dict[str, Resource] = {
    kind.resource.kind: kind.resource for kind in (*DESCRIBED, LEADER_WORKER_SET)
}


class World(RestartableCluster):
    """What a test sees and does; jobs are in the namespace `default`."""

    def __init__(self, clock: Clock, job_kinds: tuple[str, ...]) -> None:
        super().__init__(clock)
        self._job_kinds = job_kinds

    def make_cluster(self) -> Cluster:
        pools = [NodePool(name="node", count=4, allocatable={"cpu": "64", "memory": "256Gi", "pods": "110"})]
        return Cluster(
            clock=self.clock,
            rng=random.Random(1),
            pools=pools,
            store=self.store,
            parts=("apiserver", "kube"),
            job_kinds=self._job_kinds,
        )

    # Users

    async def create(self, job: Object) -> Object:
        return await self.client.create(RESOURCES[job["kind"]], job)

    async def patch(self, job: Object, spec: Object) -> Object:
        resource, name = RESOURCES[job["kind"]], job["metadata"]["name"]
        return await self.client.patch(resource, name, "default", {"spec": spec})

    # What they see

    async def get(self, job: Object) -> Object:
        return await self.client.get(RESOURCES[job["kind"]], job["metadata"]["name"], "default")

    async def status(self, job: Object) -> Object:
        return (await self.get(job)).get("status") or {}

    async def conditions(self, job: Object) -> list[tuple[str, str]]:
        """Type and status, in their order."""
        return [(one["type"], one["status"]) for one in (await self.status(job)).get("conditions") or ()]

    async def all(self, resource: Resource) -> dict[str, Object]:
        found = (await self.client.list(resource, "default")).items
        return {one["metadata"]["name"]: one for one in found}

    async def pods(self) -> dict[str, Object]:
        """Those that are not being deleted, by name."""
        pods = await self.all(PODS)
        return {name: pod for name, pod in sorted(pods.items()) if not _is_deleting(pod)}

    async def phases(self) -> dict[str, str]:
        return {name: pod["status"]["phase"] for name, pod in (await self.pods()).items()}

    async def events(self, job: Object) -> list[str]:
        """Reasons of the events about a job, each once."""
        selector = f"involvedObject.name={job['metadata']['name']}"
        found = (await self.client.list(EVENTS, "default", field_selector=selector)).items
        return sorted({one["reason"] for one in found})


def _is_deleting(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def play(story: Callable[[World], Awaitable[None]], job_kinds: tuple[str, ...] = JOB_KINDS) -> None:
    """Run a test in virtual time."""

    play_on(lambda clock: World(clock, job_kinds), story)


def template(container: str, run_time: str = "20s", exit_code: str = "0", **spec: Any) -> Object:
    """A pod template with one container of that name."""
    return {
        "metadata": {"annotations": {RUN_TIME: run_time, EXIT_CODE: exit_code}},
        "spec": {
            "containers": [{"name": container, "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            **spec,
        },
    }
