"""Requests and watches that share a connection with HTTP/2, against a server that does what a test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import ngh2
import pytest
from test_kube_connections import OK, Scripted, serving
from test_kube_http import certificate

from pykueue.kube import connections, http2
from pykueue.kube.errors import ApiError
from pykueue.kube.http import HttpTransport, RequestOptions
from pykueue.kube.transport import Request

READ = Request("GET", "/x")
WRITE = Request("PATCH", "/x", {"fieldManager": "a b"}, {"a": 1})
WATCH = Request("GET", "/w", {"watch": "true"})
JSON = (b"content-type", b"application/json")
PATIENCE = 30.0


def line(name: str, size: int = 0) -> bytes:
    return b'{"type":"ADDED","object":{"metadata":{"name":"%b"},"x":"%b"}}\n' % (name.encode(), b"x" * size)


class Peer(asyncio.Protocol):
    """The server's side of one connection: `play` gets each request once all of it has come."""

    def __init__(self, play: Play, settings: dict[int, int]) -> None:
        self.engine = ngh2.Connection(ngh2.Role.SERVER, ngh2.Configuration())
        self._play, self._settings = play, settings
        self.transport: Any = None
        self.heads: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytes] = {}
        #: Error codes of the streams that the client has reset.
        self.resets: dict[int, int] = {}
        self.pings = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.engine.initiate_connection(self._settings)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.engine.receive_data(data)
        for event in self.engine.events():
            if isinstance(event, ngh2.RequestReceived):
                self.heads[event.stream_id] = {name.decode(): value.decode() for name, value in event.headers}
                self.bodies[event.stream_id] = b""
            elif isinstance(event, ngh2.DataReceived):
                self.bodies[event.stream_id] += event.data
            elif isinstance(event, ngh2.StreamReset):
                self.resets[event.stream_id] = event.error_code
            elif isinstance(event, ngh2.PingReceived):
                self.pings += 1
            if getattr(event, "end_stream", False):
                self._play(self, event.stream_id)
        self.flush()

    def flush(self) -> None:
        if data := self.engine.data_to_send():
            self.transport.write(data)

    def answer(self, stream: int, content: bytes = b"{}", status: int = 200, end: bool = True) -> None:
        self.engine.send_response(stream, [(b":status", b"%d" % status), JSON])
        self.engine.send_data(stream, content, end_stream=end)
        self.flush()

    def more(self, stream: int, content: bytes, end: bool = False) -> None:
        self.engine.send_data(stream, content, end_stream=end)
        self.flush()


Play = Callable[[Peer, int], None]


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - whatever it waits for
        await asyncio.sleep(0.001)


@asynccontextmanager
async def playing(
    folder: Path, play: Play, settings: dict[int, int] | None = None, **options: Any
) -> AsyncIterator[tuple[HttpTransport, list[Peer]]]:
    """A transport to a server with HTTP/2, and the server's connections."""
    server_tls = certificate(folder)
    server_tls.set_alpn_protocols(["h2"])
    peers: list[Peer] = []

    def made() -> Peer:
        peers.append(Peer(play, settings or {}))
        return peers[-1]

    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0, ssl=server_tls)
    address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client_tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    transport = HttpTransport(address, ssl=client_tls, http2=True, **options)
    async with server:
        try:
            async with asyncio.timeout(PATIENCE):
                yield transport, peers
        finally:
            await transport.close()
            for peer in peers:
                peer.transport.abort()


def test_requests_share_one_connection_and_are_answered_in_any_order(tmp_path: Path) -> None:
    async def main() -> None:
        waiting: list[int] = []

        def play(peer: Peer, stream: int) -> None:
            waiting.append(stream)
            if len(waiting) == 20:
                for one in reversed(waiting):
                    peer.answer(one, b'{"path":"%b"}' % peer.heads[one][":path"].encode())

        options = RequestOptions(headers=(("Impersonate-User", "ann"),))
        async with playing(tmp_path, play, token="secret", requests=options) as (transport, peers):
            reads = [transport.call(Request("GET", f"/ü{number}")) for number in range(19)]
            answers = await asyncio.gather(transport.call(WRITE), *reads)
            paths = ["/x?fieldManager=a+b", *(f"/%C3%BC{number}" for number in range(19))]
            assert [answer["path"] for answer in answers] == paths
            (peer,) = peers
            (head,) = [head for head in peer.heads.values() if head[":method"] == "PATCH"]
            assert head[":scheme"] == "https"
            assert head[":authority"] == transport.base_url.removeprefix("https://")
            assert (head["authorization"], head["impersonate-user"]) == ("Bearer secret", "ann")
            assert (head["content-type"], head["content-length"]) == ("application/json", "7")
            assert [body for body in peer.bodies.values() if body] == [b'{"a":1}']

    asyncio.run(main())


