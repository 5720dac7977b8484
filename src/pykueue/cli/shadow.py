"""`pykueue shadow`: decide beside the manager of a cluster, and report every difference."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import click

from pykueue.cli.options import SourceOptions
from pykueue.cli.process import collect_less_often, log_to_stderr, run_event_loop, until_stopped
from pykueue.cli.question_source import INCOMPLETE, WRONG, print_answer
from pykueue.clock import Clock
from pykueue.kube.client import Client
from pykueue.kube.config import ConfigError
from pykueue.kube.config import load as connect
from pykueue.kube.errors import ApiError
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.questions.cluster_state import ClusterState, followed_kinds, read_cluster
from pykueue.questions.shadow import KUEUE_FLUSH_DELAY, Difference, Report, Settings, Shadow
from pykueue.questions.shadow.followers import LogFile
from pykueue.questions.shadow.metrics import ShadowMetrics
from pykueue.questions.shadow.report import difference_text, report_text

#: Exit status where the engine decided otherwise without another cause.
_DIFFERENT = 4

log = logging.getLogger(__name__)


class _Incomplete(Exception):
    """The rights of the user do not suffice."""


async def _follow(
    source: SourceOptions,
    configuration: Configuration | None,
    settings: Settings,
    seconds: float | None,
    metrics_port: int | None,
    manager_log: LogFile | None,
) -> Report:
    """Compare until a signal or for some seconds. Raises what `read_cluster` raises, and `_Incomplete`."""
    transport = await connect(source.kubeconfig)
    clock, metrics = Clock(), ShadowMetrics()

    def compared(kind: str, difference: Difference | None) -> None:
        metrics.compared(kind, difference)
        if difference is not None:
            log.warning("%s", difference_text(difference))

    async with AsyncExitStack() as leaving:
        leaving.push_async_callback(transport.close)
        client = Client(transport, clock=clock)
        state = await read_cluster(
            client,
            configuration=configuration,
            manager_namespace=source.manager_namespace,
            engine_state=False,
        )
        if state.unread:
            raise _Incomplete("\n".join(state.unread))
        kinds = (*state.further_kinds, *await followed_kinds(client))
        options = replace(state.options(), flush_delay=0.0 if state.has_own_kinds else KUEUE_FLUSH_DELAY)
        shadow = Shadow(client, options, kinds, settings, clock, compared, manager_log)
        if metrics_port is not None:
            await leaving.enter_async_context(_served(metrics, metrics_port))
        async with until_stopped(shadow.run()) as wait:
            log.warning("comparing decisions; SIGINT or SIGTERM ends and prints the report")
            await wait(None if seconds is None else asyncio.sleep(seconds))
        return _with_notes(shadow.report(), state)


@asynccontextmanager
async def _served(metrics: ShadowMetrics, port: int) -> AsyncIterator[None]:
    """The metrics, for Prometheus. The server is imported only where it is asked for."""
    from pykueue.manager.serving.listener import Listener
    from pykueue.manager.serving.messages import Request, Response

    async def text(request: Request) -> Response:
        return Response(metrics.text())

    listener = Listener({"/metrics": text})
    try:
        await listener.open("", port)
        log.warning("metrics are served at :%d/metrics", listener.port)
        yield
    finally:
        await listener.close()


def _with_notes(report: Report, state: ClusterState) -> Report:
    report.notes += state.notes
    return report


def run(
    source: SourceOptions,
    length: float | None,
    settle: float,
    window: float,
    patience: float,
    metrics_port: int | None,
    manager_log: str | None,
    output: str,
) -> None:
    """Carry out the command, whose options `questions` describes."""
    log_to_stderr(False)
    collect_less_often()
    settings = Settings(settle, window, patience)
    try:
        configuration = load_configuration(source.config) if source.config is not None else None
        log_file = LogFile(manager_log) if manager_log is not None else None
        report = run_event_loop(_follow(source, configuration, settings, length, metrics_port, log_file))
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
