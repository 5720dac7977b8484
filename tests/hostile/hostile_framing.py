"""Bytes on a connection that are almost HTTP/1.1 or WebSocket: framing, lengths, trailers, pipelines, ends."""
# ruff: noqa: E501 (tables of what is sent)

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from hostile_requests import Sent
from hostile_world import ADMIN, EOF, Answer, World

_PODS = "/api/v1/namespaces/default/pods"
_MAPS = "/api/v1/namespaces/default/configmaps"
_AUTHORIZATION = f"Authorization: Bearer {ADMIN}\r\n".encode()
_BODY = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"generateName":"f-"},"data":{"a":"b"}}'
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)

_METHODS = [
    b"GET",
    b"POST",
    b"PUT",
    b"PATCH",
    b"DELETE",
    b"HEAD",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"PRI",
    b"get",
    b"G\0T",
    b"",
]
_VERSIONS = [
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"HTTP/1.2",
    b"http/1.1",
    b"HTTP/11",
    b"",
    b"HTTP/1.1 x",
]
_TARGETS = [
    _PODS.encode(), b"*", b"/", b"", b"http://other" + _PODS.encode(), b"other:443", b"//x", b"/%zz", b"/\xff\xfe", b"/a b",
    _PODS.encode() + b"?" + b"a=b&" * 20_000, b"/" + b"x" * 70_000, b"?", b"#", b"/api/v1/pods?labelSelector=%",
    b"/api/v1/pods?limit=1&limit=2&watch=0",
]  # fmt: skip
_HEADERS = [
    b"X: y\r\n", b"X : y\r\n", b": y\r\n", b"X\r\n", b" X: y\r\n", b"X: y\r\n z\r\n", b"X: \0\r\n", b"X: \xff\r\n", b"X:y\n",
    b"Host: a\r\nHost: b\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: +5\r\n", b"Content-Length: 5, 5\r\n",
    b"Content-Length: 0x5\r\n", b"Content-Length: " + b"9" * 30 + b"\r\n", b"Content-Length: 99999999\r\n", b"Content-Length: \r\n",
    b"Content-Length: " + b"9" * 5000 + b"\r\n", b"Content-Length: 4\r\nContent-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: \tchunked\r\n",
    b"Transfer-Encoding: x\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"Expect: 100-continue\r\n", b"Expect: x\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive, upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n", b"Upgrade: SPDY/3.1\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Authorization: Basic YTpi\r\n", b"Authorization: Bearer\r\n", b"Authorization:\r\n",
    b"Authorization: Bearer x\r\nAuthorization: Bearer admin-token\r\n", b"Content-Encoding: gzip\r\n", b"Content-Type: \xff\r\n",
    b"X-Remote-User: admin\r\n", b"X-Forwarded-For: 127.0.0.1\r\n", b"X: " + b"y" * 70_000 + b"\r\n", b"Accept: " + b"a/b;q=0," * 8000 + b"\r\n",
    b"Range: bytes=0-1\r\n", b"TE: trailers\r\n", b"If-Match: *\r\n",
]  # fmt: skip
_CHUNKS = [
    b"0\r\n\r\n", b"5\r\nabcde\r\n0\r\n\r\n", b"5;a=b\r\nabcde\r\n0\r\n\r\n", b"g\r\n", b"-1\r\n", b"ffffffffffffffff\r\na", b"5\r\nabc",
    b"5\r\nabcdeX0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"0\r\nAuthorization: Bearer admin-token\r\n\r\n", b"0\r\nContent-Length: 5\r\n\r\n",
    b"0\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", b"5;" + b"x" * 70_000 + b"\r\nabcde\r\n0\r\n\r\n", b"1\r\na\r\n" * 30_000 + b"0\r\n\r\n",
    b"0x5\r\nabcde\r\n0\r\n\r\n", b"5\nabcde\n0\n\n", b" 5\r\nabcde\r\n0\r\n\r\n", b"0\r\n0\r\n\r\n",
]  # fmt: skip


