"""`pykueue whatif`: what a change of queues, or a job that is not submitted yet, would lead to."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pykueue.api import encode, kind_of, kueue
from pykueue.api.decoding import DecodeError
from pykueue.api.durations import format_duration
from pykueue.api.meta import format_time, parse_time
from pykueue.api.objects import Object
from pykueue.api.resources import PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES
from pykueue.cli.options import SourceOptions
from pykueue.cli.question_source import WRONG, QuestionSource, print_and_exit, read_source
from pykueue.engine import Upsert
from pykueue.manager.configuration import Configuration, ConfigurationError
from pykueue.manager.configuration import load as load_configuration
from pykueue.manager.scheduler.engine_options import engine_options
from pykueue.manifests.files import InputError
from pykueue.questions.targets import TargetError, find_workload
from pykueue.simulate.changes import Change, ChangedState, ChangeError, decoded
from pykueue.simulate.futures import State, basis
from pykueue.simulate.whatif import Effect, Question, Start, WhatIf
from pykueue.simulate.whatif import whatif as answer_whatif

#: Other workloads that the text shows.
_SHOWN = 10

#: Kinds that the priority of a job is read from.
_CLASSES = (WORKLOAD_PRIORITY_CLASSES, PRIORITY_CLASSES)


def run(source: SourceOptions, changes: Sequence[Change], **options: Any) -> None:
    """Carry out the command, whose options `whatif_options` describes."""
    asked = _Asked(source, changes, options)
    if asked.target and asked.job is not None:
        raise click.UsageError("a Workload that exists and -f exclude each other")
    if not (asked.job or asked.changed):
        raise click.UsageError("nothing to compare: give a job (-f) or a change such as --quota")
    found = read_source(source, _CLASSES if asked.job or asked.overrides else ())
    state = State(
        found.engine.options, found.surroundings, found.workloads, found.now, found.unread, found.notes
    )
    try:
        question, changed = asked.question(found, state)
        answer = answer_whatif(state, changed.state(), changed.texts, question)
    except (ConfigurationError, DecodeError, InputError) as error:
        click.echo(str(error), err=True)
        sys.exit(WRONG)
    except (TargetError, ChangeError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    print_and_exit(answer, options["output"], _lines)


@dataclass
class _Asked:
    """The options of one question."""

    source: SourceOptions
    changes: Sequence[Change]
    options: dict[str, Any]

    def __post_init__(self) -> None:
        options = self.options
        self.target: str = options["target"] or ""
        self.job: Path | None = options["job"]
        self.overrides: tuple[Path, ...] = options["overrides"]
        self.changed = bool(self.changes or self.overrides or options["with_config"])

    def question(self, source: QuestionSource, state: State) -> tuple[Question, ChangedState]:
        """What is asked, and the changed state. Raises what reading and changing raise."""
        options = self.options
        configuration = load_configuration(self.source.config)
        changed = ChangedState(state)
        if options["with_config"] is not None:
            changed.set_options(engine_options(load_configuration(options["with_config"])))
        for obj in decoded(self._manifests(self.overrides, source, configuration)):
            changed.put(obj)
        for change in self.changes:
            change(changed)
        target, submit = "", None
        if self.target:
            target = find_workload(state.workloads, self.target, options["namespace"]).metadata.key
        if self.job is not None:
            submit = self._submitted(source, configuration, state)
        return (
            Question(
                target=target,
                submit=submit,
                futures=options["futures"],
                seed=options["seed"],
                arrivals=options["arrivals"],
                window=options["window"],
                alternatives=options["alternatives"],
            ),
            changed,
        )

    def _submitted(
        self, source: QuestionSource, configuration: Configuration, state: State
    ) -> kueue.Workload:
        """The Workload of the job that is not submitted yet."""
        assert self.job is not None
        manifests = self._manifests((self.job,), source, configuration)
        found = [each for each in manifests if each["kind"] == "Workload"]
        if len(found) != 1:
            names = ", ".join(each["metadata"]["name"] for each in found) or "no job with a queue name"
            raise InputError(f"{self.job}: exactly one job is expected; found: {names}")
        metadata = found[0]["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        if any(each.metadata.key == key for each in state.workloads):
            raise InputError(f"{self.job}: Workload {key} exists already")
        made = {**metadata, "creationTimestamp": format_time(int(state.now))}
        manifest = {name: value for name, value in found[0].items() if name != "status"}
        (workload,) = decoded([{**manifest, "metadata": made}])
        assert isinstance(workload, kueue.Workload)
        return workload

    def _manifests(
        self, paths: Iterable[Path], source: QuestionSource, configuration: Configuration
    ) -> list[Object]:
        """The objects of files; jobs among them are Workloads, with the priorities of the state's classes."""
        paths = tuple(paths)
        if not paths:
            return []
        # Imported here: a change by option needs no checks of manifests, which take long to load.
        from pykueue.manifests.reading import CLUSTER_SCOPED, Document, Source, read

        files = Source(paths)
        for number, (place, manifest) in enumerate(files.documents):
            metadata = manifest.get("metadata")
            if manifest["kind"] not in CLUSTER_SCOPED and isinstance(metadata, dict):
                metadata = {"namespace": self.options["namespace"], **metadata}
                files.documents[number] = Document(place, {**manifest, "metadata": metadata})
        classes = [
            {"apiVersion": kind.api_version, "kind": kind.kind, **each}
            for kind, objects in source.others.items()
            for each in objects
        ]
        classes += [
            {"apiVersion": kind.api_version, "kind": kind.kind, **encode(event.obj)}
            for kind in _CLASSES
            for event in source.surroundings
            if isinstance(event, Upsert) and kind_of(event.obj) == kind.kind
        ]
        own = {
            (each["kind"], each["metadata"].get("name")) for _, each in files.documents if "metadata" in each
        }
        context = [each for each in classes if (each["kind"], each["metadata"]["name"]) not in own]
        files.documents = [*(Document("cluster", each) for each in context), *files.documents]
        known = {(each["kind"], each["metadata"]["name"]) for each in context}
        return [
            each
            for each in read(files, configuration, strict=False).manifests
            if (each["kind"], each["metadata"]["name"]) not in known
        ]


