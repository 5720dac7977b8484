"""Live pages by server-sent events: the content of a page is sent again whenever it has changed.

Each stream ends with the session and with its token, and its rights are reviewed again every REVIEW_TIME. How
often pages are made follows from what that costs: all streams together take at most half of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import orjson
from aiohttp import web

from pykueue.clock import Clock
from pykueue.kube.errors import ApiError

from .security.reviews import TokenEndedError
from .security.sessions import Session, Sessions
from .state.board import Board

#: Seconds between two versions of a page at least.
PAUSE: Final = 0.4
#: Part of one core that making pages for all streams may take.
BUSY: Final = 0.5
#: Seconds without a change after which a page is made again, for its ages and the rights of its user; a
#: stream that has nothing to send then sends a comment.
HEARTBEAT: Final = 10.0
#: Seconds after which a page is made again where the cluster could not be reached.
RETRY: Final = 5.0
#: Streams of one session and of all.
STREAMS_MAX, ALL_STREAMS_MAX = 12, 1000

#: Makes the content of a page; None where the user may not see it (any more).
Make = Callable[[], Awaitable[str | None]]

log = logging.getLogger(__name__)


class Streams:
    """All open streams of one dashboard."""

    def __init__(self, board: Board, sessions: Sessions, clock: Clock) -> None:
        self._board = board
        self._sessions = sessions
        self._clock = clock
        self.count = 0
        #: Seconds that making one page takes, smoothed.
        self._cost = 0.0
        self._turns = asyncio.Lock()

    @property
    def pause(self) -> float:
        """Seconds between two versions of one page, so that all streams together stay within BUSY."""
        return max(PAUSE, self._cost * self.count / BUSY)

    def made(self, seconds: float) -> None:
        """Count what making one version of a page took; 0 where an earlier one was used."""
        self._cost += (seconds - self._cost) * 0.05

    async def turn(self) -> None:
        """Wait until a page may be made: one at a time, and other requests in between.

        A change wakes all streams at once; without turns a request would wait for all their pages.
        """
        async with self._turns:
            await asyncio.sleep(0)

    async def serve(
        self, request: web.Request, session: Session, make: Make, seconds: float
    ) -> web.StreamResponse:
        """Send versions of a page until the session, the token or the connection ends."""
        if session.streams >= STREAMS_MAX or self.count >= ALL_STREAMS_MAX:
            raise web.HTTPTooManyRequests(text="too many streams", headers={"Retry-After": "10"})
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        session.streams += 1
        self.count += 1
        try:
            await response.prepare(request)
            with contextlib.suppress(ConnectionError, asyncio.TimeoutError):
                await self._run(response, session, make, seconds)
        finally:
            session.streams -= 1
            self.count -= 1
            session.used = self._clock.monotonic()
        return response

    async def _run(self, response: web.StreamResponse, session: Session, make: Make, seconds: float) -> None:
        sent: int | None = None
        quiet = 0.0
        while True:
            revision = self._board.revision
            try:
                # Reviews are part of making it: their verdicts hold for REVIEW_TIME.
                content = await make()
            except TokenEndedError:
                await self._sessions.end(session)
                content = None
            except (ApiError, ConnectionError, TimeoutError) as error:
                await _send(response, "error", f"The cluster cannot be reached: {error}")
                await self._clock.sleep(RETRY)
                continue
            if not self._sessions.lasts(session):
                await _send(response, "end", "")
                return
            if content is None:
                await _send(response, "denied", "")
                return
            found = hash(content)
            if found != sent:
                await _send(response, "page", content)
                sent, quiet = found, 0.0
            await self._clock.sleep(max(self.pause, seconds))
            quiet += await self._change(revision)
            if quiet >= HEARTBEAT:
                await response.write(b": alive\n\n")
                quiet = 0.0

    async def _change(self, revision: int) -> float:
        """Wait for a change, at most HEARTBEAT; how long that took, in seconds."""
        began = self._clock.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT):
                await self._board.changed(revision)
        return self._clock.monotonic() - began


async def _send(response: web.StreamResponse, event: str, data: str) -> None:
    await response.write(b"event: " + event.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n")
