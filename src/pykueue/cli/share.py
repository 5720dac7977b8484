"""`pykueue share`: what each queue is entitled to, and what it has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from pykueue.cli.amounts import rounded, weighted_share
from pykueue.cli.question_source import INCOMPLETE, output_options, print_answer, read_source, source_options
from pykueue.plugin.tables import table
from pykueue.questions.share import Shares, shares


@click.command()
@source_options
@output_options(Shares)
def share(
    paths: tuple[Path, ...],
    config: Path | None,
    manager_namespace: str,
    kubeconfig: Path | None,
    output: str,
) -> None:
    """Print what each ClusterQueue and cohort is entitled to, has received, borrows and lends.

    Exit status: 0; 1 if the cluster cannot be read; 2 if an option or a manifest is wrong; 3 if not
    everything could be read.
    """
    source = read_source(paths, config, manager_namespace, kubeconfig)
    answer = shares(source.engine)
    answer.unread, answer.notes = source.unread, source.notes
    print_answer(answer, output, lines)
    if answer.unread:
        sys.exit(INCOMPLETE)


def lines(answer: Shares) -> Iterator[str]:
    """The answer as a table."""
    rows = []
    for queue in answer.queues:
        weighted = weighted_share(queue.weighted_share)
        name = "  " * queue.depth + queue.name
        for number, each in enumerate(queue.resources):
            head = [name, queue.kind, f"{queue.weight:g}", weighted] if not number else ["", "", "", ""]
            amounts = [each.demand, each.entitled, each.received, each.borrowed, each.lent, each.debt]
            rows.append([*head, each.resource, *(rounded(each.resource, amount) for amount in amounts)])
    titles = "NAME KIND WEIGHT WEIGHTED-SHARE RESOURCE DEMAND ENTITLED RECEIVED BORROWED LENT DEBT"
    yield from table(titles.split(), rows).splitlines()
