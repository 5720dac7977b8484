"""Requests over a few kept-alive connections, at the least cost: of an answer only its status is looked at.

The load shares the machine with what it measures; a full client would take as much of it as the server does.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httptools
import orjson
import yaml


@dataclass(slots=True)
class _Sent:
    data: bytes
    answer: asyncio.Future[int]


class Wire:
    """Sends requests to the API server of a kubeconfig whose user has a bearer token."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._address = urlsplit(cluster["server"])
        data = cluster.get("certificate-authority-data")
        self._context = None
        if self._address.scheme == "https":
            self._context = ssl.create_default_context(
                cafile=cluster.get("certificate-authority"),
                cadata=b64decode(data).decode() if data else None,
            )
        self._head = f"Host: {self._address.hostname}\r\nAuthorization: Bearer {user['token']}\r\n"
        self._waiting: deque[_Sent] = deque()
        self._idle: list[_Connection] = []
        #: New connections instead of those that the server has closed.
        self._replacing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self, connections: int) -> None:
        """Connect so many times; that many requests are under way at most."""
        for _ in range(connections):
            await self._connect()

    async def _connect(self) -> None:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self),
            self._address.hostname,
            self._address.port,
            ssl=self._context,
        )
        self.free(connection)

    def close(self) -> None:
        self._closed = True
        for task in self._replacing:
            task.cancel()
        for connection in self._idle:
            connection.close()

    def lost(self, connection: _Connection) -> None:
        """The server closed a connection: those that are idle for minutes, for example."""
        if connection in self._idle:
            self._idle.remove(connection)
        if not self._closed:
            task = asyncio.get_running_loop().create_task(self._connect())
            self._replacing.add(task)
            task.add_done_callback(self._replacing.discard)

    async def send(self, method: str, path: str, body: object, media: str = "application/json") -> int:
        """The status of the answer; ConnectionError when the server hangs up."""
        content = orjson.dumps(body)
        head = f"{method} {path} HTTP/1.1\r\n{self._head}Content-Type: {media}\r\n"
        data = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        sent = _Sent(data, answer)
        if self._idle:
            self._idle.pop().write(sent)
        else:
            self._waiting.append(sent)
        return await answer

    def free(self, connection: _Connection) -> None:
        """This connection has its answer."""
        if self._waiting:
            connection.write(self._waiting.popleft())
        else:
            self._idle.append(connection)


class _Connection(asyncio.Protocol):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sent: _Sent | None = None
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def close(self) -> None:
        self._transport.close()

    def write(self, sent: _Sent) -> None:
        self._sent = sent
        self._transport.write(sent.data)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """The parser has seen the end of an answer."""
        sent, self._sent = self._sent, None
        self._wire.free(self)
        if sent is not None and not sent.answer.done():
            sent.answer.set_result(self._parser.get_status_code())

    def connection_lost(self, error: Exception | None) -> None:
        self._wire.lost(self)
        if self._sent is not None and not self._sent.answer.done():
            self._sent.answer.set_exception(error or ConnectionError("the server closed the connection"))
