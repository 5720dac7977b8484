"""The server's side of HTTP, byte by byte: framing, limits, broken and slow clients, streams, closing."""

from __future__ import annotations

import asyncio
import datetime
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest
from apiserver_harness import CONFIG_MAPS, PODS, config_map, pod
from front_harness import Stage, listening

from pykueue.embedded.apiserver.auth.certificates import Authority
from pykueue.embedded.apiserver.http.connection import HEAD_LIMIT
from pykueue.embedded.apiserver.http.negotiation import BODY_LIMIT
from pykueue.embedded.apiserver.watch import delivery as delivering


def test_requests_sent_before_the_answer_are_answered_in_order(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        names = [f"c{number}" for number in range(100)]
        peer.say(b"".join(peer.request("POST", CONFIG_MAPS, config_map(name)) for name in names))
        answers = [await peer.heard() for _ in names]
        assert [orjson.loads(one.body)["metadata"]["name"] for one in answers] == names
        assert {one.code for one in answers} == {201}
        assert all("date" in one.headers and "connection" not in one.headers for one in answers)

    listening(tmp_path, story)


def test_a_request_may_come_in_any_pieces(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        data = peer.request("POST", CONFIG_MAPS, config_map("a"))
        for start in range(0, len(data), 7):
            peer.say(data[start : start + 7])
            await peer.writer.drain()
        assert (await peer.heard()).code == 201
        body = orjson.dumps(config_map("b", k="v" * 100_000))
        peer.say(peer.head("POST", CONFIG_MAPS, "Transfer-Encoding: chunked"))
        for start in range(0, len(body), 9_999):
            part = body[start : start + 9_999]
            peer.say(b"%x\r\n%b\r\n" % (len(part), part))
        peer.say(b"0\r\n\r\n")
        assert (await peer.heard()).code == 201
        assert (await peer.ask("GET", f"{CONFIG_MAPS}/b")).code == 200

    listening(tmp_path, story)


def test_a_body_is_asked_for_when_the_client_waits_to_be_asked(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        body = orjson.dumps(config_map("a"))
        expect = (f"Content-Length: {len(body)}", "Expect: 100-continue")
        peer.say(peer.head("POST", CONFIG_MAPS, *expect))
        assert (await peer.heard()).code == 100
        peer.say(body)
        assert (await peer.heard()).code == 201
        # Behind another request it is asked for only once that one is answered.
        peer.say(peer.request("GET", CONFIG_MAPS) + peer.head("PUT", f"{CONFIG_MAPS}/a", *expect))
        assert (await peer.heard()).code == 200
        assert (await peer.heard()).code == 100
        peer.say(body)
        assert (await peer.heard()).code == 200
        peer.say(peer.head("POST", CONFIG_MAPS, f"Content-Length: {BODY_LIMIT + 1}", "Expect: 100-continue"))
        assert (await peer.heard()).code == 413
        peer = await stage.peer()
        peer.say(peer.head("POST", CONFIG_MAPS, "Content-Length: 3", "Expect: tea"))
        assert (await peer.heard()).code == 417

    listening(tmp_path, story)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_refused_while_it_comes(tmp_path: Path, declared: bool) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        part = b" " * 65_536
        if declared:
            peer.say(peer.head("POST", CONFIG_MAPS, f"Content-Length: {100 * len(part)}"))
        else:
            peer.say(peer.head("POST", CONFIG_MAPS, "Transfer-Encoding: chunked"))
            part = b"%x\r\n%b\r\n" % (len(part), part)
        for _ in range(60):  # more than is taken, less than was promised
            peer.say(part)
        answer = await peer.heard()
        assert (answer.code, answer.headers["connection"]) == (413, "close")
        assert "too large" in answer.message
        await stage.later(10)
        assert await peer.closed()

    listening(tmp_path, story)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\x01c\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n bad: folding\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 401),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 400_000 + b"\r\n", 431),
        (b"GET /" + b"a" * (20 * HEAD_LIMIT) + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * (20 * HEAD_LIMIT), 431),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", 401),
        (b"CONNECT example.com:80 HTTP/1.1\r\n\r\n", 401),
    ],
)
def test_what_is_no_http_is_answered_and_cut_off(tmp_path: Path, data: bytes, code: int) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        peer.say(peer.request("GET", CONFIG_MAPS) + data)
        assert (await peer.heard()).code == 200
        answer = await peer.heard()
        assert answer.code == code
        assert answer.message
        assert (await (await stage.peer()).ask("GET", CONFIG_MAPS)).code == 200

    listening(tmp_path, story)


