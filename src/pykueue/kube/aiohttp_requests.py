"""Requests through a proxy, and such that are redirected, by aiohttp, which is imported only for them."""

from __future__ import annotations

import ssl as tls
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from pykueue.kube.exchange import Answer, Fields


class StreamedAnswer:
    """An answer that is read as it comes."""

    def __init__(self, answer: Answer, content: aiohttp.StreamReader) -> None:
        self.head = answer
        self._content = content

    async def read(self) -> bytes:
        """What has come since the last call; nothing at the end."""
        with _errors():
            return await self._content.readany()


class AiohttpRequests:
    """The requests of one transport; `proxy` is None for such that are redirected."""

    def __init__(
        self,
        *,
        ssl: tls.SSLContext | None,
        server_name: str | None,
        proxy: str | None,
        max_concurrent: int,
        connect_timeout: float,
    ) -> None:
        self._ssl = ssl
        self._server_name = server_name
        self._proxy = proxy
        self._connect_timeout = connect_timeout
        self._calls = self._session(max_concurrent)
        self._watches = self._session(0)

    async def request(
        self, method: str, url: str, fields: Fields, body: bytes | None, limit: float
    ) -> Answer:
        """As `Connections.request`."""
        with _errors():
            async with self._calls.request(
                method,
                URL(url, encoded=True),
                data=body,
                headers=CIMultiDict(fields),
                server_hostname=self._server_name,
                proxy=self._proxy,
                timeout=aiohttp.ClientTimeout(total=limit, sock_connect=self._connect_timeout),
            ) as response:
                return _answer(response, await response.read())

    @asynccontextmanager
    async def stream(self, url: str, fields: Fields, silence: float) -> AsyncIterator[StreamedAnswer]:
        """As `Connections.begin`."""
        with _errors():
            async with self._watches.get(
                URL(url, encoded=True),
                headers=CIMultiDict(fields),
                server_hostname=self._server_name,
                proxy=self._proxy,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._connect_timeout, sock_read=silence
                ),
            ) as response:
                content = b"" if response.status < 300 else await response.read()
                yield StreamedAnswer(_answer(response, content), response.content)

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()
        await self._watches.close()

    def _session(self, limit: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=limit, ssl=self._ssl if self._ssl is not None else True)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


def _answer(response: aiohttp.ClientResponse, content: bytes) -> Answer:
    return Answer(response.status, response.reason or "", list(response.raw_headers), content)


@contextmanager
def _errors() -> Iterator[None]:
    """Errors of aiohttp as those of `Connections`."""
    try:
        yield
    except TimeoutError:
        raise
    except aiohttp.ClientPayloadError as error:
        raise ConnectionError("the connection ended within a response") from error
    except aiohttp.ClientError as error:
        raise ConnectionError(str(error) or type(error).__name__) from error
