"""Writes over kept-alive connections, against a server that answers what each test says, byte by byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from pykueue.kube.errors import ApiError
from pykueue.kube.http import HttpTransport, RequestOptions
from pykueue.kube.transport import Request

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
WRITE = Request("PATCH", "/x", {"fieldManager": "a b"}, {"a": 1})


class Scripted:
    """Gives the answers in turn, whatever the connection; b"" closes it without one."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self._answers = list(answers)
        #: Head and body of each request, by connection.
        self.seen: list[list[tuple[str, bytes]]] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        requests: list[tuple[str, bytes]] = []
        self.seen.append(requests)
        try:
            while self._answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lines = head.lower().splitlines()
                length = next((int(line[16:]) for line in lines if line.startswith("content-length: ")), 0)
                requests.append((head, await reader.readexactly(length)))
                answer = self._answers.pop(0)
                writer.write(answer)
                if answer == b"" or b"until the end" in answer:
                    return
        except asyncio.IncompleteReadError:
            return


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """A server on loopback with this for each connection; its address."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(connected(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[Scripted]:
    """A server on loopback that gives these answers."""
    script = Scripted(answers)
    async with serving(script.serve) as script.address:
        yield script


def test_writes_share_connections_and_say_what_they_are() -> None:
    async def main() -> None:
        async with scripted(OK, OK, OK) as server:
            options = RequestOptions(headers=(("Impersonate-User", "ann"),))
            transport = HttpTransport(server.address + "/base/", token="secret", requests=options)
            assert await transport.call(WRITE) == {}
            assert await transport.call(Request("DELETE", "/ü/x")) == {}
            assert await transport.call(Request("POST", "/y", body=[])) == {}
            await transport.close()
        (requests,) = server.seen
        (patch, body), (delete, nothing), (post, _) = requests
        assert patch.splitlines()[:2] == [
            "PATCH /base/x?fieldManager=a+b HTTP/1.1",
            f"Host: {server.address.removeprefix('http://')}",
        ]
        for line in ("Authorization: Bearer secret", "Impersonate-User: ann", "Content-Length: 7"):
            assert f"\r\n{line}\r\n" in patch
        assert body == b'{"a":1}'
        assert delete.startswith("DELETE /base/%C3%BC/x HTTP/1.1\r\n")
        assert nothing == b""
        assert post.startswith("POST /base/y HTTP/1.1\r\n")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (OK, 1),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: a/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
            1,
        ),
        (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + OK, 1),
        (b"HTTP/1.1 200 OK\r\nContent-Type: a/json\r\nX: until the end\r\n\r\n{}", 2),
        (b"HTTP/1.1 200 OK\r\nContent-Type: a/json\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", 2),
        (b"HTTP/1.0 200 OK\r\nContent-Type: a/json\r\nContent-Length: 2\r\n\r\n{}", 2),
        (OK + b"HTTP/1.1 200 OK\r\n", 2),
    ],
    ids=("length", "chunks", "interim", "until-the-end", "close", "http-1.0", "more-than-asked"),
)
def test_answers_end_as_their_headers_say(answer: bytes, connections: int) -> None:
    async def main() -> None:
        async with scripted(answer, OK) as server:
            transport = HttpTransport(server.address)
            assert await transport.call(WRITE) == {}
            assert await transport.call(WRITE) == {}
            await transport.close()
        assert len(server.seen) == connections

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\nContent-Length: 2\r\n\r\n{}",
    ],
    ids=("nothing", "another-protocol", "two-lengths", "upgrade", "long-header"),
)
def test_an_answer_that_is_none_is_a_connection_error_and_the_write_is_not_repeated(answer: bytes) -> None:
    async def main() -> None:
        async with scripted(answer, OK) as server:
            transport = HttpTransport(server.address)
            with pytest.raises(ConnectionError):
                await transport.call(WRITE)
            assert sum(map(len, server.seen)) == 1
            assert await transport.call(WRITE) == {}
            await transport.close()

    asyncio.run(main())


def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    async def main() -> None:
        async with scripted(OK) as server:  # which closes after its last answer
            transport = HttpTransport(server.address)
            assert await transport.call(WRITE) == {}
        with pytest.raises(ConnectionError):
            await transport.call(WRITE)
        with pytest.raises(ConnectionError, match="Cannot connect to host"):
            await transport.call(WRITE)  # its connection is gone, and no other one can be opened
        await transport.close()

    asyncio.run(main())


def test_a_cancelled_write_gives_its_place_to_the_next() -> None:
    async def main() -> None:
        answered = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            answered.set()
            if b"/held" not in head:
                writer.write(OK)
            await reader.read()

        async with serving(serve) as address:
            transport = HttpTransport(address, max_concurrent=1)
            held = asyncio.ensure_future(transport.call(Request("DELETE", "/held")))
            await answered.wait()
            after = asyncio.ensure_future(transport.call(Request("DELETE", "/after")))
            held.cancel()
            with pytest.raises(asyncio.CancelledError):
                await held
            assert await after == {}
            await transport.close()

    asyncio.run(main())


def test_a_write_that_is_redirected_follows() -> None:
    async def main() -> None:
        redirect = b"HTTP/1.1 307 T\r\nLocation: /moved\r\nContent-Length: 0\r\n\r\n"
        async with scripted(redirect, redirect, OK) as server:
            transport = HttpTransport(server.address)
            assert await transport.call(WRITE) == {}
            await transport.close()
        last, body = [request for requests in server.seen for request in requests][-1]
        assert last.startswith("PATCH /moved HTTP/1.1")
        assert body == b'{"a":1}'

    asyncio.run(main())


def test_refusals_of_writes_are_api_errors_and_warnings_are_passed_on() -> None:
    async def main() -> None:
        status = b'{"kind":"Status","code":409,"reason":"Conflict","message":"again"}'
        refusal = (
            b"HTTP/1.1 409 Conflict\r\nRetry-After: 3\r\nContent-Length: %d\r\n\r\n" % len(status) + status
        )
        page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>"
        warning = OK.replace(b"\r\n\r\n", b'\r\nWarning: 299 - "a"\r\nwarning: 299 - "b"\r\n\r\n')
        warnings: list[str] = []
        async with scripted(refusal, page, warning) as server:
            options = RequestOptions(on_warning=warnings.append)
            transport = HttpTransport(server.address, requests=options)
            with pytest.raises(ApiError, match="again") as conflict:
                await transport.call(WRITE)
            assert conflict.value.conflict
            assert conflict.value.retry_after == 3.0
            with pytest.raises(ApiError, match="<html>") as gateway:
                await transport.call(WRITE)
            assert gateway.value.code == 502
            assert await transport.call(WRITE) == {}
            await transport.close()
        assert warnings == ["a", "b"]
        assert len(server.seen) == 1

    asyncio.run(main())


def test_no_line_breaks_in_headers() -> None:
    async def main() -> None:
        options = RequestOptions(headers=(("Impersonate-User", "ann\r\nImpersonate-Group: system:masters"),))
        async with scripted(OK) as server:
            transport = HttpTransport(server.address, requests=options)
            with pytest.raises(ValueError, match="line break"):
                await transport.call(WRITE)
            await transport.close()
        assert server.seen == []

    asyncio.run(main())
