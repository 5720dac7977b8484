"""Leader election: one replica leads at a time, and another soon after it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from kube_fake import FakeApi, Object

from pykueue.api.resources import LEASES
from pykueue.clock import Clock, run_virtual
from pykueue.kube.client import Client
from pykueue.kube.leases import LeaderElector, LeadershipLost
from pykueue.kube.transport import Request

PATH = LEASES.path("sys", "manager")


class Cut(FakeApi):
    """One process's connection to the server, which can be cut."""

    def __init__(self, server: FakeApi) -> None:
        super().__init__()
        self.server = server
        self.up = True
        #: Seconds between a write and its answer.
        self.late = 0.0

    async def call(self, request: Request) -> object:
        if not self.up:
            raise ConnectionRefusedError("cut")
        answer = await self.server.call(request)
        if self.late and request.method == "PUT":
            await asyncio.sleep(self.late)
        return answer


class Process:
    """A candidate that notes when it leads."""

    def __init__(self, server: FakeApi, clock: Clock, name: str, log: list[tuple[float, str]]) -> None:
        self.link = Cut(server)
        self.name = name
        self.log = log
        self.elector = LeaderElector(Client(self.link, clock=clock), clock, "sys", "manager", name)
        self.task = asyncio.create_task(self.elector.run(self.lead))

    async def lead(self) -> None:
        loop = asyncio.get_running_loop()
        self.log.append((loop.time(), f"{self.name} leads"))
        try:
            await loop.create_future()
        finally:
            self.log.append((loop.time(), f"{self.name} stops"))

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


def story(
    tell: Callable[[Clock, FakeApi, Callable[[str], Process], list[tuple[float, str]]], Awaitable[None]],
) -> None:
    async def main(clock: Clock) -> None:
        server = FakeApi()
        log: list[tuple[float, str]] = []
        processes: list[Process] = []

        def start(name: str) -> Process:
            processes.append(Process(server, clock, name, log))
            return processes[-1]

        await tell(clock, server, start, log)
        for process in processes:
            process.link.up = False
            with suppress(LeadershipLost):
                await process.stop()

    run_virtual(main)


def spec(server: FakeApi) -> Object:
    found: Object = server.objects[PATH]["spec"]
    return found


def test_a_leader_that_shuts_down_is_succeeded_within_the_retry_time() -> None:
    async def tell(clock: Clock, server: FakeApi, start: Callable[[str], Process], log: list) -> None:  # type: ignore[type-arg]
        a = start("a")
        await clock.sleep(1)
        start("b")
        await clock.sleep(100)
        assert log == [(0.0, "a leads")]
        assert spec(server)["holderIdentity"] == "a"
        assert spec(server)["renewTime"] == "2026-01-01T00:01:40.000000Z"
        await a.stop()
        assert spec(server)["holderIdentity"] == ""
        await clock.sleep(2.1)
        assert [what for _, what in log] == ["a leads", "a stops", "b leads"]
        assert log[2][0] - log[1][0] <= 2.1
        assert spec(server)["leaseTransitions"] == 1

    story(tell)


def test_a_leader_that_is_cut_off_stops_before_another_starts() -> None:
    async def tell(clock: Clock, server: FakeApi, start: Callable[[str], Process], log: list) -> None:  # type: ignore[type-arg]
        a = start("a")
        await clock.sleep(1)
        start("b")
        await clock.sleep(30)
        a.link.up = False
        cut = asyncio.get_running_loop().time()
        await clock.sleep(60)
        (_, _), (stopped, second), (started, third) = log
        assert (second, third) == ("a stops", "b leads")
        assert stopped < started
        assert started - cut <= 20
        with pytest.raises(LeadershipLost, match="not renewed for 10 s"):
            await a.task

    story(tell)


@pytest.mark.parametrize("late", [3, 6, 7.5, 7.9, 9])
def test_a_renewal_whose_answer_comes_late_counts_from_when_it_was_sent(late: float) -> None:
    async def tell(clock: Clock, server: FakeApi, start: Callable[[str], Process], log: list) -> None:  # type: ignore[type-arg]
        a = start("a")
        await clock.sleep(1)
        start("b")
        await clock.sleep(30.5)
        a.link.late = late
        await clock.sleep(late)
        a.link.up = False
        await clock.sleep(60)
        (_, _), (stopped, second), (started, third) = log
        assert (second, third) == ("a stops", "b leads")
        assert stopped < started
        with pytest.raises(LeadershipLost):
            await a.task

    story(tell)


@pytest.mark.parametrize("seconds", [0.1, 0.3, 0.7, 1.1, 2.3, 3.3])
def test_a_deadline_that_no_clock_shows_exactly_passes_all_the_same(seconds: float) -> None:
    async def tell(clock: Clock, server: FakeApi, start: Callable[[str], Process], log: list) -> None:  # type: ignore[type-arg]
        for _ in range(30):
            # Sums of these are never what they should be.
            await clock.sleep(seconds)
        a = start("a")
        await clock.sleep(10 * seconds)
        a.link.up = False
        with pytest.raises(LeadershipLost, match="not renewed for 10 s"):
            await a.task

    story(tell)


def test_a_short_outage_or_a_strangers_edit_changes_nothing() -> None:
    async def tell(clock: Clock, server: FakeApi, start: Callable[[str], Process], log: list) -> None:  # type: ignore[type-arg]
        a = start("a")
        start("b")
        await clock.sleep(30)
        a.link.up = False
        await clock.sleep(5)
        a.link.up = True
        await clock.sleep(1)
        server.put(LEASES, "manager", "sys", metadata={"labels": {"x": "y"}}, spec=spec(server))
        await clock.sleep(60)
        assert log == [(0.0, "a leads")]

    story(tell)


def test_a_stolen_lease_ends_the_leadership() -> None:
    async def tell(clock: Clock, server: FakeApi, start: Callable[[str], Process], log: list) -> None:  # type: ignore[type-arg]
        a = start("a")
        await clock.sleep(5)
        server.put(LEASES, "manager", "sys", spec={**spec(server), "holderIdentity": "thief"})
        await clock.sleep(5)
        assert [what for _, what in log] == ["a leads", "a stops"]
        with pytest.raises(LeadershipLost, match="thief"):
            await a.task
        assert spec(server)["holderIdentity"] == "thief"

    story(tell)


@pytest.mark.parametrize(
    ("silent", "cause"),
    [
        (False, "lease sys/manager not renewed for 10 s: cut"),
        (True, "lease sys/manager not renewed for 10 s: the API server does not answer"),
    ],
)
def test_lost_leadership_names_the_lease_and_the_last_error(silent: bool, cause: str) -> None:
    async def tell(clock: Clock, server: FakeApi, start: Callable[[str], Process], log: list) -> None:  # type: ignore[type-arg]
        a = start("a")
        await clock.sleep(5)
        a.link.up, a.link.late = silent, 3600.0
        with pytest.raises(LeadershipLost) as lost:
            await a.task
        assert str(lost.value) == cause
        a.link.late = 0.0

    story(tell)