def test_refusals_and_texts_are_as_with_http_1(tmp_path: Path) -> None:
    async def main() -> None:
        def play(peer: Peer, stream: int) -> None:
            if peer.heads[stream][":path"] == "/log":
                head = [(b":status", b"200"), (b"content-type", b"text/plain"), (b"warning", b'299 - "a"')]
                peer.engine.send_response(stream, head)
                peer.more(stream, b"some", end=False)
                peer.more(stream, b" lines", end=True)
            else:
                head = [(b":status", b"429"), (b"retry-after", b"3")]
                peer.engine.send_informational_response(stream, [(b":status", b"103"), (b"link", b"a")])
                peer.engine.send_response(stream, head)
                peer.more(stream, b'{"kind":"Status","code":429,"message":"later"}', end=True)

        warnings: list[str] = []
        options = RequestOptions(on_warning=warnings.append)
        async with playing(tmp_path, play, requests=options) as (transport, _):
            assert await transport.call(Request("GET", "/log")) == "some lines"
            assert warnings == ["a"]
            with pytest.raises(ApiError, match="later") as refusal:
                await transport.call(WRITE)
            assert refusal.value.retry_after == 3.0
            with pytest.raises(ApiError, match="later"):
                await anext(transport.watch(WATCH))

    asyncio.run(main())


def test_a_watch_is_a_stream_beside_others_and_is_reset_when_it_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        def play(peer: Peer, stream: int) -> None:
            if "watch" in peer.heads[stream][":path"]:
                peer.answer(stream, line("a") + line("b")[:9], end=False)
            else:
                peer.answer(stream)

        async with playing(tmp_path, play) as (transport, peers):
            left = transport.watch(WATCH)
            assert (await anext(left)).object["metadata"]["name"] == "a"
            ended, broken = transport.watch(WATCH), transport.watch(WATCH)
            for watch in (ended, broken):
                await anext(watch)
            assert await transport.call(WRITE) == {}
            await left.aclose()
            assert await transport.call(READ) == {}
            (peer,) = peers
            assert peer.resets == {1: ngh2.ErrorCode.CANCEL}
            peer.more(3, line("b")[9:] + line("c") + b'{"type":"MOD', end=True)
            names = [event.object["metadata"]["name"] async for event in ended]
            assert names == ["b", "c"]  # an unfinished line is left out
            peer.more(5, line("b")[9:])
            peer.engine.reset_stream(5, ngh2.ErrorCode.INTERNAL_ERROR)
            peer.flush()
            assert (await anext(broken)).object["metadata"]["name"] == "b"
            with pytest.raises(ConnectionError, match="ended the stream with error 2"):
                await anext(broken)
            assert await transport.call(WRITE) == {}
            assert len(peers) == 1

    asyncio.run(main())


def test_a_server_that_allows_few_streams_gets_more_connections(tmp_path: Path) -> None:
    async def main() -> None:
        held: list[tuple[Peer, int]] = []

        def play(peer: Peer, stream: int) -> None:
            if peer.heads[stream][":path"] == "/first":
                peer.answer(stream)
                return
            held.append((peer, stream))
            if len(held) == 5:
                for one, number in held:
                    one.answer(number)

        settings = {ngh2.Setting.MAX_CONCURRENT_STREAMS: 2}
        async with playing(tmp_path, play, settings) as (transport, peers):
            await transport.call(Request("GET", "/first"))
            assert await asyncio.gather(*(transport.call(WRITE) for _ in range(5))) == [{}] * 5
            assert [len(peer.heads) for peer in peers] == [3, 2, 1]

    asyncio.run(main())


