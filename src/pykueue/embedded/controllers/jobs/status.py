"""Building a Job's next status from the last. Statuses are built new, never changed in place."""

from __future__ import annotations

from typing import Any

from pykueue.api.times import format_time
from pykueue.embedded.controllers.jobs.state import COMPLETE, FAILED, Outcome

Object = dict[str, Any]


def is_finished(job: Object) -> bool:
    """Complete or Failed."""
    return has_condition(job.get("status") or {}, COMPLETE) or has_condition(job.get("status") or {}, FAILED)


def has_condition(status: Object, type_: str) -> bool:
    """Whether the condition is True."""
    return any(
        one.get("type") == type_ and one.get("status") == "True" for one in status.get("conditions") or ()
    )


def condition_of(status: Object, type_: str) -> Object | None:
    """The condition of that type."""
    for one in status.get("conditions") or ():
        if one.get("type") == type_:
            found: Object = one
            return found
    return None


def with_condition(
    status: Object, type_: str, value: bool, reason: str, message: str, now: float
) -> tuple[Object, bool]:
    """The status with the condition, and whether that is a change.

    A False condition is never added where there was none, so that a Job that was never suspended has no
    Suspended condition at all (1.5). lastTransitionTime changes only with the condition's status.
    """
    text = "True" if value else "False"
    known = condition_of(status, type_)
    if known is None and not value:
        return status, False
    if known is not None and (known.get("status"), known.get("reason"), known.get("message")) == (
        text,
        reason,
        message,
    ):
        return status, False
    stamp = format_time(now)
    new: Object = {
        "type": type_,
        "status": text,
        "lastProbeTime": stamp,
        "lastTransitionTime": (
            known["lastTransitionTime"] if known is not None and known.get("status") == text else stamp
        ),
        "reason": reason,
        "message": message,
    }
    conditions = [new if one.get("type") == type_ else one for one in status.get("conditions") or ()]
    if known is None:
        conditions.append(new)
    return {**status, "conditions": conditions}, True


def with_outcome(status: Object, outcome: Outcome, now: float) -> Object:
    """The status of a finished Job."""
    status, _ = with_condition(status, outcome.type, True, outcome.reason, outcome.message, now)
    if outcome.type == COMPLETE:
        status = {**status, "completionTime": format_time(now)}
    return status


def with_counts(status: Object, active: int, ready: int, terminating: int) -> Object:
    """The status with these gauges; active is left out when 0, as the API does."""
    status = {**status, "ready": ready, "terminating": terminating}
    return with_number(status, "active", active)


def with_number(status: Object, field: str, value: int) -> Object:
    """The status with a counter that is left out when 0."""
    if value:
        return {**status, field: value}
    return {key: one for key, one in status.items() if key != field}


def with_uncounted(status: Object, succeeded: list[str], failed: list[str]) -> Object:
    """The status with these pods waiting to be counted."""
    uncounted: Object = {}
    if succeeded:
        uncounted["succeeded"] = succeeded
    if failed:
        uncounted["failed"] = failed
    return {**status, "uncountedTerminatedPods": uncounted}
