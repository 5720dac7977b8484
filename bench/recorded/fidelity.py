"""How near the simulation of recorded arrivals comes to what was recorded."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from pykueue.engine import Upsert
from pykueue.simulate.changes import decoded
from pykueue.simulate.futures import State
from pykueue.simulate.recorded.compare import MOVED, NEAR, in_order, starts_of
from pykueue.simulate.recorded.history import History


def fidelity(history: History) -> dict[str, Any]:
    """How near the simulation of the recorded jobs comes to what was recorded."""
    options = history.options
    assert options is not None
    events = [Upsert(each) for each in decoded(history.objects.values())]
    starts = starts_of(history, State(options, list(events), [], history.start))
    return {
        "starts": len(starts),
        "near": fmean(abs(one - other) <= NEAR for one, other in starts),
        "equal": fmean(abs(one - other) <= MOVED for one, other in starts),
        "in_order": in_order(starts) / len(starts),
    }


def described(found: dict[str, Any]) -> str:
    """These figures for people."""
    return (
        f"simulated: {found['near']:.2%} of {found['starts']} starts within a minute, "
        f"{found['equal']:.2%} within a second, {found['in_order']:.2%} in the same order"
    )