def test_what_a_server_says_it_has_not_looked_at_is_sent_again(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[str] = []

        def play(peer: Peer, stream: int) -> None:
            path = peer.heads[stream][":path"]
            seen.append(path)
            if path == "/kept":
                return
            if path == "/goaway" and seen.count(path) == 1:
                peer.engine.send_goaway(last_stream_id=1)
                peer.flush()
                peer.answer(1)  # what it had taken in is still answered
            elif path == "/refused" and seen.count(path) == 1:
                peer.engine.reset_stream(stream, ngh2.ErrorCode.REFUSED_STREAM)
            else:
                peer.answer(stream)

        async with playing(tmp_path, play) as (transport, peers):
            kept = asyncio.ensure_future(transport.call(Request("POST", "/kept", body={})))
            await until(lambda: bool(seen))
            assert await transport.call(Request("POST", "/goaway", body={})) == {}
            assert await kept == {}
            assert len(peers) == 2
            assert await transport.call(Request("POST", "/refused", body={})) == {}
            assert seen == ["/kept", "/goaway", "/goaway", "/refused", "/refused"]
            assert len(peers) == 2

    asyncio.run(main())


@pytest.mark.parametrize("always", [True, False], ids=("always", "once"))
def test_a_connection_that_breaks_repeats_reads_once_and_no_writes(tmp_path: Path, always: bool) -> None:
    async def main() -> None:
        seen: list[str] = []

        def play(peer: Peer, stream: int) -> None:
            method, path = peer.heads[stream][":method"], peer.heads[stream][":path"]
            seen.append(method)
            if path == "/cut" and (always or len(peers) == 1):
                peer.transport.abort()
            else:
                peer.answer(stream)

        async with playing(tmp_path, play) as (transport, peers):
            assert await transport.call(READ) == {}
            write = asyncio.ensure_future(transport.call(Request("PATCH", "/cut", body={})))
            read = asyncio.ensure_future(transport.call(Request("GET", "/cut")))
            await asyncio.wait([write, read])
            assert isinstance(write.exception(), ConnectionError)
            if always:
                assert isinstance(read.exception(), ConnectionError)
            else:
                assert read.result() == {}
            assert seen.count("PATCH") == 1
            assert await transport.call(READ) == {}

    asyncio.run(main())


def test_a_server_that_gives_no_sign_of_life_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "PING_AFTER", 0.02)
    monkeypatch.setattr(http2, "PING_TIME", 0.5)

    async def main() -> None:
        def play(peer: Peer, stream: int) -> None:
            peer.answer(stream, line("a"), end=False)

        async with playing(tmp_path, play) as (transport, peers):
            watch = transport.watch(WATCH)
            await anext(watch)
            await until(lambda: peers[0].pings > 0)  # which is answered
            peers[0].more(1, line("b"))
            assert (await anext(watch)).object["metadata"]["name"] == "b"
            peers[0].transport.pause_reading()
            with pytest.raises(ConnectionError, match="no sign of life"):
                await anext(watch)

    asyncio.run(main())


def test_requests_go_elsewhere_while_a_connection_gives_no_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2, "DOUBT_AFTER", 0.0)

    async def main() -> None:
        def play(peer: Peer, stream: int) -> None:
            with suppress(ngh2.StreamUnavailableError):  # it was given up
                peer.answer(stream, b"%d" % peers.index(peer))

        async with playing(tmp_path, play, requests=RequestOptions(timeout=0.2)) as (transport, peers):
            assert await transport.call(READ) == 0
            peers[0].transport.pause_reading()
            with pytest.raises(ConnectionError, match="did not answer"):
                await transport.call(WRITE)
            assert await transport.call(WRITE) == 1
            peers[0].transport.resume_reading()
            await until(lambda: peers[0].pings == 1)
            while await transport.call(WRITE) == 1:  # until the ping is answered
                continue
            assert len(peers) == 2

    asyncio.run(main())


