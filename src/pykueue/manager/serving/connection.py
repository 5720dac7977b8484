"""One client's connection: HTTP/1.1 by llhttp, one request after the other.

What a client can make the server hold, and for how long, is bounded: head, framing and unread body in bytes,
everything else in seconds. A client that sends the next request before it has the answer is answered once and
disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from .messages import Body, Handler, Headers, Request, Response, refusal

#: Bytes of a request beside its body: request line, headers, and what a body in chunks has around them, of
#: which each chunk may have so many in addition.
HEAD_LIMIT, CHUNK_FRAME = 64 * 1024, 32
#: Bytes of a body that are read ahead of what is asked for.
READ_BUFFER = 64 * 1024
#: Seconds for which the rest of a body that was refused is received, so that the client reads the answer; and
#: in which a client has to take what it was sent.
LINGER_TIME, WRITE_TIME = 5.0, 30.0

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.Protocol):
    """The server's side. `answer` never raises; `made` says whether the connection is one too many.

    `head_time`: seconds for the head of a request; `keep_alive`: between two requests.
    """

    def __init__(
        self,
        answer: Handler,
        made: Callable[[Connection], bool],
        lost: Callable[[Connection], None],
        head_time: float,
        keep_alive: float,
    ) -> None:
        self._answer = answer
        self._made = made
        self._lost = lost
        self._head_time = head_time
        self._keep_alive = keep_alive
        self._loop = asyncio.get_running_loop()
        self._parser = HttpRequestParser(self)
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        #: What answers the request.
        self.task: asyncio.Task[None] | None = None
        self._body: Body | None = None
        self._is_read_on = True
        #: Whether the connection goes on after the request.
        self._goes_on = True
        #: Nothing more is taken.
        self._is_deaf = False
        self._url = b""
        self._fields: list[tuple[str, str]] = []
        self._has_head = False
        #: Bytes of the request that are not of its body.
        self._overhead = 0

    def close(self) -> None:
        """End it: at once, or after the answer that is under way."""
        self._goes_on = False
        if self.task is None:
            self._end()

    def abort(self) -> None:
        """End it at once."""
        self._is_deaf = True
        if self._transport is not None:
            self._transport.abort()

    # Of the connection

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._made(self):
            self._set_timer(self._head_time, self.abort)
        else:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_deaf = True
        self._set_timer(0, None)
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()
        self._lost(self)
        del self._parser  # it refers to this object

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._refuse(refusal(400, "no other protocol is spoken here"))
        except HttpParserError as error:
            self._refuse(refusal(400, f"the request is not HTTP/1.1: {error}"))
        self._overhead += len(data)
        if self._overhead > HEAD_LIMIT:
            self._refuse(refusal(431, f"the request's headers are larger than {HEAD_LIMIT} bytes"))

    def pause_writing(self) -> None:
        self._write_timer = self._loop.call_later(WRITE_TIME, self.abort)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # Of the parser

    def on_message_begin(self) -> None:
        if self.task is not None or self._body is not None:
            self._is_deaf, self._goes_on = True, False
            return
        self._url, self._fields, self._has_head, self._overhead = b"", [], False, 0
        self._set_timer(self._head_time, self.abort)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # trailers do not count
            self._fields.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_chunk_header(self) -> None:
        self._overhead -= CHUNK_FRAME

    def on_headers_complete(self) -> None:
        if self._is_deaf:
            return
        self._has_head = True
        self._set_timer(0, None)
        self._goes_on = self._parser.should_keep_alive()
        headers = Headers(self._fields)
        asks = headers.get("expect").lower() == "100-continue"
        body = self._body = Body(self._continue if asks else _nothing, self._resume)
        method, certificate = self._parser.get_method().decode(), self._transport.get_extra_info("peercert")
        try:
            request = Request(method, self._url, headers, body, certificate or None)
        except ValueError as error:
            self._refuse(refusal(400, str(error)))
            return
        self.task = self._loop.create_task(self._respond(request))

    def on_body(self, part: bytes) -> None:
        self._overhead -= len(part)
        if self.task is None or self._body is None or self._is_deaf:
            return  # it was answered already
        self._body.add(part)
        if self._body.size > READ_BUFFER and self._is_read_on:
            self._is_read_on = False
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._body is None or self._is_deaf:
            return
        self._body.end()
        if self.task is None:
            self._next()

    # Answering

    async def _respond(self, request: Request) -> None:
        response = await self._answer(request)
        self.task = None
        self._goes_on = self._goes_on and request.body.is_complete
        if not self._transport.is_closing():
            self._transport.write(response.encoded(not self._goes_on))
        if request.body.is_complete or self._is_deaf:
            self._next()
        else:
            # Closed at once, the connection might end before the client has read why.
            self._set_timer(LINGER_TIME, self.abort)
            self._resume()

    def _next(self) -> None:
        """The request was received and answered."""
        self._body = None
        if self._goes_on:
            self._set_timer(self._keep_alive, self.abort)
            self._resume()
        else:
            self._end()

    def _refuse(self, response: Response) -> None:
        """Answer what cannot be understood, unless an answer is under way, and end the connection."""
        if self._is_deaf:
            return
        self._is_deaf, self._goes_on = True, False
        if self.task is not None:
            self.task.cancel()
        self._transport.write(response.encoded(True))
        self._end()

    def _end(self) -> None:
        """End the connection when all was sent."""
        self._is_deaf = True
        self._set_timer(WRITE_TIME, self.abort)
        if self._transport is not None:
            self._transport.close()

    def _continue(self) -> None:
        self._transport.write(_CONTINUE)

    def _resume(self) -> None:
        if not self._is_read_on and not self._is_deaf:
            self._is_read_on = True
            self._transport.resume_reading()

    def _set_timer(self, seconds: float, act: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if act is None else self._loop.call_later(seconds, act)


def _nothing() -> None:
    pass
