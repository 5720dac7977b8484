"""`python -m bench.policies --openb FILE`: damped preemption and backfill on the GPU jobs of openb.

`FILE` is `openb_pod_list_default.csv` of Alibaba's trace of 2023. Each seed draws four of five of the jobs of
some days, and quota is what they hold on average, so that they queue. For damped preemption they belong to
four tenants of one cohort under fair sharing: most of what is submitted in six hours is of one tenant, and
half of the jobs save their work every ten minutes, as in `examples/simulate/damped-preemption.yaml`. The
others request as minimum run time what they declare: once to twice the time that they run. For backfill all
are in one queue, and declare such a limit.
"""

from __future__ import annotations

import argparse
import csv
import gc
import math
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import yaml
from bench.forecast.clusters import FLAVOR, HEAD, queue

from pykueue.api.preemption_policies import MIN_ADMIT_DURATION_ANNOTATION
from pykueue.engine.decisions import Admit, Decision, Requeue
from pykueue.engine.events import Event
from pykueue.simulate.figures import figure, summary
from pykueue.simulate.journal import Journal
from pykueue.simulate.measures import Outcome
from pykueue.simulate.prepare import plan, prepare
from pykueue.simulate.runs import GC_THRESHOLD
from pykueue.simulate.scenario.jobs import Job
from pykueue.simulate.scenario.reading import parse
from pykueue.simulate.simulation import Simulation

DAY, HOUR = 86400.0, 3600.0
#: First day of the trace that is played; before day 115 only 31 jobs of months are submitted.
BEGIN = 132
_DRAWN = 0.8
_RESOURCE = "nvidia.com/gpu"
TENANTS = "abcd"
_OWN = "pykueue.io/v1alpha1"
DAMPED = {
    "apiVersion": _OWN,
    "kind": "PreemptionPolicy",
    "metadata": {"name": "tenants"},
    "spec": {
        "cohort": "tenants",
        "candidateOrder": "LeastLostWork",
        "coolDown": {"base": "5m", "max": "1h", "window": "6h"},
        "maxPreemptionsPerHour": 1,
    },
}
#: The same, and jobs get the minimum run time that they request, whatever it is.
PROTECTED = DAMPED | {"spec": DAMPED["spec"] | {"maxRequestedDuration": f"{14 * 24}h"}}  # type: ignore[operator]
#: By variant: the strategy of the queue, and the spec of a BackfillPolicy.
BACKFILL: dict[str, tuple[str, dict[str, Any] | None]] = {
    "BestEffortFIFO": ("BestEffortFIFO", None),
    "StrictFIFO": ("StrictFIFO", None),
    "EASY": ("BestEffortFIFO", {}),
}


def drawn(trace: Path, days: int, seed: int, kept: Path) -> int:
    """Writes the jobs of a seed, and returns how many GPUs they hold on average."""
    random, held, begin = Random(seed), 0.0, BEGIN * DAY
    with trace.open(newline="") as source, kept.open("w", newline="") as out:
        reader = csv.DictReader(source)
        writer = csv.DictWriter(out, reader.fieldnames or ())
        writer.writeheader()
        for row in reader:
            created = float(row["creation_time"])
            if row["num_gpu"] == "0" or not row["scheduled_time"] or random.random() >= _DRAWN:
                continue
            if begin <= created < begin + days * DAY:
                whole = {"cpu_milli": "0", "memory_mib": "0", "gpu_milli": "1000"}
                writer.writerow(row | whole)
                runs = float(row["deletion_time"]) - float(row["scheduled_time"])
                held += int(row["num_gpu"]) * min(runs, begin + days * DAY - created)
    return round(held / (days * DAY))


