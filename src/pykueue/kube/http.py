"""The transport to an API server over HTTPS.

Reads and writes each share a bounded pool of kept-alive connections; each watch has a separate connection,
so that watches never use up the pool. Writes, most of what a manager sends, do without aiohttp
(`kube.connections`). Whatever breaks below HTTP comes out as ConnectionError, and the caller does not know
whether a write took effect: controllers look again, they do not assume.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl as tls
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
from multidict import CIMultiDict
from yarl import URL

from pykueue.kube.connections import Answer, Connections
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request, WatchEvent

#: Writes under way at the same time, and as many reads; more wait here, not in the server.
MAX_CONCURRENT = 64
#: Seconds to connect, and for one request as a whole.
CONNECT_TIMEOUT = 10.0
REQUEST_TIMEOUT = 60.0
#: Seconds after which the server ends a watch and the client begins another: a dead connection is noticed
#: that soon.
WATCH_TIMEOUT = 300
#: Seconds of grace before a silent watch is taken for dead.
WATCH_GRACE = 30.0

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
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._ssl = ssl
        self._token = token
        self._authorization = authorization
        self._server_name = server_name
        self._proxy = proxy or environment_proxy(URL(base_url))
        self._max_concurrent = max_concurrent
        self._user_agent = user_agent
        self._strip = not keep_managed_fields
        self._requests = requests or RequestOptions()
        self._limit = self._requests.timeout or REQUEST_TIMEOUT
        self._timeout = aiohttp.ClientTimeout(total=self._limit, sock_connect=CONNECT_TIMEOUT)
        self._calls: aiohttp.ClientSession | None = None
        self._writes: Connections | None = None
        self._own_headers = (("User-Agent", user_agent), *self._requests.headers)
        self._prefix = URL(self.base_url).raw_path.rstrip("/")
        self._watches: aiohttp.ClientSession | None = None

    async def call(self, request: Request) -> Any:
        """The decoded JSON answer; text answers (logs, metrics) come as str."""
        body = None if request.body is None else orjson.dumps(request.body)
        try:
            answer = None
            if request.method != "GET" and self._proxy is None:
                answer = await self._written(request, body)
            if answer is None:
                answer = await self._answered(request, body)
        except TimeoutError as error:
            raise ConnectionError(f"{self.base_url} did not answer within {self._limit:g} s") from error
        except aiohttp.ClientPayloadError as error:
            raise ConnectionError(f"{self.base_url}: the connection ended within a response") from error
        except aiohttp.ClientError as error:
            raise ConnectionError(f"{self.base_url}: {error or type(error).__name__}") from error
        if answer.status >= 400:
            raise _refusal(answer)
        for name, value in answer.headers:
            if name == "warning":
                self._warn(request, value)
        if "json" not in (answer.header("content-type") or ""):
            return answer.content.decode(errors="replace")
        return self._stripped(orjson.loads(answer.content))

    async def _written(self, request: Request, body: bytes | None) -> Answer | None:
        """The answer over a connection for writes; None if it redirects, which aiohttp follows."""
        if self._writes is None:
            self._writes = self._connections()
        headers = [("Accept", request.accept), *self._own_headers]
        if body is not None:
            headers.append(("Content-Type", request.content_type))
        if authorization := await self.authorization():
            headers.append(("Authorization", authorization))
        target = self._prefix + request.path
        if not _PLAIN_PATH.fullmatch(target):
            target = self._url(request).raw_path
        if request.query:
            target += f"?{urlencode(request.query)}"
        try:
            async with asyncio.timeout(self._limit):
                answer = await self._writes.request(request.method, target, headers, body)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionError(f"{self.base_url}: {error or type(error).__name__}") from error
        return None if 300 <= answer.status < 400 and answer.header("location") else answer

    async def _answered(self, request: Request, body: bytes | None) -> Answer:
        if self._calls is None:
            self._calls = self._session(self._max_concurrent)
        async with self._calls.request(
            request.method,
            self._url(request),
            params=dict(request.query) or None,
            data=body,
            headers=await self._headers(request, body is not None),
            server_hostname=self._server_name,
            proxy=self._proxy,
            timeout=self._timeout,
        ) as response:
            content = await response.read()
            headers = [(name.lower(), value) for name, value in response.headers.items()]
            return Answer(response.status, response.reason or "", headers, content)

    async def watch(self, request: Request) -> AsyncGenerator[WatchEvent, None]:
        """Events until the server ends the watch, at the latest after WATCH_TIMEOUT."""
        if self._watches is None:
            self._watches = self._session(0)
        query = {"timeoutSeconds": str(WATCH_TIMEOUT), **request.query}
        silence = float(query["timeoutSeconds"]) + WATCH_GRACE
        try:
            async with self._watches.get(
                self._url(request),
                params=query,
                headers=await self._headers(request, False),
                server_hostname=self._server_name,
                proxy=self._proxy,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=silence),
            ) as response:
                if response.status >= 400:
                    retry_after = response.headers.get("Retry-After")
                    headers = [] if retry_after is None else [("retry-after", retry_after)]
                    content = await response.read()
                    raise _refusal(Answer(response.status, response.reason or "", headers, content))
                async for line in _lines(response.content):
                    frame = orjson.loads(line)
                    if frame["type"] == "ERROR":
                        raise ApiError.from_status(frame["object"], 500)
                    yield WatchEvent(frame["type"], self._stripped(frame["object"]))
        except TimeoutError as error:
            raise ConnectionError(f"{self.base_url}: the watch received nothing for too long") from error
        except aiohttp.ClientError as error:
            raise ConnectionError(f"{self.base_url}: {error or type(error).__name__}") from error

    async def authorization(self) -> str | None:
        """The value of the Authorization header of the next request, or None."""
        if self._authorization is not None:
            return await self._authorization()
        return f"Bearer {self._token}" if self._token else None

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._calls, self._watches):
            if session is not None:
                await session.close()
        if self._writes is not None:
            self._writes.close()
        self._calls = self._watches = self._writes = None

    def _connections(self) -> Connections:
        """Those for writes."""
        url = URL(self.base_url)
        ssl = (self._ssl or tls.create_default_context()) if url.scheme == "https" else None
        return Connections(
            url.raw_host or "",
            url.port or 0,
            ssl=ssl,
            server_name=self._server_name,
            limit=self._max_concurrent,
            connect_timeout=CONNECT_TIMEOUT,
        )

    def _session(self, limit: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=limit, ssl=self._ssl if self._ssl is not None else True)
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def _url(self, request: Request) -> URL:
        return URL(self.base_url + request.path)

    def _warn(self, request: Request, header: str) -> None:
        """Pass on a warning: `299 - "text"` with quotes escaped in the text."""
        if self._requests.on_warning is None:
            log.info("%s %s: the server warns: %s", request.method, request.path, header)
            return
        _, _, quoted = header.partition('"')
        self._requests.on_warning(quoted.removesuffix('"').replace('\\"', '"').replace("\\\\", "\\"))

    async def _headers(self, request: Request, has_body: bool) -> CIMultiDict[str]:
        headers = CIMultiDict({"Accept": request.accept, "User-Agent": self._user_agent})
        for name, value in self._requests.headers:
            headers.add(name, value)
        if has_body:
            headers["Content-Type"] = request.content_type
        authorization = await self.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers

    def _stripped(self, answer: Any) -> Any:
        """Without managedFields; the answer was decoded here and is not shared yet."""
        if self._strip and isinstance(answer, dict):
            metadata = answer.get("metadata")
            if isinstance(metadata, dict):
                metadata.pop("managedFields", None)
            for item in answer.get("items") or ():
                if isinstance(item, dict) and isinstance(item.get("metadata"), dict):
                    item["metadata"].pop("managedFields", None)
        return answer


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, however long; an unfinished last line is left out."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        lines = chunk.split(b"\n")
        if len(lines) > 1:
            parts.append(lines[0])
            first = b"".join(parts)
            if first:
                yield first
            for line in lines[1:-1]:
                if line:
                    yield line
            parts.clear()
        if lines[-1]:
            parts.append(lines[-1])


def environment_proxy(url: URL) -> str | None:
    """The proxy that the environment names for a server: every Kubernetes client honours it.

    It is asked for once; aiohttp, left to itself, asks in a thread before each request.
    """
    host = url.host or ""
    return None if proxy_bypass(host) else getproxies().get(url.scheme)


def _refusal(answer: Answer) -> ApiError:
    """The Status the server answered with, or the nearest thing to one."""
    retry_after = _seconds(answer.header("retry-after"))
    try:
        status = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return ApiError.from_status(status, answer.status, retry_after)
    text = answer.content[:200].decode(errors="replace").strip()
    return ApiError(
        answer.status, answer.reason, text or f"the server answered {answer.status}", None, retry_after
    )


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; the date form is not used by API servers."""
    try:
        return None if retry_after is None else max(0.0, float(retry_after))
    except ValueError:
        return None
