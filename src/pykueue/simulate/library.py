"""The simulator as a library: what `pykueue.simulate` has for programs (docs/use/python.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import prepare
from pykueue.simulate.runs import all_runs, run_all
from pykueue.simulate.scenario.reading import load


def simulate(
    scenario: Path | str, *, seeds: Iterable[int] | None = None, processes: int = 1
) -> list[Outcome]:
    """The outcomes of all runs of a scenario file: each variant with each seed, in that order.

    `seeds` replaces those of the scenario. With `processes` above 1 runs are carried out in parallel, by new
    processes that import the caller's main module. Raises ScenarioError naming file and field, and OSError.
    """
    path = Path(scenario)
    read = load(path)
    if seeds is not None:
        read = replace(read, seeds=tuple(seeds))
    prepared = prepare(read, path.parent)
    runs = all_runs(prepared)
    places = {(prepared.variants[number].name, seed): place for place, (number, seed) in enumerate(runs)}
    outcomes = run_all(prepared, runs, processes)
    return sorted(outcomes, key=lambda outcome: places[outcome.variant, outcome.seed])
