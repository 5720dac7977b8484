"""The sections of a report: for each a chart, as plotly reads it, and the same figures as a table.

Names come from scenarios and manifests. In tables they are text; in charts, which read some markup, they are
escaped (`label`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from pykueue.engine.budgets.rules import hours_text
from pykueue.simulate.distribution import Distribution, merged
from pykueue.simulate.figures import figure, shown, summary
from pykueue.simulate.measures import Lives, Outcome, UsageKey
from pykueue.simulate.scenario.types import Where

#: Colours of variants that people with any colour vision tell apart (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999933", "#882255")

#: Charts of one section beyond which the rest are tables only.
_CHARTS_MAX: Final = 12
#: Figures of the comparison, in its order.
_COMPARED: Final = (
    "created", "finished", "unfinished", "admissions", "preemptions", "evictions", "wait.mean", "wait.p50",
    "wait.p90", "wait.p99", "wait.max", "turnaround.mean", "slowdown.p90", "utilization", "lostWork",
    "deficit", "jain", "starved", "makespan",
)  # fmt: skip


@dataclass
class Section:
    """One part of a report."""

    name: str
    """Of the anchor."""
    title: str
    text: str
    head: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    charts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Titles, and charts as plotly reads them."""


def label(text: str) -> str:
    """A name as text of a chart."""
    return escape(text)


def sections(outcomes: Sequence[Outcome]) -> list[Section]:
    """Everything but the timeline. Variants are in the order of the outcomes."""
    variants = list(dict.fromkeys(outcome.variant for outcome in outcomes))
    by_variant = {name: [one for one in outcomes if one.variant == name] for name in variants}
    made = [
        _comparison(by_variant),
        *_verdicts(by_variant),
        _waits("waits-by-class", "Waits by class", by_variant, lambda group: group[1] or "(none)"),
        _waits("waits-by-size", "Waits by size", by_variant, lambda group: group[2] or "(none)"),
        _waits("waits-by-queue", "Waits by ClusterQueue", by_variant, lambda group: group[0] or "(none)"),
        _usage(by_variant),
        _preemptions(by_variant),
        _budgets(by_variant),
        _fairness(by_variant),
        _lost(by_variant),
    ]
    return [section for section in made if section.rows]


def _text(name: str, values: Sequence[float]) -> str:
    known = summary(values)
    text = shown(name, known.mean)
    if not math.isnan(known.margin) and known.margin:
        text += f" ± {shown(name, known.margin)}"
    return text


def _comparison(by_variant: dict[str, list[Outcome]]) -> Section:
    rows = []
    for name in _COMPARED:
        cells = [_text(name, [figure(one, name) for one in found]) for found in by_variant.values()]
        if any(cell != "-" for cell in cells):
            rows.append((name, *cells))
    text = "Mean over the seeds with half of its 95 % confidence interval."
    return Section("figures", "Variants side by side", text, ("figure", *by_variant), rows)


def _verdicts(by_variant: dict[str, list[Outcome]]) -> Iterator[Section]:
    """How each queue fares under each variant, compared with the first one, in words."""
    baseline, *others = by_variant
    queues = sorted(
        {group.cluster_queue for found in by_variant.values() for one in found for group in one.lives}
    )
    rows: list[tuple[str, ...]] = []
    for variant in others:
        for queue in queues:
            where = Where(cluster_queue=queue)
            before, after = (
                summary([figure(one, "wait.p90", where) for one in by_variant[name]])
                for name in (baseline, variant)
            )
            if math.isnan(before.mean) or math.isnan(after.mean):
                continue
            margins = [0.0 if math.isnan(one.margin) else one.margin for one in (before, after)]
            times = f"{shown('wait.p90', before.mean)} to {shown('wait.p90', after.mean)}"
            if abs(after.mean - before.mean) <= sum(margins):
                verdict = f"no difference beyond that between seeds ({times})"
            else:
                verdict = f"{'longer' if after.mean > before.mean else 'shorter'}: {times}"
            rows.append((variant, queue or "(none)", verdict))
    if rows:
        text = f"The wait that 90 % of workloads do not exceed, compared with {baseline}."
        yield Section(
            "queues", "What changes for each queue", text, ("variant", "ClusterQueue", "p90 wait"), rows
        )


