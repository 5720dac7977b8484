"""Runs by seed of jobs that are split over flavors; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os

from pykueue.simulate.faults.hybridruns import play_hybrid

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 500
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


def test_parts_hold_whatever_fails() -> None:
    splits = 0
    for seed in range(FIRST, FIRST + RUNS):
        report = play_hybrid(seed)
        assert not report.violations, report.text(SHOWN)
        splits += sum(entry.who == "hybrid" for entry in report.trace)
    assert splits, "no job was split in any of the runs"


def test_queue_that_is_deleted_while_all_nodes_have_failed_goes_with_the_jobs_that_wait_for_them() -> None:
    report = play_hybrid(2000137)
    assert not report.violations, report.text(SHOWN)


def test_pods_of_an_earlier_admission_on_a_node_that_does_not_answer_are_of_no_part() -> None:
    report = play_hybrid(2010203)
    assert not report.violations, report.text(SHOWN)
