"""A connection with HTTP/2: many requests at the same time, each on a separate stream.

Frames, header compression and flow control are libnghttp2's, through the library ngh2, which does no I/O.
What is sent in one turn of the event loop leaves in one write, so that requests under way at the same time
share TLS records and system calls on both sides: that is most of what a request costs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

import ngh2

from pykueue.kube.errors import NotCarriedOutError
from pykueue.kube.exchange import LINE_MAX, READ_BUFFER, STREAM_HELD, Exchange, Fields

#: Seconds without anything from the server before it is asked for a sign of life, and to answer that.
PING_AFTER, PING_TIME = 30.0, 15.0
#: Seconds without anything from the server after which a request that is given up casts doubt on its
#: connection: the next ones are sent over another, until something comes.
DOUBT_AFTER = 1.0
#: Bytes that the server may send on all streams before any has been taken: streams that are not read, each
#: with STREAM_HELD, do not hold up the others.
_CONNECTION_WINDOW = 64 * 1024 * 1024
#: Streams at the same time until the server says how many it allows.
_STREAMS_AT_FIRST = 100

_CONFIGURATION = ngh2.Configuration(auto_window_update=False, max_inbound_header_list_size=2 * LINE_MAX)
_SCHEME = (b":scheme", b"https")
_SETTINGS = {ngh2.Setting.ENABLE_PUSH: 0, ngh2.Setting.INITIAL_WINDOW_SIZE: STREAM_HELD}


class Http2Connection(asyncio.BufferedProtocol):
    """The client's side of one connection; `host` is the value of :authority."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str) -> None:
        self._loop = loop
        self._authority = (b":authority", host.encode())
        self._engine = ngh2.Connection(ngh2.Role.CLIENT, _CONFIGURATION)
        self._buffer = memoryview(bytearray(8 * READ_BUFFER))
        self._transport: asyncio.Transport | None = None
        self._exchanges: dict[int, Exchange] = {}
        self._streams = _STREAMS_AT_FIRST
        self._flush: asyncio.Handle | None = None
        self._paused = False
        #: Whether nothing more can be sent or received.
        self.is_lost = False
        self.is_open = True
        self.has_answered = False
        #: When anything came last, whether a sign of life was asked for since, and when to look again.
        self._received = self.used = loop.time()
        self._pinged = False
        #: Whether a request has been given up since, after DOUBT_AFTER.
        self._is_doubtful = False
        self.deadline = self._received + PING_AFTER

    @property
    def has_room(self) -> bool:
        """Whether another request can be sent now."""
        return self.is_open and not self._is_doubtful and len(self._exchanges) < self._streams

    @property
    def is_idle(self) -> bool:
        """Whether no answer is waited for."""
        return not self._exchanges

    def send(
        self,
        method: str,
        target: str,
        fields: Fields,
        body: bytes | None,
        deadline: float,
        silence: float | None = None,
    ) -> Exchange:
        """Send a request; the arguments are those of `Connections.request` and of `Exchange`."""
        exchange = Exchange(self._loop, self, deadline, silence)
        head = [(b":method", method.encode()), _SCHEME, self._authority, (b":path", target.encode())]
        head += fields.pairs
        if body is not None:
            head.append((b"content-length", b"%d" % len(body)))
        try:
            number = self._engine.send_request(head, end_stream=body is None)
            if body is not None:
                self._engine.send_data(number, body, end_stream=True)
        except ngh2.NGH2Error as error:
            self.is_open = False
            exchange.fail(NotCarriedOutError(f"the connection takes no more requests: {error}"))
            return exchange
        exchange.number = number
        exchange.sent = self._loop.time()
        alone = not self._exchanges
        self._exchanges[number] = exchange
        if alone and self._flush is None:
            self._write()
        else:
            self._flush_soon()
        return exchange

    def close(self) -> None:
        """End the connection at once; answers that are still to come are lost."""
        self._fail(ConnectionError("the connection was closed"))

    def expire(self) -> None:
        """Ask for a sign of life where answers are waited for and nothing comes; without one, give up."""
        now = self._loop.time()
        if self.is_lost:
            return
        if self._pinged:
            self._fail(ConnectionError("the server gives no sign of life"))
        elif not self._exchanges:
            self.deadline = now + PING_AFTER
        elif now < self._received + PING_AFTER:
            self.deadline = self._received + PING_AFTER
        else:
            self._ping()

    def _ping(self) -> None:
        """Ask for a sign of life."""
        self._pinged = True
        self.deadline = self._loop.time() + PING_TIME
        with suppress(ngh2.NGH2Error):  # the connection ends
            self._engine.ping()
        self._flush_soon()

    # As the carrier of exchanges

    def abandon(self, exchange: Exchange) -> None:
        if self.is_lost:
            return
        held, exchange.held = exchange.held, 0
        self._acknowledge(exchange.number, held)
        if self._exchanges.pop(exchange.number, None) is not None:
            with suppress(ngh2.NGH2Error):  # the connection ends
                self._engine.reset_stream(exchange.number, ngh2.ErrorCode.CANCEL)
            was_silent = self._received < exchange.sent <= self._loop.time() - DOUBT_AFTER
            if was_silent and not self._pinged:
                self._is_doubtful = True
                self._ping()
        self._flush_soon()

    def taken(self, exchange: Exchange, size: int) -> None:
        self._acknowledge(exchange.number, size)
        self._flush_if_needed()

    # As the protocol of a transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._engine.initiate_connection(_SETTINGS)
        self._engine.set_local_window_size(_CONNECTION_WINDOW)
        self._write()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_lost:
            return
        self._received = self._loop.time()
        self._pinged = self._is_doubtful = False
        try:
            self._engine.receive_data(self._buffer[:nbytes])
            streamed = [one for one in map(self._take, self._engine.events()) if one is not None]
        except ngh2.NGH2Error as error:
            self._fail(ConnectionError(f"the answer is not HTTP/2: {error}"), error)
            return
        for exchange in streamed:
            exchange.received()
        self._flush_if_needed()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._flush_soon()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ConnectionError(str(error or "the server closed the connection")), error)

    # Sending

    def _flush_soon(self) -> None:
        """Write what there is to be sent, together with what else this turn of the loop brings."""
        if self._flush is None and not self.is_lost:
            self._flush = self._loop.call_soon(self._write)

    def _flush_if_needed(self) -> None:
        """As `_flush_soon`, after what may have left nothing to be sent."""
        if self._flush is None and not self.is_lost:
            with suppress(ngh2.NGH2Error):  # the connection ends
                if self._engine.want_write:
                    self._flush_soon()

    def _write(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self.is_lost or self._paused or self._transport is None:
            return
        try:
            data = self._engine.data_to_send()
            if data:
                self._transport.write(data)
            for event in self._engine.events():
                self._take(event)
        except ngh2.NGH2Error as error:
            self._fail(ConnectionError(f"the connection cannot go on: {error}"), error)

    def _acknowledge(self, number: int, size: int) -> None:
        """Let the server send as much again on a stream, and on the connection."""
        if size and not self.is_lost:
            with suppress(ngh2.NGH2Error):  # the connection ends
                self._engine.acknowledge_received_data(size, number)

    # Receiving

    def _take(self, event: ngh2.Event) -> Exchange | None:
        """Take an event in; the exchange of it whose reader is to be told that more has come."""
        kind = type(event)
        if kind is ngh2.DataReceived:
            return self._take_data(event)  # type: ignore[arg-type]
        if kind is ngh2.ResponseReceived:
            self._take_head(event)  # type: ignore[arg-type]
        elif kind is ngh2.TrailersReceived:
            self._end(event.stream_id)  # type: ignore[attr-defined]
        elif kind is ngh2.StreamClosed:
            self._take_end(event)  # type: ignore[arg-type]
        elif kind is ngh2.SettingsReceived:
            streams = self._engine.remote_settings.get(ngh2.Setting.MAX_CONCURRENT_STREAMS)
            self._streams = _STREAMS_AT_FIRST if streams is None else streams
        elif kind is ngh2.GoAwayReceived:
            self.is_open = False
        elif kind is ngh2.ConnectionClosed:
            self._fail(ConnectionError("the server closed the connection"))
        return None

    def _take_head(self, event: ngh2.ResponseReceived) -> None:
        exchange = self._exchanges.get(event.stream_id)
        if exchange is None:
            return
        exchange.has_begun = True
        (_, status), *headers = event.headers  # libnghttp2 refuses answers without :status before all others
        exchange.status = int(status)
        exchange.headers = headers
        exchange.head()
        if event.end_stream:
            self._end(event.stream_id)

    def _take_data(self, event: ngh2.DataReceived) -> Exchange | None:
        number, data = event.stream_id, event.data
        exchange = self._exchanges.get(number)
        if exchange is None or not exchange.streamed:
            self._acknowledge(number, len(data))
        if exchange is None:
            return None
        exchange.data(data)
        if event.end_stream:
            self._end(number)
            return None
        return exchange if exchange.streamed else None

    def _end(self, number: int) -> None:
        exchange = self._exchanges.pop(number, None)
        if exchange is not None:
            exchange.end()

    def _take_end(self, event: ngh2.StreamClosed) -> None:
        """A stream was closed: where its answer had not ended, by the server or with the connection."""
        exchange = self._exchanges.pop(event.stream_id, None)
        if exchange is None:
            return
        refused = event.error_code == ngh2.ErrorCode.REFUSED_STREAM or event.local_error is not None
        kind = NotCarriedOutError if refused and not exchange.has_begun else ConnectionError
        exchange.fail(kind(f"the server ended the stream with error {event.error_code}"))

    def _fail(self, problem: ConnectionError, cause: Exception | None = None) -> None:
        """Nothing more can be sent or received."""
        self.is_open = False
        self.is_lost = True
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            error = ConnectionError(*problem.args)
            error.__cause__ = cause
            exchange.fail(error)
        if self._transport is not None:
            self._transport.abort()
