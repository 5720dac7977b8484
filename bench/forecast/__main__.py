"""`python -m bench.forecast`: how often the interval of `pykueue when` holds what then happens.

A cluster is simulated; every three hours the question is asked about a pending workload of it, with what a
cluster shows: present and finished Workloads. The true start is that in the simulation. Beside it the usual
estimate: the position in the queue divided by the rate at which workloads started in the last three hours.
Seeds from 200 on; `when` was changed after those from 100 on were seen.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from pykueue.api import kueue
from pykueue.api.kueue.names import QUOTA_RESERVED
from pykueue.api.meta import parse_time
from pykueue.engine import lifecycle
from pykueue.questions.used import held_between
from pykueue.simulate.forecast import when
from pykueue.simulate.futures import State
from pykueue.simulate.journal import Journal
from pykueue.simulate.prepare import Prepared, plan, prepare
from pykueue.simulate.scenario.reading import parse
from pykueue.simulate.simulation import Simulation

HOUR = 3600.0
#: Hours from the start at which is asked: the first half day fills the queues.
ASKED = range(12, 37, 3)
FUTURES = 20
FIRST_SEED = 200
_API = "kueue.x-k8s.io/v1beta2"


def queue(name: str, resource: str, amount: int, **spec: Any) -> list[dict[str, Any]]:
    """A ClusterQueue and its LocalQueue `team/NAME`."""
    flavor = {"name": "default", "resources": [{"name": resource, "nominalQuota": str(amount)}]}
    groups = [{"coveredResources": [resource], "flavors": [flavor]}]
    return [
        {
            "apiVersion": _API,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
        },
        {
            "apiVersion": _API,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"clusterQueue": name},
        },
    ]


def jobs(name: str, to: str, requests: dict[str, Any], run_time: Any, **more: Any) -> dict[str, Any]:
    """A class of jobs of one pod."""
    return {
        "name": name,
        "queue": f"team/{to}",
        "podSets": [{"requests": requests}],
        "runTime": run_time,
        **more,
    }


def log_normal(minutes: float, sigma: float) -> dict[str, Any]:
    return {"logNormal": {"median": f"{minutes}m", "sigma": sigma}}


#: Queues and arrivals of each kind of cluster, at a load near one.
CLUSTERS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "one queue, two classes": (
        queue("q", "cpu", 5),
        [
            {
                "perHour": 12,
                "end": "10d",
                "jobs": [
                    jobs("some", "q", {"cpu": 1}, log_normal(15, 0.7)),
                    jobs("big", "q", {"cpu": 1}, {"fixed": "40m"}),
                ],
            }
        ],
    ),
    "two queues that borrow": (
        [
            *queue("a", "cpu", 4, cohortName="all", preemption={"reclaimWithinCohort": "Any"}),
            *queue("b", "cpu", 4, cohortName="all", preemption={"reclaimWithinCohort": "Any"}),
        ],
        [
            {
                "perHour": 14,
                "end": "10d",
                "jobs": [
                    jobs("one", "a", {"cpu": 1}, log_normal(20, 0.8)),
                    jobs("two", "b", {"cpu": 2}, log_normal(15, 0.8)),
                ],
            }
        ],
    ),
    # Shares of GPU pods by size, and their skewed run times, as in Alibaba's trace of 2023 (openb).
    "GPU sizes as in openb": (
        queue("q", "nvidia.com/gpu", 16),
        [
            {
                "perHour": 15,
                "end": "10d",
                "jobs": [
                    jobs("one", "q", {"nvidia.com/gpu": 1}, log_normal(16, 1.2), weight=80),
                    jobs("two", "q", {"nvidia.com/gpu": 2}, log_normal(16, 1.2), weight=8),
                    jobs("four", "q", {"nvidia.com/gpu": 4}, log_normal(25, 1.0), weight=4),
                    jobs("eight", "q", {"nvidia.com/gpu": 8}, log_normal(25, 1.0), weight=8),
                ],
            }
        ],
    ),
}


class Cluster(Simulation):
    """A simulated cluster that keeps its finished Workloads, as a real one does."""

    done: list[kueue.Workload]

    def _over(self, key: str, attempt: int, how: str, now: float) -> None:
        before = self.driver.workloads.get(key)
        super()._over(key, attempt, how, now)
        if before is not None and key not in self.driver.workloads:
            self.done.append(lifecycle.finished(before, "Succeeded", self.driver.now))


@dataclass
class Answered:
    """One question."""

    inside: bool
    error: float
    """Seconds between the median of the answer and the true start."""
    usual_error: float
    """The same of the usual estimate."""


def answered(prepared: Prepared, seed: int) -> Iterator[Answered]:
    """The questions about one cluster."""
    variant = prepared.variants[0]
    for hours in ASKED:
        found = plan(prepared, variant, seed)
        found.horizon = hours * HOUR
        cluster = Cluster(found, Journal())
        cluster.done = []
        cluster.run()
        present = list(cluster.driver.workloads.values())
        pending = [each for each in present if not each.condition_is(QUOTA_RESERVED)]
        if not pending:
            continue
        chosen = pending[len(pending) // 2].metadata.key
        now = found.start + found.horizon
        whole = plan(prepared, variant, seed)
        whole.watched = frozenset({chosen})
        truth = Simulation(whole, Journal()).run().first_admissions.get(chosen)
        if truth is None:
            continue
        start = found.start + truth
        answer = when(State(found.options, found.objects, [*present, *cluster.done], now), chosen, FUTURES)
        starts = [held[0] for each in (*present, *cluster.done) if (held := held_between(each, now))]
        rate = sum(at > now - 3 * HOUR for at in starts) / (3 * HOUR)
        usual = now + (len(pending) // 2 + 1) / rate if rate else now + 24 * HOUR
        middle = parse_time(answer.median) if answer.median else now + 24 * HOUR
        latest = parse_time(answer.latest) if answer.latest else float("inf")
        earliest = parse_time(answer.earliest) if answer.earliest else float("inf")
        yield Answered(earliest - 1 <= start <= latest + 1, abs(middle - start), abs(usual - start))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.forecast", description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--json", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    head = {"apiVersion": "pykueue.io/v1alpha1", "kind": "Scenario", "name": "backtest"}
    flavor = {"apiVersion": _API, "kind": "ResourceFlavor", "metadata": {"name": "default"}}
    figures = {}
    print(f"{'cluster':<26}{'questions':>10}{'inside':>9}{'error':>9}{'usual':>9}  (median, minutes)")
    for name, (queues, generators) in CLUSTERS.items():
        with tempfile.TemporaryDirectory(prefix="pykueue-bench-") as folder:
            (Path(folder) / "queues.yaml").write_text(yaml.safe_dump_all([flavor, *queues]))
            arrivals = [{"generator": each} for each in generators]
            document = head | {"manifests": ["queues.yaml"], "arrivals": arrivals}
            prepared = prepare(parse(yaml.safe_dump(document)), Path(folder))
            found = [
                each
                for seed in range(FIRST_SEED, FIRST_SEED + options.seeds)
                for each in answered(prepared, seed)
            ]
        inside = sum(each.inside for each in found) / len(found)
        error, usual = (median(getattr(each, field) for each in found) for field in ("error", "usual_error"))
        figures[name] = {
            "questions": len(found),
            "inside": inside,
            "error_seconds": error,
            "usual_error_seconds": usual,
        }
        print(f"{name:<26}{len(found):>10}{inside:>9.1%}{error / 60:>9.1f}{usual / 60:>9.1f}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
