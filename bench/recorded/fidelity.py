"""How near the simulation of recorded arrivals comes to what was recorded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pykueue.engine import Upsert
from pykueue.simulate.changes import decoded
from pykueue.simulate.futures import State
from pykueue.simulate.recorded import fidelity as recorded
from pykueue.simulate.recorded.history import of_recording


def fidelity(recording: Path) -> dict[str, Any]:
    """How many admissions are equal and in the same order, with the recorded latencies and without."""
    found: dict[str, Any] = {}
    for name, latencies in (("recorded", True), ("none", False)):
        history = of_recording(recording)
        assert history.options is not None
        events = [Upsert(each) for each in decoded(history.objects.values())]
        state = State(history.options, list(events), [], history.start)
        one = recorded.fidelity(history, state, latencies)
        found[name] = {
            "recorded": one.recorded,
            "simulated": one.simulated,
            "equal": one.equal,
            "at_once": one.at_once,
            "share": one.share,
            "causes": Counter(each.cause for each in one.differences).most_common(),
        }
    return found


def described(found: dict[str, Any]) -> str:
    """These figures for people."""
    with_them, without = found["recorded"], found["none"]
    lines = [
        f"simulated with the recorded latencies: {with_them['equal']} of {with_them['recorded']} admissions "
        f"({with_them['share']:.2%}) equal and in the same order, {with_them['at_once']} at the same time; "
        f"without latencies {without['share']:.2%}"
    ]
    lines += [f"  {count} because {cause}" for cause, count in with_them["causes"]]
    return "\n".join(lines)