def test_silent_connections_are_probed_by_the_kernel(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        assert (await peer.ask("GET", CONFIG_MAPS)).code == 200
        (accepted,) = (one.transport.get_extra_info("socket") for one in stage.connections)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    listening(tmp_path, story)


def test_slow_clients_are_disconnected(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        idle, head, body, done = [await stage.peer() for _ in range(4)]
        head.say(b"GET /api HTTP/1.1\r\nHo")
        body.say(body.head("POST", CONFIG_MAPS, "Content-Length: 10") + b"{")
        assert (await done.ask("GET", CONFIG_MAPS)).code == 200
        await stage.later(1)
        assert len(stage.connections) == 4
        await stage.later(70)
        assert (await head.heard()).code == 408
        assert (await body.heard()).code == 408
        assert await idle.closed()
        assert (await done.ask("GET", CONFIG_MAPS)).code == 200
        await stage.later(310)
        assert await done.closed()

    listening(tmp_path, story)


def test_client_that_disconnects_during_a_request_affects_no_other_client(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        for data in (
            b"GET",
            b"POST /api HTTP/1.1\r\nContent-Length: 10\r\n\r\n{",
            (await stage.peer()).request("GET", f"{CONFIG_MAPS}?watch=true"),
            (await stage.peer()).request("GET", CONFIG_MAPS) * 500,
        ):
            peer = await stage.peer()
            peer.say(data)
            await peer.writer.drain()
            peer.writer.transport.abort()
        peer = await stage.peer()
        for number in range(20):
            assert (await peer.ask("POST", CONFIG_MAPS, config_map(f"n{number}"))).code == 201
        stage.close()

    listening(tmp_path, story)


def test_heads_are_answered_without_a_body(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        whole = await peer.ask("GET", "/version")
        head = await peer.ask("HEAD", "/version")
        assert (head.code, head.headers["content-length"]) == (200, str(len(whole.body)))
        assert (await peer.ask("HEAD", CONFIG_MAPS)).code == 405
        assert (await peer.ask("GET", "/version")).code == 200

    listening(tmp_path, story)


def test_what_is_not_upgraded(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        assert (await (await stage.peer()).ask("POST", PODS, pod)).code == 201
        for protocol, path, code, text in (
            ("SPDY/3.1", f"{PODS}/p/portforward", 501, "no attach or port-forward"),
            ("websocket", f"{PODS}/p/attach", 501, "no attach or port-forward"),
            ("SPDY/3.1", f"{PODS}/p/exec?command=ls", 501, "exec needs WebSockets"),
            (
                "websocket",
                f"{PODS}/p/exec?command=ls",
                400,
                "one of the subprotocols v5.channel.k8s.io, v4.channel.k8s.io",
            ),
            ("websocket", f"{PODS}/p/exec", 400, "at least 1 command"),
            ("websocket", f"{PODS}/p/exec?command=ls&container=d", 400, "container d is not valid for pod p"),
            ("websocket", f"{PODS}/none/exec?command=ls", 404, 'pods "none" not found'),
        ):
            peer = await stage.peer()
            answer = await peer.ask("GET", path, None, "Connection: Upgrade", f"Upgrade: {protocol}")
            assert (answer.code, text in answer.message) == (code, True), answer.message
            assert await peer.closed()
        peer = await stage.peer()  # an offer that may be declined
        fields = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAA")
        assert (await peer.ask("GET", CONFIG_MAPS, None, *fields)).code == 200

    listening(tmp_path, story)


def test_old_clients_get_whole_answers_but_no_streams(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        for path, code in ((CONFIG_MAPS, 200), (f"{CONFIG_MAPS}?watch=true", 505)):
            peer = await stage.peer()
            peer.say(peer.request("GET", path).replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer = await peer.heard()
            assert (answer.code, answer.headers["connection"]) == (code, "close")
            assert await peer.closed()

    listening(tmp_path, story)


def test_certificate_of_the_connection_identifies_the_user(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        authority = Authority(tmp_path / "data" / "pki", datetime.datetime.now(datetime.UTC))
        certificate, key = authority.client("ann", ["staff"])
        (tmp_path / "ann.pem").write_bytes(key + certificate)
        stage.context.load_cert_chain(tmp_path / "ann.pem")
        peer = await stage.peer()
        peer.say(b"GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await peer.heard()
        assert answer.code == 403
        assert 'User "ann"' in answer.message

    listening(tmp_path, story)


def test_a_watcher_that_takes_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "BACKLOG", 1_000_000)

    async def story(stage: Stage) -> None:
        slow, quick, writer = [await stage.peer() for _ in range(3)]
        for one in (slow, quick):
            one.say(one.request("GET", f"{CONFIG_MAPS}?watch=true"))
        assert b"200 OK" in await quick.reader.readline()
        await quick.reader.readuntil(b"\r\n\r\n")
        slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
        big = "x" * 500_000
        seen = 0
        for number in range(60):
            assert (await writer.ask("POST", CONFIG_MAPS, config_map(f"c{number}", k=big))).code == 201
            seen += (await quick.chunk()).count(b'"ADDED"')
        assert seen == 60
        slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await slow.heard()

    listening(tmp_path, story)


def test_a_client_that_takes_no_answers_is_not_served_further(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        await peer.ask("POST", CONFIG_MAPS, config_map("big", k="x" * 1_000_000))
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        peer.say(peer.request("GET", CONFIG_MAPS) * 200)
        other = await stage.peer()
        for number in range(100):
            await other.ask("POST", CONFIG_MAPS, config_map(f"c{number}"))
        sizes = [one.transport.get_write_buffer_size() for one in stage.connections]
        assert max(sizes) < 5_000_000
        await stage.later(200)
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]

        async def hear_all() -> None:
            for _ in range(200):
                await peer.heard()

        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await hear_all()

    listening(tmp_path, story)


def test_logs_wait_for_the_client_to_take_them(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        await peer.ask("POST", PODS, pod("p"))
        running = {"name": "main", "ready": True, "restartCount": 0, "image": "i", "imageID": ""}
        status = {"status": {"containerStatuses": [{**running, "state": {"running": {}}}]}}
        merge = "Content-Type: application/merge-patch+json"
        assert (await peer.ask("PATCH", f"{PODS}/p/status", status, merge)).code == 200
        made = 0

        async def lines(_pod: Any, _container: str, _query: Any) -> Any:
            nonlocal made
            for _ in range(300):
                made += 1
                yield b"x" * 49_999 + b"\n"

        stage.server.pipeline.log_source = lines
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        peer.say(peer.request("GET", f"{PODS}/p/log"))
        other = await stage.peer()
        for number in range(50):
            await other.ask("POST", CONFIG_MAPS, config_map(f"c{number}"))
        assert 0 < made < 200
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert (await peer.heard()).body.count(b"\n") == 300
        assert (await peer.ask("GET", CONFIG_MAPS)).code == 200

    listening(tmp_path, story)


def test_a_log_that_breaks_off_breaks_off_the_answer(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        await peer.ask("POST", PODS, pod("p"))
        running = {"name": "main", "ready": True, "restartCount": 0, "image": "i", "imageID": ""}
        status = {"status": {"containerStatuses": [{**running, "state": {"running": {}}}]}}
        await peer.ask("PATCH", f"{PODS}/p/status", status, "Content-Type: application/merge-patch+json")

        async def lines(_pod: Any, _container: str, _query: Any) -> Any:
            yield b"one\n"
            raise ConnectionError("the process that ran it is gone")

        stage.server.pipeline.log_source = lines
        peer.say(peer.request("GET", f"{PODS}/p/log"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            await peer.heard()

    listening(tmp_path, story)


def test_watches_of_one_selection_see_the_same(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        writer = await stage.peer()
        queries = ("", "labelSelector=a%3D1", "labelSelector=a%3D1", "fieldSelector=metadata.name%3Dc2")
        watchers = [await stage.peer() for _ in queries]
        for peer, query in zip(watchers, queries, strict=True):
            peer.say(peer.request("GET", f"{CONFIG_MAPS}?watch=true&{query}"))
            assert b"200 OK" in await peer.reader.readline()
            await peer.reader.readuntil(b"\r\n\r\n")
        bodies = [config_map(f"c{number}", {"a": str(number % 2)}) for number in range(4)]
        writer.say(b"".join(writer.request("POST", CONFIG_MAPS, body) for body in bodies))
        wanted = (["c0", "c1", "c2", "c3"], ["c1", "c3"], ["c1", "c3"], ["c2"])
        for peer, names in zip(watchers, wanted, strict=True):
            lines: list[bytes] = []
            while len(lines) < len(names):
                lines += (await peer.chunk()).splitlines()
            assert [orjson.loads(line)["object"]["metadata"]["name"] for line in lines] == names

    listening(tmp_path, story)


def test_stopping_lets_requests_end(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        watcher, idle, half = [await stage.peer() for _ in range(3)]
        watcher.say(watcher.request("GET", f"{CONFIG_MAPS}?watch=true"))
        assert b"200 OK" in await watcher.reader.readline()
        await watcher.reader.readuntil(b"\r\n\r\n")
        await idle.ask("GET", CONFIG_MAPS)
        half.say(b"GET /")
        await stage.server.stop()
        assert await watcher.chunk() == b""
        for peer in (watcher, idle, half):
            assert await peer.closed()

    listening(tmp_path, story)


def test_no_session_tickets_are_made(tmp_path: Path) -> None:
    """They cost a tenth of a handshake, and clients of Kubernetes do not use them."""

    async def story(stage: Stage) -> None:
        peer = await stage.peer()
        assert (await peer.ask("GET", "/healthz")).code == 200
        session = peer.writer.get_extra_info("ssl_object").session
        assert not session.has_ticket

    listening(tmp_path, story)