def test_requests_that_take_too_long_or_are_cancelled_leave_the_connection_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        def play(peer: Peer, stream: int) -> None:
            if peer.heads[stream][":path"] != "/held":
                peer.answer(stream)

        held = Request("GET", "/held")
        async with playing(tmp_path, play, requests=RequestOptions(timeout=0.2)) as (transport, peers):
            assert await transport.call(READ) == {}
            cancelled = asyncio.ensure_future(transport.call(held))
            await until(lambda: len(peers[0].heads) > 1)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            with pytest.raises(ConnectionError, match=r"did not answer within 0\.2 s"):
                await transport.call(held)
            assert await transport.call(READ) == {}
            (peer,) = peers
            assert peer.resets == dict.fromkeys((3, 5), ngh2.ErrorCode.CANCEL)

    asyncio.run(main())


def test_watches_that_are_not_read_hold_up_neither_memory_nor_others(tmp_path: Path) -> None:
    async def main() -> None:
        part = line("a", 100_000)

        def play(peer: Peer, stream: int) -> None:
            if "watch" in peer.heads[stream][":path"]:
                peer.answer(stream, part * 100, end=False)
            else:
                peer.answer(stream, b'"%b"' % (b"x" * 3_000_000))

        async with playing(tmp_path, play) as (transport, peers):
            watches = [transport.watch(WATCH) for _ in range(8)]
            for watch in watches:
                await anext(watch)
            for _ in range(40):  # more than the window of the connection
                assert len(await transport.call(READ)) == 3_000_000
            (peer,) = peers
            assert all(peer.engine.queued_body_size(stream) > 5_000_000 for stream in range(1, 16, 2))
            for number, watch in enumerate(watches):
                if number % 2:
                    async with aclosing(watch):
                        continue
                peer.more(2 * number + 1, b"", end=True)
                assert 1 + len([event async for event in watch]) == 100
            for _ in range(40):
                assert len(await transport.call(READ)) == 3_000_000

    asyncio.run(main())


def test_what_is_not_http_2_is_a_connection_error(tmp_path: Path) -> None:
    async def main() -> None:
        def play(peer: Peer, stream: int) -> None:
            if peer.heads[stream][":path"] == "/other":
                peer.transport.write(b"HTTP/1.1 200 OK\r\n\r\n" * 10)
            else:
                peer.answer(stream)

        async with playing(tmp_path, play) as (transport, peers):
            with pytest.raises(ConnectionError):
                await transport.call(Request("GET", "/other"))
            assert await transport.call(READ) == {}
            assert len(peers) == 2

    asyncio.run(main())


def test_connections_that_are_not_used_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "KEEP_ALIVE", 0.05)

    async def main() -> None:
        def play(peer: Peer, stream: int) -> None:
            peer.answer(stream, line("a"), end="watch" not in peer.heads[stream][":path"])

        async with playing(tmp_path, play) as (transport, peers):
            watch = transport.watch(WATCH)
            await anext(watch)
            await asyncio.sleep(0.2)  # longer than unused connections are kept
            assert not peers[0].transport.is_closing()
            await watch.aclose()
            await until(lambda: bool(peers[0].transport.is_closing()))

    asyncio.run(main())


@pytest.mark.parametrize("installed", [True, False])
def test_http_1_is_spoken_where_the_server_or_the_library_has_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if not installed:
        monkeypatch.setattr(connections, "find_spec", lambda name: None)

    async def main() -> None:
        script = Scripted([OK] * 6)
        tls = certificate(tmp_path)
        tls.set_alpn_protocols(["http/1.1"] if installed else ["h2", "http/1.1"])
        async with serving(script.serve, tls) as address:
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
            transport = HttpTransport(address, ssl=context, http2=True)
            assert await asyncio.gather(*(transport.call(WRITE) for _ in range(3))) == [{}] * 3
            assert await asyncio.gather(*(transport.call(WRITE) for _ in range(3))) == [{}] * 3
            await transport.close()
        assert len(script.seen) == 3

    asyncio.run(main())


def test_requests_that_begin_together_fail_together_where_there_is_no_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with playing(tmp_path, lambda peer, stream: None) as (transport, _):
            address = transport.base_url
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        transport = HttpTransport(address, ssl=context, http2=True)
        found = await asyncio.gather(*(transport.call(WRITE) for _ in range(5)), return_exceptions=True)
        assert all("Cannot connect to host" in str(error) for error in found)
        await transport.close()

    asyncio.run(main())
