"""Waiting when the wall clock jumps and the monotonic clock does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pykueue.clock import JUMP_CHECK, VIRTUAL_EPOCH, Clock, JumpingClock, run_virtual
from pykueue.kube.workqueue import WorkQueue

HOUR = 3600.0


def jumping(test: Callable[[JumpingClock], Awaitable[None]]) -> None:
    async def main(_: Clock) -> None:
        await test(JumpingClock(VIRTUAL_EPOCH.timestamp()))

    run_virtual(main)


def test_recheck_is_called_within_the_check_interval_of_a_jump_forward_or_back() -> None:
    async def test(clock: JumpingClock) -> None:
        for jump in (2 * HOUR, -2 * HOUR):
            called = asyncio.Event()
            start = clock.monotonic()
            clock.recheck_later(HOUR, called.set)
            await clock.sleep(100)
            clock.offset += jump
            await called.wait()
            assert 100 <= clock.monotonic() - start <= 100 + JUMP_CHECK

    jumping(test)


def test_recheck_without_a_jump_is_called_at_its_time_and_leaves_no_timer() -> None:
    async def test(clock: JumpingClock) -> None:
        called: list[float] = []
        clock.recheck_later(HOUR, lambda: called.append(clock.monotonic()))
        clock.recheck_later(2 * HOUR, called.append, -1.0).cancel()
        clock.offset += 0.5
        await clock.sleep(2 * HOUR)
        assert called == [HOUR]
        timers = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        assert all(one.cancelled() for one in timers)

    jumping(test)


def test_sleep_until_ends_when_the_wall_clock_shows_the_time_after_jumps() -> None:
    async def test(clock: JumpingClock) -> None:
        start = clock.monotonic()
        sleep = asyncio.create_task(clock.sleep_until(clock.time() + HOUR))
        await clock.sleep(60)
        clock.offset -= HOUR
        await clock.sleep(HOUR)
        assert not sleep.done()
        clock.offset += HOUR
        await sleep
        assert HOUR <= clock.monotonic() - start <= HOUR + 60 + JUMP_CHECK

    jumping(test)


def test_jump_brings_waiting_keys_of_a_work_queue_forward_but_no_back_off() -> None:
    async def test(clock: JumpingClock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock, base=HOUR, cap=HOUR)
        queue.add_after("waiting", HOUR)
        queue.add_rate_limited("failed")
        await clock.sleep(100)
        clock.offset += 2 * HOUR
        assert await queue.get() == "waiting"
        assert clock.monotonic() <= 100 + JUMP_CHECK
        assert await queue.get() == "failed"
        assert clock.monotonic() == HOUR

    jumping(test)
