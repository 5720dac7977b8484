"""Runs by seed whose pods claim devices; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os

from pykueue.simulate.faults.claimruns import play_claims

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 250
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


def test_claims_survive_whatever_fails() -> None:
    for seed in range(FIRST, FIRST + RUNS):
        report = play_claims(seed)
        assert not report.violations, report.text(SHOWN)


def test_mended_runs() -> None:
    """Claims that can be counted again, a missing ClusterQueue and a missing template
    at once, a claim that a user deleted, a pending reason that was lost
    while claims could be counted again, and a workload behind the head of its queue
    whose template was created again."""
    for seed in (1, 5, 9, 901937, 904396):
        report = play_claims(seed)
        assert not report.violations, report.text(SHOWN)
