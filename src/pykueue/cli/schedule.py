"""`pykueue schedule`: decisions on plain manifests, without a cluster."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console

from pykueue import extras, system_time
from pykueue.api import DecodeError
from pykueue.api.meta import parse_time
from pykueue.api.similar import did_you_mean
from pykueue.cli import schedule_report, schedule_table
from pykueue.cli.schedule_run import Run, options_with
from pykueue.engine import Options
from pykueue.engine.story import data, lines
from pykueue.manager.configuration import ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manifests.files import InputError
from pykueue.manifests.reading import Input, Source, read

#: Exit status when a condition of --fail-on holds, and when the input is wrong.
_FAILED, _WRONG = 1, 2
#: Columns of a table that is not shown in a terminal.
_UNFOLDED = 1000


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        return parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _conditions(ctx: click.Context, param: click.Parameter, value: str | None) -> frozenset[str]:
    chosen = [part.strip() for part in value.split(",")] if value is not None else []
    for name in chosen:
        if name not in schedule_report.CONDITIONS:
            accepted = ", ".join(schedule_report.CONDITIONS)
            near = did_you_mean(name, schedule_report.CONDITIONS)
            raise click.BadParameter(f"{name!r} is not accepted; accepted: {accepted}{near}")
    return frozenset(chosen)


def _print_schema(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(schedule_report.schema_text(), nl=False)
        ctx.exit()


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
    "--override",
    "overrides",
    type=click.Path(path_type=Path, allow_dash=True),
    multiple=True,
    help="Manifests that replace those of the same objects, or are added; prints the effects. "
    "May be given several times.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The configuration file (config.kueue.x-k8s.io).",
)
@click.option("--cycles", type=click.IntRange(min=1), help="Run exactly this many scheduling cycles.")
@click.option(
    "--until-stable",
    is_flag=True,
    help="Run cycles and carry out preemptions until nothing changes. This is the default.",
)
@click.option(
    "--now",
    callback=_time,
    metavar="RFC3339",
    help="Time of the first cycle; default: that of the dump, else the present.",
)
@click.option(
    "--strict/--no-strict",
    default=True,
    show_default=True,
    help="Treat unknown fields and kinds, and objects an API server would reject, as errors. Otherwise they "
    "are warnings where the objects can be evaluated.",
)
@click.option(
    "--fail-on",
    callback=_conditions,
    metavar="CONDITION,...",
    help=f"Exit with status {_FAILED} if any of these holds: pending (a workload is pending), misconfigured "
    "(a workload or queue is), warnings (there are any).",
)
@click.option(
    "--story",
    "stories",
    metavar="NAMESPACE/NAME",
    multiple=True,
    help="Print the history of this workload with reasons instead of the table; added to json and yaml. "
    "May be given several times.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", show_default=True
)
@click.option(
    "--print-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of the json and yaml output and exit.",
)
def schedule(
    paths: tuple[Path, ...],
    overrides: tuple[Path, ...],
    config: Path | None,
    cycles: int | None,
    until_stable: bool,
    now: float | None,
    strict: bool,
    fail_on: frozenset[str],
    stories: tuple[str, ...],
    output: str,
) -> None:
    """Print what would be admitted, preempted or left pending, and why.

    Workloads that hold quota by their status keep it. Jobs with a queue name count as the workloads they
    would become, unless those are there. Kinds that decide nothing are left out. With the output of
    `pykueue dump`, decisions go on from where the manager was, under its options unless --config is given.

    Exit status: 0; 1 if a condition of --fail-on holds; 2 if an option or a manifest is wrong.
    """
    if cycles is not None and until_stable:
        raise click.UsageError("--cycles and --until-stable exclude each other")
    if (*paths, *overrides).count(Path("-")) > 1:
        raise click.UsageError("standard input (-) can be read only once")
    try:
        configuration = load_configuration(config)
        source = Source(paths)
        found = read(source, configuration, strict)
        state = found.state
        options = options_with(state if config is None else None, configuration)
        if now is None:
            now = state.now if state is not None else float(int(system_time.seconds()))
        decide = partial(_decided, options=options, now=now, cycles=cycles, stories=stories)
        report = decide(found)
        if overrides:
            source, effects = source.overridden(overrides)
            known, found = found, read(source, configuration, strict)
            before, report = report, decide(found, known=known)
            report |= {"overrides": effects, "changes": schedule_report.changes(before, report)}
    except (ConfigurationError, DecodeError, InputError) as error:
        click.echo(str(error), err=True)
        sys.exit(_WRONG)
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    if not extras.installed("cel"):
        click.echo(f"note: validation rules in CEL are not checked; {extras.how_to_install('cel')}", err=True)
    for what, count in sorted(found.ignored.items()):
        click.echo(f"ignored: {count} {what}", err=True)
    match output:
        case "json":
            click.echo(json.dumps(report, indent=2))
        case "yaml":
            click.echo(yaml.safe_dump(report, sort_keys=False), nl=False)
        case _ if stories:
            click.echo("\n\n".join(map(lines, report["stories"].values())))
        case _:
            # Names and messages are text, whatever brackets and colons they have.
            width = None if sys.stdout.isatty() else _UNFOLDED
            schedule_table.show(report, Console(width=width, markup=False, emoji=False, highlight=False))
    failures = schedule_report.failures(report, fail_on, len(found.warnings))
    for failure in failures:
        click.echo(failure, err=True)
    if failures:
        sys.exit(_FAILED)


def _decided(
    found: Input,
    options: Options,
    now: float,
    cycles: int | None,
    stories: tuple[str, ...],
    known: Input | None = None,
) -> dict[str, Any]:
    """The report on objects. Raises InputError for a story of a workload that is not there.

    With a dump, what differs from the objects that are `known` happens to the engine as it was dumped.
    """
    if found.state is None:
        run = Run(found.manifests, options, now, bool(stories))
    else:
        first = (known or found).manifests
        run = Run(first, options, now, bool(stories), found.state)
        run.change(each for each in found.manifests if each not in first)
    for key in stories:
        if key not in run.driver.workloads:
            near = did_you_mean(key, run.driver.workloads)
            raise InputError(f"--story: workload {key} is not among the objects{near}")
    if cycles is not None:
        run.repeat(cycles)
    else:
        run.until_stable()
    report = run.report() | {"problems": schedule_report.problems(run.driver.engine, found.manifests)}
    if stories:
        report["stories"] = {key: data(run.driver.engine.story(key)) for key in stories}
    return report
