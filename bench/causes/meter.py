"""CPU time of this thread by cause: the manager's alone, and what is nested counted once."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

import orjson

from pykueue.kube.transport import Request, Transport, WatchEvent

#: Set in the tasks of the manager, and in all that they start.
IN_MANAGER: contextvars.ContextVar[bool] = contextvars.ContextVar("IN_MANAGER", default=False)

LOOP = "event loop and tasks"
SERVER = "server"
DECODING = "decoding"


class Meter:
    """Adds up seconds by cause while it is `on`; a cause that is entered within another one interrupts it."""

    def __init__(self) -> None:
        self.on = False
        self.seconds: dict[str, float] = {}
        self._causes: list[str] = []
        self._since = 0.0

    def enter(self, cause: str) -> None:
        """The time from now on is spent for this."""
        self._add()
        self._causes.append(cause)

    def leave(self) -> None:
        """The time from now on is spent as it was before."""
        self._add()
        self._causes.pop()

    @property
    def runs(self) -> bool:
        """Whether the manager runs, and is measured."""
        return bool(self._causes)

    def _add(self) -> None:
        now = time.thread_time()
        if self._causes:
            cause = self._causes[-1]
            self.seconds[cause] = self.seconds.get(cause, 0.0) + now - self._since
        self._since = now

    # What is measured

    def measured_callback(self) -> Callable[[Any], Any]:
        """What `Handle._run` is to be, so that callbacks of event loops that belong to the manager count."""
        run = asyncio.events.Handle._run

        def measured(handle: Any) -> Any:
            if not self.on or not handle._context.get(IN_MANAGER):
                return run(handle)
            self.enter(LOOP)
            try:
                return run(handle)
            finally:
                self.leave()

        return measured

    def function(self, owner: type, name: str, cause: str) -> None:
        """Count the time of a method, or of the steps of a coroutine, for this cause."""
        inner = owner.__dict__[name]
        if inspect.iscoroutinefunction(inner):

            async def outer(*args: Any, **named: Any) -> Any:
                return await self.driven(inner(*args, **named), cause)

            setattr(owner, name, outer)
            return

        def called(*args: Any, **named: Any) -> Any:
            if not self.runs:
                return inner(*args, **named)
            self.enter(cause)
            try:
                return inner(*args, **named)
            finally:
                self.leave()

        setattr(owner, name, called)

    @types.coroutine
    def driven(
        self, coro: Coroutine[Any, Any, Any], cause: str, context: contextvars.Context | None = None
    ) -> Generator[Any, Any, Any]:
        """Run a coroutine, each step for this cause and, where one is given, in that context."""
        inside = context or contextvars.copy_context()
        error: BaseException | None = None
        value: Any = None
        while True:
            measured = self.runs
            if measured:
                self.enter(cause)
            try:
                if error is not None:
                    waits_for = inside.run(coro.throw, error) if context else coro.throw(error)
                else:
                    waits_for = inside.run(coro.send, value) if context else coro.send(value)
            except StopIteration as end:
                return end.value
            finally:
                if measured:
                    self.leave()
            error = None
            try:
                value = yield waits_for
            except BaseException as raised:
                error = raised


class MeteredTransport:
    """Requests to a server in this process, whose time is left out; answers are decoded from text.

    Each request takes `latency` seconds of virtual time.
    """

    def __init__(self, inner: Transport, meter: Meter, latency: float) -> None:
        self._inner, self._meter, self._latency = inner, meter, latency
        self.requests = 0

    async def call(self, request: Request) -> Any:
        """The decoded answer."""
        self.requests += self._meter.on
        body = None if request.body is None else orjson.loads(orjson.dumps(request.body))
        sent = Request(
            request.method, request.path, request.query, body, request.content_type, request.accept
        )
        await asyncio.sleep(self._latency)

        async def answered() -> bytes:
            return orjson.dumps(await self._inner.call(sent))

        answer = self._decoded(await self._meter.driven(answered(), SERVER, _outside()))
        for item in [answer, *(answer.get("items") or ())]:
            item.get("metadata", {}).pop("managedFields", None)
        return answer

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        """Events as the server sends them."""
        context, events = _outside(), self._inner.watch(request)

        async def following() -> tuple[str, bytes]:
            event = await anext(events)
            return event.type, orjson.dumps(event.object)

        try:
            while True:
                try:
                    type_, text = await self._meter.driven(following(), SERVER, context)
                except StopAsyncIteration:
                    return
                obj = self._decoded(text)
                obj["metadata"].pop("managedFields", None)
                yield WatchEvent(type_, obj)
        finally:
            await events.aclose()

    async def close(self) -> None:
        """Close the connection inside."""
        await self._inner.close()

    def _decoded(self, text: bytes) -> Any:
        measured = self._meter.runs
        if measured:
            self._meter.enter(DECODING)
        try:
            return orjson.loads(text)
        finally:
            if measured:
                self._meter.leave()


def _outside() -> contextvars.Context:
    """A context that does not belong to the manager."""
    context = contextvars.copy_context()
    context.run(IN_MANAGER.set, False)
    return context
