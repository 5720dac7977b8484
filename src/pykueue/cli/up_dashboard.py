"""The dashboard of `pykueue up`, in the process of the API server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections.abc import AsyncIterator

import click

from pykueue.cli.dashboard import PORT
from pykueue.embedded.apiserver.server import Server
from pykueue.manager.configuration import Configuration

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
    # Imported here: a cluster without a dashboard starts sooner.
    from pykueue.web.dashboard.embedded import embedded_dashboard
    from pykueue.web.dashboard.server import Serving

    dashboard = await embedded_dashboard(server, configuration, serving=Serving(port=port))
    try:
        try:
            url = await dashboard.open()
        except OSError as error:
            if port != PORT or error.errno != errno.EADDRINUSE:
                reason = os.strerror(error.errno or 0).lower()
                raise click.ClickException(
                    f"--dashboard-port {port}: {reason}; choose another, or 0 for any free port"
                ) from None
            await dashboard.close()
            dashboard = await embedded_dashboard(server, configuration, serving=Serving())
            url = await dashboard.open()
        following = asyncio.create_task(dashboard.run())
        following.add_done_callback(_ended)
        try:
            yield url, dashboard.sign_in_link(url, token)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    finally:
        await dashboard.close()


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the dashboard no longer follows the cluster", exc_info=task.exception())
