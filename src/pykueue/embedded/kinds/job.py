"""Jobs: defaults, the selector a Job gets, and the row `kubectl get jobs` prints.

What may not be created or changed is in `jobvalidation`, what a status may not say in `jobstatus`.
Source: docs/reference/cluster-workloads.md, 1.3, 1.14 to 1.16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pykueue.api.ages import duration_text
from pykueue.api.objects import Object, is_deleting
from pykueue.embedded.kinds.apps import default_template
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Context, Kind
from pykueue.embedded.kinds.jobstatus import status_causes
from pykueue.embedded.kinds.jobvalidation import change_causes, job_causes
from pykueue.embedded.kinds.podspec import mapped
from pykueue.embedded.kinds.printing import (
    age_cell,
    containers_cell,
    images_cell,
    seconds_of,
    selector_cell,
)
from pykueue.embedded.objects.errors import Cause

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
LEGACY_JOB_NAME_LABEL = "job-name"
LEGACY_CONTROLLER_UID_LABEL = "controller-uid"

DEFAULT_BACKOFF_LIMIT = 6
UNLIMITED = 2**31 - 1

#: Conditions that show in the STATUS column, first match wins; Terminating stands between them.
_SHOWN_FIRST = ("Complete", "Failed")
_SHOWN_LAST = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


class Job(Kind):
    """batch/v1 Job."""

    group = "batch"
    kind = "Job"
    plural = "jobs"
    categories = ("all",)
    subresources = (STATUS,)
    default_propagation = "Orphan"
    default_propagation_warning = (
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
        "remove them or set propagationPolicy=Orphan to suppress this warning"
    )
    columns = (
        NAME_COLUMN,
        Column("Status"),
        Column("Completions"),
        Column("Duration"),
        AGE_COLUMN,
        Column("Containers", priority=1),
        Column("Images", priority=1),
        Column("Selector", priority=1),
    )
    field_selectors: Mapping[str, Callable[[Object], str]] = {
        "status.successful": lambda job: str((job.get("status") or {}).get("succeeded") or 0),
    }

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        filled = default_job_spec(spec)
        return _labelled(obj if filled is spec else {**obj, "spec": filled})

    def default_change(self, obj: Object, old: Object) -> Object:
        return _labelled(obj) if obj.get("spec") is old.get("spec") else self.default(obj)

    def prepare_create(self, obj: Object, context: Context) -> Object:
        spec = obj["spec"]
        if spec.get("manualSelector"):
            return obj
        metadata, template = obj["metadata"], spec.get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        if LEGACY_CONTROLLER_UID_LABEL in labels or CONTROLLER_UID_LABEL in labels:
            # Ours to set: validation refuses what the user put there.
            return obj
        labels = {
            **labels,
            JOB_NAME_LABEL: metadata["name"],
            LEGACY_JOB_NAME_LABEL: metadata["name"],
            CONTROLLER_UID_LABEL: metadata["uid"],
            LEGACY_CONTROLLER_UID_LABEL: metadata["uid"],
        }
        template = {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}
        selector = spec.get("selector") or {"matchLabels": {CONTROLLER_UID_LABEL: metadata["uid"]}}
        obj = {**obj, "spec": {**spec, "template": template, "selector": selector}}
        if not metadata.get("labels"):
            obj["metadata"] = {**metadata, "labels": labels}
        return obj

    def validate(self, obj: Object) -> list[Cause]:
        return job_causes(obj)

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return change_causes(new, old)

    def validate_status(self, new: Object, old: Object) -> list[Cause]:
        return status_causes(new, old)

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        pod_spec = (spec.get("template") or {}).get("spec") or {}
        return [
            obj["metadata"]["name"],
            _status_cell(obj),
            _completions_cell(spec, status),
            _duration_cell(status, now),
            age_cell(obj, now),
            containers_cell(pod_spec),
            images_cell(pod_spec),
            selector_cell(spec.get("selector")),
        ]


def _labelled(job: Object) -> Object:
    """A Job without labels has those of its template."""
    if job["metadata"].get("labels"):
        return job
    template = (job.get("spec") or {}).get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    return {**job, "metadata": {**job["metadata"], "labels": labels}} if labels else job


def default_job_spec(spec: Object) -> Object:
    """What the API server fills into a Job's spec (also that of a job template)."""
    defaults: Object = {
        "backoffLimit": UNLIMITED if spec.get("backoffLimitPerIndex") is not None else DEFAULT_BACKOFF_LIMIT,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed" if spec.get("podFailurePolicy") is None else "Failed",
    }
    if spec.get("completions") is None and spec.get("parallelism") is None:
        defaults["completions"] = 1
    if spec.get("parallelism") is None:
        defaults["parallelism"] = 1
    missing = {key: value for key, value in defaults.items() if spec.get(key) is None}
    template = spec.get("template")
    filled_template = default_template(template) if isinstance(template, dict) else template
    policy = spec.get("podFailurePolicy")
    filled_policy = _default_policy(policy) if policy else policy
    if not missing and filled_template is template and filled_policy is policy:
        return spec
    spec = {**spec, **missing}
    if filled_template is not None:
        spec["template"] = filled_template
    if filled_policy is not None:
        spec["podFailurePolicy"] = filled_policy
    return spec


def _default_policy(policy: Object) -> Object:
    """A pattern on a pod condition means status True where it does not say."""

    def pattern(one: Object) -> Object:
        return one if one.get("status") else {**one, "status": "True"}

    def rule(one: Object) -> Object:
        patterns = one.get("onPodConditions")
        filled = mapped(patterns, pattern) if patterns else patterns
        return one if filled is patterns else {**one, "onPodConditions": filled}

    rules = policy.get("rules") or []
    filled = mapped(rules, rule)
    return policy if filled is rules else {**policy, "rules": filled}


def _status_cell(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    true = {one.get("type") for one in conditions if one.get("status") == "True"}
    for name in _SHOWN_FIRST:
        if name in true:
            return name
    if is_deleting(job):
        return "Terminating"
    return next((name for name in _SHOWN_LAST if name in true), "Running")


def _completions_cell(spec: Object, status: Object) -> str:
    succeeded = status.get("succeeded") or 0
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration_cell(status: Object, now: float) -> str:
    start = seconds_of(status.get("startTime"))
    if start is None:
        return ""
    end = seconds_of(status.get("completionTime"))
    return duration_text((now if end is None else end) - start)
