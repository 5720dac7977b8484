"""The condition Active that the manager writes to queues, admission checks and worker clusters."""

from __future__ import annotations

from typing import NamedTuple

from pykueue.api.meta import ConditionStatus, set_condition
from pykueue.api.objects import Object, condition_of, get, replaced


class Activity(NamedTuple):
    """The condition Active."""

    active: bool
    reason: str
    message: str


#: Of an admission check whose controller can answer it.
CHECK_ACTIVE = Activity(True, "Active", "The admission check is active")


def with_activity(obj: Object, activity: Activity, now: float) -> Object:
    """The object with the condition, at its current generation; itself where it has it already.

    `now` is in seconds since 1970.
    """
    status: ConditionStatus = "True" if activity.active else "False"
    generation = int(get(obj, "metadata", "generation") or 0)
    wanted = (status, activity.reason, activity.message, generation)
    known = condition_of(obj.get("status"), "Active") or {}
    present = (known.get("status"), known.get("reason"), known.get("message"))
    if (*present, known.get("observedGeneration", 0)) == wanted:
        return obj
    conditions = get(obj, "status", "conditions") or []
    changed = set_condition(conditions, "Active", *wanted[:3], now, generation)
    return replaced(obj, ("status", "conditions"), changed)
