"""What Jobs and JobSets have in common, for those who play them and those who watch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api import quantity
from pykueue.api.objects import Object, get
from pykueue.api.resources import JOB_SETS, JOBS, Resource
from pykueue.jobs.kinds import BUILT_IN

#: The kinds of jobs that there are in a run, by kind.
KINDS: dict[str, Resource] = {"Job": JOBS, "JobSet": JOB_SETS}
#: Conditions that say that a job has ended, well or badly.
SUCCEEDED, FAILED = ("Complete", "Completed"), ("Failed",)
#: The conditions that end a job of a kind, well and badly.
ENDS: dict[Resource, tuple[tuple[str, ...], ...]] = {
    JOBS: (("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")),
    JOB_SETS: (("Completed",), ("Failed",)),
}


def holds(obj: Mapping[str, Any], *kinds: str) -> bool:
    """Whether one of these conditions is True."""
    conditions = get(obj, "status", "conditions") or ()
    return any(c.get("type") in kinds and c.get("status") == "True" for c in conditions)


def ended(job: Mapping[str, Any]) -> bool:
    return holds(job, *SUCCEEDED, *FAILED)


def active(job: Mapping[str, Any]) -> int:
    """How many pods, or Jobs of a set, are at work by the status."""
    parts = get(job, "status", "replicatedJobsStatus") or ()
    return int(get(job, "status", "active") or 0) + sum(int(one.get("active") or 0) for one in parts)


def parts(job: Mapping[str, Any]) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """The specs of the Jobs that it is made of, and how many of each have not succeeded yet."""
    counts = get(job, "status", "replicatedJobsStatus") or ()
    succeeded = {one["name"]: int(one.get("succeeded") or 0) for one in counts}
    for one in get(job, "spec", "replicatedJobs") or ():
        yield int(one.get("replicas") or 1) - succeeded.get(one["name"], 0), get(one, "template", "spec")
    if not get(job, "spec", "replicatedJobs"):
        yield 1, job["spec"]


def requests(job: Mapping[str, Any]) -> dict[str, int]:
    """What all pods that it runs at a time ask for, in thousandths."""
    found: dict[str, int] = {}
    succeeded = int(get(job, "status", "succeeded") or 0)
    for replicas, spec in parts(job):
        size = int(spec.get("parallelism") or 0)
        completions = spec.get("completions")
        left = size if completions is None else min(size, int(completions) - succeeded)
        for container in get(spec, "template", "spec", "containers") or ():
            for resource, amount in (get(container, "resources", "requests") or {}).items():
                asked = quantity.parse(amount).milli() * max(0, left) * replicas
                found[resource] = found.get(resource, 0) + asked
    return found


def reclaimable(job: Mapping[str, Any]) -> dict[str, int]:
    """Pods by pod set that will not run again although the job goes on."""
    integration = BUILT_IN.for_kind(KINDS[job["kind"]].api_version, job["kind"])
    assert integration is not None
    return integration.reclaimable(job)


def with_condition(job: Object, kind: str, status: str, reason: str, now: str) -> list[Object]:
    """The job's conditions with this one set at a time, as written in timestamps."""
    others = [c for c in get(job, "status", "conditions") or () if c["type"] != kind]
    fresh = {"type": kind, "status": status, "reason": reason, "message": reason, "lastTransitionTime": now}
    return [*others, fresh]
