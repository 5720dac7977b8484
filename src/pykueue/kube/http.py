"""The transport to an API server over HTTPS.

Requests that are not streamed are bounded, reads and writes separately, so that neither wait for the other;
watches never use up their places. They are sent over the project's own connections (`kube.connections`);
through a proxy, and where a server redirects, by aiohttp, which is imported only then. Whatever breaks below
HTTP comes out as ConnectionError, and the caller does not know whether a write took effect: controllers look
again, they do not assume.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl as tls
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import orjson

from pykueue.kube.connections import Connections
from pykueue.kube.echoes import Echoes
from pykueue.kube.exchange import Answer, Fields
from pykueue.kube.http_watch import watch_events
from pykueue.kube.refusals import refusal
from pykueue.kube.transport import Request, WatchEvent

if TYPE_CHECKING:
    from pykueue.kube.aiohttp_requests import AiohttpRequests

#: Writes under way at the same time, and as many reads; more wait here, not in the server.
MAX_CONCURRENT = 64
#: Seconds to connect, and for one request as a whole.
CONNECT_TIMEOUT = 10.0
REQUEST_TIMEOUT = 60.0

USER_AGENT = "pykueue"

#: Gives the value of the Authorization header, or None; asked before every request, so it should be cheap.
Authorization = Callable[[], Awaitable[str | None]]

#: Paths that need no quoting.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._~:@!$&'()*+,;=-]*")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RequestOptions:
    """What one user's requests have in common: headers, a time limit in seconds, a receiver of warnings."""

    headers: tuple[tuple[str, str], ...] = ()
    timeout: float | None = None
    on_warning: Callable[[str], None] | None = None


