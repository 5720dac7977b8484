"""One client's connection with HTTP/2: many requests at the same time, each on a separate stream.

Frames, header compression and flow control are libnghttp2's, through the library ngh2; this module turns its
events into requests, and answers into streams. libnghttp2 ends connections that flood it: with resets of
streams, settings, pings, CONTINUATION frames. What else a client can make the server hold is bounded as with
HTTP/1.1, by the same constants. Requests begin in the order in which they are complete, a few in each turn of
the event loop, so that the requests of other connections are carried out in between. Watches and logs have a
lower priority than other answers: a write is never delayed by what a watch has to send.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from functools import lru_cache
from typing import Any

import ngh2

from pykueue.embedded.apiserver.registry.call import User
from pykueue.kube.errors import ApiError

from .connection import (
    BODY_TIME,
    GOODBYE_TIME,
    HEAD_LIMIT,
    HEAD_TIME,
    IDENTITY_TIME,
    IDLE_TIME,
    PIECE,
    WRITE_TIME,
)
from .exchange import Handler, Request
from .negotiation import BODY_LIMIT, too_large

#: Streams, watches included, that one connection may have at the same time.
STREAMS = 250
#: Requests of one connection begun in one turn of the loop.
BEGUN_TOGETHER = 8
#: Writes of one connection that are carried out at the same time. Otherwise those of one client, waiting for
#: slow webhooks, could take the places of `IN_FLIGHT`, which all clients share.
WRITES_UNDER_WAY = 100
#: Bytes of bodies that one connection may have under way.
CONNECTION_BODIES = 4 * BODY_LIMIT
#: Bytes of answers, without watches and logs, that wait for the client before no further request is begun.
ANSWERS_HELD = 4 * 1024 * 1024
#: Bytes of a body that a client may send before the server has taken any, on a stream and on all of them.
_STREAM_WINDOW, _CONNECTION_WINDOW = 256 * 1024, 1024 * 1024
#: Bytes turned into frames at once, and bytes of one stream that may wait for the client without a pause.
_FRAMED_AT_ONCE, _STREAM_WAITING = 256 * 1024, 64 * 1024
#: Acknowledgements of pings and settings that wait to be sent, streams reset by the client (at once, and per
#: second), and CONTINUATION frames of one request: beyond these the connection is closed.
ACKNOWLEDGEMENTS, CONTINUATIONS = 1000, 8
RESETS, _RESETS_PER_SECOND = 1000, 33

_CONFIGURATION = ngh2.Configuration(
    max_outbound_ack=ACKNOWLEDGEMENTS,
    stream_reset_rate_limit=(RESETS, _RESETS_PER_SECOND),
    max_continuations=CONTINUATIONS,
    # Between this and twice this much, the request is answered; beyond, the connection is closed.
    max_inbound_header_list_size=2 * HEAD_LIMIT,
)
_SETTINGS = {
    ngh2.Setting.MAX_CONCURRENT_STREAMS: STREAMS,
    ngh2.Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
    ngh2.Setting.MAX_HEADER_LIST_SIZE: HEAD_LIMIT,
    ngh2.Setting.NO_RFC7540_PRIORITIES: 1,
}
#: Of watches and logs. Other answers have urgency 3.
_STREAMING = ngh2.Priority(urgency=4, incremental=True)
#: What a field of the header list counts besides its name and value (RFC 9113, section 6.5.2).
_FIELD = 32
#: Requests that webhooks make to answer, over the connection whose writes wait for them: never held back.
_REVIEWS = ("/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/")
_CONTINUE = ((b":status", b"100"),)


class Stream:
    """One request of a connection and its answer: an `Exchange`, and the output of its watch."""

    framing = "plain"

    __slots__ = (
        "_connection", "_parts", "_sent", "_taken", "_write_until", "answered", "closed", "drained",
        "failed", "held_answer", "id", "receive_until", "request", "size", "task", "writes",
    )  # fmt: skip

    def __init__(self, connection: MultiplexedConnection, number: int, request: Request) -> None:
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
    def known(self) -> tuple[bytes | None, User | None]:
        return self._connection.known

    @known.setter
    def known(self, known: tuple[bytes | None, User | None]) -> None:
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
        if self.get_write_buffer_size() > _STREAM_WAITING:
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
        if self.drained is not None and waits and self.get_write_buffer_size() <= _STREAM_WAITING:
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


class MultiplexedConnection(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._loop = asyncio.get_running_loop()
        self.engine = ngh2.Connection(ngh2.Role.SERVER, _CONFIGURATION)
        self._transport: Any = None
        self.address = ""
        self.certificate: dict[str, Any] | None = None
        self.known: tuple[bytes | None, User | None] = (None, None)
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._streams: dict[int, Stream] = {}
        #: Streams with complete requests that have not been begun; writes beyond those that may be under way;
        #: the number of writes that are; and the next turn in which requests are begun.
        self._ready: deque[Stream] = deque()
        self._writes: deque[Stream] = deque()
        self._writing = 0
        self._turn: asyncio.Handle | None = None
        #: Streams whose answers wait for the client.
        self.held_back: set[Stream] = set()
        #: Streams answered, or about to be, before the client has sent all of the request.
        self._failed: set[Stream] = set()
        #: Bytes of bodies under way, and of answers that wait.
        self._bodies = self._answers = 0
        #: Bytes since the last complete frame, and when it must be complete.
        self._unread = 0
        self._frame_until = 0.0
        self._idle_until = self._loop.time() + HEAD_TIME
        self._write_until = 0.0
        self._paused = self._closing = self._lost = False
        self._flush: asyncio.Handle | None = None

    # -- the transport's side

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.certificate = transport.get_extra_info("peercert") or None
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        if not self.handler.opened(self):
            self._closing = True
            transport.abort()
            return
        self.engine.initiate_connection(_SETTINGS)
        self.engine.set_local_window_size(_CONNECTION_WINDOW)
        self.flush_soon()

    def connection_lost(self, _error: Exception | None) -> None:
        self._closing = self._lost = True
        self.handler.closed(self)
        for stream in list(self._streams.values()):
            self._close(stream)
        self._hold_frame(0)
        for handle in (self._turn, self._flush):
            if handle is not None:
                handle.cancel()
        self.gone.set_result(None)

    def pause_writing(self) -> None:
        self._paused = True
        self._write_until = self._loop.time() + WRITE_TIME

    def resume_writing(self) -> None:
        self._paused = False
        self.flush_soon()

    def data_received(self, data: bytes) -> None:
        if self._lost or self._transport.is_closing():
            return
        try:
            self.engine.receive_data(data)
            events = self.engine.events()
            if not self._hold_frame(0 if events else self._unread + len(data)):
                raise ngh2.DenialOfServiceError
            for event in events:
                self._take(event)
        except ngh2.NGH2Error:
            self.give_up()
            return
        self.flush_soon()

    def flush_soon(self) -> None:
        """Write what there is to be sent, together with what else this turn of the loop brings."""
        if self._flush is None and not self._lost:
            self._flush = self._loop.call_soon(self._write)

    def _write(self) -> None:
        self._flush = None
        if self._lost:
            return
        engine, transport = self.engine, self._transport
        try:
            while not self._paused and not transport.is_closing():
                data = engine.data_to_send(_FRAMED_AT_ONCE)
                if data:
                    transport.write(data)
                elif not self._reset_refused():
                    break
            for event in engine.events():
                self._take(event)
        except ngh2.NGH2Error:
            self.give_up()
            return
        for stream in list(self.held_back):
            stream.resume()
        if self._closing and not self._streams and not self._paused:
            transport.close()

    def _reset_refused(self) -> bool:
        """Have clients stop sending requests that are answered already; False if there are none."""
        refused = [one for one in self._failed if one.refused]
        for stream in refused:
            self.reset(stream, ngh2.ErrorCode.NO_ERROR)
        return bool(refused)

    def give_up(self) -> None:
        """Close the connection after a fault of the client that concerns all streams."""
        self._closing = True
        for stream in list(self._streams.values()):
            self._close(stream)
        self._transport.abort()

    # -- receiving

    def _take(self, event: ngh2.Event) -> None:
        kind = type(event)
        if kind is ngh2.RequestReceived:
            self._begin_stream(event)  # type: ignore[arg-type]
        elif kind is ngh2.DataReceived:
            self._take_body(event.stream_id, event.data, event.end_stream)  # type: ignore[attr-defined]
        elif kind is ngh2.TrailersReceived:  # no header fields: none of them counts
            self._take_body(event.stream_id, b"", True)  # type: ignore[attr-defined]
        elif kind is ngh2.StreamClosed:
            stream = self._streams.get(event.stream_id)  # type: ignore[attr-defined]
            if stream is not None:
                self._close(stream)
        elif kind is ngh2.ConnectionClosed:
            self._closing = True
            for stream in list(self._streams.values()):
                self._close(stream)
            self._transport.close()

    def _begin_stream(self, event: ngh2.RequestReceived) -> None:
        method = target = b""
        fields: list[tuple[bytes, bytes]] = []
        size = 0
        for name, value in event.headers:
            size += len(name) + len(value) + _FIELD
            if name[:1] != b":":
                fields.append((name, value))
            elif name == b":method":
                method = value
            elif name == b":path":
                target = value
        request = Request(method.decode("latin-1"), target.decode("latin-1"), fields)
        request.keep_alive = True
        request.upgrade = method == b"CONNECT"
        stream = Stream(self, event.stream_id, request)
        if self._closing:
            self.reset(stream, ngh2.ErrorCode.REFUSED_STREAM)
            return
        self._streams[stream.id] = stream
        if not event.end_stream:
            stream.receive_until = self._loop.time() + BODY_TIME
        fault = self._fault_of(stream, size)
        if fault is not None:
            self._fail(stream, fault)
        elif event.end_stream:
            self._queue(stream)
        elif b"expect" in request.headers:
            self.engine.send_informational_response(stream.id, _CONTINUE)

    def _fault_of(self, stream: Stream, size: int) -> ApiError | None:
        """Why a request is refused as soon as its head, of `size` bytes, is there."""
        headers = stream.request.headers
        if size > HEAD_LIMIT:
            message = f"the request's headers are larger than {HEAD_LIMIT} bytes"
            return ApiError(431, "RequestHeaderFieldsTooLarge", message)
        if int(headers.get(b"content-length", 0)) > BODY_LIMIT:  # malformed ones were refused
            return too_large()
        if headers.get(b"expect", b"100-continue").lower() != b"100-continue":
            return ApiError(417, "ExpectationFailed", "only 100-continue can be expected")
        if stream.receive_until:
            try:
                stream.request.user = self.handler.identify(stream.request, stream)
            except ApiError as error:
                return error
        return None

    def _take_body(self, number: int, data: bytes, end: bool) -> None:
        stream = self._streams.get(number)
        if stream is None or not stream.receive_until:
            return
        if data:
            stream.take(data)
            self._bodies += len(data)
            room = self.handler.hold(0, len(data)) and self._bodies <= CONNECTION_BODIES
            if stream.size > BODY_LIMIT:
                self._fail(stream, too_large())
                return
            if not room:
                message = "the server holds too many unfinished requests, please try again later"
                self._fail(stream, ApiError(503, "ServiceUnavailable", message, None, 1))
                return
        if end:
            stream.complete(self._loop.time() >= stream.receive_until - BODY_TIME + IDENTITY_TIME)
            self._queue(stream)

    def _hold_frame(self, size: int) -> bool:
        """Note the bytes of a frame, or of several that are one head, of which the end is missing.

        False when there are too many.
        """
        if size == self._unread:
            return True
        if not self._unread:
            self._frame_until = self._loop.time() + HEAD_TIME
        before, self._unread = self._unread, size
        return self.handler.hold(size - before, 0) and size <= 2 * HEAD_LIMIT

    def _fail(self, stream: Stream, fault: ApiError) -> None:
        self._release_body(stream)
        stream.fail(fault)
        if stream.failed:
            self._failed.add(stream)
        self._queue(stream)

    def _release_body(self, stream: Stream) -> None:
        self._bodies -= stream.size
        self.handler.hold(0, -stream.size)
        stream.size = 0

    # -- carrying out

    def _queue(self, stream: Stream) -> None:
        self._ready.append(stream)
        self._begin_soon()

    def _begin(self) -> None:
        """Begin the next requests, unless the client does not take the answers it was sent."""
        self._turn = None
        begun = 0
        while begun < BEGUN_TOGETHER and self._answers <= ANSWERS_HELD:
            room = self._writing < WRITES_UNDER_WAY
            queue = self._writes if room and self._writes else self._ready
            if not queue:
                return
            stream = queue.popleft()
            if stream.closed:
                continue
            if stream.writes and not room:
                self._writes.append(stream)
                continue
            begun += 1
            stream.task = task = self._loop.create_task(self._carry_out(stream))
            if stream.writes:
                self._writing += 1
                task.add_done_callback(self._written)  # also when it is cancelled before it has begun
        if begun == BEGUN_TOGETHER:
            self._turn = self._loop.call_soon(self._begin)

    def _written(self, _task: asyncio.Task[None]) -> None:
        self._writing -= 1
        if self._writes:
            self._begin_soon()

    def _begin_soon(self) -> None:
        if self._turn is None and not self._lost:
            self._turn = self._loop.call_soon(self._begin)

    async def _carry_out(self, stream: Stream) -> None:
        try:
            await self.handler.handle(stream.request, stream)
        except ConnectionError:
            self.reset(stream, ngh2.ErrorCode.INTERNAL_ERROR)
            return
        self._release_body(stream)
        stream.request.body = b""

    def hold_answer(self, size: int) -> None:
        """Count the bytes of an answer until its stream is closed."""
        self._answers += size

    def reset(self, stream: Stream, code: ngh2.ErrorCode) -> None:
        """End a stream without the rest of the answer."""
        if not stream.closed and not self._lost:
            with contextlib.suppress(ngh2.NGH2Error):  # the connection ends
                self.engine.reset_stream(stream.id, code)
            self.flush_soon()
        self._close(stream)

    def _close(self, stream: Stream) -> None:
        if self._streams.pop(stream.id, None) is None:
            return
        self._release_body(stream)
        self._failed.discard(stream)
        self._answers -= stream.held_answer
        stream.close()
        if self._ready or self._writes:
            self._begin_soon()
        if not self._streams:
            self._idle_until = self._loop.time() + IDLE_TIME
            if self._closing:
                self.flush_soon()

    # -- the owner's side

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [one.task for one in self._streams.values() if one.task is not None and not one.task.done()]

    def check(self, now: float) -> None:
        if (self._paused and now > self._write_until) or (self._unread and now > self._frame_until):
            self._transport.abort()
            return
        for stream in list(self._streams.values()):
            if stream.receive_until and now > stream.receive_until:
                self._fail(stream, ApiError(408, "Timeout", "the request took too long to arrive"))
            elif stream.stalls(now):
                self.reset(stream, ngh2.ErrorCode.CANCEL)
        if not self._streams and now > self._idle_until:
            if self._closing:
                self._transport.abort()
            else:
                self._idle_until = now + GOODBYE_TIME
                self.finish()

    def finish(self) -> None:
        if not self._closing:
            self._closing = True
            self.engine.send_goaway()
            self.flush_soon()

    def abort(self) -> None:
        self._transport.abort()


@lru_cache(maxsize=256)
def _listed(fields: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Header lines, each with its line end, as names in lower case and values."""
    lines = (line.partition(b": ") for line in fields.split(b"\r\n") if line)
    return tuple((name.lower(), value) for name, _, value in lines)
