"""`pykueue fairness`: for each queue of a recording, what it was entitled to, and what it got."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pykueue.cli.options import duration_or_zero
from pykueue.cli.questions import output_options


@click.command()
@click.argument("recording", type=click.Path(path_type=Path))
@click.option(
    "--step",
    default="1m",
    show_default=True,
    callback=duration_or_zero,
    metavar="DURATION",
    help="Time between two readings of what queues are entitled to, have and borrow; 0s: at each change.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the statement as an HTML file.",
)
@output_options("pykueue.simulate.recorded.fairness", "Statement")
def fairness(recording: Path, step: float, report: Path | None, output: str) -> None:
    """Print a statement of fairness over RECORDING, a directory of the manager's flight recorder or one file.

    For each ClusterQueue: what it was entitled to and had, from which queues it borrowed, for which queues
    its workloads were preempted, why they waited, and how much later they ended than if the queue had been
    alone on its nominal quota, which is simulated. Anyone who has the recording gets the same statement.

    Exit status: 0; 2 if the recording or an option is wrong.
    """
    from pykueue.cli.fairness_run import run

    sys.exit(run(recording, step, report, output))
