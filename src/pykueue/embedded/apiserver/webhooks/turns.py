"""How many calls one address gets at the same time, and how long each may take.

A program that answers slowly because it has much to do would answer none of a thousand simultaneous calls in
time. Calls beyond a bound therefore wait, and their time begins when they are sent. As long as the program
answers anything, the others wait for their turn; one that answers nothing fails them all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

Answer = TypeVar("Answer")

#: Calls to one address at the same time.
CALLS_UNDER_WAY = 64
#: Seconds a call waits for its turn at most.
WAITING_TIME = 60.0
#: Turns of the event loop after the end of a call's time in which what has arrived by then is still read:
#: this process may have been stopped, or without a processor, for most of that time.
_LAST_TURNS = 8


class Turns:
    """The calls to one address."""

    def __init__(self) -> None:
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: When a call was answered last, in the loop's time.
        self._answered = 0.0

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._under_way > 0

    async def call(self, send: Callable[[], Awaitable[Answer]], seconds: float) -> Answer:
        """What `send` returns, which has `seconds` from the call's turn on.

        Raises TimeoutError, and what `send` raises.
        """
        await self._take(seconds)
        try:
            answer = await _within(send(), seconds)
            self._answered = asyncio.get_running_loop().time()
            return answer
        finally:
            self._give_back()

    async def _take(self, seconds: float) -> None:
        if self._under_way < CALLS_UNDER_WAY:
            self._under_way += 1
            return
        loop = asyncio.get_running_loop()
        begun = loop.time()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        try:
            while not turn.done():
                end = min(begun + WAITING_TIME, max(begun, self._answered) + seconds)
                left = end - loop.time()
                if left <= 0:
                    raise TimeoutError
                await asyncio.wait((turn,), timeout=left)
        except BaseException:
            if turn.done():
                self._give_back()
            else:
                self._waiting.remove(turn)
            raise

    def _give_back(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._under_way -= 1


async def _within(answer: Awaitable[Answer], seconds: float) -> Answer:
    """Await an answer for some seconds. Raises TimeoutError.

    Timers come before what was received in the same turn of the loop; `asyncio.timeout` would give up an
    answer that is there to be read.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        next_step: asyncio.Handle

        def run_out(turns: int) -> None:
            nonlocal next_step
            if turns:
                next_step = loop.call_soon(run_out, turns - 1)
            else:
                limit.reschedule(loop.time())

        next_step = loop.call_later(seconds, run_out, _LAST_TURNS)
        try:
            return await answer
        finally:
            next_step.cancel()
