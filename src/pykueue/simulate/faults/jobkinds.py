"""What jobs of all kinds have in common, for those who play them and those who watch.

Where a kind has its suspend field, its pod templates and its end is read from its description. What Jobs and
JobSets request is computed here, independently of the manager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import orjson

from pykueue.api import quantity
from pykueue.api.jobkinds import LEADER_WORKER_SET, JobKind, pod_set_slots, value_at, with_value
from pykueue.api.jobkinds.appwrapper import wrapped_pod_sets
from pykueue.api.jobkinds.trainjob import PATCH_MANAGER, expanded, patched, runtime_reference
from pykueue.api.objects import Object, controller_of, get
from pykueue.api.resources import JOB_SETS, JOBS, Resource
from pykueue.embedded.operators.catalog import OPERATORS
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.kinds import BUILT_IN
from pykueue.jobs.leaderworkerset import LeaderWorkerSet

from .runtimes import read_runtime

#: Kinds of jobs that only stand-in operators run, by kind; not those whose pods queue instead of the job.
OPERATED: dict[str, JobKind] = {
    one.kind.resource.kind: one.kind for one in OPERATORS if one.kind.framework in BUILT_IN.jobs
}
#: The kinds of jobs that there can be in a run, by kind, without those whose pods queue.
KINDS: dict[str, Resource] = {
    "Job": JOBS,
    "JobSet": JOB_SETS,
    **{name: kind.resource for name, kind in OPERATED.items()},
}
#: Kinds whose pods queue in groups; they have neither a field to stop them nor an end.
SERVING: dict[str, JobKind] = {LEADER_WORKER_SET.resource.kind: LEADER_WORKER_SET}
#: All kinds that users put into queues.
QUEUED: dict[str, Resource] = {**KINDS, **{name: kind.resource for name, kind in SERVING.items()}}
#: Conditions that an API server requires of a Job before the ones that end it.
_BEFORE = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}


def end_conditions(resource: Resource) -> tuple[tuple[str, ...], ...]:
    """The conditions that end a job, each end's together; none for a kind whose end is no condition."""
    kind = description(resource.kind)
    signs = [sign for sign in (*kind.succeeded, *kind.failed) if isinstance(sign, str)]
    return tuple((_BEFORE[sign], sign) if resource is JOBS else (sign,) for sign in signs)


def description(kind: str) -> JobKind:
    """The description of a kind of `QUEUED`."""
    return SERVING[kind] if kind in SERVING else integration(kind).kind


@cache
def integration(kind: str) -> JobIntegration:
    """The integration of a kind of `KINDS`."""
    found = BUILT_IN.for_kind(KINDS[kind].api_version, kind)
    assert found is not None
    return found.bound(read_runtime)


def is_part(job: Mapping[str, Any]) -> bool:
    """Whether it is part of another job, which its controller made it for."""
    owner = controller_of(job)
    return owner is not None and owner.get("kind") in KINDS


def ended(job: Mapping[str, Any]) -> bool:
    """Whether its status says that it has succeeded or failed."""
    return job["kind"] not in SERVING and integration(job["kind"]).outcome(job) is not None


def ends(kind: str) -> bool:
    """Whether jobs of a kind end by themselves."""
    return bool(description(kind).succeeded)


def stops_in_steps(kind: str) -> bool:
    """Whether the pod templates of a job can be restored only once its pods are gone."""
    return kind == "TrainJob"


def suspend_field(kind: str) -> tuple[str, ...]:
    """The path of the field that stops a job."""
    path = integration(kind).kind.suspend
    assert path is not None
    return path


def suspended(job: Mapping[str, Any]) -> bool:
    """Whether the job's spec says that it may not run."""
    return bool(value_at(job, suspend_field(job["kind"])))


def active(job: Mapping[str, Any]) -> bool:
    """Whether pods, or Jobs of a set, are at work by the status."""
    if job["kind"] in OPERATED:
        return integration(job["kind"]).is_active(job)
    parts = get(job, "status", "replicatedJobsStatus") or ()
    return bool(get(job, "status", "active")) or any(one.get("active") for one in parts)


def templates(job: Mapping[str, Any]) -> list[Object]:
    """The pod templates as its pods are made from them, in the order of the pod sets."""
    if job["kind"] == "TrainJob":
        return list(_train_templates(job))
    if job["kind"] == "AppWrapper":
        return list(_wrapped_templates(job))
    kind = integration(job["kind"]).kind
    return [value_at(job, slot.template) or {} for slot in pod_set_slots(job, kind)]


