"""Two managers on one cluster: the one that leads dies anywhere, and the API server is away for a while."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest
from manager_replica import configured
from manager_stack import QUEUES, Stack, job

from pykueue.api import conditions
from pykueue.api.objects import controller_of
from pykueue.api.resources import CLUSTER_QUEUES, JOBS, LEASES
from pykueue.clock import Clock, run_virtual
from pykueue.cluster import Cluster
from pykueue.embedded.nodes.pool import NodePool
from pykueue.kube.client import Client
from pykueue.kube.errors import ApiError
from pykueue.kube.leases import LeadershipLost
from pykueue.kube.transport import Request, Transport, WatchEvent
from pykueue.manager.replica import CacheSyncError, Replica

Object = dict[str, Any]

#: CPUs of the one ClusterQueue.
QUOTA = 10
JOBS_IN_ALL = 30
#: Runs by chance; `PYKUEUE_REPLICA_RUNS` makes them more.
SEEDS = int(os.environ.get("PYKUEUE_REPLICA_RUNS", "10"))
#: Seconds from the death of a leader until another must lead.
HAND_OVER = 20.0
CONFIGURATION = """
health: {healthProbeBindAddress: "0"}
metrics: {bindAddress: "0"}
leaderElection: {leaderElect: true}
"""


_BUSY = ApiError(503, "ServiceUnavailable", "unavailable")


class Link:
    """One process's way to the API server. Cut: the server is not there. Dead: the process is not."""

    def __init__(self, inner: Transport, clock: Clock, wrote: Callable[[], None], rng: random.Random) -> None:
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self._wrote = wrote
        self._cut = asyncio.Event()
        self.dies_after: int | None = None
        self.died = asyncio.Event()
        #: How likely a request is refused, lost on its way, or its answer is; and its delay in seconds.
        self.trouble = 0.0
        self.latency = 0.0

    def cut(self) -> None:
        self._cut.set()

    def mend(self) -> None:
        self._cut.clear()

    async def call(self, request: Request) -> Any:
        await self._alive()
        if self._cut.is_set():
            raise ConnectionRefusedError("connection refused")
        write = request.method != "GET" and LEASES.plural not in request.path
        if write and self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after == 0:
                # Before it is sent, or after it took effect and before the response.
                if self._rng.random() < 0.5:
                    await self._inner.call(request)
                self.died.set()
        await self._alive()
        rng = self._rng
        if self.latency:
            await self._clock.sleep(rng.uniform(0, self.latency))
        if rng.random() < self.trouble:
            raise rng.choice([ConnectionResetError("reset by peer"), TimeoutError("timed out"), _BUSY])
        answer = await self._inner.call(request)
        await self._alive()
        if write:
            self._wrote()
        if rng.random() < self.trouble:
            raise rng.choice([ConnectionResetError("reset by peer"), TimeoutError("timed out")])
        return answer

    async def _alive(self) -> None:
        if self.died.is_set():
            await asyncio.get_running_loop().create_future()

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        await self._alive()
        if self._cut.is_set():
            raise ConnectionRefusedError("connection refused")
        async with aclosing(self._inner.watch(request)) as events:
            while True:
                gone = asyncio.ensure_future(self._cut.wait())
                event = asyncio.ensure_future(anext(events, None))
                try:
                    await asyncio.wait({gone, event}, return_when=asyncio.FIRST_COMPLETED)
                    if not event.done():
                        raise ConnectionResetError("connection reset by peer")
                    found = event.result()
                finally:
                    gone.cancel()
                    event.cancel()
                    await asyncio.gather(gone, event, return_exceptions=True)
                await self._alive()
                if found is None:
                    return
                if self._rng.random() < self.trouble / 4:
                    raise ConnectionResetError("reset by peer")
                yield found

    async def close(self) -> None:
        await self._inner.close()


