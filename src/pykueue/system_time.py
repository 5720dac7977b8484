"""The system clock, without an event loop, for commands that only need the present time."""

from __future__ import annotations

import time


def seconds() -> float:
    """Seconds since 1970-01-01 UTC."""
    return time.time()
