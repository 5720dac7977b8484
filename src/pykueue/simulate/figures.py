"""Figures of an outcome by name, for assertions, tables and reports.

Source of the definitions: docs/reference/simulation.md 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pykueue.api.durations import format_duration
from pykueue.api.similar import did_you_mean
from pykueue.simulate.distribution import Distribution, merged
from pykueue.simulate.measures import Lives, Outcome, Share, Usage, UsageKey
from pykueue.simulate.scenario.types import Where

EVERYTHING: Final = Where()

#: Figure of a distribution -> how it is read off.
STATISTICS: Final[dict[str, Callable[[Distribution], float]]] = {
    "mean": lambda values: values.mean,
    "p50": lambda values: values.quantile(0.5),
    "p90": lambda values: values.quantile(0.9),
    "p99": lambda values: values.quantile(0.99),
    "max": lambda values: values.largest,
}

_DISTRIBUTIONS: Final[dict[str, Callable[[Lives], Distribution]]] = {
    "wait": lambda lives: lives.wait,
    "pending": lambda lives: lives.pending,
    "turnaround": lambda lives: lives.turnaround,
    "slowdown": lambda lives: lives.slowdown,
}

_COUNTS: Final[dict[str, Callable[[Lives], int]]] = {
    "created": lambda lives: lives.created,
    "admissions": lambda lives: lives.admissions,
    "finished": lambda lives: lives.finished,
    "failed": lambda lives: lives.failed,
    "stopped": lambda lives: lives.stopped,
    "evictions": lambda lives: sum(lives.evictions.values()),
    "preemptions": lambda lives: lives.evictions["Preempted"],
    "nodeLosses": lambda lives: lives.node_losses,
}

_OTHERS: Final = ("used", "utilization", "lostWork", "unfinished", "makespan", "end", "cycles", "requests")

#: Figures that only runs in detail have.
DETAILED: Final = frozenset({"entitled", "deficit", "jain", "starved"})

#: A workload is starved if it waits longer than this times the median of its size.
_STARVED: Final = 10
#: And longer than this, in seconds.
_STARVED_LEAST: Final = 60.0

#: Figures that are durations.
_DURATIONS: Final = frozenset({"wait", "pending", "turnaround", "makespan", "end"})

#: Names of all figures.
NAMES: Final = (
    *(f"{name}.{statistic}" for name in _DISTRIBUTIONS for statistic in STATISTICS),
    *_COUNTS,
    *_OTHERS,
    *sorted(DETAILED),
)


class UnknownFigure(ValueError):
    """There is no figure of that name."""

    def __init__(self, name: str) -> None:
        near = did_you_mean(name, NAMES)
        super().__init__(f'"{name}" is not accepted; accepted: {", ".join(NAMES)}{near}')


def figure(outcome: Outcome, name: str, where: Where = EVERYTHING) -> float:
    """The figure, over what `where` selects; NaN where there is nothing to tell.

    Durations are seconds, `used` and `lostWork` unit-seconds of a resource, `utilization` the used share of
    the nominal quota. Raises UnknownFigure.
    """
    if name not in NAMES:
        raise UnknownFigure(name)
    base, _, statistic = name.partition(".")
    if base in _DISTRIBUTIONS:
        return STATISTICS[statistic](merged(map(_DISTRIBUTIONS[base], _lives(outcome, where))))
    if base in _COUNTS:
        return float(sum(map(_COUNTS[base], _lives(outcome, where))))
    match name:
        case "used":
            return sum(usage.area for usage in _usage(outcome.usage, where))
        case "utilization":
            quota = sum(usage.area for usage in _usage(outcome.quota, where))
            return sum(usage.area for usage in _usage(outcome.usage, where)) / quota if quota else math.nan
        case "lostWork":
            return sum(
                amount
                for lives in _lives(outcome, where)
                for resource, amount in lives.lost.items()
                if where.resource in ("", resource)
            )
        case "entitled" | "deficit":
            found = _shares(outcome, where)
            return sum(getattr(share, name) for share in found) if found else math.nan
        case "jain":
            return jain(
                [share.received / share.entitled for share in _shares(outcome, where) if share.entitled]
            )
        case "starved":
            return _starved(outcome, where)
        case "unfinished":
            return float(outcome.unfinished)
        case "makespan":
            return outcome.makespan
        case "end":
            return outcome.end
        case "requests":
            return outcome.requests
    return float(outcome.cycles)


def shown(name: str, value: float) -> str:
    """A figure as people read it."""
    if math.isnan(value):
        return "-"
    base = name.partition(".")[0]
    if base in _DURATIONS:
        return format_duration(round(value, 3 if value < 10 else 1 if value < 60 else 0))
    if base == "utilization":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}"


def _lives(outcome: Outcome, where: Where) -> Iterable[Lives]:
    return [
        lives
        for group, lives in outcome.lives.items()
        if where.cluster_queue in ("", group.cluster_queue) and where.job_class in ("", group.job_class)
    ]


def _shares(outcome: Outcome, where: Where) -> list[Share]:
    return [
        share
        for key, share in outcome.shares.items()
        if where.cluster_queue in ("", key.cluster_queue) and where.resource in ("", key.resource)
    ]


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all values are equal, 1/n where one has everything."""
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else math.nan


def _starved(outcome: Outcome, where: Where) -> float:
    """Workloads that waited much longer than the median of their size."""
    sizes: dict[str, list[Distribution]] = {}
    for group, lives in outcome.lives.items():
        if where.cluster_queue in ("", group.cluster_queue) and where.job_class in ("", group.job_class):
            sizes.setdefault(group.size, []).append(lives.wait)
    waits = map(merged, sizes.values())
    return float(sum(each.above(max(_STARVED_LEAST, _STARVED * each.quantile(0.5))) for each in waits))


def _usage(all: dict[UsageKey, Usage], where: Where) -> Iterable[Usage]:
    return [
        usage
        for key, usage in all.items()
        if where.cluster_queue in ("", key.cluster_queue)
        and where.flavor in ("", key.flavor)
        and where.resource in ("", key.resource)
    ]


@dataclass(frozen=True)
class Summary:
    """One figure over the seeds of a variant."""

    mean: float
    margin: float
    """Half of the 95 % confidence interval of the mean; NaN with a single seed."""
    smallest: float
    largest: float


#: Quantile 0.975 of Student's t by degrees of freedom; beyond the last, that of the normal distribution.
_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL: Final = 1.960


def summary(values: Iterable[float]) -> Summary:
    """Mean and confidence interval; values that are NaN are left out."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Summary(math.nan, math.nan, math.nan, math.nan)
    count = len(known)
    mean = math.fsum(known) / count
    margin = math.nan
    if count > 1:
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (count - 1))
        margin = (_T[count - 2] if count - 2 < len(_T) else _NORMAL) * deviation / math.sqrt(count)
    return Summary(mean, margin, min(known), max(known))
