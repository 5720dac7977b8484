"""A transport that loses, repeats, delays and refuses, as networks and servers do."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pykueue.clock import Clock
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request, Transport, WatchEvent

from .trace import Trace
from .writers import writing_as


@dataclass(frozen=True)
class Rates:
    """How likely each fault is, from 0 to 1, per request (or per watch event where it says so)."""

    #: A write is refused as if its resourceVersion were old.
    conflict: float = 0.0
    #: 500, 503 or 504, before anything was done; some with Retry-After.
    error: float = 0.0
    #: 429 with Retry-After.
    patience: float = 0.0
    #: The connection breaks or times out before the server saw the request.
    lost: float = 0.0
    #: The connection breaks or times out after the server has carried the request out.
    unsure: float = 0.0
    #: The request takes up to `delay` seconds each way.
    slow: float = 0.0
    delay: float = 0.0
    #: A watch breaks instead of delivering an event.
    drop: float = 0.0
    #: A watch is refused as too old (410), per watch opened.
    gone: float = 0.0
    #: A watch stands still for up to `stall_time` seconds before it delivers an event, and all after it.
    stall: float = 0.0
    stall_time: float = 0.0
    #: The process dies right before or right after a write.
    crash: float = 0.0
    #: Writing Events is refused (most of a run's writes are Events otherwise).
    no_events: bool = False


NO_FAULTS = Rates()


class FaultyTransport:
    """Carries requests to `inner` unless `rates` and the dice of `rng` want otherwise.

    When the process is to die, `on_crash` is called and no request is answered any more; those under way may
    still reach the server (`drained` waits for that).
    """

    def __init__(
        self,
        inner: Transport,
        clock: Clock,
        rng: random.Random,
        rates: Rates,
        trace: Trace,
        on_crash: Callable[[], None] = lambda: None,
    ) -> None:
        self.rates = rates
        self.faults: Counter[str] = Counter()
        #: Requests so far, those that failed among them, watches not.
        self.calls = 0
        #: Called before each request.
        self.on_call: Callable[[], None] = lambda: None
        #: Requests, which clients send again, and when each was sent first.
        self._sent: dict[int, tuple[Request, float]] = {}
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self._trace = trace
        self._on_crash = on_crash
        self._dead = False
        self._flights: set[asyncio.Task[Any]] = set()

    async def call(self, request: Request) -> Any:
        """The answer, or one of the faults."""
        self.calls += 1
        self._sent.setdefault(id(request), (request, self._clock.time()))
        self.on_call()
        if self._dead:
            await _forever()
        write = request.method != "GET"
        if self.rates.no_events and write and request.path.endswith("/events"):
            raise ApiError(500, "InternalError", "events are not stored in this run")
        if not self._rng.random() < self.rates.slow:
            return await self._carry(request, write)
        self._note("slow", request)
        flight = asyncio.ensure_future(self._delayed(request, write))
        self._flights.add(flight)
        flight.add_done_callback(self._landed)
        return await asyncio.shield(flight)

    def _landed(self, flight: asyncio.Task[Any]) -> None:
        self._flights.discard(flight)
        if not flight.cancelled():
            flight.exception()  # the caller may have been cancelled

    async def _delayed(self, request: Request, write: bool) -> Any:
        await self._clock.sleep(self._rng.uniform(0.0, self.rates.delay))
        answer = await self._carry(request, write)
        await self._clock.sleep(self._rng.uniform(0.0, self.rates.delay))
        if self._dead:
            await _forever()
        return answer

    async def _carry(self, request: Request, write: bool) -> Any:
        fault = self._draw(write)
        if fault not in ("", "unsure", "crash after"):
            await self._fail(fault, request)
        if not fault:
            return await self._call(request)
        try:
            answer = await self._call(request)
        except ApiError:
            if fault == "unsure":
                raise
            answer = None
        self._note(fault, request)
        if fault == "crash after":
            await self._die()
        del answer
        raise self._broken()

    async def _call(self, request: Request) -> Any:
        with writing_as("manager", self._sent[id(request)][1]):
            return await self._inner.call(request)

    def _draw(self, write: bool) -> str:
        """Which fault it is this time; empty for none."""
        rates, draw = self.rates, self._rng.random()
        for name, rate, concerned in (
            ("conflict", rates.conflict, write),
            ("error", rates.error, True),
            ("patience", rates.patience, True),
            ("lost", rates.lost, True),
            ("unsure", rates.unsure, write),
            ("crash before", rates.crash / 2, write and not self._dead),
            ("crash after", rates.crash / 2, write and not self._dead),
        ):
            if concerned:
                if draw < rate:
                    return name
                draw -= rate
        return ""

    async def _fail(self, fault: str, request: Request) -> None:
        self._note(fault, request)
        match fault:
            case "conflict" if request.method in ("POST", "DELETE"):
                raise ApiError(503, "ServiceUnavailable", "injected: the server is overloaded")
            case "conflict":
                raise ApiError(409, "Conflict", "injected: the object has been modified")
            case "error":
                code, reason = self._rng.choice(
                    ((500, "InternalError"), (503, "ServiceUnavailable"), (504, "Timeout"))
                )
                wait = self._rng.choice((None, None, 1.0))
                raise ApiError(code, reason, f"injected: {reason}", retry_after=wait)
            case "patience":
                wait = self._rng.choice((1.0, 2.0, 5.0))
                raise ApiError(429, "TooManyRequests", "injected: too many requests", retry_after=wait)
            case "lost":
                raise self._broken()
            case _:
                await self._die()

    def _broken(self) -> Exception:
        return self._rng.choice((ConnectionError, TimeoutError, ConnectionResetError))("injected")

    def _note(self, fault: str, request: Request) -> None:
        self.faults[fault] += 1
        self._trace.note("fault", f"{fault}: {request.method} {_short(request.path)}")

    # Death

    async def _die(self) -> None:
        self._dead = True
        self._on_crash()
        await _forever()

    def die(self) -> None:
        """Answer nothing any more."""
        self._dead = True

    async def drained(self) -> None:
        """Wait until what was under way at the time of death has reached the server or is lost."""
        assert self._dead
        await self._clock.sleep(2 * self.rates.delay)
        for flight in list(self._flights):
            flight.cancel()
        await asyncio.gather(*self._flights, return_exceptions=True)

    # Watches

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        """Events, late at times, until the watch breaks."""
        if self._dead:
            await _forever()
        rng = self._rng
        if self.rates.gone and "resourceVersion" in request.query and rng.random() < self.rates.gone:
            self._note("gone", request)
            raise ApiError(410, "Expired", "injected: too old resource version")
        if rng.random() < self.rates.lost:
            self._note("lost", request)
            raise self._broken()
        async with aclosing(self._inner.watch(request)) as events:
            async for event in events:
                if rng.random() < self.rates.drop:
                    self._note("drop", request)
                    if rng.random() < 0.5:
                        return
                    raise self._broken()
                if rng.random() < self.rates.stall:
                    self._note("stall", request)
                    await self._clock.sleep(rng.uniform(0.0, self.rates.stall_time))
                yield event

    async def close(self) -> None:
        await self._inner.close()


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


def _short(path: str) -> str:
    parts = path.split("/")
    for start in ("namespaces",):
        if start in parts[:-2]:
            return "/".join(parts[parts.index(start) + 2 :])
    return "/".join(parts[-3:])
