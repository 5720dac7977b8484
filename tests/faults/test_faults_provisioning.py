"""Runs with ProvisioningRequests by seed.

`PYKUEUE_PROVISIONING_RUNS` is how many there are (8 unless set), `PYKUEUE_FAULT_SEED` the first seed.
"""

from __future__ import annotations

import os

import pytest

from pykueue.simulate.faults.provisioningruns import play_provisioning

RUNS = int(os.environ.get("PYKUEUE_PROVISIONING_RUNS", "8"))
FIRST = int(os.environ.get("PYKUEUE_FAULT_SEED", "0"))
#: Lines of the trace that a failure shows.
SHOWN = 120


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_checks_are_answered_as_requests_say_and_jobs_end(seed: int) -> None:
    report = play_provisioning(seed)
    assert not report.violations, report.text(SHOWN)
    assert report.faults["Provisioned"]
