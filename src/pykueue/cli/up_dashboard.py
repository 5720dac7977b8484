"""The dashboard of `pykueue up`, in the process of the API server.

It is loaded when a browser first connects: a cluster whose dashboard is not opened starts sooner, and needs
less memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click

from pykueue.cli.dashboard import PORT
from pykueue.clock import Clock
from pykueue.embedded.apiserver.server import Server
from pykueue.web.dashboard.security.embedded_tokens import embedded_sessions

if TYPE_CHECKING:
    from pykueue.manager.configuration import Configuration
    from pykueue.web.dashboard.security.sessions import Sessions

HOST = "127.0.0.1"

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(
    server: Server, configuration: Configuration, port: int | None, token: str
) -> AsyncIterator[tuple[str, str]]:
    """Serve a dashboard on loopback; its address, and a link that signs in with a token. Empty for port None.

    Where the default port is in use, any free port is taken. Raises ClickException for another that is.
    """
    if port is None:
        yield "", ""
        return
    listener = _listener(port)
    url = f"http://{HOST}:{listener.getsockname()[1]}"
    clock = Clock()
    sessions = embedded_sessions(server, clock)
    task = asyncio.create_task(_serve(server, configuration, clock, sessions, listener))
    task.add_done_callback(_ended)
    # Also where it fails before it accepts: browsers are refused then, and do not wait.
    task.add_done_callback(lambda _: listener.close())
    try:
        yield url, sessions.sign_in_link(url, token)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        if port == PORT and error.errno == errno.EADDRINUSE:
            return socket.create_server((HOST, 0))
        reason = os.strerror(error.errno or 0).lower()
        raise click.ClickException(
            f"--dashboard-port {port}: {reason}; choose another, or 0 for any free port"
        ) from None


async def _serve(
    server: Server, configuration: Configuration, clock: Clock, sessions: Sessions, listener: socket.socket
) -> None:
    """Serve from the first connection on, until cancelled."""
    listener.setblocking(False)
    await _connection(listener)
    # In a thread, as it takes long enough to delay the answers of the API server.
    module = await asyncio.to_thread(importlib.import_module, "pykueue.web.dashboard.embedded")
    dashboard = await module.embedded_dashboard(server, configuration, clock, sessions=sessions)
    try:
        await dashboard.open(listener)
        await dashboard.run()
    finally:
        await dashboard.close()


async def _connection(listener: socket.socket) -> None:
    """Wait until a connection can be accepted."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener, arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(listener)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the dashboard ended", exc_info=task.exception())
