"""Watches and reads over the project's own connections, against a server that answers byte by byte."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import aclosing

import pytest
from test_kube_connections import OK, scripted, serving

from pykueue.kube import http, http_watch
from pykueue.kube.deadlines import Deadlines
from pykueue.kube.errors import ApiError
from pykueue.kube.http import HttpTransport
from pykueue.kube.transport import Request, WatchEvent

READ = Request("GET", "/x")
WATCH = Request("GET", "/w", {"watch": "true"})
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def line(name: str) -> bytes:
    return b'{"type":"ADDED","object":{"metadata":{"name":"%b"}}}\n' % name.encode()


async def names(transport: HttpTransport, request: Request = WATCH) -> list[str]:
    async with aclosing(transport.watch(request)) as events:
        return [event.object["metadata"]["name"] async for event in events]


def test_a_read_is_sent_again_where_the_server_had_closed_the_connection_but_a_write_is_not() -> None:
    async def main() -> None:
        async with scripted(OK, b"", OK, b"", OK) as server:
            transport = HttpTransport(server.address)
            assert await transport.call(READ) == {}
            assert await transport.call(READ) == {}  # meets the end of the connection, and is repeated
            with pytest.raises(ConnectionError):
                await transport.call(Request("DELETE", "/x"))
            assert await transport.call(READ) == {}
            await transport.close()
        assert [len(requests) for requests in server.seen] == [2, 2, 1]

    asyncio.run(main())


def test_a_read_that_was_half_answered_or_the_first_of_its_connection_is_not_repeated() -> None:
    async def main() -> None:
        half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nX: until the end\r\n\r\n{"
        async with scripted(OK, half, b"", OK) as server:
            transport = HttpTransport(server.address)
            assert await transport.call(READ) == {}
            with pytest.raises(ConnectionError):
                await transport.call(READ)
            with pytest.raises(ConnectionError):
                await transport.call(READ)
            await transport.close()
        assert [len(requests) for requests in server.seen] == [2, 1]

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + chunk(line("a") + line("b")[:9]) + chunk(line("b")[9:] + b"\n" + line("c")) + chunk(b""),
        CHUNKED + b"".join(chunk(bytes([one])) for one in line("a") + line("b") + line("c")) + chunk(b""),
        CHUNKED + chunk(line("a") + line("b") + line("c") + b'{"type":"MOD') + chunk(b""),
        b"HTTP/1.1 200 OK\r\nX: until the end\r\n\r\n" + line("a") + line("b") + line("c") + b'{"ty',
        b"HTTP/1.1 103 E\r\nLink: a\r\n\r\n"
        + CHUNKED
        + chunk(line("a") + line("b") + line("c"))
        + chunk(b""),
    ],
    ids=("pieces", "bytes", "unfinished-line", "until-the-end", "interim"),
)
def test_events_of_a_watch_however_they_are_cut(answer: bytes) -> None:
    async def main() -> None:
        async with scripted(answer, OK) as server:
            transport = HttpTransport(server.address)
            assert await names(transport) == ["a", "b", "c"]
            assert await transport.call(READ) == {}
            await transport.close()
        assert server.seen[0][0][0].startswith("GET /w?timeoutSeconds=300&watch=true HTTP/1.1\r\n")
        # A watch that has ended leaves its connection to others.
        assert len(server.seen) == (2 if b"until the end" in answer else 1)

    asyncio.run(main())


def test_a_watch_that_is_refused_or_broken_or_not_json() -> None:
    async def main() -> None:
        status = b'{"kind":"Status","code":410,"reason":"Expired","message":"too old"}'
        gone = b"HTTP/1.1 410 Gone\r\nRetry-After: 2\r\nContent-Length: %d\r\n\r\n" % len(status) + status
        broken = CHUNKED + chunk(line("a")) + b"zz\r\n"
        garbage = CHUNKED + chunk(line("a") + b"{]\n")
        error = CHUNKED + chunk(line("a") + b'{"type":"ERROR","object":%b}\n' % status)
        async with scripted(gone, broken, garbage, error) as server:
            transport = HttpTransport(server.address)
            with pytest.raises(ApiError, match="too old") as refusal:
                await names(transport)
            assert refusal.value.expired
            assert refusal.value.retry_after == 2.0
            for problem in ("not HTTP", "not JSON"):
                with pytest.raises(ConnectionError, match=problem):
                    await names(transport)
            with pytest.raises(ApiError, match="too old"):
                await names(transport)
            await transport.close()

    asyncio.run(main())


def test_a_silent_watch_and_a_silent_server_are_connection_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_watch, "WATCH_GRACE", 0.05)
    monkeypatch.setattr(http, "REQUEST_TIMEOUT", 0.05)

    async def main() -> None:
        async with scripted(CHUNKED + chunk(line("a")), b"HTTP/1.1 ", OK) as server:
            transport = HttpTransport(server.address)
            seen: list[WatchEvent] = []

            async def follow() -> None:
                query = {"watch": "true", "timeoutSeconds": "0"}
                async with aclosing(transport.watch(Request("GET", "/w", query))) as events:
                    async for event in events:
                        seen.append(event)

            with pytest.raises(ConnectionError, match="received nothing for too long"):
                await follow()
            assert len(seen) == 1
            with pytest.raises(ConnectionError, match=r"did not answer within 0\.05 s"):
                await transport.call(READ)
            await transport.close()

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [True, False], ids=("cancelled", "closed"))
def test_a_watch_that_is_left_closes_its_connection(cancelled: bool) -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(CHUNKED + chunk(line("a")))
            await reader.read()
            ended.set()

        async with serving(serve) as address:
            transport = HttpTransport(address)
            begun = asyncio.Event()

            async def follow() -> None:
                async with aclosing(transport.watch(WATCH)) as events:
                    async for _ in events:
                        begun.set()
                        if not cancelled:
                            return

            task = asyncio.ensure_future(follow())
            await begun.wait()
            if cancelled:
                task.cancel()
            await asyncio.wait([task])
            await ended.wait()
            await transport.close()

    asyncio.run(main())


def test_a_watch_that_is_not_read_holds_a_bounded_part_of_what_is_sent() -> None:
    async def main() -> None:
        total, sent = 400, 0
        part = chunk(b'{"type":"ADDED","object":{"metadata":{"name":"a"},"x":"%b"}}\n' % (b"x" * 100_000))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(CHUNKED)
            for _ in range(total):
                writer.write(part)
                await writer.drain()
                sent += 1
            writer.write(chunk(b""))

        async with serving(serve) as address:
            transport = HttpTransport(address)
            async with aclosing(transport.watch(WATCH)) as events:
                await anext(events)
                before, turns = sent, 0
                while turns < 1000:  # until the server gets no further
                    await asyncio.sleep(0)
                    turns = turns + 1 if sent == before else 0
                    before = sent
                assert sent < total / 2, "the server was not held back"
                assert 1 + len([event async for event in events]) == total
            await transport.close()

    asyncio.run(main())


def test_reads_and_watches_that_are_redirected_follow() -> None:
    async def main() -> None:
        redirect = b"HTTP/1.1 307 T\r\nLocation: /moved\r\nContent-Length: 0\r\n\r\n"
        async with scripted(redirect, redirect, OK) as server:
            transport = HttpTransport(server.address)
            assert await transport.call(READ) == {}
            await transport.close()
        async with scripted(redirect, redirect, CHUNKED + chunk(line("a")) + chunk(b"")) as server:
            transport = HttpTransport(server.address)
            assert await names(transport) == ["a"]
            await transport.close()

    asyncio.run(main())


def test_requests_and_watches_go_through_a_proxy() -> None:
    async def main() -> None:
        async with scripted(OK, CHUNKED + chunk(line("a") + line("b")) + chunk(b"")) as proxy:
            transport = HttpTransport("http://cluster.test/base", proxy=proxy.address, token="secret")
            assert await transport.call(Request("PATCH", "/ü", {"a": "b c"}, {"a": 1})) == {}
            assert await names(transport) == ["a", "b"]
            await transport.close()
        (write, body), (watch, _) = [request for requests in proxy.seen for request in requests]
        assert write.startswith("PATCH http://cluster.test/base/%C3%BC?a=b+c HTTP/1.1\r\n")
        assert "\r\nAuthorization: Bearer secret\r\n" in write
        assert body == b'{"a":1}'
        assert watch.startswith("GET http://cluster.test/base/w?timeoutSeconds=300&watch=true HTTP/1.1\r\n")

    asyncio.run(main())


def test_an_address_that_is_none_is_a_connection_error() -> None:
    async def main() -> None:
        transport = HttpTransport("127.0.0.1:1")
        with pytest.raises(ConnectionError, match="not one of http or https"):
            await transport.call(READ)
        await transport.close()

    asyncio.run(main())


def test_deadlines_expire_in_turn_and_may_be_put_off() -> None:
    async def main() -> None:
        loop, deadlines, expired = asyncio.get_running_loop(), Deadlines(asyncio.get_running_loop()), []
        done = asyncio.Event()

        class One:
            def __init__(self, name: str, seconds: float, again: bool = False) -> None:
                self.name, self.deadline, self.again = name, loop.time() + seconds, again
                deadlines.add(self)

            def expire(self) -> None:
                expired.append(self.name)
                if self.again:
                    self.again, self.deadline = False, loop.time() + 0.03
                if len(expired) == 4:
                    done.set()

        One("last", 0.02)
        One("first", 0.01, again=True)
        gone = One("gone", 0.015)
        put_off = One("put off", 0.0)
        put_off.deadline = loop.time() + 0.025
        deadlines.remove(gone)
        await done.wait()
        assert expired == ["first", "last", "put off", "first"]
        deadlines.close()

    asyncio.run(main())


def test_requests_and_watches_do_without_aiohttp() -> None:
    program = (
        "import asyncio, sys\n"
        "from pykueue.kube.config import load\n"
        "from pykueue.kube.http import HttpTransport\n"
        "from pykueue.kube.transport import Request\n"
        "async def main():\n"
        "    transport = HttpTransport('http://127.0.0.1:1')\n"
        "    for request in (transport.call, lambda one: anext(transport.watch(one))):\n"
        "        try:\n"
        "            await request(Request('GET', '/'))\n"
        "        except ConnectionError as error:\n"
        "            assert 'Cannot connect' in str(error)\n"
        "asyncio.run(main())\n"
        "print({'aiohttp', 'yarl', 'cryptography', 'urllib.request'} & set(sys.modules) or 'none')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "none"
