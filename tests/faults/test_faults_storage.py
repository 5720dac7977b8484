"""The store on a disk that fails: what was acknowledged is there, what was refused is not, damage is noticed.

docs/develop/testing.md says how a run is made. `PYKUEUE_STORAGE_RUNS` is the number of runs (default 2000),
`PYKUEUE_STORAGE_SEED` the first seed.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from storage_run import play

RUNS = int(os.environ.get("PYKUEUE_STORAGE_RUNS", "2000"))
FIRST = int(os.environ.get("PYKUEUE_STORAGE_SEED", "0"))
#: Runs per test.
BATCH = 500


@pytest.mark.parametrize("first", range(FIRST, FIRST + RUNS, BATCH))
def test_acknowledged_writes_outlive_the_disk_and_refused_ones_have_no_effect(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, min(first + BATCH, FIRST + RUNS)):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            seen += play(seed, Path(folder))
    print(dict(seen))
    if RUNS >= BATCH:
        assert {"refused", "killed", "power loss", "closed", "open failed", "damage noticed"} <= seen.keys()
