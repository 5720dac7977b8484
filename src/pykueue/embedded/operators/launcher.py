"""Jobs that an operator starts and suspends together with the object that owns them."""

from __future__ import annotations

from pykueue.api.objects import Object, is_deleting
from pykueue.api.resources import JOBS
from pykueue.embedded.operators.reconciliation import Pass

#: Fields of the pod template that are replaced when a Job is resumed.
_SYNCHRONISED = ("nodeSelector", "tolerations", "schedulingGates")


def aligned(work: Pass, job: Object, wanted: Object, suspended: bool) -> None:
    """Suspend the Job, or let it run with what the template of `wanted` says about placement now.

    A template can change only while the Job has no pods: until then its next status is awaited.
    """
    if is_deleting(job):
        return
    is_suspended = bool(job["spec"].get("suspend"))
    if suspended:
        if not is_suspended:
            work.patch(JOBS, job, {"spec": {"suspend": True}})
        return
    if not is_suspended:
        return
    status = job.get("status") or {}
    template, given = job["spec"]["template"], wanted["spec"]["template"]
    spec = {field: given["spec"].get(field) for field in _SYNCHRONISED}
    metadata = {
        field: given["metadata"][field] for field in ("labels", "annotations") if given["metadata"].get(field)
    }
    changed = any(template["spec"].get(field) != value for field, value in spec.items()) or any(
        (template.get("metadata") or {}).get(field, {}).get(key) != value
        for field, pairs in metadata.items()
        for key, value in pairs.items()
    )
    if changed and status.get("active"):
        return
    if status.get("startTime"):
        work.patch(JOBS, job, {"status": {"startTime": None}}, "status")
    patch: Object = {"suspend": False}
    if changed:
        patch["template"] = {"metadata": metadata, "spec": spec}
    work.patch(JOBS, job, {"spec": patch})
