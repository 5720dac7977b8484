"""`pykueue replay`: a recording of a manager repeated, and compared with what was decided."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pykueue.cli.questions import output_options

#: Exit status where decisions differ, and where the recording cannot be read.
_DIFFERENT, _WRONG = 1, 2


@click.command()
@click.argument("recording", type=click.Path(path_type=Path))
@output_options("pykueue.simulate.recorded.replay", "Replay")
def replay(recording: Path, output: str) -> None:
    """Repeat RECORDING, a directory of the manager's flight recorder or one of its files.

    An engine gets the recorded events at the recorded times; its decisions are compared with the recorded
    ones.

    Exit status: 0; 1 if decisions differ; 2 if the recording is wrong.
    """
    from pykueue.cli.question_source import formatted
    from pykueue.simulate.recorded.reading import RecordingError
    from pykueue.simulate.recorded.replay import replay as repeat

    try:
        answer = repeat(recording)
    except RecordingError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_WRONG)
    except OSError as error:
        click.echo(f"Error: {error.filename or recording}: {error.strerror}", err=True)
        sys.exit(_WRONG)
    click.echo(formatted(answer, output, _lines))
    if answer.different:
        sys.exit(_DIFFERENT)


def _lines(answer: Any) -> Iterator[str]:
    yield (
        f"{answer.start} to {answer.end}: {answer.segments} file{'' if answer.segments == 1 else 's'},"
        f" {answer.events} events, {answer.cycles} cycles, {answer.decisions} decisions"
    )
    for gap in answer.gaps:
        yield f"nothing is recorded before {gap}"
    if not answer.different:
        yield f"the replay decides the same: {answer.replayed}"
        return
    yield f"the replay decides otherwise in {answer.different} cycles"
    yield f"  recorded {answer.recorded}"
    yield f"  replayed {answer.replayed}"
    first = answer.first_difference
    if first is not None:
        yield f"first at {first['at']} ({first['file']}, line {first['line']}):"
        yield f"  recorded {json.dumps(first['recorded'])}"
        yield f"  replayed {json.dumps(first['replayed'])}"
