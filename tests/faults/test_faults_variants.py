"""Runs by seed whose jobs compete for each flavor; docs/develop/testing.md says how they are made."""

from __future__ import annotations

import os

from pykueue.simulate.faults.variantruns import play_variants

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "1000")) // 200
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


def test_variants_survive_whatever_fails() -> None:
    for seed in range(FIRST, FIRST + RUNS):
        report = play_variants(seed)
        assert not report.violations, report.text(SHOWN)


def test_mended_runs() -> None:
    """A variant deleted by hand, one whose LocalQueue is gone, a first admission
    that is retained, reclaimable pods that a job has again, and a
    priority class that changed before the admission, and a ClusterQueue
    deleted before a workload had its variants, and an admission of a parent
    whose answer was lost when its variant was evicted, and a job that was
    moved to a queue without concurrent admission while its variant had quota
    or after it was evicted, a variant deleted after its ClusterQueue,
    a priority class changed while its parent could not be written, a job
    that left a queue with variants for one that is stopped, and a job whose
    size changed after a variant had quota for it."""
    for seed in (37, 61, 65, 383, 2056, 3132, 40027, 900223, 900277, 900307, 901010, 901583, 903185):
        report = play_variants(seed)
        assert not report.violations, report.text(SHOWN)
