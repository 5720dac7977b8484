"""`pykueue trace`: what is in a public trace, and a scenario that is like it."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click
import yaml
from rich.console import Console
from rich.table import Table

from pykueue.api.durations import format_duration
from pykueue.simulate.distribution import Distribution
from pykueue.simulate.traces.fitted import fitted
from pykueue.simulate.traces.formats import READERS
from pykueue.simulate.traces.record import TraceError
from pykueue.simulate.traces.summary import WEEK, Summary, summarized

#: Exit status when the input is wrong.
_WRONG = 2
#: Width of the longest bar, in characters.
_BAR = 40
#: Rows of one table.
_ROWS = 12
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: Shades from none to most.
_SHADES = " ░▒▓█"
_QUANTILES = (("p10", 0.1), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


@click.group()
def trace() -> None:
    """Read public traces of batch clusters."""


def _reading(command: Callable[..., None]) -> Callable[..., None]:
    """The argument and options that name a trace; the command gets its summary."""

    @click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
    @click.option(
        "--format",
        "kind",
        type=click.Choice(sorted(READERS)),
        required=True,
        help="Format of FILE.",
    )
    @click.option(
        "--time-zone",
        default="UTC",
        show_default=True,
        help="Of times that the trace writes without one.",
    )
    @wraps(command)
    def read(file: Path, kind: str, time_zone: str, **options: Any) -> None:
        try:
            zone = ZoneInfo(time_zone)
        except (ZoneInfoNotFoundError, ValueError):
            _fail(f"--time-zone: {time_zone!r} is not a time zone")
        try:
            summary = summarized(READERS[kind](file, zone))
            command(summary=summary, file=file, **options)
        except TraceError as error:
            _fail(str(error))
        except ValueError as error:
            _fail(f"{file}: {error}")
        except OSError as error:
            _fail(f"{error.filename}: {error.strerror}")

    return read


def _fail(text: str) -> None:
    click.echo(f"Error: {text}", err=True)
    sys.exit(_WRONG)


@trace.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page of charts to this file; needs the extra 'reports'.",
)
@_reading
def describe(summary: Summary, file: Path, output: str, html: Path | None) -> None:
    """Show what is in FILE: arrivals, sizes, run times, queues."""
    if html is not None:
        # Imported here: the library for charts is an extra.
        from pykueue.simulate.api import MissingPackageError
        from pykueue.simulate.report.trace_page import trace_page

        try:
            html.write_text(trace_page(summary, file.name), encoding="utf-8")
        except MissingPackageError as error:
            _fail(str(error))
    if output == "json":
        click.echo(json.dumps(_document(summary), indent=2))
        return
    console = Console(highlight=False)
    console.print(
        f"{file.name}: {summary.jobs:,} jobs, {summary.ran:,} of them ran",
        soft_wrap=True,
        markup=False,
    )
    if not summary.jobs:
        return
    console.print(
        f"submitted from {_time(summary.first)} to {_time(summary.last)}, "
        f"{summary.jobs / max(1.0, summary.hours):,.1f} per hour, by {len(summary.users):,} users",
        soft_wrap=True,
    )
    for text, seconds in (
        ("GPUs", summary.gpu_seconds),
        ("cores", summary.core_seconds),
    ):
        if seconds and summary.hours:
            console.print(f"{seconds / 3600 / summary.hours:,.1f} {text} in use on average")
    if summary.failed:
        console.print(f"{summary.failed / summary.ran:.1%} failed")
    _print_week(console, summary.week)
    for title, values in (
        ("run time", summary.run_time),
        ("recorded wait", summary.wait),
    ):
        if values.count:
            cells = [f"{name} {_span(values.quantile(share))}" for name, share in _QUANTILES]
            console.print(
                f"\n{title}: {', '.join(cells)}, max {_span(values.largest)}",
                soft_wrap=True,
            )
    _print_bars(console, "GPUs of a job", _buckets(summary.gpus))
    _print_bars(console, "pods of a job", _buckets(summary.pods))
    _print_bars(console, "queue", summary.queues.most_common())
    _print_bars(console, "class", summary.classes.most_common())


@trace.command()
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Directory.",
)
@click.option(
    "--gpu",
    default="nvidia.com/gpu",
    show_default=True,
    help="Resource that stands for GPUs.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="Number queues and classes instead of naming them.",
)
@_reading
def fit(summary: Summary, file: Path, folder: Path, gpu: str, anonymous: bool) -> None:
    """Write a synthetic scenario that is like FILE, and its queues, into a directory.

    It has the arrivals by hour of the week, sizes and run times of FILE, and none of its records.
    """
    scenario, manifests = fitted(summary, "fitted" if anonymous else file.stem, gpu, anonymous)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))
    (folder / "queues.yaml").write_text(yaml.safe_dump_all(manifests, sort_keys=False))
    click.echo(
        f"{folder / 'scenario.yaml'}: {len(scenario['arrivals'][0]['generator']['jobs'])} classes of jobs"
    )


def _document(summary: Summary) -> dict[str, Any]:
    return {
        "jobs": summary.jobs,
        "ran": summary.ran,
        "failed": summary.failed,
        "first": summary.first if summary.jobs else None,
        "last": summary.last if summary.jobs else None,
        "users": len(summary.users),
        "week": summary.week,
        "queues": dict(summary.queues.most_common()),
        "classes": dict(summary.classes.most_common()),
        "gpus": dict(sorted(summary.gpus.items())),
        "pods": dict(sorted(summary.pods.items())),
        "runTime": _quantiles(summary.run_time),
        "wait": _quantiles(summary.wait),
        "gpuSeconds": summary.gpu_seconds,
        "coreSeconds": summary.core_seconds,
    }


def _quantiles(values: Distribution) -> dict[str, float] | None:
    if not values.count:
        return None
    found = {name: values.quantile(share) for name, share in _QUANTILES}
    return {"mean": values.mean, **found, "max": values.largest}


def _print_week(console: Console, week: list[int]) -> None:
    """Submissions by day and hour, as shades."""
    console.print("\nsubmissions by day and hour (UTC)\n     0     6     12    18    24")
    most = max(week) or 1
    for day, name in enumerate(_DAYS):
        hours = week[day * 24 : (day + 1) * 24]
        shades = "".join(_SHADES[math.ceil(count / most * (len(_SHADES) - 1))] for count in hours)
        console.print(f"{name}  {shades}  {sum(hours):,}")
    assert len(week) == WEEK


def _print_bars(console: Console, title: str, counts: Iterable[tuple[object, int]]) -> None:
    """A table with bars; nothing where there is one row without a name."""
    rows = list(counts)
    if not rows or [name for name, _ in rows] == [""]:
        return
    most = max(count for _, count in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title)
    table.add_column("jobs", justify="right")
    table.add_column("")
    for name, count in rows[:_ROWS]:
        table.add_row(
            str(name) or "(none)",
            f"{count:,}",
            "█" * max(1, round(count / most * _BAR)),
        )
    if rest := sum(count for _, count in rows[_ROWS:]):
        table.add_row(f"{len(rows) - _ROWS} others", f"{rest:,}", "")
    console.print()
    console.print(table)


def _buckets(counts: Counter[int]) -> list[tuple[str, int]]:
    """By ranges that double."""
    found: Counter[int] = Counter()
    for value, count in counts.items():
        found[value.bit_length()] += count
    return [
        (str(bits) if bits < 2 else f"{1 << (bits - 1)}-{(1 << bits) - 1}", count)
        for bits, count in sorted(found.items())
    ]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _span(seconds: float) -> str:
    return format_duration(round(seconds))
