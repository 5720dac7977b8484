"""Watches over HTTPS: they never use up the places of other requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import orjson

from pykueue.kube.echoes import Echoes
from pykueue.kube.errors import ApiError
from pykueue.kube.exchange import Answer, Fields
from pykueue.kube.refusals import refusal
from pykueue.kube.transport import Request, WatchEvent

if TYPE_CHECKING:
    from pykueue.kube.aiohttp_requests import AiohttpRequests
    from pykueue.kube.connections import Connections

#: Seconds after which the server ends a watch and the client begins another: a dead connection is noticed
#: that soon.
WATCH_TIMEOUT = 300
#: Seconds of grace before a silent watch is taken for dead.
WATCH_GRACE = 30.0


class Server(Protocol):
    """What a watch takes of the transport to an API server (`kube.http`)."""

    base_url: str
    #: Whether metadata.managedFields is left out of what comes in.
    strips: bool
    echoes: Echoes

    @property
    def origin(self) -> str: ...

    async def authorization(self) -> str | None: ...

    def connections(self) -> Connections | None: ...

    def through_aiohttp(self) -> AiohttpRequests: ...

    def target(self, path: str, query: Mapping[str, str]) -> str: ...

    def header_fields(self, request: Request, body: bytes | None, authorization: str | None) -> Fields: ...


async def watch_events(server: Server, request: Request) -> AsyncGenerator[WatchEvent, None]:
    """Events until the server ends the watch, at the latest after WATCH_TIMEOUT."""
    query = {"timeoutSeconds": str(WATCH_TIMEOUT), **request.query}
    silence = float(query["timeoutSeconds"]) + WATCH_GRACE
    try:
        async with _streamed(server, server.target(request.path, query), request, silence) as (
            answer,
            read,
        ):
            if answer.status >= 400:
                raise refusal(answer)
            parts: list[bytes] = []
            while data := await read():
                parts.append(data)
                if b"\n" not in data:
                    continue
                *lines, rest = b"".join(parts).split(b"\n")
                parts = [rest]  # a last line without its end is left out
                for line in lines:
                    if not line:
                        continue
                    own = server.echoes.take(line)
                    if own is not None:
                        yield WatchEvent(*own)
                        continue
                    frame = orjson.loads(line)
                    if frame["type"] == "ERROR":
                        raise ApiError.from_status(frame["object"], 500)
                    obj = frame["object"]
                    if server.strips:
                        (obj.get("metadata") or {}).pop("managedFields", None)
                    yield WatchEvent(frame["type"], obj)
    except TimeoutError as error:
        raise ConnectionError(f"{server.base_url}: the watch received nothing for too long") from error
    except orjson.JSONDecodeError as error:
        raise ConnectionError(f"{server.base_url}: a line of the watch is not JSON: {error}") from error
    except OSError as error:
        raise ConnectionError(f"{server.base_url}: {error or type(error).__name__}") from error


@asynccontextmanager
async def _streamed(
    server: Server, target: str, request: Request, silence: float
) -> AsyncIterator[tuple[Answer, Callable[[], Awaitable[bytes]]]]:
    """The answer to a GET, and what reads more of it; that returns nothing at its end."""
    fields = server.header_fields(request, None, await server.authorization())
    connections = server.connections()
    if connections is not None:
        exchange = await connections.begin(target, fields, silence)
        try:
            answer = exchange.answer.result()
            if not answer.redirects:
                yield answer, exchange.read
                return
        finally:
            connections.release(exchange)
    async with server.through_aiohttp().stream(server.origin + target, fields, silence) as streamed:
        yield streamed.head, streamed.read