def _train_templates(job: Mapping[str, Any]) -> Iterable[Object]:
    """Those of its JobSet, with the patch of the queueing system."""
    for replicated in _job_set(job)["spec"]["replicatedJobs"]:
        for patch in value_at(job, ("spec", "runtimePatches")) or ():
            if patch.get("manager") == PATCH_MANAGER:
                replicated = patched(replicated, patch)
        yield value_at(replicated, ("template", "spec", "template"))


def _job_set(job: Mapping[str, Any]) -> Object:
    """The JobSet of a TrainJob, with the status of its Jobs."""
    reference = runtime_reference(job)
    runtime = read_runtime(*reference) if reference is not None else None
    assert runtime is not None
    status = {"replicatedJobsStatus": get(job, "status", "jobsStatus")}
    return {**expanded(job, runtime), "status": status}


def _wrapped_templates(job: Mapping[str, Any]) -> Iterable[Object]:
    """Those of the components, with what is written beside them."""
    seen: dict[int, int] = {}
    for one in wrapped_pod_sets(job):
        component = job["spec"]["components"][one.component]
        number = seen[one.component] = seen.get(one.component, -1) + 1
        template: Object = value_at(component, one.at)
        for info in (component.get("podSetInfos") or ())[number : number + 1]:
            for field, value in info.items():
                place = (("metadata" if field in ("labels", "annotations") else "spec"), field)
                known = value_at(template, place)
                merged = {**(known or {}), **value} if isinstance(value, dict) else [*(known or ()), *value]
                template = with_value(template, place, merged)
        yield template


def written_templates(job: Mapping[str, Any]) -> list[bytes]:
    """Its pod templates as text, to compare them to the last byte.

    For kinds of other projects all of the spec but the field that stops it: some have their templates inside
    other objects, and a start may write beside them.
    """
    parts: list[Any] = templates(job)
    if job["kind"] in OPERATED:
        parts = [with_value(job["spec"], suspend_field(job["kind"])[1:], None)]
    return [orjson.dumps(part, option=orjson.OPT_SORT_KEYS) for part in parts]


def _parts(job: Mapping[str, Any]) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """The pod templates of a Job or JobSet, and how many pods of each run at a time and have yet to end."""
    counts = get(job, "status", "replicatedJobsStatus") or ()
    succeeded = {one["name"]: int(one.get("succeeded") or 0) for one in counts}
    specs: list[tuple[int, Mapping[str, Any]]] = [
        (int(one.get("replicas") or 1) - succeeded.get(one["name"], 0), get(one, "template", "spec"))
        for one in get(job, "spec", "replicatedJobs") or ()
    ]
    done = int(get(job, "status", "succeeded") or 0)
    for replicas, spec in specs or [(1, job["spec"])]:
        size = int(spec.get("parallelism", 1))
        completions = spec.get("completions")
        left = size if completions is None else min(size, int(completions) - done)
        yield max(0, left) * replicas, spec["template"]


def requests(job: Mapping[str, Any]) -> dict[str, int]:
    """What all pods that it runs at a time request, in thousandths."""
    parts: Iterable[tuple[int, Mapping[str, Any]]]
    if job["kind"] in SERVING:
        groups = int(job["spec"]["replicas"])
        pod_sets = LeaderWorkerSet().pod_sets(job)
        parts = [(int(one["count"]) * groups, one["template"]) for one in pod_sets]
    elif job["kind"] == "TrainJob":
        parts = _parts(_job_set(job))
    elif job["kind"] in OPERATED:
        pod_sets = integration(job["kind"]).pod_sets(job)
        parts = [(int(one.get("count", 1)), one["template"]) for one in pod_sets]
    else:
        parts = _parts(job)
    found: dict[str, int] = {}
    for count, template in parts:
        for container in get(template, "spec", "containers") or ():
            for resource, amount in (get(container, "resources", "requests") or {}).items():
                found[resource] = found.get(resource, 0) + quantity.parse(amount).milli() * count
    return found


def reclaimable(job: Mapping[str, Any]) -> dict[str, int]:
    """Pods by pod set that will not run again although the job goes on."""
    return integration(job["kind"]).reclaimable(job)


def with_conditions(
    obj: Mapping[str, Any], kinds: Collection[str], status: str, reason: str, now: str
) -> list[Object]:
    """The object's conditions with these set at a time, as written in timestamps."""
    others = [c for c in get(obj, "status", "conditions") or () if c["type"] not in kinds]
    fresh = {"status": status, "reason": reason, "message": reason, "lastTransitionTime": now}
    return [*others, *({"type": kind, **fresh} for kind in kinds)]
