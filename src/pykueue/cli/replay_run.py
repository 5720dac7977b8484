"""What `pykueue replay` does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from pykueue.api.decoding import DecodeError
from pykueue.api.durations import format_duration
from pykueue.cli.question_source import WRONG, formatted
from pykueue.engine import Options, Upsert
from pykueue.manager.configuration import ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.scheduler.engine_options import engine_options
from pykueue.manifests.files import InputError
from pykueue.simulate.changes import Change, ChangedState, ChangeError, decoded
from pykueue.simulate.futures import State
from pykueue.simulate.recorded.answers import Replayed
from pykueue.simulate.recorded.compare import Difference, Team, compare
from pykueue.simulate.recorded.fidelity import Fidelity, Unlike, fidelity
from pykueue.simulate.recorded.history import History, of_recording
from pykueue.simulate.recorded.reading import RecordingError
from pykueue.simulate.recorded.replay import Replay
from pykueue.simulate.recorded.replay import replay as repeat

#: Exit status where decisions differ.
_DIFFERENT = 1


def run(
    recording: Path,
    changes: Sequence[Change],
    simulated: bool,
    overrides: Sequence[Path],
    with_config: Path | None,
    output: str,
) -> int:
    """Carry out the command, whose options `replay` describes; its exit status."""
    changed = bool(changes or overrides or with_config is not None)
    if simulated and changed:
        click.echo("Error: --simulated is not accepted together with changes", err=True)
        return WRONG
    try:
        if simulated:
            history = of_recording(recording)
            answer = Replayed(fidelity=fidelity(history, _state(history)))
        elif changed:
            answer = Replayed(difference=_difference(recording, changes, overrides, with_config))
        else:
            answer = Replayed(replay=repeat(recording))
    except (ConfigurationError, ChangeError, DecodeError, InputError, RecordingError) as error:
        click.echo(f"Error: {error}", err=True)
        return WRONG
    except OSError as error:
        click.echo(f"Error: {error.filename or recording}: {error.strerror}", err=True)
        return WRONG
    click.echo(formatted(answer, output, _lines))
    return _DIFFERENT if answer.replay is not None and answer.replay.different else 0


def _state(history: History) -> State:
    """What there was at the start, but Workloads."""
    objects = [Upsert(obj) for obj in decoded(history.objects.values())]
    return State(history.options or Options(), list(objects), [], history.start)


def _difference(
    recording: Path, changes: Sequence[Change], overrides: Sequence[Path], with_config: Path | None
) -> Difference:
    """The recorded jobs under the recorded rules and under changed ones."""
    history = of_recording(recording)
    state = _state(history)
    changed = ChangedState(state)
    if with_config is not None:
        changed.set_options(engine_options(load_configuration(with_config)))
    if overrides:
        # Imported here: a repetition needs no checks of manifests, which take long to load.
        from pykueue.manifests.reading import Source, read

        for obj in decoded(read(Source(overrides), load_configuration(None), strict=False).manifests):
            changed.put(obj)
    try:
        for change in changes:
            change(changed)
    except ChangeError as error:
        raise ChangeError(f"{error} (at the start of the recording)") from None
    return compare(history, state, changed)


# --- text -------------------------------------------------------------------------------------------------


def _lines(answer: Replayed) -> Iterator[str]:
    if answer.replay is not None:
        yield from _repetition(answer.replay)
    if answer.difference is not None:
        yield from _comparison(answer.difference)
    if answer.fidelity is not None:
        yield from _simulation(answer.fidelity)


def _repetition(answer: Replay) -> Iterator[str]:
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


def _simulation(answer: Fidelity) -> Iterator[str]:
    yield (
        f"{answer.start} to {answer.end}: {answer.recorded} admissions, {answer.simulated} simulated;"
        f" {answer.equal} ({answer.share:.2%}) are equal and in the same order,"
        f" {answer.at_once} at the same time"
    )
    causes: dict[str, list[Unlike]] = {}
    for each in answer.differences:
        causes.setdefault(each.cause, []).append(each)
    for cause, unlike in causes.items():
        yield f"because {cause}:"
        for each in unlike:
            yield (
                f"  {each.workload}, admission {each.admission}:"
                f" recorded {each.recorded or 'not'}, simulated {each.simulated or 'not'}"
            )


def _comparison(answer: Difference) -> Iterator[str]:
    yield f"{answer.start} to {answer.end}: {answer.workloads} workloads"
    yield "changes:"
    yield from (f"  {text}" for text in answer.changes)
    if answer.near is not None:
        assert answer.recorded_wait_mean is not None
        assert answer.simulated_wait_mean is not None
        yield (
            f"under the recorded rules {answer.near:.1%} of the starts are simulated within a minute,"
            f" {answer.in_order:.1%} in the same order"
            f" (mean wait {_duration(answer.simulated_wait_mean)}, as it happened"
            f" {_duration(answer.recorded_wait_mean)})"
        )
    if not answer.first:
        yield "no decision differs"
        return
    yield f"first different decision: {answer.first}"
    width = max(len("QUEUE"), *(len(team.queue) for team in answer.teams))
    head = ("STARTED", "MEAN WAIT", "P90 WAIT", "PREEMPTED", "LATER", "EARLIER")
    yield f"  {'QUEUE':{width}}" + "".join(
        f"  {each:>{size}}" for each, size in zip(head, _WIDTHS, strict=True)
    )
    for team in answer.teams:
        cells = _cells(team)
        yield f"  {team.queue:{width}}" + "".join(
            f"  {each:>{size}}" for each, size in zip(cells, _WIDTHS, strict=True)
        )
    for team in answer.teams:
        for each in team.attributions:
            yield f"{each.workload}: {each.before or 'not'} -> {each.after or 'not'}"
            yield f"  {each.decision}"


_WIDTHS = (13, 20, 20, 11, 6, 7)


def _cells(team: Team) -> tuple[str, ...]:
    return (
        _change(str(team.started_before), str(team.started_after)),
        _change(_duration(team.wait_mean_before), _duration(team.wait_mean_after)),
        _change(_duration(team.wait_p90_before), _duration(team.wait_p90_after)),
        _change(str(team.preempted_before), str(team.preempted_after)),
        str(team.later),
        str(team.earlier),
    )


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _duration(seconds: float) -> str:
    return format_duration(round(seconds))
