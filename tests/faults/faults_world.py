"""A cluster in which everything happens at random: jobs come and go, users doubt, the manager dies.

Job controller and garbage collector are played here in a few lines: what is on trial is the manager.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from faults_transport import CALM, FaultyTransport, Rates
from manager_stack import QUEUES, Stack, job

from pykueue.api.conversion import convert
from pykueue.api.crds import crds
from pykueue.clock import Clock
from pykueue.embedded.apiserver.admission import Webhook
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS
from pykueue.manager.manager import Manager
from pykueue.manager.workloads import reading

Object = dict[str, Any]

QUOTA = 10
#: Seconds between the beginnings of two worlds.
EPOCH = 8192.0
CONFIGURATION = """
waitForPodsReady:
  timeout: 20s
  recoveryTimeout: 10s
  requeuingStrategy: {backoffBaseSeconds: 4, backoffMaxSeconds: 10, backoffLimitCount: 3}
"""
CLASSES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: low}
value: 1
"""
PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}


class JumpingClock(Clock):
    """A wall clock that somebody sets now and then; waiting is not affected."""

    def jump(self, seconds: float) -> None:
        assert self._epoch is not None
        self._epoch += seconds


class World(Stack):
    """The stack with a faulty way between manager and server, and a watch over what must always hold."""

    def __init__(
        self, clock: Clock, seed: int, rates: Rates, server: Server, configuration: str = CONFIGURATION
    ) -> None:
        super().__init__(clock, configuration, seed)
        self.server = server
        self.client = Client(server.transport(), clock=clock)
        self.rates = rates
        self.chance = random.Random(seed)
        self.crashed = asyncio.Event()
        self.violations: list[str] = []
        self._players: list[asyncio.Task[None]] = []

    async def start_manager(self) -> None:
        self.faulty = FaultyTransport(
            self.server.transport("pykueue-manager"),
            self.clock,
            random.Random(self.chance.random()),
            self.rates,
            self._check,
            self.crashed.set,
        )
        self.manager = Manager(
            self.faulty, self.configuration, self.clock, random.Random(self.chance.random())
        )
        for hook in self.manager.webhooks():
            self.server.admission.register(
                Webhook(hook.name, hook.mutating, hook.rules, hook.review, hook.namespace_selector)
            )
        self._manager_task = asyncio.create_task(self.manager.run())

    async def restart_manager(self) -> None:
        if self._manager_task is not None:
            await self.stop_manager()
        self.crashed.clear()
        await self.clock.sleep(self.chance.uniform(0, 3))
        await self.start_manager()

    # What must always hold

    def _objects(self, kind: str) -> list[Object]:
        table = self.server.store.table(kind)
        return [record.object for record in table]

    def _check(self) -> None:
        """Called after every write of the manager."""
        workloads = self._objects("kueue.x-k8s.io/workloads")
        holding = [w for w in workloads if reading.has_quota(w) and not reading.is_finished(w)]
        used = sum(_usage(workload) for workload in holding)
        if used > QUOTA:
            names = [(w["metadata"]["name"], _usage(w)) for w in holding]
            self.violations.append(f"quota exceeded: {used} of {QUOTA}: {names}")
        by_owner: dict[str, list[Object]] = {}
        for workload in workloads:
            owner = reading.owner(workload)
            if owner is not None:
                by_owner.setdefault(str(owner["uid"]), []).append(workload)
        for obj in self._objects("batch/jobs"):
            if _ended(obj) or obj["metadata"].get("deletionTimestamp"):
                continue
            mine = by_owner.get(obj["metadata"]["uid"], [])
            name = obj["metadata"]["name"]
            if not obj["spec"].get("suspend") and not any(reading.is_admitted(w) for w in mine):
                self.violations.append(f"{name} may run without being admitted")
            active = (obj.get("status") or {}).get("active")
            if active and not any(reading.has_quota(w) for w in mine):
                self.violations.append(f"{name} has {active} pods without quota")
        try:
            self.manager.engine.check()
        except Exception as error:
            self.violations.append(f"engine: {error}")

    # Players

    def play(self, part: Callable[[], Awaitable[None]]) -> None:
        async def forever() -> None:
            while True:
                with suppress(ApiError):
                    await part()

        self._players.append(asyncio.create_task(forever()))

    async def leave(self) -> None:
        for player in self._players:
            player.cancel()
        await asyncio.gather(*self._players, return_exceptions=True)
        self._players.clear()

    async def job_controller(self) -> None:
        """Pods come up a while after their job may run, and go a while after it may not."""
        await self.clock.sleep(self.chance.uniform(0.1, 1.0))
        for obj in self._objects("batch/jobs"):
            with suppress(ApiError):
                await self._control(obj)

    async def _control(self, obj: Object) -> None:
        name, status = obj["metadata"]["name"], obj.get("status") or {}
        if _ended(obj) or obj["metadata"].get("deletionTimestamp"):
            return
        active, luck = status.get("active") or 0, self.chance.random()
        version = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}}
        if obj["spec"].get("suspend"):
            if active or status.get("startTime"):
                others = [c for c in status.get("conditions") or () if c["type"] != "Suspended"]
                suspended = {
                    "type": "Suspended",
                    "status": "True",
                    "reason": "JobSuspended",
                    "message": "",
                    "lastTransitionTime": self.now(),
                }
                if active or len(others) == len(status.get("conditions") or ()):
                    change = {"active": 0, "ready": 0, "conditions": [*others, suspended]}
                    await self.patch(JOBS, name, {**version, "status": change}, "status")
            return
        count = obj["spec"]["parallelism"]
        if not active or not status.get("startTime"):
            others = [c for c in status.get("conditions") or () if c["type"] != "Suspended"]
            change = {"active": count, "ready": 0, "startTime": self.now(), "conditions": others}
            await self.patch(JOBS, name, {**version, "status": change}, "status")
        elif (status.get("ready") or 0) < active:
            if luck < 0.7:
                await self.patch(JOBS, name, {**version, "status": {"ready": active}}, "status")
        elif luck < 0.15:
            await self.finish_job(name, failed=luck < 0.02)
        elif luck < 0.2:
            await self.patch(JOBS, name, {**version, "status": {"ready": active - 1}}, "status")

    async def garbage_collector(self) -> None:
        """Workloads go some time after their job."""
        await self.clock.sleep(self.chance.uniform(0.5, 2.0))
        uids = {obj["metadata"]["uid"] for obj in self._objects("batch/jobs")}
        for workload in self._objects("kueue.x-k8s.io/workloads"):
            owner = reading.owner(workload)
            if owner is not None and owner["uid"] not in uids:
                with suppress(ApiError):
                    await self.client.delete(WORKLOADS, workload["metadata"]["name"], "default")

    async def user(self) -> None:
        """Somebody does something."""
        await self.clock.sleep(self.chance.expovariate(1.0))
        jobs, chance = self._objects("batch/jobs"), self.chance
        act = chance.random()
        if act < 0.45 and len(jobs) < 12:
            await self._submit(f"j{chance.getrandbits(24):06x}")
        elif act < 0.55 and jobs:
            await self.delete(JOBS, chance.choice(jobs)["metadata"]["name"])
        elif act < 0.63 and jobs:
            name = chance.choice(jobs)["metadata"]["name"]
            await self.patch(JOBS, name, {"spec": {"parallelism": chance.randint(1, 8)}})
        elif act < 0.75:
            workloads = self._objects("kueue.x-k8s.io/workloads")
            if workloads:
                name = chance.choice(workloads)["metadata"]["name"]
                await self.patch(WORKLOADS, name, {"spec": {"active": chance.random() < 0.6}})
        elif act < 0.79:
            workloads = self._objects("kueue.x-k8s.io/workloads")
            if workloads:
                await self.delete(WORKLOADS, chance.choice(workloads)["metadata"]["name"])
        elif act < 0.87:
            resource, name = chance.choice([(CLUSTER_QUEUES, "cq"), (LOCAL_QUEUES, "lq")])
            policy = chance.choice(["None", "None", "Hold", "HoldAndDrain"])
            await self.patch(resource, name, {"spec": {"stopPolicy": policy}})
        elif act < 0.92:
            name = chance.choice(["high", "low"])
            await self.patch(WORKLOAD_PRIORITY_CLASSES, name, {"value": chance.randint(0, 100)})
        elif act < 0.95 and isinstance(self.clock, JumpingClock):
            self.clock.jump(chance.uniform(-5, 5))

    async def _submit(self, name: str) -> None:
        chance, size = self.chance, self.chance.randint(1, 8)
        labels, annotations = {}, {}
        if chance.random() < 0.5:
            labels["kueue.x-k8s.io/priority-class"] = chance.choice(["high", "low"])
        if chance.random() < 0.1:
            labels["kueue.x-k8s.io/max-exec-time-seconds"] = "15"
        if size > 1 and chance.random() < 0.2:
            annotations["kueue.x-k8s.io/job-min-parallelism"] = "1"
        await self.apply(job(name, size, labels=labels, annotations=annotations))

    async def death(self) -> None:
        """The manager dies between two writes, or anywhere, and is started again."""
        await self.clock.sleep(self.chance.uniform(2, 15))
        if self.chance.random() < 0.7:
            self.faulty.crash_after = self.chance.randint(0, 10)
            with suppress(TimeoutError):
                async with asyncio.timeout(20):
                    await self.crashed.wait()
        await self.restart_manager()

    # The end

    async def calm_down(self) -> None:
        """No more faults, no more changes of mind; what is running may end."""
        await self.leave()
        self.rates.__dict__.update(CALM.__dict__)
        await self.restart_manager()
        self.play(self.job_controller)
        self.play(self.garbage_collector)
        for resource, name in ((CLUSTER_QUEUES, "cq"), (LOCAL_QUEUES, "lq")):
            await self.patch(resource, name, {"spec": {"stopPolicy": "None"}})
        await self.clock.sleep(300)

    def unexplained(self) -> list[str]:
        """Workloads that neither ended nor say why they wait."""
        found = []
        for workload in self._objects("kueue.x-k8s.io/workloads"):
            waits = reading.denied(workload, reading.QUOTA_RESERVED)
            if not (reading.is_finished(workload) or reading.is_admitted(workload) or waits):
                found.append(f"{workload['metadata']['name']}: {workload.get('status')}")
            elif waits and reading.is_active(workload):
                found.append(
                    f"{workload['metadata']['name']} still waits: {workload['status']['conditions']}"
                )
        jobs = {obj["metadata"]["uid"]: obj for obj in self._objects("batch/jobs")}
        owned = {(reading.owner(w) or {}).get("uid") for w in self._objects("kueue.x-k8s.io/workloads")}
        found.extend(f"a workload of nobody: {uid}" for uid in owned - jobs.keys())
        lone = [obj for uid, obj in jobs.items() if uid not in owned and not _ended(obj)]
        found.extend(f"a job without workload: {obj['metadata']['name']}" for obj in lone)
        return found


