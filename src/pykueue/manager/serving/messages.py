"""Requests to the manager's servers, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import httptools
import orjson

#: Parameters that a query may have.
_PARAMETERS = 100

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    431: "RequestHeaderFieldsTooLarge",
    503: "ServiceUnavailable",
}


class Headers:
    """Header fields by name in any case, in the order in which they came."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        """The names are in lower case."""
        self._fields = fields

    def get(self, name: str, default: str = "") -> str:
        """The first value."""
        wanted = name.lower()
        return next((value for found, value in self._fields if found == wanted), default)

    def all(self, name: str) -> list[str]:
        """All values."""
        wanted = name.lower()
        return [value for found, value in self._fields if found == wanted]

    def items(self) -> Iterator[tuple[str, str]]:
        """All fields, with their names in lower case."""
        return iter(self._fields)


class Body:
    """What comes after the head of a request, as it comes."""

    def __init__(self, wanted: Callable[[], None], taken: Callable[[], None]) -> None:
        """`wanted` is called when it is read for the first time, `taken` after each part."""
        self._wanted: Callable[[], None] | None = wanted
        self._taken = taken
        self._parts: list[bytes] = []
        self._news: asyncio.Future[None] | None = None
        self.is_complete = False
        #: Bytes that have come and were not read.
        self.size = 0

    def add(self, part: bytes) -> None:
        """A part has come."""
        self._parts.append(part)
        self.size += len(part)
        self._tell()

    def end(self) -> None:
        """All of it has come."""
        self.is_complete = True
        self._tell()

    async def parts(self) -> AsyncIterator[bytes]:
        """The parts in their order."""
        if self._wanted is not None:
            self._wanted()
            self._wanted = None
        while self._parts or not self.is_complete:
            if not self._parts:
                self._news = asyncio.get_running_loop().create_future()
                await self._news
                continue
            data = b"".join(self._parts)
            self._parts.clear()
            self.size = 0
            self._taken()
            yield data

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class Request:
    """One request. Raises ValueError for a target that is no path with a query."""

    def __init__(
        self, method: str, target: bytes, headers: Headers, body: Body, certificate: Mapping[str, Any] | None
    ) -> None:
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError as error:
            raise ValueError("the target of the request is not a URL") from error
        self.method = method
        #: Without quoting.
        self.path = unquote((url.path or b"/").decode("latin-1"))
        pairs = parse_qsl((url.query or b"").decode("latin-1"), True, max_num_fields=_PARAMETERS)
        #: The first value of each parameter.
        self.query = dict(reversed(pairs))
        self.headers = headers
        self.body = body
        #: The client's verified certificate, as `ssl` describes it.
        self.certificate = certificate

    @property
    def content_type(self) -> str:
        """The media type of the body, without parameters."""
        return self.headers.get("content-type").partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """Bytes of the body, where the request says so."""
        length = self.headers.get("content-length")
        return int(length) if length else None


class Response(NamedTuple):
    """An answer."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = {}

    def encoded(self, close: bool) -> bytes:
        """The answer as it is sent; `close`: the connection ends with it."""
        status = HTTPStatus(self.status)
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            *[f"{name}: {value}" for name, value in self.headers.items()],
            *(["Connection: close"] if close else []),
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


Handler = Callable[[Request], Awaitable[Response]]


def plain(text: str, status: int = 200) -> Response:
    """A text for people."""
    return Response(text.encode(), status=status)


def document(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON."""
    return Response(orjson.dumps(value), "application/json", status, headers or {})


def refusal(code: int, message: str) -> Response:
    """A Status object that says no."""
    return document(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _REASONS.get(code, "InternalError"),
            "code": code,
        },
        code,
    )
