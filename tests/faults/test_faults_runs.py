"""Runs by seed: the whole stack in virtual time while everything around the manager goes wrong.

docs/develop/testing.md says how they are made. `PYKUEUE_FAULT_RUNS` is how many there are (1000 unless set),
`PYKUEUE_FAULT_SEED` the first seed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from pykueue.simulate.faults import play
from pykueue.simulate.faults.batches import TOGETHER, reports

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000"))
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Runs per test, so that cores can share them.
BATCH = 100
#: Lines of the trace that a failure shows.
SHOWN = 120


@pytest.mark.parametrize("first", range(FIRST, FIRST + RUNS, BATCH))
def test_whatever_fails_nothing_is_lost_or_given_twice(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, min(first + BATCH, FIRST + RUNS)):
        report = play(seed)
        assert not report.violations, report.text(SHOWN)
        seen += report.faults
    if RUNS >= BATCH:
        every = {"conflict", "error", "patience", "lost", "unsure", "slow", "drop", "gone", "stall"}
        assert every <= seen.keys()


def test_real_pods_come_and_go_with_quota() -> None:
    for seed in range(FIRST, FIRST + max(1, RUNS // 100)):
        report = play(seed, pods=True)
        assert not report.violations, report.text(SHOWN)


def _played(hash_seed: str) -> str:
    command = [sys.executable, "-m", "pykueue.simulate.faults", "--seed", "11", "--runs", "4", "--keep-going"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def test_a_run_is_determined_by_its_seed() -> None:
    first = _played("1")
    assert "4 runs" in first
    assert first == _played("2")


def test_runs_of_the_command_line_are_those_of_their_seeds() -> None:
    """They go on in other processes, and each is what it is when it is played alone."""
    seeds = range(11, 12 + TOGETHER + 1)
    assert [one.digest for one in reports(play, seeds)] == [play(seed).digest for seed in seeds]


def test_first_run_of_a_process_is_like_all_others() -> None:
    script = "from pykueue.simulate.faults import play; print(*(play(7).digest for _ in range(2)))"
    command = [sys.executable, "-c", script]
    first, second = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert first == second == play(7).digest
