"""The page: data, charts and their library in one HTML file, which loads nothing and runs no other script."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pykueue
from pykueue.simulate.api import check_packages
from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import Prepared
from pykueue.simulate.verdicts import Verdict

from .sections import COLOURS, Section, sections

#: Workloads of each variant in the timeline.
_WORKLOADS_MAX = 300


def write_report(
    file: Path, prepared: Prepared, outcomes: Sequence[Outcome], found: Sequence[Verdict]
) -> None:
    """Writes the report of a scenario's runs.

    Raises MissingPackageError without the packages of the extra `reports`, and OSError if the file cannot be
    written.
    """
    file.write_text(page(prepared, outcomes, found), encoding="utf-8")


def page(prepared: Prepared, outcomes: Sequence[Outcome], found: Sequence[Verdict]) -> str:
    """The text of the report; see `write_report`."""
    scenario = prepared.scenario
    variants = list(dict.fromkeys(one.variant for one in outcomes))
    seeds = ", ".join(str(seed) for seed in sorted({one.seed for one in outcomes}))
    names = f"variant{'' if len(variants) == 1 else 's'}: {', '.join(variants)}"
    return rendered(
        sections(outcomes) if outcomes else [],
        title=scenario.name,
        kind="Simulation",
        command="simulate",
        facts=f"{len(variants)} {names} · seeds {seeds} · from {scenario.start}",
        ended=[one for one in outcomes if one.ended],
        verdicts=found,
        failed=[one for one in found if not one.holds],
        lanes=_timelines(outcomes),
    )


def rendered(parts: Sequence[Section], *, lanes: Sequence[dict[str, Any]] = (), **context: Any) -> str:
    """A page with these sections; `context` has title, kind, command and facts.

    Raises MissingPackageError without the packages of the extra `reports`.
    """
    check_packages()
    import jinja2

    here = resources.files(__package__)
    library, script = _library(), here.joinpath("report.js").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(here.joinpath("report.html").read_text("utf-8"))
    charts: dict[str, Any] = {
        f"{part.name}-{number}": chart for part in parts for number, (_, chart) in enumerate(part.charts)
    }
    text: str = template.render(
        **context,
        version=pykueue.__version__,
        sections=parts,
        lanes=lanes,
        data={"charts": charts, "lanes": lanes},
        style=here.joinpath("report.css").read_text("utf-8"),
        library=library,
        script=script,
        hashes=" ".join(map(_hash, (library, script))),
    )
    return text


def _timelines(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """What happened to the first workloads of each variant: their entries, and when they had quota."""
    found = []
    for number, outcome in enumerate(one for one in outcomes if one.timeline):
        workloads: dict[str, dict[str, Any]] = {}
        for entry in outcome.timeline:
            one = workloads.get(entry.workload)
            if one is None:
                if len(workloads) >= _WORKLOADS_MAX:
                    continue
                one = workloads[entry.workload] = {
                    "name": entry.workload,
                    "queue": entry.cluster_queue,
                    "entries": [],
                }
            one["entries"].append([round(entry.at, 3), entry.what, entry.text, entry.preemptor])
        last = round(outcome.timeline[-1].at if outcome.timeline_omitted else outcome.end, 3)
        for one in workloads.values():
            one["spans"] = _spans(one["entries"], last)
        found.append(
            {
                "variant": outcome.variant,
                "seed": outcome.seed,
                "colour": COLOURS[number % len(COLOURS)],
                "workloads": list(workloads.values()),
                "omitted": outcome.timeline_omitted,
                "end": last,
            }
        )
    return found


def _spans(entries: Sequence[Sequence[Any]], last: float) -> list[tuple[float, float, bool]]:
    """Begin, end and whether it had quota, for each time between two changes."""
    spans: list[tuple[float, float, bool]] = []
    since, admitted = math.nan, False
    for at, what, *_ in entries:
        if not math.isnan(since) and at > since:
            spans.append((since, at, admitted))
        if what == "Pending":
            since = at if math.isnan(since) else since
            if spans and spans[-1][1] == at and not admitted:
                begin, _, _ = spans.pop()
                since = begin
            continue
        admitted = what == "Admitted"
        since = math.nan if what in ("Finished", "Failed", "Stopped") else at
    if not math.isnan(since) and last > since:
        spans.append((since, last, admitted))
    return spans


def _hash(script: str) -> str:
    """Source expression of a policy that lets this script run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _library() -> str:
    """The script that draws charts, as the text of a script element."""
    from plotly.offline import get_plotlyjs

    # A script ends where such a tag stands in it.
    text: str = get_plotlyjs()
    return text.replace("</script", "<\\/script").replace("\r\n", "\n")
