"""`pykueue shadow`: decide beside the manager of a cluster, and report every difference."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import click
import uvloop
from aiohttp import web

from pykueue.cli.connection import kubeconfig_option
from pykueue.cli.options import duration
from pykueue.cli.process import collect_less_often, log_to_stderr, until_stopped
from pykueue.cli.question_source import INCOMPLETE, WRONG, output_options, print_answer
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError
from pykueue.kube.config import load as connect
from pykueue.kube.errors import ApiError
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.serving.listener import Listener
from pykueue.questions.cluster_state import MANAGER_NAMESPACE, ClusterState, followed_kinds, read_cluster
from pykueue.questions.shadow import Difference, Report, Settings, Shadow
from pykueue.questions.shadow.metrics import ShadowMetrics
from pykueue.questions.shadow.report import difference_text, report_text

#: Exit status where the engine decided otherwise without another cause.
_DIFFERENT = 4

log = logging.getLogger(__name__)


class _Incomplete(Exception):
    """The rights of the user do not suffice."""


async def _follow(
    kubeconfig: Path | None,
    configuration: Configuration | None,
    manager_namespace: str,
    settings: Settings,
    seconds: float | None,
    metrics_port: int | None,
) -> Report:
    """Compare until a signal or for some seconds. Raises what `read_cluster` raises, and `_Incomplete`."""
    transport = await connect(kubeconfig)
    clock, metrics = Clock(), ShadowMetrics()

    async def serve_metrics(request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), content_type="text/plain")

    def compared(kind: str, difference: Difference | None) -> None:
        metrics.compared(kind, difference)
        if difference is not None:
            log.warning("%s", difference_text(difference))

    listener = Listener({"/metrics": serve_metrics})
    try:
        client = Client(transport, clock=clock)
        state = await read_cluster(
            client, configuration=configuration, manager_namespace=manager_namespace, engine_state=False
        )
        if state.unread:
            raise _Incomplete("\n".join(state.unread))
        kinds = await followed_kinds(client)
        shadow = Shadow(client, state.options(), kinds, settings, clock, compared)
        if metrics_port is not None:
            await listener.open("", metrics_port)
            log.warning("metrics are served at :%d/metrics", listener.port)
        async with until_stopped(shadow.run()) as wait:
            log.warning("comparing decisions; SIGINT or SIGTERM ends and prints the report")
            await wait(None if seconds is None else asyncio.sleep(seconds))
        return _with_notes(shadow.report(), state)
    finally:
        await listener.close()
        await transport.close()


def _with_notes(report: Report, state: ClusterState) -> Report:
    report.notes += state.notes
    return report


@click.command()
@kubeconfig_option
@click.option(
    "--manager-namespace",
    default=MANAGER_NAMESPACE,
    show_default=True,
    help="Namespace whose ConfigMap has the configuration of the manager.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration file (config.kueue.x-k8s.io) in place of that of the manager.",
)
@click.option("--for", "length", callback=duration, metavar="DURATION", help="End after this time.")
@click.option(
    "--settle",
    default="2s",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="How long changes are held back, so that they are compared in the order of their resourceVersions.",
)
@click.option(
    "--window",
    default="5s",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="Longest time between a decision of the manager and its write: earlier states are tried that far.",
)
@click.option(
    "--patience",
    default="10s",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="How long nothing changes before decisions that the manager does not make are reported.",
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Port of /metrics; 0: any free port.")
@output_options(Report)
def shadow(
    kubeconfig: Path | None,
    manager_namespace: str,
    config: Path | None,
    length: float | None,
    settle: float,
    window: float,
    patience: float,
    metrics_port: int | None,
    output: str,
) -> None:
    """Decide beside the manager of a cluster, Kueue or pykueue, and report every difference.

    Only reads. Differences are logged as they occur; the report is printed at the end.

    Exit status: 0; 1 if the cluster cannot be read; 2 if an option is wrong; 3 if the user's rights do not
    suffice; 4 if pykueue decided otherwise and nothing but its decision explains it.
    """
    log_to_stderr(False)
    collect_less_often()
    settings = Settings(settle, window, patience)
    try:
        configuration = load_configuration(config) if config is not None else None
        report = uvloop.run(
            _follow(kubeconfig, configuration, manager_namespace, settings, length, metrics_port)
        )
    except ConfigurationError as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG)
    except _Incomplete as error:
        click.echo(str(error), err=True)
        sys.exit(INCOMPLETE)
    except (ApiError, ConfigError, OSError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    print_answer(report, output, report_text)
    if "Decision" in report.causes:
        sys.exit(_DIFFERENT)
