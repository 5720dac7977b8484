"""The server of webhooks, probes and metrics: what a client may send, and what it may not keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykueue.manager.serving import connection, listener
from pykueue.manager.serving.messages import Handler, Request, Response, plain

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(request: Request) -> Response:
    body = b"".join([part async for part in request.body.parts()])
    return plain(f"{request.path} {request.query} {len(body)}")


def served(
    test: Callable[[listener.Listener, Callable[[], Awaitable[Streams]]], Awaitable[None]],
    handler: Handler = echo,
    method: str = "POST",
) -> None:
    async def main() -> None:
        server = listener.Listener({"/a b": handler}, method)
        await server.open("127.0.0.1", 0)
        opened: list[asyncio.StreamWriter] = []

        async def connect() -> Streams:
            streams = await asyncio.open_connection("127.0.0.1", server.port)
            opened.append(streams[1])
            return streams

        try:
            await test(server, connect)
        finally:
            for writer in opened:
                writer.close()
            await server.close()

    asyncio.run(main())


def post(body: str, path: str = "/a%20b?x=1&x=2&y", headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return (head + body).encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], str]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body.decode()


def test_requests_of_a_connection_are_answered_one_after_the_other() -> None:
    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        reader, writer = await connect()
        for size in (3, 0, 300_000):
            writer.write(post("z" * size))
            code, headers, text = await answer(reader)
            assert (code, "connection" in headers) == (200, False)
            assert text == f"/a b {{'y': '', 'x': '1'}} {size}"
        writer.write(post("", "/other"))
        code, headers, _ = await answer(reader)
        assert (code, headers["content-type"]) == (404, "application/json")
        writer.write(b"GET /a%20b HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer(reader))[0] == 405

    served(test)


def test_body_in_chunks_and_one_that_waits_for_its_permission_are_read() -> None:
    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        reader, writer = await connect()
        head = "POST /a%20b HTTP/1.1\r\nHost: x\r\n"
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n".encode())
        assert (await answer(reader))[2].endswith(" 3")
        writer.write(f"{head}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n".encode())
        assert (await answer(reader))[0] == 100
        writer.write(b"abcd")
        assert (await answer(reader))[2].endswith(" 4")

    served(test)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (post("", headers=f"X: {'y' * connection.HEAD_LIMIT}\r\n"), 431),
        (b"POST /" + b"a" * connection.HEAD_LIMIT, 431),
        (post("", headers="Transfer-Encoding: chunked\r\n"), 400),
        (post("", headers="Content-Length: 1\r\n"), 400),
        (post("", headers="Upgrade: websocket\r\nConnection: upgrade\r\n"), 400),
        (b"\x16\x03\x01\x02\x00 TLS of a client that is in the wrong place\r\n\r\n", 400),
        (post("", "/?" + "&".join(f"p{number}" for number in range(1000))), 400),
    ],
)
def test_what_is_no_proper_request_is_refused_and_the_connection_ends(sent: bytes, code: int) -> None:
    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        reader, writer = await connect()
        writer.write(sent)
        found, headers, text = await answer(reader)
        assert (found, headers["connection"], '"kind":"Status"' in text) == (code, "close", True)
        assert await reader.read() == b""

    served(test)


def test_client_that_does_not_wait_for_its_answer_gets_one_and_is_disconnected() -> None:
    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        reader, writer = await connect()
        writer.write(post("abc") + post("de"))
        _, headers, text = await answer(reader)
        assert (headers["connection"], text.rpartition(" ")[2]) == ("close", "3")
        assert await reader.read() == b""

    served(test)


def test_frames_of_chunks_are_bounded() -> None:
    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        reader, writer = await connect()
        writer.write(b"POST /a%20b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"1;x=" + b"y" * connection.HEAD_LIMIT)
        assert (await answer(reader))[0] == 431

    served(test)


def test_rest_of_a_refused_body_is_received_so_that_the_client_reads_why() -> None:
    async def refuse(_request: Request) -> Response:
        return plain("no", 413)

    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        reader, writer = await connect()
        body = "z" * 3_000_000
        writer.write(post(body)[:1000])
        code, headers, _ = await answer(reader)
        assert (code, headers["connection"]) == (413, "close")
        writer.write(post(body)[1000:])
        await writer.drain()
        assert await reader.read() == b""

    served(test, refuse)


def test_body_that_is_not_read_is_not_received() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        await go.wait()
        return await echo(request)

    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        reader, writer = await connect()
        size = 64_000_000
        writer.write(post("z" * size))
        await begun.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.2)
        go.set()
        assert (await answer(reader))[2].endswith(f" {size}")

    served(test, slow)


def test_connections_beyond_the_limit_are_closed_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS", 2)

    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        kept = [await connect() for _ in range(2)]
        reader, _ = await connect()
        assert await reader.read() == b""
        for reader, writer in kept:
            writer.write(post("a"))
            assert (await answer(reader))[0] == 200

    served(test)


def test_request_under_way_ends_before_the_server_is_closed_and_idle_clients_do_not_hold_it_up() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        await go.wait()
        return plain("done")

    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        idle, _ = await connect()
        reader, writer = await connect()
        writer.write(post("a"))
        await begun.wait()
        closing = asyncio.create_task(server.close())
        assert await idle.read() == b""
        go.set()
        assert (await answer(reader))[2] == "done"
        assert await reader.read() == b""
        await closing

    served(test, slow)


def test_handler_of_a_client_that_is_gone_is_cancelled() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    async def test(server: listener.Listener, connect: Callable[[], Awaitable[Streams]]) -> None:
        _, writer = await connect()
        writer.write(post("a"))
        await begun.wait()
        writer.transport.abort()
        await cancelled.wait()

    served(test, slow)
