"""Validation of a Job's status. Source: docs/reference/cluster-workloads.md, 1.15.

A rule applies when the fields it is about change, so that a status accepted once can always be written again.
"""

from __future__ import annotations

from pykueue.api.objects import Object, true_condition
from pykueue.embedded.kinds.jobindexes import parse_indexes
from pykueue.embedded.kinds.printing import seconds_of
from pykueue.embedded.objects.errors import Cause, duplicate, invalid, required

_COUNTERS = ("active", "ready", "terminating", "succeeded", "failed")
_LASTING = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
#: (condition, the one that must come before it)
_STEPS = (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet"))
_EXCLUSIVE = (
    ("Complete", "Failed"),
    ("Complete", "FailureTarget"),
    ("SuccessCriteriaMet", "Failed"),
    ("SuccessCriteriaMet", "FailureTarget"),
)
_NOT_NEGATIVE = "must be greater than or equal to 0"


def status_causes(new: Object, old: Object) -> list[Cause]:
    """Every reason to refuse a status write."""
    status, before = new.get("status") or {}, old.get("status") or {}
    if status is before or status == before:
        return []
    spec = new["spec"]
    causes = _shape(status)
    causes += _conditions(status, before)
    causes += _counters(spec, status, before)
    causes += _times(spec, status, before)
    causes += _indexes(spec, status, before)
    return causes


def _shape(status: Object) -> list[Cause]:
    causes = [
        invalid(f"status.{field}", status[field], _NOT_NEGATIVE)
        for field in _COUNTERS
        if (status.get(field) or 0) < 0
    ]
    seen: set[str] = set()
    for field in ("succeeded", "failed"):
        for position, uid in enumerate(_uncounted(status).get(field) or ()):
            path = f"status.uncountedTerminatedPods.{field}[{position}]"
            if not uid:
                causes.append(invalid(path, uid, "must not be empty"))
            elif uid in seen:
                causes.append(duplicate(path, uid))
            seen.add(uid)
    return causes


def _conditions(status: Object, before: Object) -> list[Cause]:
    now, then = _true(status), _true(before)
    if now == then:
        return []
    path, value = "status.conditions", status.get("conditions") or []
    causes = [
        invalid(path, value, f"cannot set {last}=True condition without the {first}=true condition")
        for last, first in _STEPS
        if last in now and last not in then and first not in now
    ]
    causes += [
        invalid(path, value, f"cannot set {one}=True and {other}=true conditions")
        for one, other in _EXCLUSIVE
        if one in now and other in now and not (one in then and other in then)
    ]
    causes += [
        invalid(path, value, f"cannot disable the terminal {name}=True condition")
        for name in _LASTING
        if name in then and name not in now
    ]
    return causes


def _counters(spec: Object, status: Object, before: Object) -> list[Cause]:
    causes: list[Cause] = []
    if _count(status, "failed") < _count(before, "failed"):
        detail = "cannot decrease the failed counter"
        causes.append(invalid("status.failed", _count(status, "failed"), detail))
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if _count(status, "succeeded") < _count(before, "succeeded") and not elastic:
        detail = "cannot decrease the succeeded counter"
        causes.append(invalid("status.succeeded", _count(status, "succeeded"), detail))
    if _count(status, "ready") > _count(status, "active") and (
        _count(status, "ready") != _count(before, "ready")
        or _count(status, "active") != _count(before, "active")
    ):
        detail = "cannot set more ready pods than active"
        causes.append(invalid("status.ready", _count(status, "ready"), detail))
    if _finished(status):
        for field in ("active", "terminating"):
            if _count(status, field) and (
                not _finished(before) or _count(status, field) != _count(before, field)
            ):
                detail = f"cannot set {field} pods for a finished job"
                causes.append(invalid(f"status.{field}", _count(status, field), detail))
        uncounted = _uncounted(status)
        if any(uncounted.values()) and (not _finished(before) or uncounted != _uncounted(before)):
            detail = "uncountedTerminatedPods needs to be empty for a finished job"
            causes.append(invalid("status.uncountedTerminatedPods", uncounted, detail))
    return causes


def _times(spec: Object, status: Object, before: Object) -> list[Cause]:
    causes: list[Cause] = []
    start, old_start = status.get("startTime"), before.get("startTime")
    end, old_end = status.get("completionTime"), before.get("completionTime")
    resumed = "Suspended" in _true(before) and "Suspended" not in _true(status)
    if old_start is not None and start != old_start and not spec.get("suspend") and not resumed:
        if start is None:
            causes.append(required("status.startTime", "startTime cannot be removed for unsuspended job"))
        else:
            detail = "field is immutable for an unsuspended job"
            causes.append(invalid("status.startTime", start, detail))
    if _finished(status) and start is None and (not _finished(before) or old_start is not None):
        never_ran = spec.get("suspend") and spec.get("completions") == 0
        if not never_ran:
            causes.append(required("status.startTime", "startTime is required for finished job"))
    complete = "Complete" in _true(status)
    if end != old_end or complete != ("Complete" in _true(before)):
        if end is None and complete:
            causes.append(required("status.completionTime", "completionTime is required for Complete jobs"))
        elif end is not None and not complete:
            detail = "cannot set completionTime when there is no Complete=True condition"
            causes.append(invalid("status.completionTime", end, detail))
        elif old_end is not None and end != old_end:
            causes.append(invalid("status.completionTime", end, "field is immutable"))
    if end is not None and start is not None and (end, start) != (old_end, old_start):
        started, ended = seconds_of(start), seconds_of(end)
        if started is not None and ended is not None and ended < started:
            detail = "completionTime cannot be set before startTime"
            causes.append(invalid("status.completionTime", end, detail))
    return causes


def _indexes(spec: Object, status: Object, before: Object) -> list[Cause]:
    completed, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    if completed == (before.get("completedIndexes") or "") and failed == before.get("failedIndexes"):
        return []
    causes: list[Cause] = []
    if spec.get("completionMode") != "Indexed":
        if completed:
            detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
            causes.append(invalid("status.completedIndexes", completed, detail))
        if failed is not None:
            detail = "cannot set failedIndexes when non-indexed completion mode"
            causes.append(invalid("status.failedIndexes", failed, detail))
        return causes
    if failed is not None and spec.get("backoffLimitPerIndex") is None:
        detail = "cannot set failedIndexes when there is no backoff limit per index"
        return [invalid("status.failedIndexes", failed, detail)]
    parsed: list[set[int]] = []
    for field, text in (("completedIndexes", completed), ("failedIndexes", failed or "")):
        try:
            parsed.append(parse_indexes(text, spec.get("completions")))
        except ValueError as error:
            causes.append(invalid(f"status.{field}", text, f"error parsing {field}: {error}"))
    if len(parsed) == 2 and parsed[0] & parsed[1]:
        common = min(parsed[0] & parsed[1])
        detail = f"failedIndexes and completedIndexes overlap at index: {common}"
        causes.append(invalid("status.failedIndexes", failed, detail))
    return causes


def _true(status: Object) -> set[str]:
    return {str(one.get("type")) for one in status.get("conditions") or () if one.get("status") == "True"}


def _finished(status: Object) -> bool:
    return true_condition(status, "Complete", "Failed") is not None


def _count(status: Object, field: str) -> int:
    return int(status.get(field) or 0)


def _uncounted(status: Object) -> Object:
    return status.get("uncountedTerminatedPods") or {}
