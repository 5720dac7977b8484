"""`pykueue manager`: the manager alone, against any cluster."""

from __future__ import annotations

import random
from pathlib import Path

import click
import uvloop

from pykueue.cli.process import log_to_stderr, until_stopped
from pykueue.clock import Clock
from pykueue.kube.config import ConfigError, load
from pykueue.manager.configuration import Configuration, ConfigurationError, render
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.configuration.gates import parse_flag
from pykueue.manager.manager import Manager


async def run(kubeconfig: Path | None, configuration: Configuration) -> None:
    """Manage until told to stop."""
    transport = await load(kubeconfig)
    try:
        async with until_stopped(Manager(transport, configuration, Clock(), random.Random()).run()) as wait:
            await wait(None)
    finally:
        await transport.close()


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Without it: the service account of the pod, $KUBECONFIG, or ~/.kube/config.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The configuration file (config.kueue.x-k8s.io).",
)
@click.option("--feature-gates", metavar="NAME=BOOL,...", help="Not together with featureGates in the file.")
@click.option(
    "--print-config", is_flag=True, help="Print the whole configuration, defaults spelt out, and exit."
)
@click.option("-v", "--verbose", is_flag=True, help="Log what it does.")
def manager(
    kubeconfig: Path | None, config: Path | None, feature_gates: str | None, print_config: bool, verbose: bool
) -> None:
    """Run the manager against any cluster."""
    log_to_stderr(verbose)
    try:
        gates = parse_flag(feature_gates) if feature_gates else None
        configuration = load_configuration(config, gates)
        if print_config:
            click.echo(render(configuration), nl=False)
        else:
            uvloop.run(run(kubeconfig, configuration))
    except (ConfigurationError, ConfigError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
