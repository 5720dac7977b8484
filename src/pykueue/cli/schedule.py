"""`pykueue schedule`: decisions on plain manifests, without a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import yaml
from rich.console import Console

from pykueue.api.meta import parse_time
from pykueue.cli import schedule_table
from pykueue.cli.schedule_input import InputError, read
from pykueue.cli.schedule_run import Run
from pykueue.clock import Clock
from pykueue.manager.configuration import ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.engine_options import engine_options

#: Exit status when the input is wrong.
_WRONG = 2
#: Columns of a table that nobody looks at in a terminal.
_UNFOLDED = 1000


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> float:
    if value is None:
        return float(int(Clock().time()))
    try:
        return parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option(
    "-f",
    "--filename",
    "paths",
    type=click.Path(path_type=Path, allow_dash=True),
    multiple=True,
    required=True,
    help="Manifests: a YAML or JSON file, a directory, or - for standard input. May be given several times.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The configuration file (config.kueue.x-k8s.io).",
)
@click.option("--cycles", type=click.IntRange(min=1), help="Exactly this many scheduling cycles.")
@click.option(
    "--until-stable",
    is_flag=True,
    help="Cycles, carrying out preemptions, until nothing changes. This is the default.",
)
@click.option("--now", callback=_time, metavar="RFC3339", help="The time it is; the present by default.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True
)
def schedule(
    paths: tuple[Path, ...],
    config: Path | None,
    cycles: int | None,
    until_stable: bool,
    now: float,
    output: str,
) -> None:
    """Say what would be admitted, preempted or left waiting, and why.

    Workloads that hold quota by their status keep it. Jobs with a queue name count as the workloads they
    would become, unless those are there. Kinds that decide nothing are left out.
    """
    if cycles is not None and until_stable:
        raise click.UsageError("--cycles and --until-stable exclude each other")
    try:
        options = engine_options(load_configuration(config))
        found = read(paths, options.gates)
    except (ConfigurationError, InputError) as error:
        click.echo(str(error), err=True)
        sys.exit(_WRONG)
    run = Run(found.manifests, options, now)
    if cycles is not None:
        run.repeat(cycles)
    else:
        run.until_stable()
    report = run.report()
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    for what, count in sorted(found.ignored.items()):
        click.echo(f"ignored: {count} {what}", err=True)
    match output:
        case "json":
            click.echo(json.dumps(report, indent=2))
        case "yaml":
            click.echo(yaml.safe_dump(report, sort_keys=False), nl=False)
        case _:
            schedule_table.show(report, Console(width=None if sys.stdout.isatty() else _UNFOLDED))
