"""Which version of HTTP a connection speaks: client and server agree on it in the TLS handshake (ALPN).

Go's clients, kubectl and Kueue's manager among them, choose HTTP/2 and then send all requests over one
connection. With HTTP/1.1 they open a connection for every request that is under way and keep 25 of them.
Clients that name no protocol speak HTTP/1.1. HTTP/2 needs the library ngh2; without it the server offers
HTTP/1.1 only.
"""

from __future__ import annotations

import asyncio
from typing import Any

from .connection import Connection
from .exchange import Handler

try:
    from .multiplexed import MultiplexedConnection
except ModuleNotFoundError as error:
    if error.name != "ngh2":
        raise
    PROTOCOLS: tuple[str, ...] = ("http/1.1",)
else:
    PROTOCOLS = ("h2", "http/1.1")


class Negotiated(asyncio.Protocol):
    """Hands a new connection to the protocol that was agreed on."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def connection_made(self, transport: Any) -> None:
        agreed = transport.get_extra_info("ssl_object").selected_alpn_protocol()
        multiplexed = agreed == "h2"
        protocol = MultiplexedConnection(self._handler) if multiplexed else Connection(self._handler)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
