"""What paths answer that are no resources of this server: documents, and what other servers answer."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson

from pykueue.embedded.apiserver.auth.impersonation import ANONYMOUS
from pykueue.embedded.apiserver.discovery.aggregation import (
    DESCRIBER,
    REQUEST_TIME,
    access_of,
    read_response,
    unavailable,
)
from pykueue.embedded.apiserver.discovery.openapi import v2_document, v2_json_document
from pykueue.embedded.apiserver.pipeline import Pipeline
from pykueue.embedded.apiserver.registry.call import User, is_set, parse_query
from pykueue.embedded.apiserver.webhooks.services import connection_fault
from pykueue.kube.errors import ApiError

from .encoding import CACHE_FIELD, JSON_FIELDS, TEXT_FIELDS, dump, fields_of
from .exchange import Exchange, Request
from .negotiation import OPENAPI_V2, OPENAPI_V2_ANSWER, choose

#: What a path may hold unescaped (RFC 3986).
_PATH = "/:@!$&'()*+,;=~"


class Documents:
    """Answers requests to documents and to aggregated servers."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def pass_on(
        self, request: Request, exchange: Exchange, path: str, user: User, service: Any
    ) -> None:
        """Let the server answer that an APIService names (section 18)."""
        pipeline = self._pipeline
        query = parse_query(request.target.partition("?")[2])
        access = access_of(request.method, path, query)
        if access is None:
            pipeline.authorize_path(user, request.method.lower(), path)
        else:
            pipeline.authorizer.require(user, access)
        await self._forward(request, exchange, path, user, service, is_set(query, "watch"))

    async def _forward(
        self, request: Request, exchange: Exchange, path: str, user: User, service: Any, streams: bool
    ) -> None:
        kept = {
            name: request.header(name.lower().encode())
            for name in ("Accept", "Content-Type", "User-Agent")
            if request.header(name.lower().encode())
        }
        # The path as it was authorized, not as it was written.
        target = quote(path, safe=_PATH) + "".join(request.target.partition("?")[1:])
        passed = self._pipeline.aggregation.request(request.method, target, service, user, kept, request.body)
        try:
            async with asyncio.timeout(None if streams else REQUEST_TIME), passed as response:
                media = response.headers.get("Content-Type", "application/json")
                fields = CACHE_FIELD + f"Content-Type: {media}\r\n".encode()
                if not streams or response.status != 200:
                    exchange.answer(response.status, fields, await read_response(response))
                    return
                exchange.begin(fields)
                async for piece in response.content.iter_any():
                    exchange.send(piece)
                    await exchange.drain()
                exchange.end()
        except TimeoutError as error:
            text = f"the aggregated server did not answer within {REQUEST_TIME:.0f} s"
            raise ApiError(504, "Timeout", text) from error
        except (aiohttp.ClientError, ValueError) as error:
            why = connection_fault(error) if isinstance(error, aiohttp.ClientConnectorError) else error
            raise unavailable(str(why)) from error

    async def answer(self, request: Request, exchange: Exchange, path: str, user: User) -> None:
        pipeline = self._pipeline
        if user is not ANONYMOUS:
            pipeline.authorize_path(user, request.method.lower(), path)
        plain = path.rstrip("/")
        accept = request.header(b"accept")
        if request.method not in ("GET", "HEAD"):
            exchange.answer(404, TEXT_FIELDS, b"404 page not found\n")
        elif plain.startswith(("/healthz", "/livez", "/readyz")):
            query = parse_query(request.target.partition("?")[2])
            verdict = await pipeline.health.answer(plain, query)
            exchange.answer(verdict.code, TEXT_FIELDS, verdict.text.encode())
        elif plain == "/metrics":
            exchange.answer(200, TEXT_FIELDS, pipeline.metrics_text())
        elif plain == "/openapi/v2":
            await self._openapi_v2(exchange, accept)
        elif (service := pipeline.aggregation.find_openapi(plain)) is not None:
            await self._forward(request, exchange, plain, DESCRIBER, service, streams=False)
        else:
            document: Any
            form = choose(accept, ("APIGroupDiscoveryList",) if plain in ("/api", "/apis") else ())
            if form.view:
                document = pipeline.discovery.aggregated(plain == "/api", form.version)
            else:
                document = pipeline.discovery.document(path)
            if document is None:
                exchange.answer(404, TEXT_FIELDS, b"404 page not found\n")
            else:
                exchange.answer(200, fields_of(form), dump(document, form.media))

    async def _openapi_v2(self, exchange: Exchange, accept: str) -> None:
        if OPENAPI_V2 in accept or "proto-openapi" in accept:
            fields = CACHE_FIELD + f"Content-Type: {OPENAPI_V2_ANSWER}\r\n".encode()
            others = await self._pipeline.aggregation.openapi_v2(OPENAPI_V2)
            # What does not begin with the document's first field was not written in this form.
            exchange.answer(200, fields, v2_document(one for one in others if one[:1] == b"\n"))
        else:
            others = await self._pipeline.aggregation.openapi_v2("application/json")
            exchange.answer(200, JSON_FIELDS, orjson.dumps(v2_json_document(others)))
