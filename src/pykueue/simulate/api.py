"""Simulations from Python: a scenario in, data frames out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pykueue.extras import how_to_install, missing
from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import Prepared, prepare
from pykueue.simulate.runs import all_runs, run_all
from pykueue.simulate.scenario.places import placed
from pykueue.simulate.scenario.reading import ScenarioError, load, parse
from pykueue.simulate.scenario.types import Scenario
from pykueue.simulate.tables import TABLES
from pykueue.simulate.verdicts import Verdict, check_names, verdicts

if TYPE_CHECKING:
    import polars

__all__ = ["MissingPackageError", "ScenarioError", "Simulated", "check_packages", "simulate"]


class MissingPackageError(ImportError):
    """A package of the extra `reports` is not installed."""

    def __init__(self) -> None:
        packages = ", ".join(missing("reports"))
        super().__init__(
            f"reports and tables need the extra 'reports' ({packages}); {how_to_install('reports')}"
        )


def check_packages() -> None:
    """Raises MissingPackageError without the packages of the extra `reports`."""
    if missing("reports"):
        raise MissingPackageError


@dataclass(frozen=True)
class Simulated:
    """The outcomes of the runs of a scenario, in its order: variants, and the seeds of each."""

    prepared: Prepared
    outcomes: Sequence[Outcome]

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __getitem__(self, index: int) -> Outcome:
        return self.outcomes[index]

    @property
    def verdicts(self) -> list[Verdict]:
        """Every assertion of the scenario on every run."""
        return list(verdicts(self.prepared.scenario, self.outcomes))

    def frame(self, table: str) -> polars.DataFrame:
        """A table (a name of `pykueue.simulate.tables.TABLES`) as a polars data frame.

        Raises KeyError for an unknown table and MissingPackageError without polars.
        """
        check_packages()
        import polars

        rows, columns = TABLES[table]
        types = {str: polars.String, int: polars.Int64, float: polars.Float64}
        schema = {name: types[column] for name, column in columns.items()}
        return polars.DataFrame(list(rows(self.outcomes)), schema=schema, orient="row")

    @property
    def runs(self) -> polars.DataFrame:
        """One row for each run, with every figure."""
        return self.frame("runs")

    @property
    def groups(self) -> polars.DataFrame:
        """Figures by ClusterQueue and class of jobs."""
        return self.frame("groups")

    @property
    def waits(self) -> polars.DataFrame:
        """Waits by ClusterQueue, class and size."""
        return self.frame("waits")

    @property
    def usage(self) -> polars.DataFrame:
        """Quota held over time, by ClusterQueue, flavor and resource."""
        return self.frame("usage")

    @property
    def preemptions(self) -> polars.DataFrame:
        """Preemptions by the ClusterQueues of both workloads, and the lost work."""
        return self.frame("preemptions")

    @property
    def shares(self) -> polars.DataFrame:
        """What each ClusterQueue was entitled to, had, and was short of."""
        return self.frame("shares")

    @property
    def timeline(self) -> polars.DataFrame:
        """What happened to the first workloads of the first seed, with explanations."""
        return self.frame("timeline")

    def write(self, folder: Path, kind: str = "parquet") -> list[Path]:
        """Writes every table to a file of that kind (`parquet` or `csv`) in a folder, which is created.

        Raises MissingPackageError, and OSError if a file cannot be written.
        """
        frames = {name: self.frame(name) for name in TABLES}
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for name, frame in frames.items():
            file = folder / f"{name}.{kind}"
            if kind == "csv":
                frame.write_csv(file)
            else:
                frame.write_parquet(file)
            files.append(file)
        return files


def simulate(
    scenario: Path | str,
    *,
    seeds: Iterable[int] | None = None,
    variants: Iterable[str] | None = None,
    processes: int = 1,
    folder: Path | None = None,
) -> Simulated:
    """Runs a scenario: a file, or its text with `folder`, to which the files it names are relative.

    `seeds` replace those of the scenario, `variants` select some. With `processes` above 1 runs are carried
    out in parallel, by new processes that import the caller's main module. Raises ScenarioError naming file,
    line and field, and OSError.
    """
    if folder is not None:
        return _simulated(parse(str(scenario)), folder, seeds, variants, processes)
    file = Path(scenario)
    with placed(file):
        return _simulated(load(file), file.parent, seeds, variants, processes)


def _simulated(
    read: Scenario,
    folder: Path,
    seeds: Iterable[int] | None,
    variants: Iterable[str] | None,
    processes: int,
) -> Simulated:
    """The runs of a scenario; see `simulate`."""
    if seeds is not None:
        read = replace(read, seeds=tuple(seeds))
    if variants is not None:
        chosen = tuple(variants)
        known = {one.name: one for one in read.variants}
        if unknown := [name for name in chosen if name not in known]:
            raise ScenarioError(f"variant {unknown[0]!r} is not accepted; accepted: {', '.join(known)}")
        read = replace(read, variants=tuple(known[name] for name in chosen))
    check_names(read)
    prepared = replace(prepare(read, folder), detail=True)
    every = all_runs(prepared)
    order = {(prepared.variants[number].name, seed): index for index, (number, seed) in enumerate(every)}
    found = list(run_all(prepared, every, processes))
    found.sort(key=lambda outcome: order[outcome.variant, outcome.seed])
    return Simulated(prepared, found)
