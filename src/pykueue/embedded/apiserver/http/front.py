"""The HTTP front: from bytes on a connection to a call, and from the answer to bytes.

Everything Kubernetes-specific about a request happens behind it. Errors always leave as Status objects; a
fault of the server itself is logged and answered 500 without its traceback.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from email.utils import formatdate
from urllib.parse import parse_qsl, unquote

import orjson

from pykueue.embedded.apiserver.auth.authentication import Authenticator, unauthorized
from pykueue.embedded.apiserver.auth.impersonation import ANONYMOUS, Wanted, impersonated
from pykueue.embedded.apiserver.handlers.decoding import report_unknown
from pykueue.embedded.apiserver.handlers.reads import Listing
from pykueue.embedded.apiserver.pipeline import Pipeline
from pykueue.embedded.apiserver.registry.call import (
    Call,
    User,
    parse_query,
    resolve,
    write_options,
)
from pykueue.embedded.objects.errors import internal_error, method_not_allowed, to_status
from pykueue.kube.errors import ApiError

from .connection import PIECE, Connection
from .documents import Documents
from .encoding import (
    JSON_FIELDS,
    LIST_VIEWS,
    OBJECT_VIEWS,
    TEXT_FIELDS,
    encode_answer,
    encode_listing,
    fields_of,
)
from .exchange import ClientConnection, Exchange, Request
from .exec import PROTOCOLS, converse, wanted
from .negotiation import (
    PLAIN,
    PROTOBUF,
    YAML,
    accepted_forms,
    choose,
    decode_body,
    decode_small,
    duplicate_fields,
    media_type,
)
from .warning_fields import warning_fields
from .watching import WatchStreams
from .websocket import WebSocket

log = logging.getLogger(__name__)

#: Requests, besides watches, carried out at the same time; further ones are answered with 429, except for
#: users with few under way: one client with many requests does not shut out the others.
IN_FLIGHT, FEW_IN_FLIGHT = 1000, 50
#: Connections of one address, and of all.
ADDRESS_CONNECTIONS, CONNECTIONS = 4096, 16384
#: Bytes of unfinished heads, whose senders are not known yet, and of unfinished and waiting bodies.
HEADS_HELD, BODIES_HELD = 32 * 1024 * 1024, 256 * 1024 * 1024

#: Seconds between two looks for clients that stall.
_CHECK_INTERVAL = 5.0
#: Seconds requests are given to end, and bytes to leave, when the server stops.
_STOP_TIME, _FLUSH_TIME = 5.0, 0.05

_EXTRA = b"impersonate-extra-"
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")


class HttpFront:
    """Answers HTTP requests for a server. The connections' `Handler`."""

    def __init__(self, pipeline: Pipeline, authenticator: Authenticator) -> None:
        self._pipeline = pipeline
        self._authenticator = authenticator
        self._in_flight = 0
        #: Requests of each user that are carried out.
        self._of_user: Counter[str] = Counter()
        self._connections: set[ClientConnection] = set()
        self._per_address: Counter[str] = Counter()
        self._heads = self._bodies = 0
        self._documents = Documents(pipeline)
        self._watches = WatchStreams(pipeline)
        self._date = (0, b"")
        self._loop = asyncio.get_running_loop()
        self._check = self._loop.call_later(_CHECK_INTERVAL, self._look_after)

    def connect(self) -> Connection:
        """The protocol of a new connection of HTTP/1.1."""
        return Connection(self)

    async def close(self) -> None:
        """End all watches and connections; requests that are being carried out get a little time."""
        self._check.cancel()
        self._watches.end()
        busy = [task for one in self._connections for task in one.tasks]
        for connection in self._connections:
            connection.finish()
        if busy:
            await asyncio.wait(busy, timeout=_STOP_TIME)
            left = [one.gone for one in self._connections]
            if left:
                await asyncio.wait(left, timeout=_FLUSH_TIME)
        for connection in list(self._connections):
            connection.abort()

    def _look_after(self) -> None:
        now = self._loop.time()
        for connection in list(self._connections):
            connection.check(now)
        self._check = self._loop.call_later(_CHECK_INTERVAL, self._look_after)

    # -- what connections ask

    def opened(self, connection: ClientConnection) -> bool:
        self._connections.add(connection)
        self._per_address[connection.address] += 1
        return (
            self._per_address[connection.address] <= ADDRESS_CONNECTIONS
            and len(self._connections) <= CONNECTIONS
        )

    def closed(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        self._per_address[connection.address] -= 1
        if not self._per_address[connection.address]:
            del self._per_address[connection.address]

    def identify(self, request: Request, exchange: Exchange) -> User:
        user = self._user(request, exchange)
        if user is None:
            raise unauthorized()
        return user

    def hold(self, heads: int, bodies: int) -> bool:
        self._heads += heads
        self._bodies += bodies
        return (heads <= 0 or self._heads <= HEADS_HELD) and (bodies <= 0 or self._bodies <= BODIES_HELD)

    def date_field(self) -> bytes:
        second = int(self._pipeline.clock.time())
        known, field = self._date
        if second != known:
            field = f"Date: {formatdate(second, usegmt=True)}\r\n".encode()
            self._date = (second, field)
        return field

    async def handle(self, request: Request, exchange: Exchange) -> None:
        try:
            await self._answer(request, exchange)
        except ApiError as error:
            self._refuse(request, exchange, error)
        except ConnectionError:
            raise
        except Exception:
            log.exception("%s %.500s failed", request.method, request.target)
            fault = internal_error("the server failed to carry out the request")
            self._refuse(request, exchange, fault)

    def _refuse(self, request: Request, exchange: Exchange, error: ApiError) -> None:
        if exchange.answered:  # too late to say so
            raise ConnectionAbortedError(error.message)
        fields = JSON_FIELDS
        if error.retry_after is not None:
            fields += b"Retry-After: %d\r\n" % int(error.retry_after)
        exchange.answer(error.code, fields, orjson.dumps(to_status(error)))

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        if request.fault is not None:
            raise request.fault
        raw_path, _, raw_query = request.target.partition("?")
        path = unquote(raw_path) if "%" in raw_path else raw_path
        user = request.user or self._user(request, exchange)
        if user is None:
            if path.rstrip("/") not in _OPEN_PATHS and not path.startswith(
                ("/healthz/", "/livez/", "/readyz/")
            ):
                raise unauthorized()
            user = ANONYMOUS
        else:
            if b" impersonate-" in b" ".join((b"", *request.headers)):  # no name has a space
                user = self._impersonated(request, user)
        target = resolve(self._pipeline.core.registry, path)
        if request.upgrade:
            if target is not None and target.subresource == "exec":
                await self._enter(request, exchange, Call(request.method, target, {}, user), raw_query)
                return
            self._refuse_upgrade(request)
        if target is None:
            if self._pipeline.aggregation.extension(path) is not None:
                query = parse_query(raw_query)
                forms = accepted_forms(request.header(b"accept"))
                as_table = bool(forms) and forms[0].view == "Table"
                document = await self._pipeline.extended(request.method, path, query, user, as_table)
                exchange.answer(200, JSON_FIELDS, orjson.dumps(document))
                return
            service = self._pipeline.aggregation.find(path)
            if service is not None:
                await self._documents.pass_on(request, exchange, path, user, service)
                return
            await self._documents.answer(request, exchange, path, user)
            return
        query = parse_query(raw_query) if raw_query else {}
        method = request.method
        agent = request.header(b"user-agent").partition("/")[0][:128] or "unknown"
        call = Call(method, target, query, user, agent=agent)
        if method == "GET":
            if call.flag("watch"):
                await self._watches.answer(request, exchange, call)
                return
            if target.subresource == "log":
                await self._logs(exchange, call)
                return
        elif method not in ("POST", "PUT", "PATCH", "DELETE"):
            raise method_not_allowed()
        collection = not target.name and method in ("GET", "DELETE")
        form = choose(request.header(b"accept"), LIST_VIEWS if collection else OBJECT_VIEWS)
        if self._in_flight >= IN_FLIGHT and self._of_user[user.name] >= FEW_IN_FLIGHT:
            raise ApiError(429, "TooManyRequests", "too many requests, please try again later", None, 1)
        if method != "GET":
            await self._read_body(request, call)
        self._in_flight += 1
        self._of_user[user.name] += 1
        try:
            answer = await self._pipeline.handle(call)
        finally:
            self._in_flight -= 1
            self._of_user[user.name] -= 1
            if not self._of_user[user.name]:
                del self._of_user[user.name]
        now = self._pipeline.clock.time()
        if isinstance(answer, Listing):
            body, code = await encode_listing(call, answer, form, now), 200
        else:
            body, code = encode_answer(call, answer, form, now), answer.code
        fields = JSON_FIELDS if form is PLAIN else fields_of(form)
        if call.warnings:
            fields += warning_fields(call.warnings)
        if len(body) <= PIECE:
            exchange.answer(code, fields, body)
        else:
            await exchange.answer_in_pieces(code, fields, body)

    def _refuse_upgrade(self, request: Request) -> None:
        """Attach, port-forward and proxies are not served, and exec by WebSocket only (501)."""
        wanted = request.header(b"upgrade").lower()
        if request.method == "CONNECT" or wanted.startswith(("websocket", "spdy/")):
            raise ApiError(
                501,
                "NotImplemented",
                "this server offers no attach or port-forward; exec needs WebSockets: kubectl 1.31 or newer",
            )

    # -- users

    def _user(self, request: Request, exchange: Exchange) -> User | None:
        if exchange.certificate is not None:
            user = self._authenticator.by_certificate(exchange.certificate)
            if user is not None:
                return user
        header = request.headers.get(b"authorization")
        if header is None:
            return None
        known_header, known = exchange.known
        if header == known_header and known is not None:
            user = known if isinstance(known, User) else self._authenticator.user_of(known)
            if user is None:
                raise unauthorized()
            return user
        scheme, _, token = header.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorized()
        token = token.strip()
        user = self._authenticator.by_token(token)
        if user is None:
            raise unauthorized()
        exchange.known = (header, self._authenticator.credential(token))
        return user

    def _impersonated(self, request: Request, user: User) -> User:
        extra = {
            unquote(key[len(_EXTRA) :].decode("latin-1")): request.all(key)
            for key in request.headers
            if key.startswith(_EXTRA)
        }
        name, uid = (next(iter(request.all(key)), "") for key in (b"impersonate-user", b"impersonate-uid"))
        wanted = Wanted(name, request.all(b"impersonate-group"), uid, extra)
        return impersonated(self._pipeline.authorizer, user, wanted)

    # -- bodies

    async def _read_body(self, request: Request, call: Call) -> None:
        data = request.body
        media = media_type(request.header(b"content-type"))
        call.content_type, call.body_size, call.body_nulls = media, len(data), b"null" in data
        if not data:
            if call.method == "DELETE" or (call.method == "POST" and call.target.subresource):
                return
            raise ApiError(400, "BadRequest", "the request needs a body")
        body = decode_small(data, media, call.method) or await decode_body(data, media, call.method)
        call.body, faults = body.value, body.duplicates
        if call.query.get("fieldValidation") in ("Strict", "Warn"):
            if media != PROTOBUF and data[:1] in (b"{", b"[") and media != YAML:
                faults = duplicate_fields(data)
            if faults:
                report_unknown(faults, write_options(call, "CreateOptions"), call.warnings)

    # -- exec

    async def _enter(self, request: Request, exchange: Exchange, call: Call, query: str) -> None:
        pod = await self._pipeline.entered(call)
        asked = wanted(pod, parse_qsl(query, keep_blank_values=True))
        if request.method != "GET" or request.header(b"upgrade").lower() != "websocket":
            self._refuse_upgrade(request)
        assert isinstance(exchange, Connection)  # HTTP/2 has no upgrades
        socket = WebSocket.accept(request, exchange, PROTOCOLS)
        # Errors from here on are sent over the WebSocket: clients take an HTTP error for a refused upgrade.
        await converse(socket, asked, self._pipeline.enter(pod, asked))

    # -- logs

    async def _logs(self, exchange: Exchange, call: Call) -> None:
        self._pipeline.authorize(call)
        lines = await self._pipeline.logs(call)
        exchange.begin(TEXT_FIELDS)
        async for line in lines:
            exchange.send(line)
            await exchange.drain()
        exchange.end()