def of_tenants(jobs: Iterator[Job], seed: int) -> Iterator[Job]:
    """The jobs in the queues of tenants; half of them save their work, the others ask not to be preempted."""
    random, limits = Random(f"tenants {seed}"), Random(f"limits {seed}")
    for job in jobs:
        own = TENANTS[int(job.at // (6 * HOUR)) % len(TENANTS)]
        tenant = own if random.random() < 0.7 else random.choice(TENANTS)
        saves = 600.0 if random.random() < 0.5 else None
        spec = msgspec.structs.replace(job.spec, queue_name=tenant)
        request = {} if saves else {MIN_ADMIT_DURATION_ANNOTATION: f"{_limit(job, limits)}s"}
        yield replace(job, spec=spec, checkpoint_every=saves, annotations=request)


def declaring(jobs: Iterator[Job], seed: int) -> Iterator[Job]:
    """The jobs, which declare once to twice the time that they run."""
    random = Random(f"limits {seed}")
    for job in jobs:
        limit = _limit(job, random)
        yield replace(job, spec=msgspec.structs.replace(job.spec, maximum_execution_time_seconds=limit))


def _limit(job: Job, random: Random) -> int:
    """Seconds that its user declares at most."""
    return math.ceil(job.run_time * random.uniform(1.0, 2.0)) + 1


class Promises:
    """When workloads with a reservation were first promised to start, and how late they did; gets what an
    engine decides."""

    def __init__(self) -> None:
        self._promised: dict[str, float] = {}
        #: Seconds after the promise, by workload.
        self.late: dict[str, float] = {}

    def applied(self, event: Event, now: float) -> None:
        """An object changed."""

    def decided(self, decisions: Iterable[Decision], now: float) -> None:
        """What one cycle decided."""
        for each in decisions:
            if isinstance(each, Requeue) and each.explanation.shadow is not None:
                self._promised.setdefault(each.key, each.explanation.shadow.start)
            elif isinstance(each, Admit) and each.key in self._promised:
                self.late[each.key] = now - self._promised[each.key]


def ran(
    folder: Path, seed: int, days: int, manifests: list[dict[str, Any]], tenants: bool
) -> tuple[Outcome, Promises]:
    """One run of the jobs in `pods.csv`."""
    (folder / "queues.yaml").write_text(yaml.safe_dump_all(manifests))
    source = {"file": "pods.csv", "format": "alibaba2023", "queue": "team/a"}
    document: dict[str, Any] = HEAD | {
        "manifests": ["queues.yaml"],
        "arrivals": [{"trace": source}],
        "horizon": f"{days}d",
    }
    if tenants:
        strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        document["configuration"] = {"fairSharing": {"preemptionStrategies": strategies}}
    prepared = prepare(parse(yaml.safe_dump(document)), folder)
    made = plan(prepared, prepared.variants[0], seed)
    made.jobs = of_tenants(made.jobs, seed) if tenants else declaring(made.jobs, seed)
    made.detail = tenants
    simulation, promises = Simulation(made, Journal(), "", seed), Promises()
    simulation.driver.engine.recorder = promises  # type: ignore[assignment]
    return simulation.run(), promises


def damping(folder: Path, gpus: int, seed: int, days: int) -> dict[str, Outcome]:
    """Each policy between tenants that share what their jobs hold on average."""
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    share = max(2, gpus // len(TENANTS))  # the largest jobs need 8, which all have together
    queues = [
        each
        for name in TENANTS
        for each in queue(name, _RESOURCE, share, cohortName="tenants", preemption=preemption)
    ]
    policies: dict[str, list[dict[str, Any]]] = {"plain": [], "damped": [DAMPED], "protected": [PROTECTED]}
    return {
        name: ran(folder, seed, days, [FLAVOR, *queues, *policy], True)[0]
        for name, policy in policies.items()
    }


def backfill(folder: Path, gpus: int, seed: int, days: int) -> dict[str, tuple[Outcome, Promises]]:
    """One queue under each strategy."""
    found = {}
    for name, (strategy, spec) in BACKFILL.items():
        own = {"apiVersion": _OWN, "kind": "BackfillPolicy", "metadata": {"name": "a"}, "spec": spec}
        queues = queue("a", _RESOURCE, gpus, queueingStrategy=strategy)
        found[name] = ran(folder, seed, days, [FLAVOR, *queues, *([own] if spec is not None else [])], False)
    return found


def main() -> None:
    """Print a table for each of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--openb", type=Path, required=True)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=("preemption", "backfill"))
    parser.add_argument("--days", type=int, default=14)
    arguments = parser.parse_args()
    gc.set_threshold(*GC_THRESHOLD)
    rows: dict[tuple[str, str], list[float]] = {}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as name:
            folder = Path(name)
            gpus = drawn(arguments.openb, arguments.days, seed, folder / "pods.csv")
            if arguments.only != "backfill":
                for variant, outcome in damping(folder, gpus, seed, arguments.days).items():
                    for what in ("evictions", "lostWork", "deficit", "wait.mean", "utilization"):
                        rows.setdefault((variant, what), []).append(figure(outcome, what))
            if arguments.only != "preemption":
                for variant, (outcome, promises) in backfill(folder, gpus, seed, arguments.days).items():
                    for what in ("wait.mean", "wait.max", "utilization"):
                        rows.setdefault((variant, what), []).append(figure(outcome, what))
                    late = [seconds for seconds in promises.late.values() if seconds > 1.0]
                    rows.setdefault((variant, "promised"), []).append(len(promises.late))
                    rows.setdefault((variant, "late"), []).append(len(late))
        print(f"seed {seed}: {gpus} GPUs", flush=True)
    for variant in ("damped", "protected"):
        for what in ("evictions", "lostWork", "deficit"):
            values, plain = rows.get((variant, what), []), rows.get(("plain", what), [])
            if values:
                lower = sum(one < other for one, other in zip(values, plain, strict=True))
                ratio = sum(values) / sum(plain)
                print(f"{variant} / plain   {what:12} {ratio:14.4f}, less in {lower} of {len(plain)}")
    for (variant, what), values in rows.items():
        found = summary(values)
        print(f"{variant:16} {what:12} {found.mean:14.4f} ± {found.margin:.4f}")


if __name__ == "__main__":
    main()
