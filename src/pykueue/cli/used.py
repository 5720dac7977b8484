"""`pykueue used`: resource-hours over a window, by queue, namespace, label or priority."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import WRONG, conclude, read_source
from pykueue.engine.quota.usage import in_gibi, is_bytes
from pykueue.plugin.tables import table
from pykueue.questions.used import Used
from pykueue.questions.used import used as answer_used


def run(source: SourceOptions, by: str, since: float, output: str) -> None:
    """Carry out the command, whose options `questions` describes."""
    found = read_source(source)
    try:
        answer = answer_used(found.workloads, by, found.now - since, found.now)
    except ValueError as error:
        click.echo(f"Error: --by: {error}", err=True)
        sys.exit(WRONG)
    conclude(found, answer, output, lines)


def lines(answer: Used) -> Iterator[str]:
    """The answer as a table."""
    yield f"from {answer.start} to {answer.end}; first admission known: {answer.covered_from or 'none'}"
    resources = sorted({resource for group in answer.groups for resource in group.hours})
    titles = [f"{each}-{'GIB-HOURS' if is_bytes(each) else 'HOURS'}" for each in resources]
    rows = []
    for group in answer.groups:
        hours = [f"{in_gibi(each, group.hours.get(each, 0.0)):.2f}" for each in resources]
        rows.append([group.group or "-", str(group.workloads), *hours])
    yield from table([answer.by, "WORKLOADS", *titles], rows).splitlines()
