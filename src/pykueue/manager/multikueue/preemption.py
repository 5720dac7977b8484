"""Orchestrated preemption: of the workers that could admit a Workload only by preemption, one may at a time.

A copy has a preemption gate, which the manager opens on the worker that reported first that it is blocked.
Source: docs/reference/admission-checks.md 19.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.meta import parse_time
from pykueue.api.objects import Object, get, replaced

#: Name of the gate of copies.
GATE = "kueue.x-k8s.io/multikueue"
#: Seconds after the opening of a gate before one is opened on another worker.
BETWEEN = 300.0


class Opening(NamedTuple):
    """The worker whose gate is due; empty: none. Seconds until the next look; None: no time matters."""

    worker: str
    again: float | None = None


def gated(copy: Object) -> Object:
    """The copy of a Workload with the manager's gate, in place of those of the Workload."""
    return replaced(copy, ("spec", "preemptionGates"), [{"name": GATE}])


def next_opening(copies: Mapping[str, Object], now: float) -> Opening:
    """Whose gate is to be opened: that of the copy that has been blocked longest."""
    opened = [since for copy in copies.values() if (since := _opened_at(copy)) is not None]
    blocked = {
        name: conditions.since(copy, names.BLOCKED_ON_GATES)
        for name, copy in copies.items()
        if conditions.is_true(copy, names.BLOCKED_ON_GATES) and _opened_at(copy) is None and _has_gate(copy)
    }
    if not blocked:
        return Opening("")
    left = max(opened, default=now - BETWEEN) + BETWEEN - now
    if left > 0:
        return Opening("", left)
    return Opening(
        min(blocked, key=lambda name: (blocked[name], name)), BETWEEN if len(blocked) > 1 else None
    )


def _has_gate(copy: Mapping[str, Any]) -> bool:
    return any(one.get("name") == GATE for one in get(copy, "spec", "preemptionGates") or ())


def _opened_at(copy: Mapping[str, Any]) -> float | None:
    for state in _states(copy):
        if state.get("name") == GATE and state.get("position") == "Open":
            return parse_time(state["lastTransitionTime"])
    return None


def _states(copy: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return get(copy, "status", "preemptionGates") or ()
