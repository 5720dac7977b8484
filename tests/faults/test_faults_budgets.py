"""Runs by seed under a Budget; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os

from pykueue.simulate.faults.budgetruns import play_budgets

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 200
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


def test_every_second_is_counted_once_whatever_fails() -> None:
    for seed in range(FIRST, FIRST + RUNS):
        report = play_budgets(seed)
        assert not report.violations, report.text(SHOWN)
