"""Many watchers in a process of their own, which only count what they are sent."""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
from multiprocessing.connection import Connection

import uvloop


class _Counter(asyncio.Protocol):
    def __init__(self, head: bytes, counts: list[int]) -> None:
        self._head, self._counts = head, counts
        self._last = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._head)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        # Every frame is one line of JSON; lines of the headers and the chunking end in a carriage return too.
        self._counts[0] += data.count(b"}\n") + (data[:1] == b"\n" and self._last == b"}")
        self._last = data[-1:]
        self._counts[1] += len(data)


async def _watch(
    pipe: Connection, host: str, port: int, context: ssl.SSLContext | None, head: bytes, many: int
) -> None:
    loop = asyncio.get_running_loop()
    counts = [0, 0]
    for _ in range(many):
        await loop.create_connection(lambda: _Counter(head, counts), host, port, ssl=context)
    pipe.send(None)
    while True:
        await loop.run_in_executor(None, pipe.recv)
        pipe.send(tuple(counts))


def _main(pipe: Connection, host: str, port: int, ca: str | None, head: bytes, many: int) -> None:
    context = ssl.create_default_context(cadata=ca) if ca is not None else None
    uvloop.run(_watch(pipe, host, port, context, head, many))


class Watchers:
    """A process with `many` watches of one kind."""

    def __init__(self, host: str, port: int, ca: str | None, head: bytes, many: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(theirs, host, port, ca, head, many), daemon=True)
        self._process.start()
        self._pipe.recv()

    def seen(self) -> tuple[int, int]:
        """Frames and bytes so far, of all watchers together."""
        self._pipe.send(None)
        frames, size = self._pipe.recv()
        return frames, size

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
