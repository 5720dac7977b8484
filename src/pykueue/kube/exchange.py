"""One request and its answer, whatever the connection that carries them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

#: Names and values as they are on the wire.
Lines = list[tuple[bytes, bytes]]

#: Characters of one header line of an answer; servers themselves accept far less in a request.
LINE_MAX = 65_536
#: Bytes read from a connection at once, one TLS record, into a buffer that it keeps: transports that hand out
#: what they read allocate the most that may come, 256 KiB, each time.
READ_BUFFER = 16 * 1024
#: Bytes of a streamed answer that may wait for their reader before the server has to wait.
STREAM_HELD = 1024 * 1024


class Fields:
    """The header fields of requests, made once for all that have the same. ValueError for a line break."""

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        self._fields = tuple(fields)
        #: As lines of HTTP/1.1.
        self.text = "".join(f"{name}: {value}\r\n" for name, value in self._fields).encode()
        lines = len(self._fields)
        if self.text.count(b"\n") != lines or self.text.count(b"\r") != lines or b"\0" in self.text:
            names = ", ".join(name for name, _ in self._fields)
            raise ValueError(f"line break in a header; names: {names!r}")
        #: As fields of HTTP/2.
        self.pairs = [(name.lower().encode(), value.strip().encode()) for name, value in self._fields]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._fields)


class Answer(NamedTuple):
    """The answer to a request. The content of a streamed one is empty: it is read from its `Exchange`."""

    status: int
    reason: str
    headers: Lines
    content: bytes

    def header(self, name: bytes) -> str | None:
        """The first header of that name, which is in lower case."""
        for found, value in self.headers:
            if found.lower() == name:
                return value.decode(errors="surrogateescape")
        return None

    @property
    def redirects(self) -> bool:
        """Whether the request was not carried out, as it is to be sent to another address."""
        return 300 <= self.status < 400 and self.header(b"location") is not None


class Carrier(Protocol):
    """The connection of an exchange."""

    #: Whether another request can be sent when no answer is waited for.
    is_open: bool
    #: When it was last used, in seconds of the loop's time.
    used: float
    #: Whether a whole answer has come over it.
    has_answered: bool

    def close(self) -> None:
        """End the connection at once; answers that are still to come are lost."""

    def abandon(self, exchange: Exchange) -> None:
        """Nothing more of it is waited for or read."""

    def taken(self, exchange: Exchange, size: int) -> None:
        """The reader took that much of a streamed answer."""


class Exchange:
    """A request that was sent, and what has come of its answer.

    With `silence` the answer, if it is no refusal, is streamed: `answer` is done as soon as its head is
    there, its content is read by `read`, and the deadline is always that many seconds after what came last.
    """

    __slots__ = (
        "_ended", "_error", "_loop", "_parts", "_reader", "_silence", "answer", "carrier",
        "deadline", "has_begun", "headers", "held", "number", "reason", "sent", "status", "streamed",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, carrier: Carrier, deadline: float, silence: float | None = None
    ) -> None:
        self._loop = loop
        self.carrier = carrier
        self._silence = silence
        self.deadline = deadline
        #: That of the stream, on a connection with several, and when the request was sent.
        self.number = 0
        self.sent = 0.0
        self.answer: asyncio.Future[Answer] = loop.create_future()
        #: Whether anything of the answer has come.
        self.has_begun = False
        self.status = 0
        self.reason = b""
        self.headers: Lines = []
        #: Whether the head of a streamed answer is there.
        self.streamed = False
        self._parts: list[bytes] = []
        #: Bytes of a streamed answer that wait for their reader.
        self.held = 0
        self._reader: asyncio.Future[None] | None = None
        self._ended = False
        self._error: Exception | None = None

    # The connection's side

    def head(self) -> None:
        """`status`, `reason` and `headers` are complete."""
        if self._silence is not None and self.status < 300:
            self.streamed = True
            self._answered(b"")

    def data(self, part: bytes) -> None:
        """More of the content."""
        self._parts.append(part)
        if self.streamed:
            self.held += len(part)

    def received(self) -> None:
        """Some of the answer has come: tell the reader of a streamed one."""
        if self.streamed:
            assert self._silence is not None
            self.deadline = self._loop.time() + self._silence
            if self.held:
                self._wake()

    def end(self) -> None:
        """All of the answer has come."""
        self._ended = True
        if self.streamed:
            self._wake()
        else:
            self._answered(b"".join(self._parts))

    def fail(self, error: Exception) -> None:
        """There will be no answer, or no more of it."""
        if self._ended or self._error is not None:
            return
        if self.streamed:
            self._error = error
            self._wake()
        elif not self.answer.done():
            self.answer.set_exception(error)

    def expire(self) -> None:
        """The deadline has passed; it is put off where the answer waits for its reader."""
        if self.held and self._silence is not None:
            self.deadline = self._loop.time() + self._silence
            return
        self.fail(TimeoutError())
        self.carrier.abandon(self)

    def _answered(self, content: bytes) -> None:
        if not self.answer.done():
            reason = self.reason.decode("latin-1")
            self.answer.set_result(Answer(self.status, reason, self.headers, content))

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # The reader's side

    async def read(self) -> bytes:
        """All of a streamed answer that has come since the last call; nothing at its end.

        Raises ConnectionError, and TimeoutError after `silence`.
        """
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        size, self.held = self.held, 0
        self.carrier.taken(self, size)
        return data

    @property
    def is_over(self) -> bool:
        """Whether all of the answer has come."""
        return self._ended
