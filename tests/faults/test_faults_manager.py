"""Whatever goes wrong between manager and API server: quota holds, nothing runs unadmitted, all ends.

`PYKUEUE_FAULT_RUNS` sets the number of runs (200 if nothing is said), `PYKUEUE_FAULT_SEED` the first seed.
"""

from __future__ import annotations

import os

import pytest
from faults_transport import Rates
from faults_world import run

from pykueue.clock import run_virtual

RUNS = int(os.environ.get("PYKUEUE_FAULT_RUNS", "200"))
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Runs per test, so that a failure names few seeds.
BATCH = 50


def rates(seed: int) -> Rates:
    """Every tenth world has no faults but deaths, the others have more and more of everything."""
    bad = seed % 10 / 10
    return Rates(
        refused=0.2 * bad,
        lost_before=0.05 * bad,
        lost_after=0.1 * bad,
        watch_dropped=0.1 * bad,
        watch_expired=0.1 * bad,
        staleness=0.5 * bad,
        latency=0.2 * bad,
    )


@pytest.mark.parametrize("batch", range(-(-RUNS // BATCH)))
def test_invariants_hold_after_every_write(batch: int) -> None:
    seeds = range(FIRST + batch * BATCH, FIRST + min((batch + 1) * BATCH, RUNS))
    run_virtual(lambda clock: run(clock, seeds, rates, seconds=60))