class Framing:
    """Generates what is sent on connections. Everything follows from the generator `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def fill(self, world: World) -> None:
        """Create a pod to enter and maps to read."""
        world.allow_entering()
        pod = {"metadata": {"name": "n1"}, "spec": {"containers": [{"name": "main", "image": "a"}]}}
        await world.create(_PODS, pod)
        await world.create(_MAPS, {"metadata": {"name": "n1"}})

    def learn(self, answer: Answer) -> None:
        """What is sent does not depend on answers."""

    def next(self) -> Sent:
        """What is sent on one more connection."""
        ways: list[Callable[[], list[bytes]]] = [
            self._damaged, self._damaged, self._chunked, self._socket, self._socket, self._noise,
        ]  # fmt: skip
        rng = self._rng
        if rng.random() < 0.15:
            return self._pipeline()
        pieces = rng.choice(ways)()
        if rng.random() < 0.2:
            pieces = self._dribbled(b"".join(pieces))
        if rng.random() < 0.2:
            pieces.append(EOF)
        return Sent(pieces, 0)

    def _dribbled(self, data: bytes) -> list[bytes]:
        """The same bytes in many small pieces, cut anywhere."""
        size = self._rng.choice([1, 2, 7])
        return [data[at : at + size] for at in range(0, min(len(data), 400), size)] + [data[400:]]

    def _head(self, method: bytes, target: bytes, fields: bytes = b"", version: bytes = b"HTTP/1.1") -> bytes:
        return b"%b %b %b\r\nHost: server\r\n%b%b\r\n" % (method, target, version, _AUTHORIZATION, fields)

    def _post(self) -> bytes:
        return self._head(b"POST", _MAPS.encode(), b"Content-Length: %d\r\n" % len(_BODY)) + _BODY

    def _pipeline(self) -> Sent:
        """Good requests one behind the other: each has its answer."""
        rng = self._rng
        choices = [self._post(), self._head(b"GET", _MAPS.encode() + b"/n1"), self._head(b"GET", b"/version")]
        count = rng.choice([2, 5, 40, 200])
        data = b"".join(rng.choice(choices) for _ in range(count))
        return Sent([data] if rng.random() < 0.5 else [data[: len(data) // 2], data[len(data) // 2 :]], count)

    def _damaged(self) -> list[bytes]:
        """A request whose line or headers are wrong, with a good one behind it."""
        rng = self._rng
        fields = b"".join(rng.choices(_HEADERS, k=rng.choice([0, 1, 1, 2, 3, 2000])))
        method = rng.choice([b"GET", b"POST", *_METHODS])
        version = rng.choice([b"HTTP/1.1", b"HTTP/1.1", *_VERSIONS])
        target = rng.choice([_MAPS.encode(), _MAPS.encode(), *_TARGETS])
        head = self._head(method, target, fields, version)
        if method == b"HEAD":  # nothing behind it: the framing of the response depends on the method
            return [head]
        return [head, rng.choice([b"", b"", _BODY, b"abcde", b"\r\n\r\n"]), rng.choice([b"", self._post()])]

    def _chunked(self) -> list[bytes]:
        """A body in chunks that do not add up."""
        rng = self._rng
        good = b"%x\r\n%b\r\n" % (len(_BODY), _BODY)
        fields = b"Transfer-Encoding: chunked\r\n" + rng.choice(
            [b"", b"Trailer: X\r\n", b"Expect: 100-continue\r\n"]
        )
        method = rng.choice([b"POST", b"PUT", b"GET", b"DELETE"])
        return [self._head(method, _MAPS.encode(), fields), rng.choice([b"", good]), rng.choice(_CHUNKS)]

    def _noise(self) -> list[bytes]:
        """No HTTP/1.1 at all."""
        rng = self._rng
        return [
            rng.choice([
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"\x16\x03\x01\x02\0\x01\0", b"\0" * 100_000, b"\r\n" * 50_000,
                b"\n" * 100_000, rng.randbytes(500), b"GET", b"GET " + b"/" * 500_000, b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
            ])
        ]  # fmt: skip

    # -- WebSocket

    def _socket(self) -> list[bytes]:
        """An upgrade, and frames that break rules."""
        rng = self._rng
        name = rng.choice(["exec", "exec", "exec", "exec", "attach", "portforward", "log"])
        protocols = rng.choice(
            ["v5.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io, v4.channel.k8s.io", "x", ""]
        )
        target = f"{_PODS}/n1/{name}?command=a&stdin=true&tty={rng.choice(['true', 'false', 'x'])}"
        if rng.random() < 0.1:
            target = rng.choice([f"{_PODS}?watch=1", f"{_PODS}/n9/exec?command=a", f"{_PODS}/n1/exec", "/x"])
        method = rng.choice([b"GET"] * 8 + [b"POST", b"PUT"])
        head = self._head(
            method, target.encode(), UPGRADE + f"Sec-WebSocket-Protocol: {protocols}\r\n".encode()
        )
        frames = [self._frame() for _ in range(rng.choice([0, 1, 3, 10]))]
        if rng.random() < 0.15:
            frames = [rng.choice(frames or [self._frame()])] * 40_000
            frames = [b"".join(frames)[:400_000]]
        return [head, *frames]

    def _frame(self) -> bytes:
        rng = self._rng
        content = rng.choice([
            b"", b"\0", b"\0hello", b"\4" + b'{"Width":80,"Height":25}', b"\4{}", b"\4[1]", b'\4{"Width":-1,"Height":1e99}',
            b'\4{"Width":"a"}', b"\xff\0", b"\xff\1", b"\xff", b"\1x", b"\x09x", b"\0" * 70_000, b"\4" + b"[" * 50_000,
            b'\4{"Width":99999999999999999999,"Height":70000}',
        ])  # fmt: skip
        first = rng.choice(
            [
                0x82,
                0x82,
                0x82,
                0x81,
                0x80,
                0x02,
                0x00,
                0x88,
                0x89,
                0x8A,
                0x09,
                0x83,
                0xC2,
                0x8F,
                rng.randrange(256),
            ]
        )
        size = rng.choice([len(content)] * 8 + [0, 125, 2**31, 2**63, 2**64 - 1])
        masked = 0 if rng.random() < 0.1 else 0x80
        if size < 126 and rng.random() < 0.9:
            head = bytes([first, masked | size])
        elif size < 65536:
            head = struct.pack(">BBH", first, masked | 126, size)
        else:
            head = struct.pack(">BBQ", first, masked | 127, size)
        key = rng.randbytes(4) if masked else b""
        if masked:
            repeated = (key * (len(content) // 4 + 1))[: len(content)]
            content = bytes(a ^ b for a, b in zip(content, repeated, strict=True))
        return head + key + content
