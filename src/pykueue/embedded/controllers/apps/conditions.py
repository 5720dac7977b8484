"""Conditions in the statuses of serving kinds. Statuses are built new, never changed in place."""

from __future__ import annotations

from pykueue.api.meta import remove_condition, set_condition
from pykueue.api.objects import Object, condition_of
from pykueue.api.times import format_time


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
    fields: Object = {"lastUpdateTime": format_time(now)} if dated else {}
    conditions = status.get("conditions") or ()
    return {**status, "conditions": set_condition(conditions, type_, value, reason, message, now, **fields)}


def without_condition(status: Object, type_: str) -> Object:
    """The status without the condition."""
    if condition_of(status, type_) is None:
        return status
    return {**status, "conditions": remove_condition(status["conditions"], type_)}
