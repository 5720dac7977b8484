"""What `pykueue fairness` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from pykueue.api.decoding import DecodeError
from pykueue.api.durations import format_duration
from pykueue.cli.question_source import WRONG, formatted
from pykueue.plugin.tables import table
from pykueue.simulate.recorded.fairness import Preempted, Queue, Statement, statement
from pykueue.simulate.recorded.reading import RecordingError
from pykueue.simulate.report.statement import amount, page


def run(recording: Path, step: float, report: Path | None, output: str) -> int:
    """Carry out the command, whose options `fairness` describes; its exit status."""
    try:
        answer = statement(recording, step)
        if report is not None:
            report.write_text(page(answer), encoding="utf-8")
    except (DecodeError, RecordingError) as error:
        click.echo(f"Error: {error}", err=True)
        return WRONG
    except OSError as error:
        click.echo(f"Error: {error.filename or recording}: {error.strerror}", err=True)
        return WRONG
    click.echo(formatted(answer, output, lines))
    return 0


def lines(answer: Statement) -> Iterator[str]:
    """The statement as tables."""
    yield f"{answer.start} to {answer.end}, recording {answer.recording[:16]}"
    yield f"computed by: {answer.command}"
    if answer.gaps:
        yield f"nothing is recorded of {answer.gaps} times between"
    yield ""
    titles = ["CLUSTERQUEUE", "RESOURCE", "ENTITLED", "RECEIVED", "DEFICIT"]
    rows = [
        [queue.cluster_queue, each.resource, *(amount(each.resource, one) for one in shares)]
        for queue in answer.queues
        for each in queue.resources
        for shares in [(each.entitled, each.received, each.deficit)]
    ]
    yield from table(titles, rows).splitlines()
    yield ""
    titles = ["CLUSTERQUEUE", "ENDED", "TURNAROUND", "ALONE", "RATIO", "WAITED FOR"]
    yield from table(titles, [_turnaround(queue) for queue in answer.queues]).splitlines()
    if answer.jain is not None:
        yield f"Jain's index of the ratios: {answer.jain:.3f}"
    if answer.borrowed:
        yield ""
        rows = [
            [one.borrower, one.lender, one.resource, amount(one.resource, one.amount)]
            for one in answer.borrowed
        ]
        yield from table(["BORROWER", "LENDER", "RESOURCE", "AMOUNT"], rows).splitlines()
    if answer.preemptions:
        yield ""
        rows = [
            [one.preemptor or "-", one.preempted, one.reason, str(one.count), _latest(one.latest[-1])]
            for one in answer.preemptions
        ]
        yield from table(["PREEMPTED FOR", "CLUSTERQUEUE", "REASON", "COUNT", "LATEST"], rows).splitlines()


def _turnaround(queue: Queue) -> list[str]:
    waits = sorted(queue.waiting.items(), key=lambda wait: (-wait[1], wait[0]))
    return [
        queue.cluster_queue,
        str(queue.ended),
        _seconds(queue.turnaround),
        _seconds(queue.turnaround_alone),
        "-" if queue.finish_time_ratio is None else f"{queue.finish_time_ratio:.2f}",
        ", ".join(f"{cause} {format_duration(round(seconds))}" for cause, seconds in waits) or "-",
    ]


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(round(seconds))


def _latest(one: Preempted) -> str:
    return f"{one.at} {one.workload} ({one.file}:{one.line})"
