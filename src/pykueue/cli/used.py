"""`pykueue used`: resource-hours over a window, by queue, namespace, label or priority."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from pykueue.cli.options import duration
from pykueue.cli.question_source import (
    INCOMPLETE,
    WRONG,
    output_options,
    print_answer,
    read_source,
    source_options,
)
from pykueue.plugin.tables import table
from pykueue.questions.used import GROUPS, LABEL, Used
from pykueue.questions.used import used as answer_used

#: Bytes of the unit in which byte-hours are shown.
_GIBI = 1 << 30


@click.command()
@source_options
@click.option(
    "--by",
    default="clusterqueue",
    show_default=True,
    metavar="GROUP",
    help=f"Group by {', '.join(GROUPS)} or {LABEL}KEY (a label of the Workload).",
)
@click.option(
    "--since",
    default="24h",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="Length of the window, which ends now.",
)
@output_options(Used)
def used(
    paths: tuple[Path, ...],
    config: Path | None,
    manager_namespace: str,
    kubeconfig: Path | None,
    by: str,
    since: float,
    output: str,
) -> None:
    """Print the resource-hours that workloads held, from the running and finished Workloads that exist.

    Exit status: 0; 1 if the cluster cannot be read; 2 if an option or a manifest is wrong; 3 if not
    everything could be read.
    """
    source = read_source(paths, config, manager_namespace, kubeconfig)
    try:
        answer = answer_used(source.workloads, by, source.now - since, source.now)
    except ValueError as error:
        click.echo(f"Error: --by: {error}", err=True)
        sys.exit(WRONG)
    answer.unread, answer.notes = source.unread, source.notes
    print_answer(answer, output, lines)
    if answer.unread:
        sys.exit(INCOMPLETE)


def lines(answer: Used) -> Iterator[str]:
    """The answer as a table."""
    yield f"from {answer.start} to {answer.end}; first admission known: {answer.covered_from or 'none'}"
    resources = sorted({resource for group in answer.groups for resource in group.hours})
    in_bytes = {resource for resource in resources if resource in ("memory", "ephemeral-storage")}
    titles = [f"{each}-{'GIB-HOURS' if each in in_bytes else 'HOURS'}" for each in resources]
    rows = []
    for group in answer.groups:
        hours = [
            f"{group.hours.get(each, 0.0) / (_GIBI if each in in_bytes else 1):.2f}" for each in resources
        ]
        rows.append([group.group or "-", str(group.workloads), *hours])
    yield from table([answer.by, "WORKLOADS", *titles], rows).splitlines()