async def served(clock: Clock, seed: int) -> Server:
    """A server with the queues that every world needs; worlds use it one after the other."""
    server = Server(MemoryStore(), clock, random.Random(seed))
    await server.start()
    await server.install_crds(crds())
    server.register_conversion("kueue.x-k8s.io", convert)
    return server


async def run(clock: Clock, seeds: Iterable[int], rates: Callable[[int], Rates], seconds: float) -> None:
    """One world after the other; raises AssertionError naming the seed of the first that broke a rule."""
    server: Server | None = None
    try:
        for seed in seeds:
            # Every world begins alike, whatever came before it: a seed alone shows what it shows in a row.
            await clock.sleep(EPOCH - asyncio.get_running_loop().time() % EPOCH)
            world_clock = JumpingClock(clock._epoch)
            if server is None:
                server = await served(clock, seed)
            server.core.rng.seed(seed)
            server.core.clock = world_clock
            world = World(world_clock, seed, rates(seed), server)
            await _live(world, seconds)
            found = "\n".join(dict.fromkeys(world.violations))
            assert not found, f"seed {seed}: {found}"
    finally:
        if server is not None:
            await server.stop()


async def _live(world: World, seconds: float) -> None:
    """Chaos for so many seconds, then calm, then nothing: what must hold goes to `violations`."""
    await world.start_manager()
    try:
        await world.manager.synced()
        if not world._objects("kueue.x-k8s.io/clusterqueues"):
            await world.apply(QUEUES)
            await world.apply(CLASSES)
            await world.patch(CLUSTER_QUEUES, "cq", PREEMPTION)
        for name, value in (("high", 100), ("low", 1)):
            await world.patch(WORKLOAD_PRIORITY_CLASSES, name, {"value": value})
        for part in (world.job_controller, world.garbage_collector, world.user, world.death):
            world.play(part)
        await world.clock.sleep(seconds)
        await world.calm_down()
        world.violations.extend(world.unexplained())
        for obj in world._objects("batch/jobs"):
            await world.delete(JOBS, obj["metadata"]["name"])
        await world.clock.sleep(30)
        left = [w["metadata"]["name"] for w in world._objects("kueue.x-k8s.io/workloads")]
        if left:
            world.violations.append(f"left behind: {left}")
        await world.leave()
        before = world.faulty.calls
        await world.clock.sleep(3600)
        if world.faulty.calls != before:
            world.violations.append(f"{world.faulty.calls - before} requests in an idle hour")
        world._check()
    finally:
        await world.leave()
        await world.stop_manager()


def _usage(workload: Object) -> int:
    counts = reading.admitted_counts(workload)
    given_back = {e["name"]: e["count"] for e in workload["status"].get("reclaimablePods") or ()}
    return sum(count - min(count, given_back.get(name, 0)) for name, count in counts.items())


def _ended(obj: Object) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)
