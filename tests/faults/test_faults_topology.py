"""Runs by seed whose pods are placed by topology; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os

from pykueue.simulate.faults.topologyruns import play_topology

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "2000")) // 1000
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


def test_assignments_hold_whatever_fails() -> None:
    moves = 0
    for seed in range(FIRST, FIRST + RUNS):
        report = play_topology(seed)
        assert not report.violations, report.text(SHOWN)
        moves += sum(entry.who == "topology" for entry in report.trace)
    assert moves or RUNS < 10, "no failed node was replaced in any of the runs"