def _waits(
    name: str, title: str, by_variant: dict[str, list[Outcome]], key: Callable[[tuple[str, ...]], str]
) -> Section:
    groups = sorted(
        {key(tuple(group)) for found in by_variant.values() for one in found for group in one.lives},
        key=_natural,
    )
    section = Section(
        name,
        title,
        "From creation to the first admission: median and 90th percentile, mean over the seeds.",
        ("group", "variant", "p50", "p90", "p99", "max"),
    )
    bars = []
    for number, (variant, found) in enumerate(by_variant.items()):
        quantiles: dict[str, list[list[float]]] = {}
        for one in found:
            for group in groups:
                wait = _merged(one, group, key)
                values = [wait.quantile(share) for share in (0.5, 0.9, 0.99)] + [wait.largest or math.nan]
                quantiles.setdefault(group, []).append(values)
        for group in groups:
            columns = list(zip(*quantiles[group], strict=True))
            section.rows.append((group, variant, *(_text("wait.p90", column) for column in columns)))
        for index, quantile in enumerate(("p50", "p90")):
            known = [summary([values[index] for values in quantiles[group]]) for group in groups]
            bars.append(
                {
                    "type": "bar",
                    "name": f"{label(variant)} {quantile}",
                    "x": [label(group) for group in groups],
                    "y": [_hours(one.mean) for one in known],
                    "error_y": {
                        "type": "data",
                        "array": [_hours(one.margin) or 0 for one in known],
                        "color": "#8a93a3",
                    },
                    "marker": {
                        "color": _shade(COLOURS[number % len(COLOURS)], 0.45 if quantile == "p50" else 1)
                    },
                    "text": [shown("wait.p90", one.mean) for one in known],
                    "hovertemplate": "%{x}: %{text}",
                    "textposition": "none",
                }
            )
    layout = {
        "barmode": "group",
        "yaxis": {"title": {"text": "hours"}, "rangemode": "nonnegative"},
        "xaxis": {"type": "category"},
    }
    section.charts.append((title, {"data": bars, "layout": layout}))
    return section


