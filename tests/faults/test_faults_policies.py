"""Runs by seed under policies of either kind; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os

from pykueue.simulate.faults import play

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 200
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


def test_jobs_come_to_their_end_under_a_preemption_policy_whatever_fails() -> None:
    for seed in range(FIRST, FIRST + RUNS):
        report = play(seed, policies=True)
        assert not report.violations, report.text(SHOWN)


def test_jobs_come_to_their_end_under_a_backfill_policy_whatever_fails() -> None:
    for seed in range(FIRST, FIRST + RUNS):
        report = play(seed, backfill=True)
        assert not report.violations, report.text(SHOWN)
