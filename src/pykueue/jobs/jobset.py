"""jobset.x-k8s.io JobSet (docs/reference/kueue-integrations.md 9.4, docs/reference/cluster-workloads.md
2.13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.jobkinds import JobKind, PodSetPaths
from pykueue.api.objects import Object, get, section
from pykueue.api.resources import JOB_SETS

from .described import DescribedJob

JOB_SET = JobKind(
    framework="jobset.x-k8s.io/jobset",
    resource=JOB_SETS,
    pod_sets=(
        PodSetPaths(
            ("template", "spec", "template"),
            counts=(
                (("replicas",),),
                (("template", "spec", "parallelism"), ("template", "spec", "completions")),
            ),
            each=("spec", "replicatedJobs"),
            name="name",
            index_label="batch.kubernetes.io/job-completion-index",
            group_index_label="jobset.sigs.k8s.io/job-index",
            group_count=("replicas",),
        ),
    ),
    managed_by=("spec", "managedBy"),
    controller="jobset.sigs.k8s.io/jobset-controller",
    succeeded=("Completed",),
    failed=("Failed",),
)


def _replicated_jobs(job: Mapping[str, Any]) -> list[Object]:
    return get(job, "spec", "replicatedJobs") or []


def _number(value: Any, default: int = 1) -> int:
    return default if value is None else int(value)


def _pods_per_job(replicated_job: Mapping[str, Any]) -> int:
    """How many pods one Job of it runs at a time."""
    spec = section(replicated_job, "template", "spec")
    parallelism = _number(spec.get("parallelism"))
    return min(parallelism, _number(spec.get("completions"), parallelism))


class JobSet(DescribedJob):
    """The Jobs of one replicated job are one pod set of its name; the status counts Jobs, not pods."""

    def __init__(self) -> None:
        super().__init__(JOB_SET)

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

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        pods = {str(one.get("name")): _pods_per_job(one) for one in _replicated_jobs(job)}
        found = {
            str(one.get("name")): _number(one.get("succeeded"), 0) * pods.get(str(one.get("name")), 0)
            for one in get(job, "status", "replicatedJobsStatus") or ()
        }
        return {name: count for name, count in found.items() if count}
