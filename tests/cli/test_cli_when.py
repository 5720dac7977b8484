"""`pykueue when`: the interval in which a pending Workload starts, on manifests and on a live cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from schedule_inputs import QUEUES, workload

from pykueue.cli.questions import when


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two workloads of which one fits."""
    manifests = [yaml.safe_load_all(QUEUES), [workload("first", 4), workload("second", 4)]]
    found = [each for part in manifests for each in part]
    for each in found:
        if each["kind"] == "Workload":
            each["spec"]["maximumExecutionTimeSeconds"] = 600
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(found))
    return tmp_path


def ask(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(when, [*arguments, "-f", str(folder)])


def test_the_interval_and_what_it_rests_on(folder: Path) -> None:
    found = ask(folder, "second", "-n", "team")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[0].startswith("team/second starts between ")
    assert "  after the end of team/first in 100% of the futures" in lines
    assert lines[-1].startswith("  from 40 futures, with guessed run times (of 1 h on average")


def test_the_same_seed_gives_the_same_answer_as_data(folder: Path) -> None:
    asked = ("second", "-n", "team", "-o", "json", "--futures", "5", "--no-arrivals")
    first, second = (json.loads(ask(folder, *asked).stdout) for _ in range(2))
    assert (first["futures"], first["arrivalsPerHour"]) == (5, 0.0)
    for each in (first, second):
        for name in ("now", "earliest", "median", "latest"):
            each.pop(name)  # relative to the present
    assert first == second


def test_workloads_without_an_answer_are_refused_in_one_line(folder: Path) -> None:
    admitted = ask(folder, "first", "-n", "team")
    assert (admitted.exit_code, admitted.stderr) == (1, "Error: Workload team/first is admitted\n")
    unknown = ask(folder, "thrid", "-n", "team")
    assert (unknown.exit_code, unknown.stderr.count("\n")) == (1, 1)
