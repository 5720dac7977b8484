"""The API server with all its kinds, asked over connections in memory: bytes in, bytes out, in virtual time.

Everything but TLS and the kernel's sockets is what `pykueue up` runs. A world follows from its seed, so what
was sent to one can be sent again to another that is in the same state.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from hostile_meter import Cost, Meter
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from pykueue.clock import Clock
from pykueue.cluster import Cluster
from pykueue.embedded.apiserver.auth.authentication import Authenticator
from pykueue.embedded.apiserver.handlers.exec import OUTPUT, Session, Wanted
from pykueue.embedded.apiserver.http.connection import Connection
from pykueue.embedded.apiserver.http.front import HttpFront
from pykueue.embedded.apiserver.registry.call import User
from pykueue.kube.errors import ApiError
from pykueue.kube.transport import Request

Object = dict[str, Any]

ADMIN = "admin-token"
#: Tokens of users, and what rights they have: all, those of `edit` in one namespace, none.
TOKENS = {
    ADMIN: User("kubernetes-admin", ("system:masters",)),
    "edit-token": User("editor", ("developers",)),
    "lost-token": User("stranger"),
}
NAMESPACES = ("default", "team", "limited")
#: Kinds whose objects send requests of others elsewhere.
_FAR = (
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiregistration.k8s.io", "apiservices"),
)
#: In place of bytes: the client ends its half of the connection.
EOF = b"<end>"
#: Bytes that a connection reads at once, at most.
_READ = 256 * 1024
#: Virtual seconds in which a request that has to wait for nothing is answered, and at most.
_SOON, _LONG = 0.5, 8.0


@dataclass
class Answer:
    """One HTTP response."""

    code: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False

    def value(self) -> Any:
        """The body as JSON, None when it is not."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    def shown(self) -> int:
        """How many objects it has; a document counts as one for every 2000 bytes of it."""
        told = dict(self.headers).get("content-length", "")
        if int(told or 0) > 2000 and b'"items":' not in self.body[:500]:
            return int(told) // 2000
        if not self.body.startswith(b"{"):
            return 0
        value = self.value()
        if value is None:  # a stream of events
            return self.body.count(b"\n")
        items = value.get("items", value.get("rows"))
        return len(items) if isinstance(items, list) else 1


