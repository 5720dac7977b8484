"""What must hold of jobs and Workloads in the end, when nothing has failed for hours."""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, controller_of, is_deleting, labels_of
from pykueue.api.resources import WORKLOADS

from .jobkinds import ended, suspended
from .stored import Stored


def unfinished(stored: Stored) -> Iterable[str]:
    """Jobs and Workloads that have neither come to their end nor say why not."""
    for job in stored.jobs():
        name = job["metadata"]["name"]
        workloads = [w for w in stored.workloads_of(job) if not is_deleting(w)]
        if names.STOPPING_ANNOTATION in annotations_of(job):
            yield f"job {name} has the annotation of a stop under way"
        if labels_of(job).get(names.QUEUE_LABEL) and not ended(job) and not workloads:
            yield f"job {name} has no Workload"
    for workload in stored.objects(WORKLOADS):
        why = _open(stored, workload)
        if why:
            yield f"workload {workload['metadata']['name']} {why}"


def _open(stored: Stored, workload: Object) -> str:
    job = stored.job_of(workload)
    if job is None:
        # Its owner reference was removed, perhaps after it had finished: nothing collects it.
        orphan = conditions.is_finished(workload) and controller_of(workload) is None
        return "" if orphan else "belongs to no job"
    if controller_of(workload) is None:
        return "has lost its owner"
    if is_deleting(workload):
        return "is still being deleted"
    if conditions.is_finished(workload):
        if ended(job):
            return ""
        return f"is finished ({conditions.reason(workload, conditions.FINISHED)}) before its job"
    if ended(job):
        return "is not finished, but its job is"
    reserved = conditions.condition(workload, conditions.QUOTA_RESERVED) or {}
    if not conditions.is_active(workload):
        if reserved.get("status") != "False" or not reserved.get("reason") or not reserved.get("message"):
            return "is deactivated and does not say so"
        return "" if suspended(job) else "is deactivated and its job runs"
    if reserved.get("status") == "True":
        return "is still running" if conditions.is_admitted(workload) else "is not admitted with its quota"
    return f"still waits: {reserved.get('reason')}: {reserved.get('message')}"