def _shade(colour: str, opacity: float) -> str:
    """A colour (`#rrggbb`) through which the page is seen."""
    red, green, blue = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Numbers in a text by their value."""
    parts = "".join(each if each.isdigit() else f" {each} " for each in text).split()
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]


def _merged(outcome: Outcome, name: str, key: Callable[[tuple[str, ...]], str]) -> Distribution:
    return merged(lives.wait for group, lives in outcome.lives.items() if key(tuple(group)) == name)


def _usage(by_variant: dict[str, list[Outcome]]) -> Section:
    """Used quota over time, by ClusterQueue: one chart for each variant, flavor and resource."""
    section = Section(
        "usage",
        "Usage over time",
        "Quota held by each ClusterQueue, mean of each interval and over the seeds; dashed: nominal quota.",
        ("variant", "ClusterQueue", "flavor", "resource", "mean", "peak", "nominal"),
    )
    kinds = sorted(
        {(key.flavor, key.resource) for found in by_variant.values() for one in found for key in one.usage}
    )
    for flavor, resource in kinds:
        for variant, found in by_variant.items():
            keys = sorted({key for one in found for key in (*one.usage, *one.quota)})
            keys = [key for key in keys if (key.flavor, key.resource) == (flavor, resource)]
            traces = []
            for number, key in enumerate(keys):
                used = _series(found, key, "usage")
                if used:
                    traces.append(_area(key.cluster_queue, used, number))
                areas = [one.usage[key].area / one.end for one in found if key in one.usage and one.end]
                nominal = [one.quota[key].area / one.end for one in found if key in one.quota and one.end]
                peaks = [one.usage[key].peak for one in found if key in one.usage]
                if areas or nominal:
                    cells = (_mean(areas), _mean(peaks), _mean(nominal))
                    queue = key.cluster_queue or "(cohorts)"
                    section.rows.append((variant, queue, flavor, resource, *cells))
            total = _total(found, flavor, resource)
            if total:
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "lines",
                        "name": "nominal quota",
                        "x": [at / 3600 for at, _ in total],
                        "y": [value for _, value in total],
                        "line": {"dash": "dash", "color": "#888888", "shape": "hv"},
                    }
                )
            if traces and len(section.charts) < _CHARTS_MAX:
                title = f"{variant}: {resource} in flavor {flavor}"
                axes = {"xaxis": {"title": {"text": "hours"}}, "yaxis": {"title": {"text": label(resource)}}}
                section.charts.append((title, {"data": traces, "layout": axes}))
    return section


def _area(name: str, series: list[tuple[float, float]], number: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(name or "(cohorts)"),
        "stackgroup": "used",
        "x": [at / 3600 for at, _ in series],
        "y": [value for _, value in series],
        "line": {"width": 0.5, "color": COLOURS[number % len(COLOURS)]},
    }


def _series(found: Sequence[Outcome], key: UsageKey, which: str) -> list[tuple[float, float]]:
    """Begin and mean amount of each interval, mean over the seeds."""
    sums: dict[int, list[float]] = {}
    known = [(one, deepcopy(getattr(one, which)[key])) for one in found if key in getattr(one, which)]
    width = max((usage.width for _, usage in known), default=1.0)
    for one, usage in known:
        while usage.width < width:  # runs may differ in length
            usage.halve()
        for number, area in enumerate(usage.intervals):
            length = min(width, one.end - number * width)
            if length > 0:
                sums.setdefault(number, []).append(area / length)
    return [
        (number * width, round(math.fsum(values) / len(found), 6)) for number, values in sorted(sums.items())
    ]


def _total(found: Sequence[Outcome], flavor: str, resource: str) -> list[tuple[float, float]]:
    sums: dict[float, float] = {}
    for key in {key for one in found for key in one.quota}:
        if (key.flavor, key.resource) == (flavor, resource):
            for at, value in _series(found, key, "quota"):
                sums[at] = sums.get(at, 0.0) + value
    return sorted(sums.items())


def _mean(values: Sequence[float]) -> str:
    return shown("used", summary(values).mean)


def _budgets(by_variant: dict[str, list[Outcome]]) -> Section:
    section = Section(
        "budgets",
        "Budgets",
        "Resource-hours used and the largest part of a window, mean over the seeds.",
        ("variant", "budget", "value", "resource", "hours used", "hours of a window", "largest part"),
    )
    for variant, found in by_variant.items():
        for key in sorted({key for one in found for key in one.budgets}):
            uses = [one.budgets[key] for one in found if key in one.budgets]
            used, limit, highest = (
                summary([getattr(use, name) for use in uses]).mean for name in ("used", "limit", "highest")
            )
            amounts = hours_text(key.resource, used), hours_text(key.resource, limit), f"{highest:.0%}"
            section.rows.append((variant, *key, *amounts))
    return section


def _preemptions(by_variant: dict[str, list[Outcome]]) -> Section:
    section = Section(
        "preemptions",
        "Preemptions",
        "By the ClusterQueues of preemptor and preempted workload, mean over the seeds.",
        ("variant", "preemptor", "preempted", "reason", "preemptions", "lost unit-seconds"),
    )
    for variant, found in by_variant.items():
        pairs = sorted({pair for one in found for pair in one.preemptions})
        counts: dict[tuple[str, str], float] = {}
        for pair in pairs:
            number = [float(one.preemptions[pair].count if pair in one.preemptions else 0) for one in found]
            lost = [
                sum(one.preemptions[pair].lost.values()) if pair in one.preemptions else 0.0 for one in found
            ]
            section.rows.append((variant, *pair, _text("preemptions", number), _text("lostWork", lost)))
            key = pair.preemptor, pair.preempted
            counts[key] = counts.get(key, 0.0) + math.fsum(number) / len(number)
        if counts and len(section.charts) < _CHARTS_MAX:
            columns = sorted({preempted for _, preempted in counts})
            lines = sorted({preemptor for preemptor, _ in counts})
            heat = {
                "type": "heatmap",
                "x": [label(name) for name in columns],
                "y": [label(name) for name in lines],
                # No number, and so no cell, where there are none; the others are readable on both themes.
                "z": [[counts.get((line, column)) or None for column in columns] for line in lines],
                "colorscale": [[0, "#b3d3e8"], [1, "#0072b2"]],
                "zmin": 0,
                "texttemplate": "%{z:.1f}",
                "hovertemplate": "%{y} preempts %{x}: %{z:.1f}<extra></extra>",
            }
            axes = {
                "xaxis": {"title": {"text": "preempted"}, "type": "category"},
                "yaxis": {"title": {"text": "preemptor"}, "type": "category"},
            }
            section.charts.append((variant, {"data": [heat], "layout": axes}))
    return section


def _fairness(by_variant: dict[str, list[Outcome]]) -> Section:
    section = Section(
        "fairness",
        "Fair shares",
        "Unit-hours that weighted fair sharing entitles each ClusterQueue to, that it had, and that it was "
        "short of while entitled to more; sampled once in each interval, mean over the seeds.",
        ("variant", "ClusterQueue", "resource", "entitled", "received", "deficit"),
    )
    bars = []
    for number, (variant, found) in enumerate(by_variant.items()):
        keys = sorted({key for one in found for key in one.shares})
        means: list[float] = []
        for key in keys:
            cells = []
            for name in ("entitled", "received", "deficit"):
                values = [getattr(one.shares[key], name) / 3600 for one in found if key in one.shares]
                cells.append(_text("used", values))
                if name == "deficit":
                    means.append(summary(values).mean)
            section.rows.append((variant, key.cluster_queue, key.resource, *cells))
        bars.append(
            {
                "type": "bar",
                "name": label(variant),
                "x": [label(f"{key.cluster_queue} {key.resource}") for key in keys],
                "y": means,
                "marker": {"color": COLOURS[number % len(COLOURS)]},
            }
        )
    layout = {
        "barmode": "group",
        "yaxis": {"title": {"text": "unit-hours of deficit"}},
        "xaxis": {"type": "category"},
    }
    if any(any(bar["y"]) for bar in bars):
        section.charts.append(("Deficit", {"data": bars, "layout": layout}))
    return section


def _lost(by_variant: dict[str, list[Outcome]]) -> Section:
    section = Section(
        "lost-work",
        "Lost work",
        "What workloads had computed since their last checkpoint when they were evicted, in unit-hours.",
        ("variant", "ClusterQueue", "resource", "lost", "evictions"),
    )
    bars = []
    for number, (variant, found) in enumerate(by_variant.items()):
        queues = sorted({group.cluster_queue for one in found for group in one.lives})
        resources = sorted({name for one in found for lives in one.lives.values() for name in lives.lost})
        values: dict[str, float] = {}
        for queue in queues:
            for resource in resources:
                lost = [sum(lives.lost[resource] for lives in _of(one, queue)) / 3600 for one in found]
                evictions = [
                    float(sum(sum(lives.evictions.values()) for lives in _of(one, queue))) for one in found
                ]
                if any(lost):
                    cells = _text("used", lost), _text("evictions", evictions)
                    section.rows.append((variant, queue, resource, *cells))
                    values[f"{queue} {resource}"] = summary(lost).mean
        if values:
            bars.append(
                {
                    "type": "bar",
                    "name": label(variant),
                    "x": [label(name) for name in values],
                    "y": list(values.values()),
                    "marker": {"color": COLOURS[number % len(COLOURS)]},
                }
            )
    layout = {"barmode": "group", "yaxis": {"title": {"text": "unit-hours"}}, "xaxis": {"type": "category"}}
    section.charts.append(("Lost work", {"data": bars, "layout": layout}))
    return section


def _of(outcome: Outcome, queue: str) -> list[Lives]:
    return [lives for group, lives in outcome.lives.items() if group.cluster_queue == queue]


def _hours(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds / 3600
