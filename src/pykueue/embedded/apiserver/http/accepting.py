"""Accepting connections, in the order they came.

libuv, which uvloop runs on, accepts one connection in each turn of the loop. While a turn carries out
hundreds of requests, more connections come than are accepted. When the kernel's queue is full, it drops the
packets that ask for a connection; clients send them again after 1, 3, 7, 15, 31 and 63 seconds, while later
ones get in. So everything that the kernel holds is accepted in one turn, which is cheap, and a limited number
of TLS handshakes begins in each.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable

from .connection import GOODBYE_TIME, HEAD_TIME, hung_up

#: Connections that the kernel may hold until they are accepted (it may lower this: net.core.somaxconn).
BACKLOG = 4096
#: Connections accepted, and TLS handshakes begun, in one turn of the loop.
ACCEPTED_TOGETHER, BEGUN_TOGETHER = 1024, 64
#: Seconds until the next try when the process or the system has no room for a connection.
_RETRY = 1.0
#: Seconds after which a silent connection is probed, between probes, and the probes without an answer after
#: which it counts as lost (what Go's servers do): a client that is gone without closing is noticed.
_KEEP_ALIVE, _PROBES = 15, 9

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger(__name__)


async def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address of a host; port 0 takes a free one.

    OSError when an address cannot be had.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            one = socket.create_server(address, family=family, backlog=BACKLOG)
            one.setblocking(False)
            _keep_alive(one)
            listening.append(one)
    except OSError:
        for one in listening:
            one.close()
        raise
    return listening


def _keep_alive(listening: socket.socket) -> None:
    """Let the kernel probe silent connections: accepted ones inherit this."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEP_ALIVE),
        ("TCP_KEEPINTVL", _KEEP_ALIVE),
        ("TCP_KEEPCNT", _PROBES),
    ):
        option = getattr(socket, name, None)  # not every system names all of them
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


class Acceptor:
    """Accepts connections from listening sockets, which it closes at the end."""

    def __init__(
        self,
        listening: list[socket.socket],
        context: ssl.SSLContext,
        connect: Callable[[], asyncio.Protocol],
    ) -> None:
        self._listening = listening
        self._context = context
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        #: Accepted, the handshake not begun.
        self._waiting: deque[socket.socket] = deque()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._turn: asyncio.Handle | None = None
        for one in listening:
            self._loop.add_reader(one, self._accept, one)

    def close(self) -> None:
        """Accept nothing more; handshakes under way end."""
        for one in self._listening:
            self._loop.remove_reader(one)
            one.close()
        self._listening = []
        if self._turn is not None:
            self._turn.cancel()
        for waiting in self._waiting:
            waiting.close()
        self._waiting.clear()
        for handshake in self._handshakes:
            handshake.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_TOGETHER):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                break
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                log.warning("no connection can be accepted: %s; trying again in %g s", error, _RETRY)
                self._loop.remove_reader(listening)
                self._loop.call_later(_RETRY, self._try_again, listening)
                break
            accepted.setblocking(False)
            self._waiting.append(accepted)
        if self._turn is None and self._waiting:
            self._begin()

    def _try_again(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self._loop.add_reader(listening, self._accept, listening)

    def _begin(self) -> None:
        """Begin the handshakes of those that wait longest, and of the others in the next turns."""
        self._turn = None
        begun = 0
        while self._waiting and begun < BEGUN_TOGETHER:
            accepted = self._waiting.popleft()
            if hung_up(accepted.fileno()):
                accepted.close()
                continue
            begun += 1
            handshake = self._loop.create_task(self._shake(accepted))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)
        if self._waiting:
            self._turn = self._loop.call_soon(self._begin)

    async def _shake(self, accepted: socket.socket) -> None:
        """Make a connection from what was accepted; a client that breaks the handshake off is forgotten."""
        try:
            await self._loop.connect_accepted_socket(
                self._connect,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HEAD_TIME,
                ssl_shutdown_timeout=GOODBYE_TIME,
            )
        except (OSError, TimeoutError) as error:
            log.debug("a TLS handshake failed: %s", error)
