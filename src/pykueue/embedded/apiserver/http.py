"""The HTTP front: from bytes on a connection to a call, and from the answer to bytes.

Everything Kubernetes-specific about a request happens behind it. Errors always leave as Status objects; a
fault of the server itself is logged and answered 500 without its traceback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import orjson
from aiohttp import web

from pykueue.embedded.apiserver.authentication import AUTHENTICATED, Authenticator, unauthorized
from pykueue.embedded.apiserver.call import Call, User, resolve, write_options
from pykueue.embedded.apiserver.decoding import report_unknown
from pykueue.embedded.apiserver.encoding import (
    LIST_VIEWS,
    OBJECT_VIEWS,
    FrameEncoder,
    dump,
    encode_answer,
    encode_listing,
)
from pykueue.embedded.apiserver.negotiation import (
    BODY_LIMIT,
    OPENAPI_V2,
    OPENAPI_V2_ANSWER,
    Form,
    choose,
    decode_body,
    duplicate_fields,
    media_type,
    too_large,
)
from pykueue.embedded.apiserver.openapi import v2_document
from pykueue.embedded.apiserver.rbac import Access, forbidden
from pykueue.embedded.apiserver.reads import Listing
from pykueue.embedded.apiserver.status import internal_error, method_not_allowed, to_status
from pykueue.embedded.apiserver.watches import Shown, Watch, bookmark
from pykueue.embedded.store.records import Batch
from pykueue.kube.errors import ApiError

if TYPE_CHECKING:
    from pykueue.embedded.apiserver.server import Server

log = logging.getLogger(__name__)

#: Seconds between bookmarks of a watch that allows them.
_BOOKMARK_INTERVAL = 60.0
#: Seconds a watch may last when its client says nothing: chosen at random between these.
_WATCH_TIME = (1800.0, 3600.0)
#: Bytes a watcher may fall behind before its connection is closed.
_WATCH_BACKLOG = 64 * 1024 * 1024
#: Initial events written between two pauses for the connection to take them.
_SLICE = 500
#: Seconds a client may take to send its body.
_BODY_TIME = 60.0
#: Requests, besides watches, carried out at the same time; more are told to try again.
_IN_FLIGHT = 1000

_HEADERS = {"Cache-Control": "no-cache, private", "Content-Type": "application/json"}
_ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


class HttpFront:
    """Answers HTTP requests for a server."""

    def __init__(self, server: Server, authenticator: Authenticator) -> None:
        self._server = server
        self._authenticator = authenticator
        self._in_flight = 0
        #: Watches that are open, so that stopping can end them.
        self._watches: set[asyncio.Event] = set()
        self.web_server = web.Server(
            self._handle, access_log=None, handler_cancellation=True, keepalive_timeout=300.0
        )

    async def close(self) -> None:
        """End all watches and connections."""
        for ended in self._watches:
            ended.set()
        transports = [connection.transport for connection in self.web_server.connections]
        self.web_server.pre_shutdown()  # idle connections need not be waited for
        await self.web_server.shutdown(5.0)
        for transport in transports:
            if transport is not None:
                transport.abort()  # nor their answer to the goodbye of TLS

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return self._refuse(request, error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return self._refuse(request, internal_error("the server failed to carry out the request"))

    def _refuse(self, request: web.BaseRequest, error: ApiError) -> web.Response:
        headers = dict(_HEADERS)
        if error.retry_after is not None:
            headers["Retry-After"] = str(int(error.retry_after))
        if error.code == 413:
            headers["Connection"] = "close"
        return web.Response(status=error.code, body=orjson.dumps(to_status(error)), headers=headers)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        raw_path, _, raw_query = request.raw_path.partition("?")
        path = unquote(raw_path) if "%" in raw_path else raw_path
        user = self._user(request)
        if user is None:
            if path.rstrip("/") not in _OPEN_PATHS and not path.startswith(
                ("/healthz/", "/livez/", "/readyz/")
            ):
                raise unauthorized()
            user = _ANONYMOUS
        elif "Impersonate-User" in request.headers:
            user = self._impersonated(request, user)
        target = resolve(self._server.core.registry, path)
        if target is None:
            return await self._document(request, path, user)
        query = dict(parse_qsl(raw_query, keep_blank_values=True)) if raw_query else {}
        method = request.method
        call = Call(method, target, query, user, agent=_agent(request))
        headers = request.headers
        if method == "GET":
            if call.flag("watch"):
                return await self._watch(request, call)
            if target.subresource == "log":
                return await self._logs(request, call)
        elif method not in ("POST", "PUT", "PATCH", "DELETE"):
            raise method_not_allowed()
        collection = not target.name and method in ("GET", "DELETE")
        form = choose(headers.get("Accept", ""), LIST_VIEWS if collection else OBJECT_VIEWS)
        if self._in_flight >= _IN_FLIGHT:
            raise ApiError(429, "TooManyRequests", "too many requests, please try again later", None, 1)
        self._in_flight += 1
        try:
            if method != "GET":
                await self._read_body(request, call)
            answer = await self._server.handle(call)
        finally:
            self._in_flight -= 1
        now = self._server.clock.time()
        if isinstance(answer, Listing):
            body, code = encode_listing(call, answer, form, now), 200
        else:
            body, code = encode_answer(call, answer, form, now), answer.code
        response = web.Response(status=code, body=body, headers=_HEADERS)
        if form.view or form.media != "application/json":
            response.headers["Content-Type"] = form.content_type
        for warning in dict.fromkeys(call.warnings):
            quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
            response.headers.add("Warning", f'299 - "{quoted}"')
        return response

    # -- who

    def _user(self, request: web.BaseRequest) -> User | None:
        transport = request.transport
        if transport is not None:
            certificate = transport.get_extra_info("peercert")
            if certificate:
                user = self._authenticator.by_certificate(certificate)
                if user is not None:
                    return user
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorized()
        user = self._authenticator.by_token(token.strip())
        if user is None:
            raise unauthorized()
        return user

    def _impersonated(self, request: web.BaseRequest, user: User) -> User:
        headers = request.headers
        name = headers["Impersonate-User"]
        groups = tuple(headers.getall("Impersonate-Group", []))
        wanted = []
        if name.startswith("system:serviceaccount:") and name.count(":") == 3:
            namespace, account = name.split(":")[2:]
            wanted.append(Access("impersonate", "", "serviceaccounts", "", namespace, account))
            if not groups:
                groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        else:
            wanted.append(Access("impersonate", "", "users", "", "", name))
        wanted += [Access("impersonate", "", "groups", "", "", group) for group in groups]
        uid = headers.get("Impersonate-Uid", "")
        if uid:
            wanted.append(Access("impersonate", "authentication.k8s.io", "uids", "", "", uid))
        extra: dict[str, list[str]] = {}
        for key in headers:
            if key.lower().startswith("impersonate-extra-"):
                field = unquote(key[len("impersonate-extra-") :].lower())
                extra[field] = headers.getall(key)
                wanted += [
                    Access("impersonate", "authentication.k8s.io", "userextras", field, "", value)
                    for value in extra[field]
                ]
        for access in wanted:
            if not self._server.authorizer.decide(user, access).allowed:
                raise forbidden(user, access, access.name)
        if AUTHENTICATED not in groups:
            groups = (*groups, AUTHENTICATED)
        return User(name, groups, uid, extra)

    # -- bodies

    async def _read_body(self, request: web.BaseRequest, call: Call) -> None:
        length = request.content_length
        if length is not None and length > BODY_LIMIT:
            raise too_large()
        data = b""
        content = request.content
        if content.is_eof():  # all of it is here already
            data = content.read_nowait()
            if len(data) > BODY_LIMIT:
                raise too_large()
        elif request.body_exists:
            try:
                async with asyncio.timeout(_BODY_TIME):
                    data = await _read(request)
            except TimeoutError:
                raise ApiError(408, "Timeout", "the request body took too long to arrive") from None
        media = media_type(request.headers.get("Content-Type", ""))
        call.content_type = media
        if not data:
            if call.method == "DELETE":
                return
            raise ApiError(400, "BadRequest", "the request needs a body")
        call.body = decode_body(data, media, call.method)
        if media != "application/vnd.kubernetes.protobuf" and call.query.get("fieldValidation") in (
            "Strict",
            "Warn",
        ):
            self._check_duplicates(data, media, call)

    def _check_duplicates(self, data: bytes, media: str, call: Call) -> None:
        if data[:1] not in (b"{", b"[") or media == "application/yaml":
            return
        faults = duplicate_fields(data)
        if faults:
            report_unknown(faults, write_options(call, "CreateOptions"), call.warnings)

    # -- documents

    async def _document(self, request: web.BaseRequest, path: str, user: User) -> web.StreamResponse:
        server = self._server
        if user is not _ANONYMOUS:
            server.authorize_path(user, request.method.lower(), path)
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=404, text="404 page not found\n")
        plain = path.rstrip("/")
        if plain.startswith(("/healthz", "/livez", "/readyz")):
            return web.Response(
                text="ok" if "verbose" not in request.raw_path else f"[+]ping ok\n{plain} check passed\n"
            )
        accept = request.headers.get("Accept", "")
        if plain == "/metrics":
            return web.Response(text=server.metrics_text())
        if plain == "/openapi/v2":
            return self._openapi_v2(accept)
        if plain in ("/api", "/apis"):
            form = choose(accept, ("APIGroupDiscoveryList",))
            if form.view:
                document = server.discovery.aggregated(plain == "/api", form.version)
                return _document_response(document, form)
        found = server.discovery.document(path)
        if found is None:
            return web.Response(status=404, text="404 page not found\n")
        return _document_response(found, choose(accept, ()))

    def _openapi_v2(self, accept: str) -> web.Response:
        if OPENAPI_V2 in accept or "proto-openapi" in accept:
            return web.Response(body=v2_document(), headers={"Content-Type": OPENAPI_V2_ANSWER})
        empty = {"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": {}}
        return web.Response(body=orjson.dumps(empty), headers=_HEADERS)

    # -- watches

    async def _watch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        server = self._server
        await server.authorize(call)
        form = choose(request.headers.get("Accept", ""), OBJECT_VIEWS)
        if form.media != "application/json":
            form = Form()
        watch = Watch(server.core, call)
        encoder = FrameEncoder(call, form)
        response = web.StreamResponse(headers=_HEADERS)
        if form.view:
            response.headers["Content-Type"] = form.content_type
        response.enable_chunked_encoding()
        transport: Any = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        ended = asyncio.Event()
        self._watches.add(ended)
        early: list[list[Shown]] | None = []
        clock = server.clock

        def deliver(shown: list[Shown], batch: Batch | None) -> None:
            if early is not None:
                early.append(shown)
                return
            transport.write(encoder.chunk(shown, batch, clock.time()))
            if transport.get_write_buffer_size() > _WATCH_BACKLOG:
                watch.stop()
                transport.abort()
                ended.set()

        try:
            await response.prepare(request)
            try:
                initial = await watch.start(deliver)
            except ApiError as error:
                await response.write(encoder.frame("ERROR", to_status(error)))
                await response.write_eof()
                return response
            for start in range(0, len(initial), _SLICE):
                await response.write(encoder.frames(initial[start : start + _SLICE], clock.time()))
            if watch.options.marks_end:
                mark = bookmark(watch.endpoint, watch.start_revision, True)
                await response.write(encoder.bookmark(mark))
            while early:
                await response.write(encoder.frames(early.pop(0), clock.time()))
            early = None
            await self._keep_watching(watch, encoder, response, ended)
            watch.stop()
            await response.write_eof()
        finally:
            watch.stop()
            self._watches.discard(ended)
        return response

    async def _keep_watching(
        self, watch: Watch, encoder: FrameEncoder, response: web.StreamResponse, ended: asyncio.Event
    ) -> None:
        loop = asyncio.get_running_loop()
        duration = watch.options.timeout or self._server.core.rng.uniform(*_WATCH_TIME)
        deadline = loop.time() + duration
        while (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, _BOOKMARK_INTERVAL)):
                    await ended.wait()
                    return
            except TimeoutError:
                pass
            if watch.options.bookmarks:
                await response.write(encoder.bookmark(bookmark(watch.endpoint, watch.revision)))

    # -- logs

    async def _logs(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        await self._server.authorize(call)
        lines: AsyncIterator[bytes] = await self._server.logs(call)
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        async for line in lines:
            await response.write(line)
        await response.write_eof()
        return response


def _document_response(document: Any, form: Form) -> web.Response:
    headers = {**_HEADERS, "Content-Type": form.content_type}
    return web.Response(body=dump(document, form.media), headers=headers)


def _agent(request: web.BaseRequest) -> str:
    agent = request.headers.get("User-Agent", "")
    return agent.partition("/")[0][:128] or "unknown"


async def _read(request: web.BaseRequest) -> bytes:
    chunks, size = [], 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > BODY_LIMIT:
            raise too_large()
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
