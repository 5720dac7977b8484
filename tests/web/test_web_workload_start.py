"""What the page of a Workload says of its start."""

from __future__ import annotations

from typing import Any

import pytest

from pykueue.web.dashboard.pages.workload import start_text

BASE = {"futures": 20, "started": 18, "hours": 24.0}
EARLY, LATE = "2026-01-05T12:00:00Z", "2026-01-05T13:30:00Z"


@pytest.mark.parametrize(
    ("start", "text"),
    [
        ({}, "Within 24 hours in 18 of 20 simulated futures."),
        (
            {"earliest": EARLY},
            "At 2026-01-05 12:00:00 UTC at the earliest; within 24 hours in 18 of 20 simulated futures.",
        ),
        (
            {"earliest": EARLY, "latest": LATE, "score": {"inside": 8, "starts": 10}},
            "Between 2026-01-05 12:00:00 UTC and 2026-01-05 13:30:00 UTC with a probability of 80 %, "
            "from 20 simulated futures. Of 10 past starts of its LocalQueue, 8 were inside theirs.",
        ),
    ],
)
def test_start_in_words(start: dict[str, Any], text: str) -> None:
    assert start_text({**BASE, **start}) == text
