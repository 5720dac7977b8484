"""What the versions of HTTP have in common: requests, what they are answered on, and who answers them."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from pykueue.embedded.apiserver.auth.authentication import Credential
from pykueue.embedded.apiserver.registry.call import User
from pykueue.embedded.apiserver.watch.delivery import Output
from pykueue.kube.errors import ApiError

#: An Authorization header, and its user as long as the server runs, or what to ask for the user each time.
Known = tuple[bytes | None, User | Credential | None]


class Request:
    """One request, complete."""

    __slots__ = (
        "body", "fault", "fields", "headers", "keep_alive", "method", "old", "target", "upgrade", "user",
    )  # fmt: skip

    def __init__(self, method: str, target: str, fields: list[tuple[bytes, bytes]]) -> None:
        self.method = method
        #: Path and query as sent.
        self.target = target
        #: All header fields in order, names in lower case.
        self.fields = fields
        self.headers = dict(fields)
        self.body = b""
        self.keep_alive = False
        #: Whether the client speaks HTTP/1.0, which knows no chunks.
        self.old = False
        #: Whether the client wants to go on with another protocol.
        self.upgrade = False
        #: Why this is no request that can be carried out.
        self.fault: ApiError | None = None
        #: Whose it is, if that was found out when its head arrived.
        self.user: Any = None

    def header(self, name: bytes) -> str:
        """A header's value, "" when it is not there."""
        value = self.headers.get(name)
        return value.decode("latin-1") if value is not None else ""

    def all(self, name: bytes) -> list[str]:
        """The values of a header that may be repeated."""
        return [value.decode("utf-8", "replace") for field, value in self.fields if field == name]


class Exchange(Protocol):
    """What a request is answered on: a connection of HTTP/1.1, or one stream of HTTP/2."""

    #: The Authorization header that the client sent last with a valid token, and whose it is.
    known: Known
    #: Whether the answer has begun.
    answered: bool
    #: How parts of answers are framed: exchanges with the same value can share them.
    framing: str

    @property
    def certificate(self) -> dict[str, Any] | None:
        """The client's verified certificate, as `ssl` describes it."""

    @property
    def output(self) -> Output:
        """Where a watch writes parts that `framed` has made."""

    def framed(self, data: bytes) -> bytes:
        """A part of an answer as it is written to `output`."""

    def answer(self, code: int, fields: bytes, body: bytes) -> None:
        """Send a whole answer. `fields` are header lines, each with its line end."""

    async def answer_in_pieces(self, code: int, fields: bytes, body: bytes) -> None:
        """Send a whole answer as the client takes it."""

    def begin(self, fields: bytes) -> None:
        """Begin an answer (200) of unknown length. Raises ApiError (505) when the client cannot read it."""

    def send(self, data: bytes) -> None:
        """Send a part of an answer that was begun."""

    def end(self) -> None:
        """End an answer that was begun."""

    async def drain(self) -> None:
        """Wait until the client has taken most of what it was sent."""

    def abort(self) -> None:
        """End the exchange in the middle of the answer."""


class ClientConnection(Protocol):
    """A connection as its owner sees it."""

    address: str
    #: Done when the connection is.
    gone: asyncio.Future[None]

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What carries out requests now."""

    def check(self, now: float) -> None:
        """End what a stalling client keeps open. `now` is the loop's time in seconds."""

    def finish(self) -> None:
        """Begin no further request."""

    def abort(self) -> None:
        """End without ceremony."""


class Handler(Protocol):
    """Who answers requests."""

    def opened(self, connection: ClientConnection) -> bool:
        """A client connected; False when it has too many connections."""

    def closed(self, connection: ClientConnection) -> None:
        """It is gone."""

    def identify(self, request: Request, exchange: Exchange) -> Any:
        """Who sends a request with a body, of which the head is there. Raises ApiError (401)."""

    def hold(self, heads: int, bodies: int) -> bool:
        """Hold more or fewer bytes of heads and bodies; False when those of all connections are too many."""

    def date_field(self) -> bytes:
        """The Date header of an answer given now."""

    async def handle(self, request: Request, exchange: Exchange) -> None:
        """Answer a request."""