# --- text -------------------------------------------------------------------------------------------------


def _lines(answer: WhatIf) -> Iterator[str]:
    now = parse_time(answer.now)
    if answer.workload:
        yield answer.workload + ("" if answer.submitted else " (not submitted)")
        if answer.changes:
            yield from _changes_of(answer)
        rows = [("as it is" if answer.submitted else "submitted now", answer.before)]
        rows += [("with the changes", answer.after)] if answer.after is not None else []
        rows += [(f"or: {each.text}", each.start) for each in answer.alternatives]
        yield from _table(rows, now)
    else:
        yield from _changes_of(answer)
    yield from _others(answer)
    yield basis(answer.futures, answer.known_run_times, answer.arrivals_per_hour)


def _changes_of(answer: WhatIf) -> Iterator[str]:
    yield "changes:"
    for text in answer.changes:
        yield f"  {text}"


def _table(rows: list[tuple[str, Start | None]], now: float) -> Iterator[str]:
    """A line for each way, with the interval of its start."""
    width = max(len(text) for text, _ in rows)
    yield f"  {'':{width}}  {'EARLIEST':>12}  {'MEDIAN':>12}  {'LATEST':>12}  {'AHEAD':>6}"
    for text, start in rows:
        if start is None:
            continue
        times = [_in_time(each, now) for each in (start.earliest, start.median, start.latest)]
        yield f"  {text:{width}}  {times[0]:>12}  {times[1]:>12}  {times[2]:>12}  {start.ahead:>6.1f}"


def _in_time(time: str, now: float) -> str:
    if not time:
        return "not in 30d"
    seconds = parse_time(time) - now
    return f"in {format_duration(seconds)}" if seconds > 0 else "at once"


def _others(answer: WhatIf) -> Iterator[str]:
    if not answer.others:
        yield "no other workload that exists starts later or earlier, or is preempted"
        return
    yield f"other workloads, in the next {answer.window_hours:g} hours:"
    for each in answer.others[:_SHOWN]:
        yield f"  {each.workload}: {', '.join(_effect(each))}"
    rest = len(answer.others) - _SHOWN + answer.hidden
    if rest > 0:
        yield f"  and {rest} more"


def _effect(effect: Effect) -> Iterator[str]:
    if effect.preempted:
        yield f"preempted in {effect.preempted:.0%} of the futures"
    if effect.later:
        yield f"starts later in {effect.later:.0%}"
    if effect.earlier:
        yield f"starts earlier in {effect.earlier:.0%}"
    if effect.seconds is not None:
        direction = "later" if effect.seconds > 0 else "earlier"
        yield f"by {format_duration(abs(round(effect.seconds)))} {direction} in the median of these"
