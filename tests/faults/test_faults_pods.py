"""Runs by seed whose jobs are plain pods and pod groups; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os

import pytest

from pykueue.simulate.faults.podruns import play_pods

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 10
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Runs per test, so that cores can share them.
BATCH = 25
#: Lines of the trace that a failure shows.
SHOWN = 120


@pytest.mark.parametrize("first", range(FIRST, FIRST + RUNS, BATCH))
def test_pods_and_groups_survive_whatever_fails(first: int) -> None:
    for seed in range(first, min(first + BATCH, FIRST + RUNS)):
        report = play_pods(seed)
        assert not report.violations, report.text(SHOWN)


def test_a_run_of_pods_is_determined_by_its_seed() -> None:
    assert play_pods(3).digest == play_pods(3).digest


def test_pods_and_groups_survive_whatever_is_edited() -> None:
    for seed in range(FIRST, FIRST + max(1, RUNS // 10)):
        report = play_pods(seed, edits=True)
        assert not report.violations, report.text(SHOWN)
