"""Runs by seed whose jobs change their size; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os

from pykueue.simulate.faults.elasticruns import play_elastic

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 100
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


def test_slices_survive_whatever_fails() -> None:
    for seed in range(FIRST, FIRST + RUNS):
        report = play_elastic(seed)
        assert not report.violations, report.text(SHOWN)


def test_mended_runs() -> None:
    """A job that changed after the creation of its Workload was not answered, one
    admitted again with pods that will not run again, and a slice of the size
    of one that was deleted; a slice whose pods ended while the manager did not run,
    and one deleted before the slice that it replaces had ended."""
    for seed in (901397, 902770, 902835, 905154, 906271):
        report = play_elastic(seed)
        assert not report.violations, report.text(SHOWN)
