"""Work queues and control loops: every key is looked at, once at a time, and again when that failed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
import uvloop

from pykueue.clock import Clock, run_virtual
from pykueue.kube.controller import TURN, Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.workqueue import WorkQueue


def test_a_key_may_be_added_after_less_than_a_millisecond_twice() -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(Clock())
        queue.add_after("a", 0.0001)
        queue.add_after("a", 0.0002)
        queue.add_after("a", 0.00005)
        assert await queue.get() == "a"
        assert not len(queue)

    uvloop.run(main())  # its timers differ from asyncio's


def test_a_key_waits_at_most_once_and_comes_back_when_added_during_its_work() -> None:
    async def main(clock: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock)
        for key in ("a", "b", "a"):
            queue.add(key)
        assert await queue.get() == "a"
        queue.add("a")
        assert len(queue) == 1
        assert await queue.get() == "b"
        queue.done("b")
        assert len(queue) == 0
        queue.done("a")
        assert await queue.get() == "a"

    run_virtual(main)


def test_of_delayed_wishes_the_earliest_counts_and_an_immediate_one_replaces_them() -> None:
    async def main(clock: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock)
        loop = asyncio.get_running_loop()
        queue.add_after("a", 5)
        queue.add_after("a", 2)
        queue.add_after("a", 9)
        assert await queue.get() == "a"
        assert loop.time() == 2
        queue.done("a")
        queue.add_after("a", 5)
        queue.add("a")
        await queue.get()
        queue.done("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await queue.get()

    run_virtual(main)


def test_of_times_asked_for_the_earliest_counts() -> None:
    async def main(clock: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock)
        loop = asyncio.get_running_loop()
        queue.add_at("a", 5)
        queue.add_at("a", 9)
        queue.add_at("a", 2)
        assert await queue.get() == "a"
        assert loop.time() == 2
        queue.add_at("a", 1)  # it is worked on: once more after that
        queue.done("a")
        assert await queue.get() == "a"
        assert loop.time() == 2
        queue.done("a")
        queue.add("a")
        queue.add_at("a", 50)  # it is in the queue already
        assert await queue.get() == "a"
        queue.done("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await queue.get()

    run_virtual(main)


def test_waiting_workers_are_served_even_when_one_of_them_gives_up() -> None:
    async def main(clock: Clock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock)
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await clock.sleep(0)
        queue.add("a")
        first.cancel()
        assert await second == "a"
        with suppress(asyncio.CancelledError):
            await first

    run_virtual(main)


def test_a_failed_key_is_tried_again_with_growing_delay_until_it_succeeds() -> None:
    async def main(clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        tried: list[float] = []
        errors = [ApiError(409, "Conflict", "x"), ConnectionError("x"), RuntimeError("bug"), None, None]

        async def reconcile(key: str) -> float | None:
            tried.append(loop.time())
            error = errors.pop(0)
            if error is not None:
                raise error
            return 100.0 if errors else None

        controller = Controller("c", reconcile, queue=WorkQueue(clock, base=1.0, cap=60.0))
        controller.queue.add("a")
        task = asyncio.create_task(controller.run())
        await clock.sleep(1000)
        assert tried == [0.0, 1.0, 3.0, 7.0, 107.0]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run_virtual(main)


def test_workers_share_the_keys_and_never_one_key() -> None:
    async def main(clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        gate = asyncio.Event()
        working: set[str] = set()
        most = 0
        finished: list[float] = []

        async def reconcile(key: str) -> float | None:
            nonlocal most
            assert key not in working
            working.add(key)
            most = max(most, len(working))
            await clock.sleep(1)
            working.discard(key)
            finished.append(loop.time())
            return None

        async def open_gate() -> None:
            await gate.wait()

        controller = Controller("c", reconcile, clock=clock, workers=5, wait_for=[open_gate])
        for number in range(20):
            controller.queue.add(f"k{number}")
        task = asyncio.create_task(controller.run())
        await clock.sleep(10)
        assert finished == []
        gate.set()
        await clock.sleep(0.5)
        controller.queue.add("k0")
        await clock.sleep(10)
        assert most == 5
        assert finished == [11.0] * 5 + [12.0] * 5 + [13.0] * 5 + [14.0] * 5 + [15.0]
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run_virtual(main)


def test_other_tasks_get_their_turn_among_many_keys_that_wait_for_nothing() -> None:
    async def main(clock: Clock) -> None:
        seen: list[int] = []

        async def look(key: int) -> None:
            seen.append(key)

        controller = Controller("looks", look, clock=clock, workers=2)
        for key in range(1000):
            controller.queue.add(key)
        task = asyncio.create_task(controller.run())
        longest = before = 0
        while len(seen) < 1000:
            await asyncio.sleep(0)
            longest, before = max(longest, len(seen) - before), len(seen)
        assert longest <= 2 * TURN
        assert seen == sorted(seen)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run_virtual(main)