class HttpTransport:
    """Carries requests to the API server at `base_url`.

    `ssl` is the TLS context for https; without one the system's certificates are trusted. `authorization`
    gives the Authorization header's value and may refresh it; `token` is a fixed bearer token. `server_name`
    replaces the host name that the server's certificate is checked against.

    `keep_managed_fields` keeps metadata.managedFields of objects that come in; nothing in the project reads
    them and they are half of many objects. `requests` adds headers, a time limit and a receiver of warnings.
    `http2` lets requests share a connection where the server offers HTTP/2: for many at the same time.
    """

    def __init__(
        self,
        base_url: str,
        *,
        ssl: tls.SSLContext | None = None,
        token: str | None = None,
        authorization: Authorization | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
        max_concurrent: int = MAX_CONCURRENT,
        user_agent: str = USER_AGENT,
        keep_managed_fields: bool = False,
        requests: RequestOptions | None = None,
        http2: bool = False,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._ssl = ssl
        self._token = token
        self._authorization = authorization
        self._server_name = server_name
        url = urlsplit(self.base_url)
        self._proxy = proxy or environment_proxy(url.scheme, url.hostname or "")
        self._max_concurrent = max_concurrent
        self._http2 = http2
        #: Whether metadata.managedFields is left out of what comes in.
        self.strips = not keep_managed_fields
        #: What the watches show again.
        self.echoes = Echoes()
        self._requests = requests or RequestOptions()
        self._limit = self._requests.timeout or REQUEST_TIMEOUT
        self._own_headers = (("User-Agent", user_agent), *self._requests.headers)
        #: Header fields by what differs between requests, and the Authorization that they have.
        self._fields: dict[tuple[str, str | None], Fields] = {}
        self._authorized: str | None = None
        self._url = url
        self._prefix = _quoted(url.path)
        self._reads = asyncio.Semaphore(max_concurrent)
        self._writes = asyncio.Semaphore(max_concurrent)
        self._connections: Connections | None = None
        self._other: AiohttpRequests | None = None

    async def call(self, request: Request) -> Any:
        """The decoded JSON answer; text answers (logs, metrics) come as str."""
        body = None if request.body is None else orjson.dumps(request.body)
        try:
            answer = await self._answer(request, body)
        except TimeoutError as error:
            raise ConnectionError(f"{self.base_url} did not answer within {self._limit:g} s") from error
        except OSError as error:
            raise ConnectionError(f"{self.base_url}: {error or type(error).__name__}") from error
        if answer.status >= 400:
            raise refusal(answer)
        is_json = False
        for name, value in answer.headers:
            name = name.lower()
            if name == b"content-type":
                is_json = b"json" in value
            elif name == b"warning":
                self._warn(request, value.decode(errors="replace"))
        if not is_json:
            return answer.content.decode(errors="replace")
        try:
            result = self._stripped(orjson.loads(answer.content))
        except orjson.JSONDecodeError as error:
            raise ConnectionError(f"{self.base_url}: the answer is not JSON: {error}") from error
        if request.method != "GET":
            self.echoes.expect(answer.content, result)
        return result

    def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        """Events until the server ends the watch, at the latest after WATCH_TIMEOUT."""
        return watch_events(self, request)

    async def _answer(self, request: Request, body: bytes | None) -> Answer:
        fields = self.header_fields(request, body, await self.authorization())
        target = self.target(request.path, request.query)
        connections = self.connections()
        if connections is not None:
            deadline = connections.time() + self._limit
            places = self._reads if request.method == "GET" else self._writes
            await places.acquire()
            try:
                answer = await connections.request(request.method, target, fields, body, deadline)
            finally:
                places.release()
            if not answer.redirects:
                return answer
        other = self.through_aiohttp()
        return await other.request(request.method, self.origin + target, fields, body, self._limit)

    async def authorization(self) -> str | None:
        """The value of the Authorization header of the next request, or None."""
        if self._authorization is not None:
            return await self._authorization()
        return f"Bearer {self._token}" if self._token else None

    async def close(self) -> None:
        """Close all connections."""
        if self._connections is not None:
            self._connections.close()
        if self._other is not None:
            await self._other.close()
        self._connections = self._other = None

    def connections(self) -> Connections | None:
        """The connections to the server; None where requests go through a proxy."""
        if self._connections is None and self._proxy is None:
            self._connections = self._unopened()
        return self._connections

    def _unopened(self) -> Connections:
        """Connections of which none is open yet."""
        url, host = self._url, self._url.hostname or ""
        if url.scheme not in ("http", "https") or not host:
            raise ConnectionError("the address of the server is not one of http or https")
        secure = url.scheme == "https"
        return Connections(
            host if host.isascii() else host.encode("idna").decode(),
            url.port or (443 if secure else 80),
            ssl=(self._ssl or tls.create_default_context()) if secure else None,
            server_name=self._server_name,
            connect_timeout=CONNECT_TIMEOUT,
            http2=self._http2,
        )

    def through_aiohttp(self) -> AiohttpRequests:
        """Sends requests through a proxy, and follows redirects."""
        if self._other is None:
            from pykueue.kube.aiohttp_requests import AiohttpRequests

            if self._ssl is not None:
                self._ssl.set_alpn_protocols(["http/1.1"])  # all that aiohttp speaks
            self._other = AiohttpRequests(
                ssl=self._ssl,
                server_name=self._server_name,
                proxy=self._proxy,
                max_concurrent=self._max_concurrent,
                connect_timeout=CONNECT_TIMEOUT,
            )
        return self._other

    @property
    def origin(self) -> str:
        """The address of the server without a path."""
        return f"{self._url.scheme}://{self._url.netloc}"

    def target(self, path: str, query: Mapping[str, str]) -> str:
        """What a request asks for, below the address of the server."""
        target = self._prefix + (path if _PLAIN_PATH.fullmatch(path) else _quoted(path))
        return f"{target}?{urlencode(query)}" if query else target

    def header_fields(self, request: Request, body: bytes | None, authorization: str | None) -> Fields:
        """The header fields of a request."""
        if authorization != self._authorized:
            self._fields.clear()
            self._authorized = authorization
        kind = None if body is None else request.content_type
        fields = self._fields.get((request.accept, kind))
        if fields is None:
            headers = [("Accept", request.accept), *self._own_headers]
            if kind is not None:
                headers.append(("Content-Type", kind))
            if authorization:
                headers.append(("Authorization", authorization))
            fields = self._fields[request.accept, kind] = Fields(headers)
        return fields

    def _warn(self, request: Request, header: str) -> None:
        """Pass on a warning: `299 - "text"` with quotes escaped in the text."""
        if self._requests.on_warning is None:
            log.info("%s %s: the server warns: %s", request.method, request.path, header)
            return
        _, _, quoted = header.partition('"')
        self._requests.on_warning(quoted.removesuffix('"').replace('\\"', '"').replace("\\\\", "\\"))

    def _stripped(self, answer: Any) -> Any:
        """Without managedFields; the answer was decoded here and is not shared yet."""
        if self.strips and isinstance(answer, dict):
            metadata = answer.get("metadata")
            if isinstance(metadata, dict):
                metadata.pop("managedFields", None)
            for item in answer.get("items") or ():
                if isinstance(item, dict) and isinstance(item.get("metadata"), dict):
                    item["metadata"].pop("managedFields", None)
        return answer


def _quoted(path: str) -> str:
    """A path as it is sent; what is quoted already stays so."""
    return quote(path, safe="/._~:@!$&'()*+,;=-%")


def environment_proxy(scheme: str, host: str) -> str | None:
    """The proxy that the environment names for a server: every Kubernetes client honours it.

    It is asked for once; aiohttp, left to itself, asks in a thread before each request.
    """
    asks_system = sys.platform in ("darwin", "win32")
    if not asks_system and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None  # without an import of 20 ms
    from urllib.request import getproxies, proxy_bypass

    return None if proxy_bypass(host) else getproxies().get(scheme)
