"""Conditions in the statuses of serving kinds. Statuses are built new, never changed in place."""

from __future__ import annotations

from typing import Any

from pykueue.api.times import format_time
from pykueue.embedded.controllers.jobs.status import condition_of

Object = dict[str, Any]


def with_condition(
    status: Object, type_: str, value: str, reason: str, message: str, now: float, *, dated: bool = False
) -> Object:
    """The status with the condition; unchanged where status and reason are what they were.

    `dated` conditions also carry lastUpdateTime, when anything about them last changed.
    """
    known = condition_of(status, type_)
    if known is not None and (known["status"], known.get("reason")) == (value, reason):
        return status
    return stamped(status, type_, value, reason, message, now, dated=dated)


def stamped(
    status: Object, type_: str, value: str, reason: str, message: str, now: float, *, dated: bool = True
) -> Object:
    """The status with the condition, its lastUpdateTime being now."""
    known = condition_of(status, type_)
    stamp = format_time(now)
    same = known is not None and known["status"] == value
    condition: Object = {
        "type": type_,
        "status": value,
        **({"lastUpdateTime": stamp} if dated else {}),
        "lastTransitionTime": known["lastTransitionTime"] if known is not None and same else stamp,
        "reason": reason,
        "message": message,
    }
    others = [one for one in status.get("conditions") or () if one["type"] != type_]
    return {**status, "conditions": [*others, condition]}


def without_condition(status: Object, type_: str) -> Object:
    """The status without the condition."""
    if condition_of(status, type_) is None:
        return status
    return {**status, "conditions": [one for one in status["conditions"] if one["type"] != type_]}
