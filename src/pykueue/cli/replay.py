"""`pykueue replay`: a recording of a manager repeated, under the recorded rules or under others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from pykueue.cli.questions import output_options
from pykueue.cli.whatif_options import change_options, taken_changes


@click.command()
@click.argument("recording", type=click.Path(path_type=Path))
@click.option(
    "--simulated",
    is_flag=True,
    help="Simulate the recorded jobs under the recorded rules, and compare each admission with the recorded "
    "one; not together with changes.",
)
@change_options("recorded objects of the same name")
@output_options("pykueue.simulate.recorded.answers", "Replayed")
def replay(recording: Path, simulated: bool, **options: Any) -> None:
    """Repeat RECORDING, a directory of the manager's flight recorder or one of its files.

    Without changes: an engine gets the recorded events at the recorded times, and its decisions are compared
    with the recorded ones. With changes: the recorded jobs are simulated under the recorded rules and under
    the changed ones, and the difference is printed by LocalQueue, with the decisions that make it.

    With --simulated: the recorded jobs are simulated under the recorded rules, which shows how well a
    simulation repeats what happened.

    Exit status: 0; 1 if decisions of the repetition differ; 2 if the recording, an option or a manifest is
    wrong.
    """
    from pykueue.cli.replay_run import run

    sys.exit(run(recording, taken_changes(options), simulated, **options))