class _Answers:
    """The responses in a stream of bytes. ValueError when they are not HTTP."""

    def __init__(self) -> None:
        self.all: list[Answer] = []
        #: What came after a switch of protocols.
        self.rest = b""
        self._switched = False
        self._parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        if self._switched:
            self.rest += data
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self.rest += data[upgrade.args[0] :]
        except HttpParserError as error:
            raise ValueError(f"the answer is not HTTP: {error}") from error

    def on_message_begin(self) -> None:
        self.all.append(Answer())

    def on_header(self, name: bytes, value: bytes) -> None:
        self.all[-1].headers.append((name.decode().lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        self.all[-1].code = code = self._parser.get_status_code()
        self._switched = code == 101

    def on_body(self, data: bytes) -> None:
        self.all[-1].body += data

    def on_message_complete(self) -> None:
        self.all[-1].whole = True
        if self.all[-1].code == 100:  # the client may go on: no answer yet
            self.all.pop()


class MemoryTransport(asyncio.Transport):
    """The server's end of a connection; what it writes is kept."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__({"peercert": None, "peername": ("127.0.0.1", 1)})
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closed:
            self.written.append(bytes(data))

    def close(self) -> None:
        self.lose()

    def abort(self) -> None:
        self.lose()

    def lose(self) -> None:
        """The connection ends."""
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def receive(self, data: bytes) -> None:
        """Bytes from the client."""
        if self.closed:
            return
        if data is EOF:
            if not self._protocol.eof_received():
                self.close()
        else:
            self._protocol.data_received(data)

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


@dataclass
class Exchange:
    """What was sent on one connection, and what came of it."""

    sent: int
    answers: list[Answer]
    cost: Cost
    #: What came after a switch of protocols.
    rest: bytes
    #: Exceptions and errors that were logged meanwhile.
    logged: list[str]
    fault: str = ""


class _Echo:
    """A command in a container that writes what it reads, until its input ends."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        while (line := await self._lines.get()) is not None:
            yield OUTPUT, line

    async def write(self, data: bytes) -> None:
        self._lines.put_nowait(data)

    def end_input(self) -> None:
        self._lines.put_nowait(None)

    def resize(self, width: int, height: int) -> None:
        struct.pack("HHHH", height, width, 0, 0)  # struct winsize

    async def exit_code(self) -> int:
        return 0

    def kill(self) -> None:
        self._lines.put_nowait(None)


async def _echo(_pod: Object, _wanted: Wanted) -> Session:
    return _Echo()


class _Log(logging.Handler):
    """Keeps what is logged as an error, or with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.texts.append(self.format(record))


class World:
    """A cluster's API server and the ways to talk to it. `async with` starts and stops it."""

    def __init__(self, clock: Clock, seed: int, meter: Meter) -> None:
        self.clock = clock
        self._meter = meter
        self._cluster = Cluster(
            clock=clock, rng=random.Random(seed), parts=("apiserver", "kube", "manager"), pace=None
        )
        assert self._cluster.server is not None
        self.server = self._cluster.server
        self._log = _Log()

    async def __aenter__(self) -> World:
        logging.getLogger().addHandler(self._log)
        await self._cluster.start()
        authenticator = Authenticator(self.server.core, b"k" * 32, TOKENS)
        self.server.pipeline.use_authenticator(authenticator)
        self._front = HttpFront(self.server.pipeline, authenticator)
        for name in NAMESPACES[1:]:
            await self.create("/api/v1/namespaces", {"metadata": {"name": name}})
        await self.create(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings",
            {
                "metadata": {"name": "developers"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "editor"}],
            },
        )
        await self.create(
            "/api/v1/namespaces/limited/resourcequotas",
            {"metadata": {"name": "quota"}, "spec": {"hard": {"pods": "3", "requests.cpu": "2"}}},
        )
        await self.create(
            "/api/v1/namespaces/limited/limitranges",
            {
                "metadata": {"name": "limits"},
                "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]},
            },
        )
        self._transport = self.server.transport()
        self._first = {plural: self._names(group, plural) for group, plural in _FAR}
        self._log.texts.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._front.close()
        await self._cluster.stop()
        logging.getLogger().removeHandler(self._log)

    async def create(self, path: str, obj: Object) -> Answer:
        """Create an object as the administrator."""
        exchange = await self.ask("POST", path, orjson.dumps(obj))
        answer = exchange.answers[0]
        assert answer.code in (201, 409), (path, answer.body)
        return answer

    def allow_entering(self) -> None:
        """Let commands be started in pods; they repeat their input."""
        self.server.pipeline.enter = _echo

    async def ask(
        self, method: str, path: str, body: bytes = b"", token: str = ADMIN, **headers: str
    ) -> Exchange:
        """Send one well-formed request."""
        fields = {"Host": "server", "Authorization": f"Bearer {token}"}
        if body:
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return await self.send([f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1"), body])

    async def send(self, pieces: Iterable[bytes], wanted: int = 1) -> Exchange:
        """Send bytes on a new connection, piece by piece, and take what comes back until all is answered."""
        loop = asyncio.get_running_loop()
        logged = len(self._log.texts)
        loop.set_exception_handler(lambda _, context: self._log.texts.append(str(context)))
        connection = self._front.connect()
        transport = MemoryTransport(connection)
        connection.connection_made(transport)
        answers, fault, sent = _Answers(), "", 0
        self._meter.start()
        for piece in pieces:
            for at in range(0, len(piece), _READ):
                part = piece if len(piece) <= _READ else piece[at : at + _READ]
                if not transport.closed:
                    sent += len(part)
                    loop.call_soon(transport.receive, part)
                    await self._pause(0)
        waited = 0.0
        while waited < _LONG:
            await self._pause(_SOON)
            waited += _SOON
            try:
                for data in transport.written:
                    answers.feed(data)
            except ValueError as error:
                fault = str(error)
            transport.written.clear()
            if transport.closed or fault or sum(one.whole for one in answers.all) >= wanted:
                break
            if answers.all and answers.all[-1].code in (101, 200):  # a stream
                break
        transport.lose()
        await self._pause(_SOON)
        cost = self._meter.stop()
        return Exchange(sent, answers.all, cost, answers.rest, self._log.texts[logged:], fault)

    async def tidy(self) -> None:
        """Remove what makes later requests fail: webhooks and servers that cannot be reached."""
        for group, plural in _FAR:
            endpoint = self.server.core.registry.storage(group, plural)
            assert endpoint is not None
            root = f"/apis/{endpoint.api_version}/{plural}"
            for name in self._names(group, plural) - self._first[plural]:
                with suppress(ApiError):
                    await self._transport.call(Request("DELETE", f"{root}/{name}", {}, None))

    def _names(self, group: str, plural: str) -> set[str]:
        return {obj["metadata"]["name"] for obj in self.server.core.all(group, plural)}

    async def _pause(self, seconds: float) -> None:
        """Let the server work; what the test does before and after does not count as its work."""
        self._meter.leave_out()
        await self.clock.sleep(seconds)
        self._meter.leave_out()
