"""CronJobs: defaults, refusals and the row `kubectl get cronjobs` prints.

Source: docs/reference/cluster-workloads.md, 1.18.
"""

from __future__ import annotations

from typing import Any

from pykueue.api.cronschedule import Schedule, ScheduleError, time_zone
from pykueue.api.objects import Object
from pykueue.embedded.kinds.apps import default_template
from pykueue.embedded.kinds.base import AGE_COLUMN, NAME_COLUMN, STATUS, Column, Kind
from pykueue.embedded.kinds.job import default_job_spec
from pykueue.embedded.kinds.jobvalidation import spec_causes
from pykueue.embedded.kinds.podspec import with_defaults
from pykueue.embedded.kinds.printing import age_cell, containers_cell, images_cell, selector_cell, since
from pykueue.embedded.objects.errors import Cause, forbidden, invalid, not_supported, required

#: So that the name of a Job made from it, with a dash and the minutes since 1970, is a DNS label.
MAX_NAME = 52

_DEFAULTS: Object = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}
_COUNTS = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
_POLICIES = ("Allow", "Forbid", "Replace")


class CronJob(Kind):
    """batch/v1 CronJob."""

    group = "batch"
    kind = "CronJob"
    plural = "cronjobs"
    short_names = ("cj",)
    categories = ("all",)
    subresources = (STATUS,)
    columns = (
        NAME_COLUMN,
        Column("Schedule"),
        Column("Timezone"),
        Column("Suspend", "boolean"),
        Column("Active", "integer"),
        Column("Last Schedule"),
        AGE_COLUMN,
        Column("Containers", priority=1),
        Column("Images", priority=1),
        Column("Selector", priority=1),
    )

    def default(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        filled = with_defaults(spec, _DEFAULTS)
        template = (filled.get("jobTemplate") or {}).get("spec") or {}
        pods = template.get("template")
        if isinstance(pods, dict):
            defaulted = default_template(pods)
            if defaulted is not pods:
                job = {**filled["jobTemplate"], "spec": {**template, "template": defaulted}}
                filled = {**filled, "jobTemplate": job}
        return obj if filled is spec else {**obj, "spec": filled}

    def validate(self, obj: Object) -> list[Cause]:
        spec = obj["spec"]
        causes = [
            invalid(f"spec.{field}", spec[field], "must be greater than or equal to 0")
            for field in _COUNTS
            if (spec.get(field) or 0) < 0
        ]
        if len(obj["metadata"]["name"]) > MAX_NAME:
            detail = f"must be no more than {MAX_NAME} characters"
            causes.append(invalid("metadata.name", obj["metadata"]["name"], detail))
        policy = spec.get("concurrencyPolicy")
        if policy not in _POLICIES:
            causes.append(not_supported("spec.concurrencyPolicy", policy, _POLICIES))
        causes += _schedule(spec)
        job = default_job_spec((spec.get("jobTemplate") or {}).get("spec") or {})
        path = "spec.jobTemplate.spec"
        if job.get("selector") is not None:
            causes.append(invalid(f"{path}.selector", job["selector"], "`selector` will be auto-generated"))
        if job.get("manualSelector"):
            causes.append(not_supported(f"{path}.manualSelector", True, ()))
        return causes + spec_causes(job, path)

    def cells(self, obj: Object, now: float) -> list[Any]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        pod_spec = (job.get("template") or {}).get("spec") or {}
        last = status.get("lastScheduleTime")
        return [
            obj["metadata"]["name"],
            spec.get("schedule", ""),
            spec.get("timeZone") or "<none>",
            "True" if spec.get("suspend") else "False",
            len(status.get("active") or ()),
            since(last, now) if last else "<none>",
            age_cell(obj, now),
            containers_cell(pod_spec),
            images_cell(pod_spec),
            selector_cell(job.get("selector")),
        ]


def _schedule(spec: Object) -> list[Cause]:
    causes: list[Cause] = []
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if zone == "":
        causes.append(invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string"))
    else:
        try:
            time_zone(zone)
        except ScheduleError as error:
            causes.append(invalid("spec.timeZone", zone, str(error)))
    if not schedule:
        causes.append(required("spec.schedule"))
    elif "TZ=" in schedule:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes.append(forbidden("spec.schedule", detail))
    else:
        try:
            Schedule(schedule)
        except ScheduleError as error:
            causes.append(invalid("spec.schedule", schedule, str(error)))
    return causes
