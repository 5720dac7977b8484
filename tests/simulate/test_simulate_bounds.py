"""`pykueue check --quota-held-max`: how long a workload can be first in its queue, in words and in runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from test_simulate_check import cohort, cpu, flavor, queue

from pykueue.cli.check import check
from pykueue.engine import Admit, Options, Preempt
from pykueue.simulate.check.bounds import bounds
from pykueue.simulate.check.policy import policy_of
from pykueue.simulate.journal import Journal
from pykueue.simulate.prepare import plan, prepare
from pykueue.simulate.scenario.reading import parse
from pykueue.simulate.simulation import Simulation

OTHER = queue("b", cpu(8), cohort="lab")
BUDGET = {"kind": "Budget", "metadata": {"name": "b"}}
LOCAL = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "a", "namespace": "n"},
    "spec": {"clusterQueue": "a"},
}


def note(*manifests: dict[str, Any], options: Options | None = None) -> str:
    """What is said about queue a."""
    policy = policy_of([flavor("f"), *manifests], options or Options())
    [message] = [each.message for each in bounds(policy, 3600.0) if each.object == "ClusterQueue a"]
    return message


@pytest.mark.parametrize(
    ("manifests", "text"),
    [
        ([queue("a", cpu(8))], "first in the queue for at most 1h0m0s"),
        ([queue("a", cpu(8), cohort="lab")], "first in the queue for at most 1h0m0s"),
        ([queue("a", cpu(8), cohort="lab"), OTHER], "other queues of its cohort"),
        ([queue("a", cpu(8, lendingLimit=0), cohort="lab"), OTHER], "other queues of its cohort"),
        (
            [queue("a", cpu(8), cohort="part"), cohort("part", parentName="lab"), OTHER],
            "other queues of its cohort",
        ),
        ([queue("a", cpu(8), queueingStrategy="BestEffortFIFO")], "workloads that fit pass the first one"),
        ([queue("a", cpu(8), stopPolicy="Hold")], "stopPolicy is Hold"),
        ([flavor("f", topologyName="racks"), queue("a", cpu(8))], "a flavor has a topology"),
        ([queue("a", cpu(8)), BUDGET], "budgets can delay admissions"),
    ],
)
def test_bound_of_a_queue(manifests: list[dict[str, Any]], text: str) -> None:
    assert text in note(*manifests)


def test_blocked_admission_leaves_no_bound() -> None:
    assert "delays admissions" in note(queue("a", cpu(8)), options=Options(block_admission=True))


class First(Journal):
    """The longest time for which a workload is first in the queue; the names of classes end in a priority."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._order: dict[str, tuple[int, int]] = {}
        self._pending: set[str] = set()
        self._first, self._since = "", 0.0

    def created(self, at: float, key: str, job_class: str) -> None:
        self._order[key] = -int(job_class[-1]), len(self._order)
        self._move(at, key, pending=True)

    def admitted(self, at: float, decision: Admit) -> None:
        self._move(at, decision.key, pending=False)

    def preempted(self, at: float, decision: Preempt) -> None:
        self._move(at, decision.key, pending=True)

    def _move(self, at: float, key: str, pending: bool) -> None:
        (self._pending.add if pending else self._pending.discard)(key)
        first = min(self._pending, key=self._order.__getitem__, default="")
        if first != self._first:
            if self._first:
                self.longest = max(self.longest, at - self._since)
            self._first, self._since = first, at


@pytest.mark.parametrize("within", ["Never", "LowerPriority", "LowerOrNewerEqualPriority"])
def test_no_workload_is_first_for_longer(tmp_path: Path, within: str) -> None:
    policy = queue("a", cpu(8), preemption={"withinClusterQueue": within})
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all([flavor("f"), policy, LOCAL]))
    jobs = [
        {
            "name": f"a{priority}",
            "queue": "n/a",
            "podSets": [{"requests": {"cpu": size}}],
            "runTime": {"uniform": {"minimum": "1m", "maximum": "60m"}},
            "priority": priority,
        }
        for size, priority in ((1, 0), (2, 0), (8, 0), (5, 1))
    ]
    longest = 0.0
    for seed in range(3):
        generator = {"perHour": 2 + 2 * seed, "count": 100, "jobs": jobs}
        document = {
            "apiVersion": "pykueue.io/v1alpha1",
            "kind": "Scenario",
            "name": "bound",
            "manifests": ["queues.yaml"],
            "arrivals": [{"generator": generator}],
        }
        prepared = prepare(parse(yaml.safe_dump(document)), tmp_path)
        first = First()
        Simulation(plan(prepared, prepared.variants[0], seed), first).run()
        longest = max(longest, first.longest)
    assert 2400 < longest <= 3600


def test_command_prints_bounds_as_notes(tmp_path: Path) -> None:
    manifests = [flavor("f"), queue("a", cpu(8)), queue("b", cpu(8), queueingStrategy="BestEffortFIFO")]
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump_all(manifests))
    found = CliRunner().invoke(
        check, [str(tmp_path), "--quota-held-max", "1d", "--ignore", "starvation", "--runs", "0"]
    )
    assert found.exit_code == 0, found.output
    lines = [line for line in found.stdout.splitlines() if "starvation-bound" in line or "Remedy" in line]
    assert len(lines) == 3
    assert "is first in the queue for at most 24h0m0s; with N workloads before it" in lines[0]
    assert "ClusterQueue b: no bound on waiting is derived" in lines[1]
    assert "Remedy: For a bound, set queueingStrategy: StrictFIFO" in lines[2]
