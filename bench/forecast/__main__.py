"""`python -m bench.forecast`: how often the interval of `pykueue when` holds what then happens.

A cluster is simulated; every few hours the question is asked about a pending workload of it, with what a
cluster shows: present and finished Workloads. The true start is that in the simulation. Beside it the usual
estimate: the position in the queue divided by the rate at which workloads started in the last three hours.

With `--openb FILE` the jobs are those of a list of pods of Alibaba's trace of 2023. `--develop` uses the
seeds and days that `when` was developed with; without it, the others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from bench.forecast.asking import HOUR, Answered, Known, answered, figures
from bench.forecast.clusters import CLUSTERS, FLAVOR, HEAD
from bench.forecast.openb import DEVELOPED, JUDGED, plan_of

from pykueue.simulate.prepare import plan, prepare
from pykueue.simulate.scenario.reading import parse

#: Seconds from the start at which is asked: the first half day fills the queues.
ASKED = [hours * HOUR for hours in range(12, 37, 3)]
#: First seeds: of development, and of what counts.
SEEDS = {True: 100, False: 800}


def of_cluster(name: str, seed: int, futures: int, known: bool) -> list[Answered]:
    """The answers about one of `CLUSTERS`, if need be with the laws of its run times."""
    queues, generators = CLUSTERS[name]
    with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as folder:
        (Path(folder) / "queues.yaml").write_text(yaml.safe_dump_all([FLAVOR, *queues]))
        arrivals = [{"generator": each} for each in generators]
        document = HEAD | {"manifests": ["queues.yaml"], "arrivals": arrivals}
        prepared = prepare(parse(yaml.safe_dump(document)), Path(folder))
        made = plan(prepared, prepared.variants[0], seed)
        named = (replace(job, name=f"{job.job_class}-{number}") for number, job in enumerate(made.jobs))
        sources = (each.generator for each in prepared.scenario.arrivals)
        classes = [job for source in sources if source is not None for job in source.jobs]
        laws = Known(classes) if known else None
        return list(answered(replace(made, jobs=named), ASKED, futures, laws))


def of_openb(trace: Path, develop: bool, seed: int, futures: int, foreseen: bool) -> list[Answered]:
    """The answers about the jobs of a list of pods."""
    with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as folder:
        found, looks = plan_of(trace, DEVELOPED if develop else JUDGED, seed, Path(folder))
        return list(answered(found, looks, futures, foreseen=foreseen))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.forecast", description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, help="instead of that of development, or of what counts")
    parser.add_argument("--futures", type=int, default=40)
    parser.add_argument("--develop", action="store_true", help="the seeds and days of development")
    parser.add_argument(
        "--openb", type=Path, help="a list of pods with times, such as openb_pod_list_default.csv"
    )
    parser.add_argument(
        "--known-laws",
        action="store_true",
        help="draw run times from the laws of the simulated cluster, or of all jobs of the trace, those to "
        "come included: what a perfect estimate of them gives",
    )
    parser.add_argument("--only", help="clusters whose name contains this")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    first = SEEDS[options.develop] if options.first_seed is None else options.first_seed
    seeds = range(first, first + options.seeds)
    found: dict[str, Any] = {}
    columns = ("questions", "inside", "early", "late", "error", "usual", "waited")
    print(f"{'cluster':<26}" + "".join(f"{each:>10}" for each in columns) + "  (medians, minutes)")

    with ProcessPoolExecutor(options.processes) as pool:

        def runs() -> Iterator[tuple[str, list[Any]]]:
            if options.openb is not None:
                tasks = [
                    pool.submit(
                        of_openb, options.openb, options.develop, seed, options.futures, options.known_laws
                    )
                    for seed in seeds
                ]
                yield options.openb.stem, tasks
                return
            for name in CLUSTERS:
                if (options.only or "") in name:
                    known = options.known_laws
                    yield (
                        name,
                        [pool.submit(of_cluster, name, seed, options.futures, known) for seed in seeds],
                    )

        for name, tasks in list(runs()):
            by_seed = [task.result() for task in tasks]
            found[name] = one = figures(by_seed)
            shares = "".join(f"{one[each]:>10.1%}" for each in ("inside", "below", "above"))
            times = "".join(
                f"{one[each] / 60:>10.1f}"
                for each in ("error_seconds", "usual_error_seconds", "waited_seconds")
            )
            print(f"{name[:25]:<26}{one['questions']:>10}{shares}{times}", flush=True)
            if "inside_error" in one:
                print(
                    f"{'':<26}{'':>10}{'±':>4}{one['inside_error']:>6.1%} standard error between seeds",
                    flush=True,
                )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
