"""jobset.x-k8s.io JobSet (reference/kueue-integrations.md 9.4, reference/cluster-workloads.md 2.13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykueue.api.validation.fields import FieldError
from pykueue.kube.resources import JOB_SETS

from .base import Outcome, Write
from .objects import Object, get, replaced, section
from .podsets import PodSetInfo, injected, pod_set, restored

#: `spec.managedBy` of sets that the ordinary controller looks after, as if it were absent.
CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"

#: The pod template within a replicated job.
_TEMPLATE = ("template", "spec", "template")


def _replicated_jobs(job: Mapping[str, Any]) -> list[Object]:
    return get(job, "spec", "replicatedJobs") or []


def _number(value: Any, default: int = 1) -> int:
    return default if value is None else int(value)


def _pods_per_job(replicated_job: Mapping[str, Any]) -> int:
    """How many pods one Job of it runs at a time."""
    spec = section(replicated_job, "template", "spec")
    parallelism = _number(spec.get("parallelism"))
    return min(parallelism, _number(spec.get("completions"), parallelism))


class JobSet:
    """Sets are suspended by `spec.suspend`; the Jobs of one replicated job are one pod set of its name."""

    name = "jobset.x-k8s.io/jobset"
    resource = JOB_SETS
    selector: str | None = None
    prebuilt = True
    custom = True
    controller = CONTROLLER

    def is_suspended(self, job: Mapping[str, Any]) -> bool:
        return bool(get(job, "spec", "suspend"))

    def suspended(self, job: Mapping[str, Any]) -> Object:
        return replaced(job, ("spec", "suspend"), True)

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        return [
            pod_set(
                section(one, *_TEMPLATE),
                _number(one.get("replicas")) * _pods_per_job(one),
                str(one.get("name")),
            )
            for one in _replicated_jobs(job)
        ]

    def started(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        jobs = [
            replaced(one, _TEMPLATE, injected(section(one, *_TEMPLATE), info))
            for one, info in zip(_replicated_jobs(job), infos, strict=True)
        ]
        return replaced(replaced(job, ("spec", "replicatedJobs"), jobs), ("spec", "suspend"), False)

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        """Suspend and restore the templates at once: the API takes both in one write."""
        desired = self.suspended(job)
        jobs = _replicated_jobs(job)
        if originals is not None and len(originals) == len(jobs):
            as_they_were = [
                replaced(one, _TEMPLATE, restored(section(one, *_TEMPLATE), section(original, "template")))
                for one, original in zip(jobs, originals, strict=True)
            ]
            if as_they_were != jobs:
                desired = replaced(desired, ("spec", "replicatedJobs"), as_they_were)
        return None if desired == job else Write(desired)

    def is_active(self, job: Mapping[str, Any]) -> bool:
        """Whether Jobs of it have pods; from its start until its stop is confirmed some may be about to."""
        if any(one.get("active") for one in get(job, "status", "replicatedJobsStatus") or ()):
            return True
        resumed = any(
            one.get("type") == "Suspended" and one.get("status") == "False"
            for one in get(job, "status", "conditions") or ()
        )
        return resumed and self.outcome(job) is None

    def pods_ready(self, job: Mapping[str, Any]) -> bool:
        wanted = sum(_number(one.get("replicas")) for one in _replicated_jobs(job))
        return wanted == sum(
            _number(one.get("ready"), 0) + _number(one.get("succeeded"), 0)
            for one in get(job, "status", "replicatedJobsStatus") or ()
        )

    def outcome(self, job: Mapping[str, Any]) -> Outcome | None:
        for condition in get(job, "status", "conditions") or ():
            if condition.get("type") in ("Completed", "Failed") and condition.get("status") == "True":
                return Outcome(condition["type"] == "Completed", str(condition.get("message") or ""))
        return None

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        pods = {str(one.get("name")): _pods_per_job(one) for one in _replicated_jobs(job)}
        found = {
            str(one.get("name")): _number(one.get("succeeded"), 0) * pods.get(str(one.get("name")), 0)
            for one in get(job, "status", "replicatedJobsStatus") or ()
        }
        return {name: count for name, count in found.items() if count}

    def priority_class(self, job: Mapping[str, Any]) -> str:
        names = (get(one, *_TEMPLATE, "spec", "priorityClassName") for one in _replicated_jobs(job))
        return str(next(filter(None, names), ""))

    def default(self, job: Mapping[str, Any]) -> Object:
        return dict(job)

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        return ()
