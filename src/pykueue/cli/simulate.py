"""`pykueue simulate`: a scenario in virtual time, decided by the production engine."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pykueue.engine.budgets.rules import hours_text
from pykueue.simulate.api import MissingPackageError, Simulated, check_packages
from pykueue.simulate.figures import NAMES, figure, shown, summary
from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import Prepared, prepare
from pykueue.simulate.report.page import write_report
from pykueue.simulate.results import digest_of, groups_of, read_outcome, rows, write_outcome
from pykueue.simulate.runs import all_runs, run_all
from pykueue.simulate.scenario.places import placed
from pykueue.simulate.scenario.reading import ScenarioError, load
from pykueue.simulate.scenario.types import Where
from pykueue.simulate.verdicts import Verdict, check_names, verdicts

#: Exit status when an assertion does not hold, when the input is wrong, and when it was interrupted.
_FAILED, _WRONG, _INTERRUPTED = 1, 2, 130

#: Figures of the table, in its order.
_SHOWN = (
    "created", "finished", "unfinished", "admissions", "preemptions", "evictions", "wait.mean", "wait.p50",
    "wait.p90", "wait.max", "turnaround.mean", "slowdown.p90", "utilization", "lostWork", "makespan",
)  # fmt: skip

#: Figures that are of a whole run.
_OF_RUNS = ("unfinished", "makespan")


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--seeds",
    "seed_count",
    type=click.IntRange(min=1),
    help="Run with seeds 0 to N-1 instead of the scenario's.",
)
@click.option(
    "--variant",
    "chosen",
    multiple=True,
    metavar="NAME",
    help="Run this variant only. May be given several times.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Runs at the same time. Default: one for each CPU.",
)
@click.option(
    "--results",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for outcome and decision log of each run. Runs whose outcome is there are not repeated.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="HTML file for a report that needs no network.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for the tables of the report.",
)
@click.option("--data-format", type=click.Choice(["parquet", "csv"]), default="parquet", show_default=True)
@click.option("--by", type=click.Choice(["queue", "class"]), help="Add a table by ClusterQueue or by class.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
)
def simulate(
    scenario: Path,
    seed_count: int | None,
    chosen: tuple[str, ...],
    processes: int | None,
    folder: Path | None,
    by: str | None,
    output: str,
    **files: Unpack[_Files],
) -> None:
    """Run SCENARIO in virtual time and print what came of it.

    The decisions are those of the production engine. Exit status 1: an assertion of the scenario does not
    hold.
    """
    try:
        with placed(scenario):
            read = load(scenario)
            if seed_count is not None:
                read = replace(read, seeds=tuple(range(seed_count)))
            if chosen:
                unknown = [name for name in chosen if name not in {one.name for one in read.variants}]
                if unknown:
                    accepted = (
                        ", ".join(one.name for one in read.variants) or "none: the scenario has no variants"
                    )
                    raise ScenarioError(f"--variant: {unknown[0]!r} is not accepted; accepted: {accepted}")
                read = replace(read, variants=tuple(one for one in read.variants if one.name in chosen))
            check_names(read)
            detailed = files["report"] is not None or files["data"] is not None
            if detailed:
                check_packages()
            prepared = prepare(read, scenario.parent)
            prepared = replace(prepared, detail=prepared.detail or detailed)
            outcomes, complete = _outcomes(prepared, processes or os.cpu_count() or 1, folder)
    except (ScenarioError, MissingPackageError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_WRONG)
    except OSError as error:
        click.echo(f"Error: {error.filename}: {error.strerror}", err=True)
        sys.exit(_WRONG)
    found = list(verdicts(read, outcomes))
    _write_files(prepared, outcomes, found, files)
    match output:
        case "json":
            click.echo(json.dumps(_document(prepared, outcomes, found), indent=2))
        case "csv":
            _print_csv(outcomes)
        case _:
            _print_tables(prepared, outcomes, found, by)
    if not complete:
        click.echo("Interrupted: runs that had not ended are left out.", err=True)
        sys.exit(_INTERRUPTED)
    sys.exit(0 if all(each.holds for each in found) else _FAILED)


class _Files(TypedDict):
    """Files that a simulation writes."""

    report: Path | None
    data: Path | None
    data_format: str


def _write_files(
    prepared: Prepared, outcomes: Sequence[Outcome], found: Sequence[Verdict], files: _Files
) -> None:
    """Writes the report and its tables where they are asked for; ends the program where that fails."""
    try:
        if files["report"] is not None:
            write_report(files["report"], prepared, outcomes, found)
        if files["data"] is not None:
            Simulated(prepared, outcomes).write(files["data"], files["data_format"])
    except OSError as error:
        click.echo(f"Error: {error.filename}: {error.strerror}", err=True)
        sys.exit(_WRONG)


def _outcomes(prepared: Prepared, processes: int, folder: Path | None) -> tuple[list[Outcome], bool]:
    """The outcomes of all runs in the order of the scenario, and whether none is missing."""
    runs = all_runs(prepared)
    names = [one.name for one in prepared.variants]
    done: dict[tuple[int, int], Outcome] = {}
    digest = ""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        digest = digest_of(prepared)
        for number, seed in runs:
            known = read_outcome(folder, digest, names[number], seed)
            if known is not None:
                done[number, seed] = known
    left = [each for each in runs if each not in done]
    console = Console(stderr=True)
    complete = True
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("Simulating", total=len(runs), completed=len(done))
        try:
            for outcome in run_all(prepared, left, processes, folder):
                done[names.index(outcome.variant), outcome.seed] = outcome
                if folder is not None:
                    write_outcome(folder, digest, outcome)
                progress.advance(task)
        except KeyboardInterrupt:
            complete = False
    return [done[each] for each in runs if each in done], complete


def _document(prepared: Prepared, outcomes: Sequence[Outcome], found: Iterable[Verdict]) -> dict[str, Any]:
    return {
        "scenario": prepared.scenario.name,
        "runs": [
            {
                "variant": outcome.variant,
                "seed": outcome.seed,
                "decisions": outcome.decisions,
                "ended": outcome.ended,
                "figures": {name: _number(figure(outcome, name)) for name in NAMES},
                "groups": [
                    {
                        "clusterQueue": queue,
                        "class": job_class,
                        "figures": {
                            name: _number(figure(outcome, name, Where(queue, job_class)))
                            for name in _SHOWN
                            if name not in (*_OF_RUNS, "utilization")
                        },
                    }
                    for queue, job_class in groups_of(outcome)
                ],
                "preemptions": [
                    {**pair._asdict(), "count": lost.count, "lost": dict(lost.lost)}
                    for pair, lost in sorted(outcome.preemptions.items())
                ],
                "budgets": [
                    {
                        **key._asdict(),
                        "usedHours": use.used,
                        "limitHours": use.limit,
                        "highest": use.highest,
                        "actions": [{"at": at, "action": action} for at, action in use.actions],
                    }
                    for key, use in sorted(outcome.budgets.items())
                ],
            }
            for outcome in outcomes
        ],
        "assertions": [each._asdict() for each in found],
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _print_csv(outcomes: Iterable[Outcome]) -> None:
    for row in rows(outcomes):
        click.echo(",".join(row))


def _print_tables(
    prepared: Prepared, outcomes: Sequence[Outcome], found: Sequence[Verdict], by: str | None
) -> None:
    console = Console(highlight=False)
    seeds = len({outcome.seed for outcome in outcomes})
    title = f"{prepared.scenario.name}: {seeds} seed{'' if seeds == 1 else 's'}"
    if seeds > 1:
        title += ", mean ± half of the 95 % confidence interval"
    console.print(title, soft_wrap=True)
    console.print(_table(prepared, outcomes, Where()))
    if by is not None:
        groups = {group for outcome in outcomes for group in outcome.lives}
        names = sorted({group.cluster_queue if by == "queue" else group.job_class for group in groups})
        for name in names:
            console.print(
                f"\n{'ClusterQueue' if by == 'queue' else 'Class'} {name or '(none)'}", soft_wrap=True
            )
            where = Where(cluster_queue=name) if by == "queue" else Where(job_class=name)
            console.print(_table(prepared, outcomes, where))
    if any(outcome.budgets for outcome in outcomes):
        console.print("\nBudgets: resource-hours used, and the largest part of a window", soft_wrap=True)
        console.print(_budgets(prepared, outcomes))
    if found:
        failed = [each for each in found if not each.holds]
        console.print(f"\n{len(found) - len(failed)} of {len(found)} assertions hold", soft_wrap=True)
        for each in failed:
            place = f"{each.variant}, seed {each.seed}"
            console.print(f"FAILED {each.text}: {each.value} ({place})", soft_wrap=True, markup=False)


def _table(prepared: Prepared, outcomes: Sequence[Outcome], where: Where) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    variants = [one.name for one in prepared.variants]
    for name in variants:
        table.add_column(name, justify="right")
    for name in _SHOWN:
        if where != Where() and (name in _OF_RUNS or (name == "utilization" and where.job_class)):
            continue
        cells = []
        for variant in variants:
            values = [figure(each, name, where) for each in outcomes if each.variant == variant]
            known = summary(values)
            text = shown(name, known.mean)
            if not math.isnan(known.margin) and known.margin:
                text += f" ± {shown(name, known.margin)}"
            cells.append(text)
        if any(cell != "-" for cell in cells):
            table.add_row(name, *cells)
    return table


def _budgets(prepared: Prepared, outcomes: Sequence[Outcome]) -> Table:
    """The use of Budgets, the mean of all seeds."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    variants = [one.name for one in prepared.variants]
    for name in variants:
        table.add_column(name, justify="right")
    for key in sorted({key for outcome in outcomes for key in outcome.budgets}):
        cells = []
        for variant in variants:
            uses = [each.budgets[key] for each in outcomes if each.variant == variant and key in each.budgets]
            used = summary([use.used for use in uses]).mean
            highest = summary([use.highest for use in uses]).mean
            cells.append(f"{hours_text(key.resource, used)} ({highest:.0%})" if uses else "-")
        table.add_row(" ".join(each for each in key if each), *cells)
    return table
