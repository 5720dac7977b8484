"""`pykueue check`: what is wrong with queues and policies, before they are applied."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from pykueue.cli.options import duration
from pykueue.simulate.check.bounds import bounds
from pykueue.simulate.check.findings import RULES, Severity
from pykueue.simulate.check.formats import FORMATS
from pykueue.simulate.check.past import past
from pykueue.simulate.check.policy import PolicyError, load
from pykueue.simulate.check.run import RUNS, kept, worst
from pykueue.simulate.check.run import check as run_check

#: Exit status where there are findings, and where the input is wrong.
_FOUND, _WRONG = 1, 2


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--config",
    "configuration",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file of the manager. Default: the Configuration in FOLDER, or the defaults.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    type=click.Choice(list(RULES)),
    help="Leave findings of this rule out. May be given several times.",
)
@click.option(
    "--fail-on",
    type=click.Choice([*(severity.title for severity in Severity), "never"]),
    default="warning",
    show_default=True,
    help="The lowest severity that makes the exit status 1.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=0),
    default=RUNS,
    show_default=True,
    help="Random runs of the model of each cohort.",
)
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    help="Directory of the flight recorder, or dump: also compare the waits of that time.",
)
@click.option(
    "--quota-held-max",
    metavar="DURATION",
    callback=duration,
    help="Longest time for which a workload holds quota, such as 24h: also note how long one can be first "
    "in its queue.",
)
@click.option("-o", "--output", type=click.Choice(list(FORMATS)), default="text", show_default=True)
def check(
    folder: Path,
    configuration: Path | None,
    ignored: tuple[str, ...],
    fail_on: str,
    runs: int,
    recording: Path | None,
    quota_held_max: float | None,
    output: str,
) -> None:
    """Check the queues, cohorts and flavors in FOLDER (or one file) before they are applied.

    Preemption and fair sharing are searched with a small model that the production engine decides; what goes
    wrong is printed as a sequence of events. Exit status 1: there are findings; 2: the input is wrong.
    """
    try:
        policy = load(folder, configuration)
    except PolicyError as error:
        click.echo("\n".join(f"Error: {line}" for line in str(error).splitlines()), err=True)
        sys.exit(_WRONG)
    for warning in policy.warnings:
        click.echo(f"Warning: {warning}", err=True)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("Searching", total=None)
        found = run_check(
            policy, runs, ignored, lambda done, total: progress.update(task, completed=done, total=total)
        )
        if quota_held_max is not None:
            found = kept(policy, [*found, *bounds(policy, quota_held_max)], ignored)
        if recording is not None:
            try:
                found = kept(policy, [*found, *past(policy, folder, recording)], ignored)
            except PolicyError as error:
                click.echo(f"Error: {error}", err=True)
                sys.exit(_WRONG)
    click.echo(FORMATS[output](found))
    limit = len(Severity) if fail_on == "never" else Severity[fail_on.upper()]
    sys.exit(_FOUND if worst(found) >= limit else 0)
