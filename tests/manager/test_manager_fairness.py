"""`pykueue fairness` on the recording of a manager: shares, borrowing, preemptions, waiting, finish times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from manager_stack import Stack, job
from recorder_world import record

from pykueue.cli.fairness import fairness
from queue_manifests import cluster_queue, flavor, local_queue

RECLAIMS = {"preemption": {"reclaimWithinCohort": "Any"}}
QUEUES = [
    flavor(),
    *(cluster_queue(name, {"cpu": 4}, cohortName="all", **RECLAIMS) for name in "ab"),
    *(local_queue(name) for name in "ab"),
]


async def work(s: Stack) -> None:
    """Queue a borrows 3 cpus of b for 600 s; then b takes them back, and the job of a runs again alone."""
    await s.apply(job("borrower", 7, queue="a"))
    await s.settle(5)
    await s.run_job("borrower")
    await s.settle(595)
    await s.apply(job("owner", 4, queue="b"))
    await s.settle(5)
    await s.stop_pods("borrower")
    await s.settle(5)
    await s.run_job("owner")
    await s.settle(290)
    await s.finish_job("owner")
    await s.settle(5)
    await s.run_job("borrower")
    await s.settle(595)
    await s.finish_job("borrower")
    await s.settle(10)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "flight"
    record(folder, work, QUEUES)
    return folder


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(fairness, arguments)


def test_statement_says_what_each_queue_was_entitled_to_and_got(recording: Path) -> None:
    result = ask(str(recording), "--step", "10s", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    queues = {each["clusterQueue"]: each for each in found["queues"]}
    (shares,) = queues["b"]["resources"]
    assert shares["received"] == pytest.approx(4 * 300, rel=0.1)
    assert shares["deficit"] == pytest.approx(0, abs=4 * 20)
    (lent,) = found["borrowed"]
    assert (lent["borrower"], lent["lender"], lent["resource"]) == ("a", "b", "cpu")
    assert lent["amount"] == pytest.approx(3 * 1200, rel=0.1)
    (preempted,) = found["preemptions"]
    assert (preempted["preemptor"], preempted["preempted"], preempted["count"]) == ("b", "a", 1)
    (one,) = preempted["latest"]
    assert one["file"].startswith("flight-")
    assert one["line"] > 1
    assert sum(queues["a"]["waiting"].values()) == pytest.approx(300, abs=30)
    assert queues["b"]["finishTimeRatio"] == pytest.approx(1, abs=0.1)
    # Alone on 4 cpus the job of 7 would never have ended.
    assert queues["a"]["finishTimeRatio"] is None
    assert found["jain"] == pytest.approx(1)


def test_step_of_zero_counts_every_change(recording: Path) -> None:
    found = json.loads(ask(str(recording), "--step", "0s", "-o", "json").stdout)
    (lent,) = found["borrowed"]
    queues = {each["clusterQueue"]: each["resources"][0] for each in found["queues"]}
    # `a` has 7 cpus, three of them borrowed, whenever it has any; `b` has 4.
    assert queues["a"]["received"] == pytest.approx(lent["amount"] / 3 * 7, rel=1e-6)
    coarse = json.loads(ask(str(recording), "--step", "10s", "-o", "json").stdout)
    assert coarse["borrowed"][0]["amount"] == pytest.approx(lent["amount"], abs=3 * 20)


def test_same_recording_gives_the_same_statement(recording: Path) -> None:
    one, other = (ask(str(recording), "-o", "yaml").stdout for _ in range(2))
    assert one == other
    assert f"pykueue fairness {recording} --step 60s" in ask(str(recording)).stdout


def test_page_has_the_figures_and_no_script(recording: Path, tmp_path: Path) -> None:
    page = tmp_path / "statement.html"
    assert ask(str(recording), "--report", str(page)).exit_code == 0
    text = page.read_text()
    assert "<script" not in text
    assert "1 of a for b (InCohortReclamation)" in text


def test_what_is_no_recording_is_named(tmp_path: Path) -> None:
    result = ask(str(tmp_path))
    assert (result.exit_code, "there is no recording" in result.stderr) == (2, True)