class Process:
    """A replica that is started again whenever it ends, as a kubelet does."""

    def __init__(self, world: World, name: str) -> None:
        self.link = Link(
            world.cluster.transport(name), world.clock, world.check, random.Random(world.rng.random())
        )
        self._world = world
        self.replica: Replica | None = None
        self.task = asyncio.create_task(self._run())

    @property
    def leads(self) -> bool:
        return self.replica is not None and self.replica.leads and not self.link.died.is_set()

    async def _run(self) -> None:
        world = self._world
        while True:
            rng = random.Random(world.rng.random())
            self.replica = Replica(self.link, configured(CONFIGURATION), world.clock, rng)
            with suppress(LeadershipLost, CacheSyncError):
                await self.replica.run()
                return
            await world.clock.sleep(1)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class World:
    """A whole cluster with two managers, and a watch over what must always hold."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self.clock = clock
        self.rng = random.Random(seed)
        pool = NodePool("node", {"cpu": "100", "memory": "100Gi", "pods": "500"})
        parts = ("apiserver", "kube")
        self.cluster = Cluster(clock=clock, rng=random.Random(seed), pools=[pool], parts=parts)
        self.violations: list[str] = []
        self.processes: list[Process] = []

    async def run(self, test: Callable[[World], Awaitable[None]]) -> None:
        await self.cluster.start()
        running = asyncio.create_task(self.cluster.run())
        users = Stack(self.clock, "", 1)
        assert self.cluster.server is not None
        self.client = users.client = Client(self.cluster.server.transport(), clock=self.clock)
        try:
            await users.apply(QUEUES)
            self.processes = [Process(self, name) for name in ("a", "b")]
            await self.clock.sleep(5)
            await self.client.patch(CLUSTER_QUEUES, "cq", None, {"metadata": {"labels": {"seen": "yes"}}})
            for number in range(JOBS_IN_ALL):
                await users.apply(job(f"j{number}", 1 + number % 4, suspend=True))
            await test(self)
            await self._all_done()
        finally:
            for process in self.processes:
                await process.end()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await self.cluster.stop()
        assert self.violations == []

    def again(self, process: Process) -> None:
        """Another process in the place of one that has ended."""
        self.processes[self.processes.index(process)] = Process(self, "again")

    def leader(self) -> Process | None:
        found = [process for process in self.processes if process.leads]
        if len(found) > 1:
            self.violations.append("two lead")
        return found[0] if found else None

    async def other_leads(self, than: Process) -> float:
        """Seconds until another leads."""
        begun = asyncio.get_running_loop().time()
        while (found := self.leader()) is None or found is than:
            await self.clock.sleep(0.1)
            assert asyncio.get_running_loop().time() - begun <= HAND_OVER
        return asyncio.get_running_loop().time() - begun

    async def _all_done(self) -> None:
        """Every job ends in the time that its turn takes, and every Workload with it."""
        for _ in range(600):
            await self.clock.sleep(1)
            self.check()
            jobs = self._objects("batch/jobs")
            if all(conditions.is_true(obj, "Complete") for obj in jobs):
                break
        waiting = [obj["metadata"]["name"] for obj in jobs if not conditions.is_true(obj, "Complete")]
        assert (len(jobs), waiting) == (JOBS_IN_ALL, [])
        # The leader may have died just now, and broken watches are retried within half a minute.
        await self.clock.sleep(HAND_OVER + 30)
        workloads = self._objects("kueue.x-k8s.io/workloads")
        assert len(workloads) == JOBS_IN_ALL
        assert all(conditions.is_finished(workload) for workload in workloads)

    def _objects(self, kind: str) -> list[Object]:
        assert self.cluster.server is not None
        return [record.object for record in self.cluster.server.store.table(kind)]

    def check(self) -> None:
        """Quota holds and nothing runs that was not admitted."""
        workloads = self._objects("kueue.x-k8s.io/workloads")
        holding = [w for w in workloads if conditions.has_quota(w) and not conditions.is_finished(w)]
        used = sum(_usage(workload) for workload in holding)
        if used > QUOTA:
            self.violations.append(f"{used} of {QUOTA} given")
        admitted = {(controller_of(w) or {}).get("uid") for w in workloads if conditions.is_admitted(w)}
        for obj in self._objects("batch/jobs"):
            if not obj["spec"].get("suspend") and obj["metadata"]["uid"] not in admitted:
                self.violations.append(f"{obj['metadata']['name']} may run without being admitted")


def _usage(workload: Object) -> int:
    """CPUs: every pod asks for one, and those that are done give it back."""
    given_back = sum(entry["count"] for entry in workload["status"].get("reclaimablePods") or ())
    return sum(conditions.admitted_counts(workload).values()) - int(given_back)


def play(seed: int, test: Callable[[World], Awaitable[None]]) -> None:
    async def main(clock: Clock) -> None:
        await World(clock, seed).run(test)

    run_virtual(main)


@pytest.mark.parametrize("writes", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 120])
def test_another_takes_over_from_a_leader_that_dies_at_any_write(writes: int) -> None:
    async def test(world: World) -> None:
        leader = world.leader()
        assert leader is not None
        leader.link.dies_after = writes
        await leader.link.died.wait()
        await world.other_leads(leader)
        await leader.end()

    play(writes, test)


def test_replicas_continue_after_the_api_server_was_away_for_half_a_minute() -> None:
    async def test(world: World) -> None:
        await world.clock.sleep(5)
        for process in world.processes:
            process.link.cut()
        await world.clock.sleep(30)
        # The leader has stopped: it could not know whether another leads.
        assert world.leader() is None
        for process in world.processes:
            process.link.mend()
        await world.clock.sleep(HAND_OVER)
        assert world.leader() is not None

    play(1, test)


def test_a_leader_that_alone_loses_the_api_server_gives_way_before_another_leads() -> None:
    async def test(world: World) -> None:
        leader = world.leader()
        assert leader is not None
        leader.link.cut()
        await world.other_leads(leader)
        await world.clock.sleep(10)
        leader.link.mend()
        await world.clock.sleep(20)
        assert world.leader() not in (None, leader)

    play(2, test)


def test_leader_that_gets_sigterm_finishes_its_writes_and_releases_the_lease() -> None:
    async def test(world: World) -> None:
        await world.clock.sleep(3)
        leader = world.leader()
        assert leader is not None
        assert leader.replica is not None
        leader.replica.stop()
        assert await world.other_leads(leader) <= 2.5
        await leader.task
        lease = await world.client.get(LEASES, "c1f6bfd2.kueue.x-k8s.io", "kueue-system")
        assert lease["spec"]["leaseTransitions"] == 1
        assert await world.client.list(JOBS)

    play(3, test)


@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_whatever_fails_two_managers_give_nothing_twice(first: int) -> None:
    """Requests fail, leaders die and come back, the API server goes: by chance, and repeatably."""

    async def test(world: World) -> None:
        rng = world.rng
        for process in world.processes:
            process.link.trouble, process.link.latency = rng.choice([0.0, 0.01, 0.05]), rng.uniform(0, 0.3)
        for _ in range(rng.randint(1, 4)):
            await world.clock.sleep(rng.uniform(0, 30))
            process = rng.choice(world.processes)
            match rng.choice(["die", "stop", "cut", "cut all"]):
                case "die":
                    process.link.dies_after = rng.randint(1, 20)
                    await world.clock.sleep(rng.uniform(0, 25))
                    process.link.died.set()
                    await process.end()
                    world.again(process)
                case "stop":
                    if process.replica is not None:
                        process.replica.stop()
                    await world.clock.sleep(10)
                    await process.end()
                    world.again(process)
                case "cut":
                    process.link.cut()
                    await world.clock.sleep(rng.uniform(0, 40))
                    process.link.mend()
                case "cut all":
                    for each in world.processes:
                        each.link.cut()
                    await world.clock.sleep(rng.uniform(0, 40))
                    for each in world.processes:
                        each.link.mend()
            world.leader()
        for process in world.processes:
            process.link.trouble = 0.0

    for seed in range(first, first + 5):
        try:
            play(seed, test)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
