"""What is in a trace, as a page of charts: the figures of `pykueue trace describe`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pykueue.api.durations import format_duration
from pykueue.api.meta import format_time
from pykueue.simulate.distribution import Distribution
from pykueue.simulate.traces.summary import Summary

from .page import rendered
from .sections import COLOURS, Section, label

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: Names of queues and classes that are shown.
_NAMES_MAX: Final = 40
_SHARES: Final = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def trace_page(summary: Summary, name: str) -> str:
    """The text of the page. Raises MissingPackageError without the packages of the extra `reports`."""
    facts = f"{summary.jobs:,} jobs, {summary.ran:,} of them ran"
    if summary.jobs:
        times = (format_time(int(each)) for each in (summary.first, summary.last))
        facts += f" · submitted from {' to '.join(times)} · {len(summary.users):,} users"
    parts = list(_sections(summary)) if summary.jobs else []
    return rendered(parts, title=name, kind="Trace", command="trace describe", facts=facts)


def _sections(summary: Summary) -> Iterable[Section]:
    hours = [(f"{_DAYS[hour // 24]} {hour % 24:02}:00", count) for hour, count in enumerate(summary.week)]
    yield _bars("arrivals", "Arrivals", "Submissions by hour of the week, in UTC.", "hour", hours)
    for name, title, values in (
        ("run-times", "Run times", summary.run_time),
        ("waits", "Recorded waits", summary.wait),
    ):
        if values.count:
            yield _quantiles(name, title, values)
    yield _bars("gpus", "GPUs", "Jobs by the GPUs that they request.", "GPUs", _numbers(summary.gpus))
    yield _bars("pods", "Pods", "Jobs by the number of their pods.", "pods", _numbers(summary.pods))
    yield _bars("queues", "Queues", "Jobs by queue.", "queue", summary.queues.most_common(_NAMES_MAX))
    yield _bars("classes", "Classes", "Jobs by class.", "class", summary.classes.most_common(_NAMES_MAX))


def _numbers(counts: Counter[int]) -> list[tuple[str, int]]:
    return [(str(number), count) for number, count in sorted(counts.items())]


def _bars(name: str, title: str, text: str, head: str, counts: Sequence[tuple[str, int]]) -> Section:
    rows: list[tuple[str, ...]] = [(key or "(none)", f"{count:,}") for key, count in counts]
    bars = {
        "type": "bar",
        "x": [label(row[0]) for row in rows],
        "y": [count for _, count in counts],
        "marker": {"color": COLOURS[0]},
    }
    layout = {"yaxis": {"title": {"text": "jobs"}}, "xaxis": {"type": "category"}}
    return Section(name, title, text, (head, "jobs"), rows, [(title, {"data": [bars], "layout": layout})])


def _quantiles(name: str, title: str, values: Distribution) -> Section:
    found = [values.quantile(share) for share in _SHARES]
    rows: list[tuple[str, ...]] = [
        (f"{share:.0%}", format_duration(round(each))) for share, each in zip(_SHARES, found, strict=True)
    ]
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [max(each, 1.0) for each in found],
        "y": list(_SHARES),
        "marker": {"color": COLOURS[0]},
    }
    layout = {
        "xaxis": {"type": "log", "title": {"text": "seconds"}},
        "yaxis": {"title": {"text": "share of the jobs"}, "tickformat": ".0%", "range": [0, 1]},
    }
    text = f"Share of the jobs up to a time; the longest is {format_duration(round(values.largest))}."
    return Section(name, title, text, ("share", "up to"), rows, [(title, {"data": [line], "layout": layout})])
