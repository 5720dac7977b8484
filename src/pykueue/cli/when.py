"""`pykueue when`: the interval in which a pending Workload will start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import platformdirs

from pykueue.api import kueue
from pykueue.api.durations import format_duration
from pykueue.api.meta import parse_time
from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import print_and_exit, read_source
from pykueue.questions.targets import TargetError, find_workload
from pykueue.simulate.forecast import When
from pykueue.simulate.forecast import when as answer_when
from pykueue.simulate.futures import State, basis
from pykueue.simulate.scores import SCORED, read, write


def _score_file() -> Path:
    return platformdirs.user_state_path("pykueue") / "forecasts.json"


def run(
    source: SourceOptions,
    target: str,
    namespace: str,
    futures: int,
    seed: int,
    arrivals: bool,
    scores_file: Path | None,
    output: str,
) -> None:
    """Carry out the command, whose options `questions` describes."""
    found = read_source(source)
    state = State(
        found.engine.options, found.surroundings, found.workloads, found.now, found.unread, found.notes
    )
    try:
        workload = find_workload(state.workloads, target, namespace)
        answer = answer_when(state, workload.metadata.key, futures, seed, arrivals)
    except (TargetError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    if not source.paths:
        _score(scores_file or _score_file(), state, workload, answer)
    print_and_exit(answer, output, _lines)


def _score(file: Path, state: State, workload: kueue.Workload, answer: When) -> None:
    """Judges past answers and keeps this one; the score of the queue is a note of the answer."""
    try:
        scores = read(file)
        scores.judge(state.workloads)
        inside, all = scores.of_queue(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
        scores.add(workload, answer.earliest, answer.latest)
        write(file, scores)
    except OSError as error:
        answer.notes.append(f"this answer is not scored: {file}: {error.strerror}")
        return
    if all >= SCORED:
        answer.notes.append(f"{inside} of {all} past starts of this queue were inside the interval")


def _lines(answer: When) -> Iterator[str]:
    now = parse_time(answer.now)

    def shown(time: str) -> str:
        return f"{time} (in {format_duration(parse_time(time) - now)})"

    if not answer.earliest:
        yield f"{answer.workload} starts within 30 days in {answer.started} of {answer.futures} futures"
        return
    if answer.latest:
        yield f"{answer.workload} starts between {shown(answer.earliest)} and {shown(answer.latest)}"
    else:
        yield f"{answer.workload} starts at {shown(answer.earliest)} at the earliest"
        never = answer.futures - answer.started
        yield f"  it does not start within 30 days in {never} of {answer.futures} futures"
    if answer.median:
        yield f"  as likely before as after {shown(answer.median)}"
    yield f"  {answer.ahead:.1f} workloads are admitted before it, on average"
    for trigger in answer.triggers:
        yield f"  after the end of {trigger.workload} in {trigger.share:.0%} of the futures"
    yield f"  {basis(answer.futures, answer.known_run_times, answer.arrivals_per_hour)}"
