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
from typing import Any

import ngh2

from pykueue.kube.errors import ApiError

from .connection import (
    BODY_TIME,
    GOODBYE_TIME,
    HEAD_LIMIT,
    HEAD_TIME,
    IDENTITY_TIME,
    IDLE_TIME,
    WRITE_TIME,
)
from .exchange import Handler, Known, Request
from .negotiation import BODY_LIMIT, too_large
from .stream import Stream

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
#: Bytes turned into frames at once.
_FRAMED_AT_ONCE = 256 * 1024
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
#: What a field of the header list counts besides its name and value (RFC 9113, section 6.5.2).
_FIELD = 32
_CONTINUE = ((b":status", b"100"),)


class MultiplexedConnection(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._loop = asyncio.get_running_loop()
        self.engine = ngh2.Connection(ngh2.Role.SERVER, _CONFIGURATION)
        self._transport: Any = None
        self.address = ""
        self.certificate: dict[str, Any] | None = None
        self.known: Known = (None, None)
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
