"""A whole cluster in virtual time that can be restarted, and what jobs of any kind look like in it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from stories_world import condition, holds

from pykueue.api.jobkinds import DESCRIBED, LEADER_WORKER_SET, JobKind
from pykueue.api.resources import CLUSTER_QUEUES, JOB_SETS, JOBS, PODS, WORKLOADS, Resource
from pykueue.api.yaml import load_documents
from pykueue.clock import Clock
from pykueue.cluster import Cluster
from pykueue.embedded.apiserver.webhooks.admission import Webhook
from pykueue.embedded.nodes.pool import NodePool, Simulation
from pykueue.kube.discovery import Discovery
from pykueue.simulate.submit import Submitter
from queue_manifests import cluster_queue, flavor, local_queue, priority
from restartable_cluster import RestartableCluster, play_on

Object = dict[str, Any]

KINDS: dict[str, JobKind] = {kind.resource.kind: kind for kind in (*DESCRIBED, LEADER_WORKER_SET)}
#: What the flavor adds to every pod.
NODE_LABELS = {"pool": "batch"}
TOLERATION = {"key": "batch", "operator": "Exists", "effect": "NoSchedule"}


def objects(cpu: int) -> list[Object]:
    """A queue `q` whose flavor has labels and a toleration, and priorities `low` and `high`."""
    taint = {"key": "batch", "effect": "NoSchedule"}
    quota: dict[str, dict[str, str | int]] = {"batch": {"cpu": cpu, "memory": "1Ti"}}
    queue = cluster_queue("q", quota, preemption={"withinClusterQueue": "LowerPriority"})
    spec = {"nodeLabels": NODE_LABELS, "nodeTaints": [taint], "tolerations": [TOLERATION]}
    return [flavor("batch", **spec), queue, local_queue("q"), priority("low", 1), priority("high", 10)]


class World(RestartableCluster):
    """The cluster, and what a story does to it and sees of it; jobs are in the namespace `default`."""

    def __init__(self, clock: Clock, cpu: int) -> None:
        super().__init__(clock)
        self._cpu = cpu
        self._starts = 0
        #: Asked by every cluster that is started from now on.
        self.webhooks: list[Webhook] = []

    def make_cluster(self) -> Cluster:
        self._starts += 1
        amounts: dict[str, str | int | float] = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        node = NodePool(
            name="batch",
            count=4,
            allocatable=amounts,
            labels=dict(NODE_LABELS),
            simulation=Simulation(stop_delay="5s"),
        )
        made = Cluster(clock=self.clock, rng=random.Random(self._starts), pools=[node], store=self.store)
        assert made.server is not None
        for webhook in self.webhooks:
            made.server.admission.register(webhook)
        return made

    async def start(self) -> None:
        await super().start()
        await self.cluster.synced()
        self._submitter = Submitter(self.client, Discovery(self.cluster.transport("tester")), self.clock)

    async def create(self, *manifests: Object) -> None:
        await self._submitter.create(list(manifests))

    async def until(self, true: Callable[[], Awaitable[bool]], seconds: float = 600.0) -> None:
        """Wait until something is so, looking every half second; pods never request more than the quota."""
        end = self.clock.time() + seconds
        while not await true():
            assert self.clock.time() < end, "this does not come true"
            requested = await self.requested()
            assert requested <= self._cpu * 1000, f"pods request {requested}m of {self._cpu} CPUs"
            await self.clock.sleep(0.5)

    async def get(self, job: Object) -> Object:
        resource = KINDS[job["kind"]].resource if job["kind"] in KINDS else _OTHERS[job["kind"]]
        return await self.client.get(resource, job["metadata"]["name"], "default")

    async def all(self, resource: Resource) -> list[Object]:
        namespace = "default" if resource.namespaced else None
        return (await self.client.list(resource, namespace)).items

    async def pods(self, selector: str = "") -> list[Object]:
        found = (await self.client.list(PODS, "default", label_selector=selector or None)).items
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def workloads(self, job: Object) -> list[Object]:
        """Those of a job, oldest name first."""
        uid = (await self.get(job))["metadata"]["uid"]
        found = [one for one in await self.all(WORKLOADS) if _owned_by(one, uid)]
        return sorted(found, key=lambda one: str(one["metadata"]["name"]))

    async def admitted(self, job: Object) -> bool:
        found = await self.workloads(job)
        return bool(found) and all(holds(one, "Admitted") for one in found)

    async def ready(self, job: Object) -> bool:
        found = await self.workloads(job)
        return bool(found) and all(holds(one, "PodsReady") and holds(one, "Admitted") for one in found)

    async def finished(self, job: Object) -> Object:
        """The condition Finished of its Workload; empty while it has none."""
        found = await self.workloads(job)
        return condition(found[0], "Finished") if found else {}

    async def wait_finished(self, job: Object, seconds: float) -> None:
        """Wait until its Workload has the condition Finished, for at most so many seconds."""

        async def has_finished() -> bool:
            return bool(await self.finished(job))

        await self.until(has_finished, seconds)

    async def used(self) -> int:
        """Millicores that are reserved."""
        queue = await self.client.get(CLUSTER_QUEUES, "q")
        flavors = queue["status"].get("flavorsReservation") or ()
        totals = [r["total"] for one in flavors for r in one["resources"] if r["name"] == "cpu"]
        return sum(int(one[:-1]) if one.endswith("m") else int(one) * 1000 for one in totals)

    async def requested(self) -> int:
        """Millicores that pods on nodes request, neither terminated nor terminating."""
        total = 0
        for pod in live(await self.pods()):
            if not pod["spec"].get("nodeName"):
                continue
            for container in pod["spec"]["containers"]:
                text = str(((container.get("resources") or {}).get("requests") or {}).get("cpu", "0"))
                total += int(text[:-1]) if text.endswith("m") else int(text) * 1000
        return total


_OTHERS = {"Job": JOBS, "JobSet": JOB_SETS}


def live(pods: Iterable[Object]) -> list[Object]:
    """Those that are neither terminated nor terminating: as of Jobs, only they hold quota."""
    return [
        pod
        for pod in pods
        if pod["status"].get("phase") not in ("Succeeded", "Failed")
        and not pod["metadata"].get("deletionTimestamp")
    ]


def _owned_by(workload: Object, uid: str) -> bool:
    return any(one["uid"] == uid for one in workload["metadata"].get("ownerReferences") or ())


def manifests(path: Path) -> list[Object]:
    """The objects of a file."""
    return list(load_documents(path.read_text(), path.name))


def play(story: Callable[[World], Awaitable[None]], cpu: int, ahead: Iterable[Object] = ()) -> None:
    """Run a story in virtual time, in a cluster with so many CPUs in the queue `q`, and these objects."""

    async def with_queues(world: World) -> None:
        await world.create(*objects(cpu), *ahead)
        await world.wait(2)
        await story(world)

    play_on(lambda clock: World(clock, cpu), with_queues)
