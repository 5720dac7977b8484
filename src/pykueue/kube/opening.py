"""The start of a connection, until client and server have agreed upon a protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pykueue.kube.http1 import Http1Connection
    from pykueue.kube.http2 import Http2Connection

    Connection: TypeAlias = Http1Connection | Http2Connection


class Opening(asyncio.Protocol):
    """Makes way for the connection that speaks what client and server agree upon."""

    def __init__(self, make: Callable[[str | None], Connection]) -> None:
        self._make = make
        self.connection: Connection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        secured = transport.get_extra_info("ssl_object")
        self.connection = self._make(None if secured is None else secured.selected_alpn_protocol())
        transport.set_protocol(self.connection)
        self.connection.connection_made(transport)
