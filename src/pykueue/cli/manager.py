"""`pykueue manager`: one replica of the manager, with its servers, against any cluster.

What only some configurations use (satellites, the flight recorder, the visibility API) is imported for them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from pykueue.cli.logs import log_options, start_logging
from pykueue.cli.options import duration, kubeconfig_option, satellite_options, size
from pykueue.cli.process import collect_less_often, collecting_after, run_event_loop
from pykueue.clock import Clock
from pykueue.kube.config import ConfigError, load
from pykueue.kube.leases import LeadershipLost
from pykueue.manager.components import Component, Runnable
from pykueue.manager.configuration import Configuration, ConfigurationError, render
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.configuration.gates import parse_flag
from pykueue.manager.replica import CacheSyncError, Replica
from pykueue.manager.serving.admission import Admission, AdmissionMissingError

#: Where a pod finds the namespace it runs in.
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

#: Hosts of API servers that run on this machine.
LOOPBACK = ("localhost", "127.0.0.1", "::1")

#: Options of `log_options`, in the order of the parameters of `start_logging`.
_LOG_OPTIONS = ("log_level", "encoder", "devel", "stack_level", "time_encoding")

log = logging.getLogger(__name__)


def own_namespace(file: Path = NAMESPACE_FILE) -> str | None:
    """The namespace of the pod this runs in; None outside of one."""
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


async def run(
    kubeconfig: Path | None,
    configuration: Configuration,
    satellites: Sequence[Component] = (),
    forecasts: bool = False,
) -> None:
    """Run until a signal: the first one shuts down in order, the second one at once."""
    transport = await load(kubeconfig, http2=True)
    try:
        local = urlsplit(transport.base_url).hostname in LOOPBACK
        servers: list[Callable[[Replica], Runnable]] = [
            lambda one: Admission(one.manager, one.client, one.clock, local)
        ]
        if configuration.gates["VisibilityOnDemand"] or forecasts:
            from pykueue.web.visibility.server import VisibilityServer

            servers.insert(0, lambda one: VisibilityServer(one, forecasts))
        replica = Replica(transport, configuration, Clock(), random.Random(), servers)
        for component in satellites:
            replica.manager.add(component)
        stopping = False

        def stop() -> None:
            nonlocal stopping
            if stopping:
                os._exit(1)
            stopping = True
            replica.stop()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        loop.add_signal_handler(signal.SIGUSR2, replica.dump)
        async with collecting_after(replica.manager.synced):
            await replica.run()
    finally:
        await transport.close()


def _satellites(populator_config: Path | None, booster_config: Path | None) -> Iterator[Component]:
    """The satellites whose configuration files are given. Raises ConfigurationError."""
    from pykueue.satellites import booster, populator
    from pykueue.satellites.configuration import booster_configuration, populator_configuration

    if populator_config is not None:
        yield populator.component(populator_configuration(populator_config))
    if booster_config is not None:
        yield booster.component(booster_configuration(booster_config))


def _recorder(directory: Path, size: int, age: float) -> Component:
    """The flight recorder. Raises ClickException where the directory cannot hold a recording."""
    from pykueue.manager import recorder
    from pykueue.manager.recorder.files import RecordingError, prepare_directory

    try:
        prepare_directory(directory)
    except RecordingError as error:
        raise click.ClickException(str(error)) from None
    return recorder.component(directory, recorder.Limits(size, age))


@click.command()
@kubeconfig_option
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration file (config.kueue.x-k8s.io).",
)
@click.option(
    "--feature-gates",
    metavar="NAME=BOOL,...",
    help="Feature gates; not together with featureGates in the file.",
)
@satellite_options("Run")
@click.option(
    "--flight-recorder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Record events and decisions in files of this directory (mode 0700), for pykueue replay.",
)
@click.option(
    "--flight-recorder-size",
    callback=size,
    default="1Gi",
    show_default=True,
    help="Size of all its files together, beyond which the oldest are removed.",
)
@click.option(
    "--flight-recorder-age",
    callback=duration,
    default="7d",
    show_default=True,
    help="Age beyond which its files are removed.",
)
@click.option(
    "--forecasts",
    is_flag=True,
    help="Forecast when workloads start, in the visibility API and in dry runs, in a separate process.",
)
@click.option("--print-config", is_flag=True, help="Print the configuration with all defaults and exit.")
@log_options
def manager(
    kubeconfig: Path | None,
    config: Path | None,
    feature_gates: str | None,
    populator_config: Path | None,
    booster_config: Path | None,
    flight_recorder: Path | None,
    flight_recorder_size: int,
    flight_recorder_age: float,
    forecasts: bool,
    print_config: bool,
    **logging_options: Any,
) -> None:
    """Run the manager against any cluster."""
    start_logging(*(logging_options[name] for name in _LOG_OPTIONS))
    satellites: list[Component] = []
    try:
        if populator_config is not None or booster_config is not None:
            satellites += _satellites(populator_config, booster_config)
        if flight_recorder is not None and not print_config:
            satellites.append(_recorder(flight_recorder, flight_recorder_size, flight_recorder_age))
        gates = parse_flag(feature_gates) if feature_gates else None
        configuration = load_configuration(config, gates, namespace=own_namespace())
    except (ConfigurationError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    if print_config:
        click.echo(render(configuration), nl=False)
        return
    collect_less_often()
    try:
        run_event_loop(run(kubeconfig, configuration, satellites, forecasts))
    except (ConfigError, ConfigurationError) as error:
        raise click.ClickException(str(error)) from None
    except (AdmissionMissingError, CacheSyncError, LeadershipLost, OSError) as error:
        # What ends a process that has begun to log is for those who read its log.
        log.error("%s; ending", error)
        raise SystemExit(1) from None
    except Exception:
        log.critical("unexpected error; ending", exc_info=True)
        raise SystemExit(1) from None
