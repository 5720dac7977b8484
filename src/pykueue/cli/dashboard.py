"""`pykueue dashboard`: web pages of a cluster, with the rights of the user who signs in."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import click

from pykueue.api.kueue.names import MANAGER_NAMESPACE
from pykueue.cli.options import kubeconfig_option
from pykueue.cli.process import collect_less_often, log_to_stderr, run_event_loop, until_stopped
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError, bearer_token, endpoint, load
from pykueue.kube.errors import ApiError

#: Port of the dashboard where none is chosen.
PORT = 8180
DEFAULT_URL = f"http://127.0.0.1:{PORT}"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

log = logging.getLogger(__name__)


def print_link(link: str, url: str) -> None:
    """Print a link that signs in, and how to get another one for a dashboard at `url`."""
    option = "" if url == DEFAULT_URL else f" --url {url}"
    click.echo(f"  dashboard: {link}")
    click.echo(f"  The link works once, within 60 seconds; `pykueue dashboard link{option}` prints another.")


@click.group(invoke_without_command=True)
@kubeconfig_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
@click.option(
    "--allowed-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name by which browsers reach the dashboard, besides localhost. Repeatable.",
)
@click.option(
    "--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Certificate file (PEM)."
)
@click.option(
    "--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Key file (PEM)."
)
@click.option(
    "--behind-tls", is_flag=True, help="An ingress or gateway in front of the dashboard terminates TLS."
)
@click.option(
    "--manager-namespace",
    default=MANAGER_NAMESPACE,
    show_default=True,
    help="Namespace whose ConfigMap has the configuration of the manager.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log sign-ins and changes, not only warnings.")
@click.pass_context
def dashboard(
    context: click.Context,
    kubeconfig: Path | None,
    host: str,
    port: int,
    names: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_tls: bool,
    manager_namespace: str,
    verbose: bool,
) -> None:
    """Serve web pages of queues and workloads, of any cluster that Kueue or pykueue manages.

    The cluster is read with the kubeconfig; what a user sees and changes is limited to the rights of the
    token that the user signs in with.
    """
    if context.invoked_subcommand is not None:
        return
    log_to_stderr(verbose)
    collect_less_often()
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key need each other")
    if host not in _LOOPBACK and tls_cert is None and not behind_tls:
        raise click.UsageError(
            f"--host {host} is reached by other machines: tokens need TLS; use --tls-cert and --tls-key, or "
            "--behind-tls"
        )
    # Imported here, so that `link` starts fast.
    from pykueue.web.dashboard.server import Serving

    tls = None
    if tls_cert is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            tls.load_cert_chain(tls_cert, tls_key)
        except (OSError, ssl.SSLError) as error:
            raise click.ClickException(f"--tls-cert {tls_cert}: {error}") from None
    serving = Serving(host, port, tls, behind_tls, names)
    try:
        run_event_loop(_serve(kubeconfig, manager_namespace, serving))
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise click.ClickException(
                f"--port {port}: {os.strerror(error.errno).lower()}; choose another, or 0 for any free port"
            ) from None
        raise click.ClickException(str(error)) from None
    except (ApiError, ConfigError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None


async def _serve(kubeconfig: Path | None, manager_namespace: str, serving: object) -> None:
    """Serve until a signal. Raises OSError, ConfigError, ApiError."""
    from pykueue.web.dashboard.security.sessions import Sessions
    from pykueue.web.dashboard.server import Dashboard, Serving

    assert isinstance(serving, Serving)
    transport = await load(kubeconfig, user_agent="pykueue-dashboard")
    server = await endpoint(kubeconfig)
    token = await bearer_token(transport)
    clock = Clock()
    sessions = Sessions(server.transport, clock)
    board = Dashboard(
        Client(transport), sessions, clock, manager_namespace=manager_namespace, serving=serving
    )
    try:
        url = await board.open()
        click.echo(f"pykueue dashboard is up at {url}. Ctrl-C stops it.")
        if token and serving.host in _LOOPBACK:
            print_link(sessions.sign_in_link(url, token), url)
        elif serving.host in _LOOPBACK:
            click.echo(
                "  The kubeconfig has no bearer token: sign in with one, such as `kubectl create token NAME`."
            )
        async with until_stopped(board.run(at_once=True)) as wait:
            await wait(None)
    finally:
        await board.close()
        await transport.close()


@dashboard.command()
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Address of the dashboard.")
@kubeconfig_option
def link(url: str, kubeconfig: Path | None) -> None:
    """Print a link that signs in with the bearer token of the kubeconfig, once and within 60 seconds."""
    try:
        click.echo(asyncio.run(_link(url.rstrip("/"), kubeconfig)))
    except (ConfigError, aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise click.ClickException(str(error)) from None


async def _link(url: str, kubeconfig: Path | None) -> str:
    """A new link. Raises ConfigError, ClientError, TimeoutError, ClickException; ValueError for the URL."""
    transport = await load(kubeconfig)
    try:
        token = await bearer_token(transport)
    finally:
        await transport.close()
    if not token:
        raise click.ClickException(
            "the kubeconfig has no bearer token; sign in with one, such as `kubectl create token NAME` prints"
        )
    address = urlsplit(url)
    if address.scheme != "https" and not (address.scheme == "http" and address.hostname in _LOOPBACK):
        raise click.ClickException(
            f"--url {url}: tokens are sent to https addresses and to this machine only"
        )
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as session,
        session.post(f"{url}/sign-in/codes", headers={"Authorization": f"Bearer {token}"}) as answer,
    ):
        if answer.status != 201:
            raise click.ClickException(f"{url} answered {answer.status}: {(await answer.text())[:200]}")
        code = (await answer.json())["code"]
    return f"{url}/sign-in#{code}"
