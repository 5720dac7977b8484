"""One request of a connection with HTTP/2 and its answer."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any, Protocol

import ngh2

from pykueue.kube.errors import ApiError

from .connection import PIECE, WRITE_TIME
from .exchange import Handler, Known, Request

#: Bytes of one stream that may wait for the client without a pause.
_WAITING = 64 * 1024
#: Of watches and logs. Other answers have urgency 3.
_STREAMING = ngh2.Priority(urgency=4, incremental=True)
#: Requests that webhooks make to answer, over the connection whose writes wait for them: never held back.
_REVIEWS = ("/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/")


class Carrier(Protocol):
    """A connection as its streams see it."""

    handler: Handler
    engine: ngh2.Connection
    certificate: dict[str, Any] | None
    #: The Authorization header that was sent last, and whose it is.
    known: Known
    #: Streams whose answers wait for the client.
    held_back: set[Stream]

    def flush_soon(self) -> None:
        """Send what there is to be sent."""

    def hold_answer(self, size: int) -> None:
        """Count the bytes of an answer until its stream is closed."""

    def reset(self, stream: Stream, code: ngh2.ErrorCode) -> None:
        """End a stream without the rest of the answer."""

    def give_up(self) -> None:
        """Close the connection after a fault of the client that concerns all streams."""


class Stream:
    """One request of a connection and its answer: an `Exchange`, and the output of its watch."""

    framing = "plain"

    __slots__ = (
        "_connection", "_parts", "_sent", "_taken", "_write_until", "answered", "closed", "drained",
        "failed", "held_answer", "id", "receive_until", "request", "size", "task", "writes",
    )  # fmt: skip

    def __init__(self, connection: Carrier, number: int, request: Request) -> None:
        self._connection = connection
        self.id = number
        self.request = request
        #: Whether it counts as a write.
        self.writes = request.method not in ("GET", "HEAD") and not request.target.startswith(_REVIEWS)
        self.answered = False
        #: Whether the client can be sent nothing more.
        self.closed = False
        #: Whether the answer is sent before the request has arrived.
        self.failed = False
        #: What carries out the request.
        self.task: asyncio.Task[None] | None = None
        #: The body so far, in bytes and as a list, until it is complete.
        self.size = 0
        self._parts: list[bytes] = []
        #: When the body must be complete; 0 once it is.
        self.receive_until = 0.0
        #: Bytes of the answer that count as held.
        self.held_answer = 0
        #: Bytes of the answer given to the connection, those it had sent at the last look, and until when it
        #: must have sent more.
        self._sent = self._taken = 0
        self._write_until = 0.0
        self.drained: asyncio.Future[None] | None = None

    # -- the connection's side

    def take(self, data: bytes) -> None:
        """Add a part of the body."""
        self._parts.append(data)
        self.size += len(data)

    def complete(self, late: bool) -> None:
        """The body is there. `late`: it took so long that the identity must be found again."""
        self.receive_until = 0.0
        self.request.body = b"".join(self._parts)
        self._parts = []
        if late:
            self.request.user = None

    def fail(self, fault: ApiError) -> None:
        """Answer with a fault, whatever else the client sends."""
        self.failed = self.receive_until > 0
        self.receive_until = 0.0
        self._parts = []
        self.request.fault = fault

    def close(self) -> None:
        """The client has the answer, or does not want it."""
        self.closed = True
        self._parts = []
        if self.task is not None:
            self.task.cancel()
        if self.drained is not None and not self.drained.done():
            self.drained.cancel()

    def stalls(self, now: float) -> bool:
        """Whether the client has taken nothing of what it was sent for too long."""
        waiting = self.get_write_buffer_size()
        taken = self._sent - waiting
        if not waiting or taken != self._taken or not self._write_until:
            self._taken = taken
            self._write_until = now + WRITE_TIME if waiting else 0.0
        return bool(waiting) and now > self._write_until

    # -- as an exchange

    @property
    def certificate(self) -> dict[str, Any] | None:
        return self._connection.certificate

    @property
    def known(self) -> Known:
        return self._connection.known

    @known.setter
    def known(self, known: Known) -> None:
        self._connection.known = known

    @property
    def output(self) -> Stream:
        return self

    def framed(self, data: bytes) -> bytes:
        return data

    def answer(self, code: int, fields: bytes, body: bytes) -> None:
        empty = not body or self.request.method == "HEAD"
        self._head(code, fields, len(body), empty)
        if not empty:
            self.held_answer = len(body)
            self._connection.hold_answer(len(body))
            self._write(body, end=True)

    async def answer_in_pieces(self, code: int, fields: bytes, body: bytes) -> None:
        self.held_answer = len(body)
        self._connection.hold_answer(len(body))
        self._head(code, fields, len(body))
        pieces = memoryview(body)
        for start in range(0, len(body), PIECE):
            self._write(pieces[start : start + PIECE], end=start + PIECE >= len(body))
            await asyncio.sleep(0)
            await self.drain()

    def begin(self, fields: bytes) -> None:
        self._connection.engine.set_stream_priority(self.id, _STREAMING, ignore_client_signal=True)
        self._head(200, fields)

    def send(self, data: bytes) -> None:
        if data:
            self._write(data)

    def end(self) -> None:
        self._write(b"", end=True)

    def write(self, data: bytes) -> None:
        self._write(data)

    @property
    def refused(self) -> bool:
        """Whether all of an answer has been sent to a client that is still sending its request."""
        return self.failed and self.answered and not self.get_write_buffer_size()

    def get_write_buffer_size(self) -> int:
        return 0 if self.closed else self._connection.engine.queued_body_size(self.id)

    async def drain(self) -> None:
        if self.get_write_buffer_size() > _WAITING:
            self.drained = asyncio.get_running_loop().create_future()
            self._connection.held_back.add(self)
            try:
                await self.drained
            finally:
                self.drained = None
                self._connection.held_back.discard(self)

    def resume(self) -> None:
        """Go on if the client has taken enough."""
        waits = self.drained is not None and not self.drained.done()
        if self.drained is not None and waits and self.get_write_buffer_size() <= _WAITING:
            self.drained.set_result(None)

    def abort(self) -> None:
        self._connection.reset(self, ngh2.ErrorCode.INTERNAL_ERROR)

    def _head(self, code: int, fields: bytes, size: int | None = None, end: bool = False) -> None:
        if self.closed:
            raise ConnectionResetError
        self.answered = True
        connection = self._connection
        head = [(b":status", b"%d" % code), *_listed(fields), *_listed(connection.handler.date_field())]
        if size is not None:
            head.append((b"content-length", b"%d" % size))
        try:
            connection.engine.send_response(self.id, head, end_stream=end)
        except ngh2.NGH2Error as error:
            connection.give_up()
            raise ConnectionResetError from error
        connection.flush_soon()

    def _write(self, data: bytes | memoryview, end: bool = False) -> None:
        if not self.closed:
            self._sent += len(data)
            try:
                self._connection.engine.send_data(self.id, data, end_stream=end)
            except ngh2.NGH2Error:
                self._connection.give_up()
            else:
                self._connection.flush_soon()


@lru_cache(maxsize=256)
def _listed(fields: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Header lines, each with its line end, as names in lower case and values."""
    lines = (line.partition(b": ") for line in fields.split(b"\r\n") if line)
    return tuple((name.lower(), value) for name, _, value in lines)
