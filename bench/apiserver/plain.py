"""`python -m bench.apiserver.plain`: the API server of `pykueue up` over plain HTTP, to see what TLS costs.

For measurements only, and not part of pykueue: requests without a token are the manager's, since Go clients
send theirs over TLS only. Not for a compiled server, whose methods cannot be replaced. Takes the arguments of
`pykueue up`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any
from unittest.mock import patch

from bench.end_to_end.account import NAME, NAMESPACE

from pykueue.cli.main import program
from pykueue.embedded.apiserver.auth.authentication import User
from pykueue.embedded.apiserver.http import listening
from pykueue.embedded.apiserver.http.accepting import Acceptor
from pykueue.embedded.apiserver.http.connection import Connection
from pykueue.embedded.apiserver.http.exchange import Exchange, Handler, Request
from pykueue.embedded.apiserver.http.front import HttpFront

ACCOUNT = User(
    f"system:serviceaccount:{NAMESPACE}:{NAME}",
    ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"),
)


async def accept(acceptor: Acceptor, accepted: socket.socket) -> None:
    """Make a connection without a handshake."""
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(acceptor._connect, accepted)


def connection(handler: Handler) -> Connection:
    """HTTP/1.1: without TLS no client agrees on anything else."""
    return Connection(handler)


def user(front: HttpFront, request: Request, exchange: Exchange) -> User | None:
    """Who sends a request."""
    return _user(front, request, exchange) or ACCOUNT


def kubeconfig(url: str, *rest: Any) -> str:
    """A kubeconfig of the same address without TLS."""
    return _kubeconfig(url.replace("https://", "http://"), *rest)


_user = HttpFront._user
_kubeconfig = listening.kubeconfig_text

if __name__ == "__main__":
    with (
        patch.object(Acceptor, "_shake", accept),
        patch.object(listening, "Negotiated", connection),
        patch.object(HttpFront, "_user", user),
        patch.object(listening, "kubeconfig_text", kubeconfig),
    ):
        sys.argv.insert(1, "up")
        program()
