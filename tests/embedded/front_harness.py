"""A listening server, and clients that send exactly the bytes they are given."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson

from pykueue.clock import Clock
from pykueue.embedded.apiserver.http.exchange import ClientConnection
from pykueue.embedded.apiserver.http.listening import Address
from pykueue.embedded.apiserver.server import Server
from pykueue.embedded.store.memory import MemoryStore


class Answer:
    """A parsed answer."""

    def __init__(self, code: int, headers: dict[str, str], body: bytes) -> None:
        self.code, self.headers, self.body = code, headers, body

    @property
    def message(self) -> str:
        status = orjson.loads(self.body)
        assert (status["kind"], status["code"]) == ("Status", self.code)
        return str(status["message"])


class Peer:
    """A client that sends exactly the given bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self.reader, self.writer, self._token = reader, writer, token

    def head(self, method: str, path: str, *fields: str) -> bytes:
        lines = (f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self._token}", *fields)
        return "\r\n".join((*lines, "", "")).encode()

    def request(self, method: str, path: str, body: Any = None, *fields: str) -> bytes:
        if body is None:
            return self.head(method, path, *fields)
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        return self.head(method, path, f"Content-Length: {len(data)}", *fields) + data

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def heard(self, bodiless: bool = False) -> Answer:
        """The next answer."""
        async with asyncio.timeout(20):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
            body = b""
            if "chunked" in headers.get("transfer-encoding", ""):
                parts = []
                while part := await self.chunk():
                    parts.append(part)
                body = b"".join(parts)
            elif not bodiless and "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            return Answer(int(first.split()[1]), headers, body)

    async def chunk(self) -> bytes:
        """The next part of a stream, empty at its end."""
        async with asyncio.timeout(20):
            size = int(await self.reader.readline(), 16)
            data = await self.reader.readexactly(size + 2)
            return data[:-2]

    async def ask(self, method: str, path: str, body: Any = None, *fields: str) -> Answer:
        self.say(self.request(method, path, body, *fields))
        return await self.heard(method == "HEAD")

    async def closed(self) -> bool:
        """Whether the server ends the connection."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


class Stage:
    """A listening server, and peers for it."""

    def __init__(self, server: Server, address: Address) -> None:
        self.server, self.address = server, address
        self.context = ssl.create_default_context(cadata=address.ca.decode())
        self._writers: list[asyncio.StreamWriter] = []

    async def peer(self) -> Peer:
        reader, writer = await asyncio.open_connection(
            self.address.host, self.address.port, ssl=self.context, limit=1 << 20
        )
        self.keep(writer)
        return Peer(reader, writer, self.address.token)

    def keep(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection at the end."""
        self._writers.append(writer)

    @property
    def connections(self) -> set[ClientConnection]:
        """The server's side of the open connections."""
        front = self.server._listeners[0]._front
        assert front is not None
        return front._connections

    async def later(self, seconds: float) -> None:
        """Let the server see its connections as if time had passed."""
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            connection.check(now + seconds)

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


def listening(
    tmp_path: Path,
    story: Callable[[Stage], Awaitable[None]],
    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run,
    store: Callable[[], MemoryStore] = MemoryStore,
) -> None:
    """Tell a story against a listening server, on the loop of `run`, with the store that `store` makes."""

    async def main() -> None:
        server = Server(store(), Clock(), random.Random(1))
        await server.start()
        address = await server.serve(directory=tmp_path / "data")
        stage = Stage(server, address)
        try:
            await story(stage)
        finally:
            stage.close()
            await server.stop()

    run(main())
