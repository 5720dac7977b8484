"""Building a Job's next status from the last. Statuses are built new, never changed in place."""

from __future__ import annotations

from pykueue.api.meta import set_condition
from pykueue.api.objects import Object, condition_of, true_condition
from pykueue.api.times import format_time
from pykueue.embedded.controllers.jobs.state import COMPLETE, FAILED, Outcome


def is_finished(job: Object) -> bool:
    """Complete or Failed."""
    return has_condition(job.get("status") or {}, COMPLETE) or has_condition(job.get("status") or {}, FAILED)


def has_condition(status: Object, type_: str) -> bool:
    """Whether the condition is True."""
    return true_condition(status, type_) is not None


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
    conditions = set_condition(
        status.get("conditions") or (), type_, text, reason, message, now, lastProbeTime=format_time(now)
    )
    return {**status, "conditions": conditions}, True


def with_outcome(status: Object, outcome: Outcome, now: float) -> Object:
    """The status of a finished Job."""
    status, _ = with_condition(status, outcome.type, True, outcome.reason, outcome.message, now)
    if outcome.type == COMPLETE:
        # The API refuses an end before the start, as there would be after the wall clock was set back.
        status = {**status, "completionTime": max(format_time(now), status.get("startTime") or "")}
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
