"""What runs gave, as tables of plain values: the source of data frames, files and reports.

Times are seconds from the start, durations seconds, amounts units of their resource, `used`, `lost` and the
like unit-seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pykueue.simulate.figures import NAMES, figure
from pykueue.simulate.measures import Outcome
from pykueue.simulate.results import OF_RUNS, groups_of
from pykueue.simulate.scenario.types import Where

#: One row by the names of its columns.
Row = dict[str, Any]
#: The columns of a table and their types.
Columns = Mapping[str, type]

_RUN: Final[Columns] = {"variant": str, "seed": int}
_FIGURES: Final[Columns] = dict.fromkeys(NAMES, float)


def _run(outcome: Outcome) -> Row:
    return {"variant": outcome.variant, "seed": outcome.seed}


def runs(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """One row for each run, with every figure."""
    for outcome in outcomes:
        values = {name: _known(figure(outcome, name)) for name in NAMES}
        yield {**_run(outcome), **values, "decisions": outcome.decisions, "ended": outcome.ended}


def groups(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """One row for each run, ClusterQueue and class of jobs."""
    for outcome in outcomes:
        for queue, job_class in groups_of(outcome):
            where = Where(cluster_queue=queue, job_class=job_class)
            values = {
                name: None if name in OF_RUNS else _known(figure(outcome, name, where)) for name in NAMES
            }
            yield {**_run(outcome), "clusterQueue": queue, "class": job_class, **values}


def waits(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """Waits until the first admission, by ClusterQueue, class and size."""
    for outcome in outcomes:
        for group, lives in sorted(outcome.lives.items()):
            wait = lives.wait
            yield {
                **_run(outcome),
                "clusterQueue": group.cluster_queue,
                "class": group.job_class,
                "size": group.size,
                "created": lives.created,
                "admitted": wait.count,
                "mean": _known(wait.mean),
                "p50": _known(wait.quantile(0.5)),
                "p90": _known(wait.quantile(0.9)),
                "p99": _known(wait.quantile(0.99)),
                "max": wait.largest if wait.count else None,
            }


def usage(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """Quota held over time, by ClusterQueue, flavor and resource: the mean of each interval."""
    for outcome in outcomes:
        for key, series in sorted(outcome.usage.items()):
            quota = outcome.quota.get(key)
            for number, area in enumerate(series.intervals):
                begin = number * series.width
                width = min(series.width, outcome.end - begin)
                if width <= 0:
                    continue
                nominal = quota.intervals[number] if quota and number < len(quota.intervals) else 0.0
                yield {
                    **_run(outcome),
                    "clusterQueue": key.cluster_queue,
                    "flavor": key.flavor,
                    "resource": key.resource,
                    "at": begin,
                    "used": area / width,
                    "nominal": nominal / width,
                }


def preemptions(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """Preemptions by the ClusterQueues of both workloads and by reason, and the lost work by resource."""
    for outcome in outcomes:
        for pair, lost in sorted(outcome.preemptions.items()):
            row = {**_run(outcome), **pair._asdict(), "count": lost.count}
            for resource, amount in sorted(lost.lost.items()) or [("", 0)]:
                yield {**row, "resource": resource, "lost": amount}


def budgets(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """What was used of each Budget, in resource-hours, and when which action came into force."""
    for outcome in outcomes:
        for key, use in sorted(outcome.budgets.items()):
            yield {
                **_run(outcome),
                **key._asdict(),
                "used": use.used,
                "limit": use.limit,
                "highest": use.highest,
                "actions": ", ".join(f"{action or 'none'} at {at:.0f}" for at, action in use.actions),
            }


def shares(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """What each ClusterQueue was entitled to under weighted fair sharing, had, and was short of."""
    for outcome in outcomes:
        for key, share in sorted(outcome.shares.items()):
            yield {
                **_run(outcome),
                "clusterQueue": key.cluster_queue,
                "resource": key.resource,
                "entitled": share.entitled,
                "received": share.received,
                "deficit": share.deficit,
            }


def timeline(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """What happened to the first workloads of the first seed, with the explanation of each decision."""
    for outcome in outcomes:
        for entry in outcome.timeline:
            yield {
                **_run(outcome),
                "at": entry.at,
                "what": entry.what,
                "workload": entry.workload,
                "clusterQueue": entry.cluster_queue,
                "text": entry.text,
                "preemptor": entry.preemptor,
            }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


#: Name of a table -> its rows and columns.
TABLES: Final[Mapping[str, tuple[Callable[[Sequence[Outcome]], Iterator[Row]], Columns]]] = MappingProxyType(
    {
        "runs": (runs, {**_RUN, **_FIGURES, "decisions": str, "ended": str}),
        "groups": (groups, {**_RUN, "clusterQueue": str, "class": str, **_FIGURES}),
        "waits": (
            waits,
            {
                **_RUN,
                **dict.fromkeys(("clusterQueue", "class", "size"), str),
                **dict.fromkeys(("created", "admitted"), int),
                **dict.fromkeys(("mean", "p50", "p90", "p99", "max"), float),
            },
        ),
        "usage": (
            usage,
            {
                **_RUN,
                **dict.fromkeys(("clusterQueue", "flavor", "resource"), str),
                **dict.fromkeys(("at", "used", "nominal"), float),
            },
        ),
        "preemptions": (
            preemptions,
            {
                **_RUN,
                **dict.fromkeys(("preemptor", "preempted", "reason"), str),
                "count": int,
                "resource": str,
                "lost": float,
            },
        ),
        "budgets": (
            budgets,
            {
                **_RUN,
                **dict.fromkeys(("budget", "value", "resource"), str),
                **dict.fromkeys(("used", "limit", "highest"), float),
                "actions": str,
            },
        ),
        "shares": (
            shares,
            {
                **_RUN,
                **dict.fromkeys(("clusterQueue", "resource"), str),
                **dict.fromkeys(("entitled", "received", "deficit"), float),
            },
        ),
        "timeline": (
            timeline,
            {
                **_RUN,
                "at": float,
                **dict.fromkeys(("what", "workload", "clusterQueue", "text", "preemptor"), str),
            },
        ),
    }
)
