"""Kubeflow Trainer: a TrainJob becomes the JobSet of its runtime (docs/reference/operators.md 5)."""

from __future__ import annotations

import msgspec

from pykueue.api.jobkinds import value_at
from pykueue.api.jobkinds.trainjob import (
    CLUSTER_RUNTIMES,
    PATCH_MANAGER,
    RUNTIMES,
    TRAIN_JOB,
    expanded,
    patched,
    runtime_reference,
)
from pykueue.api.objects import Object, condition_of, is_deleting, true_condition
from pykueue.api.resources import CONFIG_MAPS, JOB_SETS
from pykueue.embedded.operators.reconciliation import Operator, Pass
from pykueue.kube.events import WARNING

_COUNTS = ("ready", "succeeded", "failed", "active", "suspended")


class TrainOperator(Operator):
    """Carries out TrainJobs. Variables by which frameworks find each other are not set."""

    kind = TRAIN_JOB
    owns = (JOB_SETS, CONFIG_MAPS)
    reads = (RUNTIMES, CLUSTER_RUNTIMES)

    def reconcile(self, work: Pass) -> None:
        """One pass: the JobSet as the job and its runtime say, and its status."""
        made = work.child(JOB_SETS, work.name)
        ended = true_condition(work.status, "Complete", "Failed")
        if ended is not None and ended.get("reason") == "DeadlineExceeded":
            work.delete_all(JOB_SETS, [made] if made is not None else [])
            return
        if ended is None:
            runtime = _runtime(work)
            if runtime is None:
                name = value_at(work.spec, ("runtimeRef", "name"))
                work.event("TrainJobResourcesCreationFailed", f"runtime {name} not found", WARNING)
                work.look_again(10.0)
                return
            _apply(work, made, runtime)
        _report(work, made)


def _runtime(work: Pass) -> Object | None:
    """The runtime as it was when the job was first seen."""
    name = f"{work.name}-runtime-snapshot"
    snapshot = work.child(CONFIG_MAPS, name)
    if snapshot is not None:
        found: Object = msgspec.json.decode(snapshot["data"]["runtime"])
        return found
    reference = runtime_reference(work.job)
    if reference is None:
        return None
    resource, namespace, runtime = reference
    live = work.find(resource, runtime, namespace)
    if live is None:
        return None
    kept = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": live.get("spec") or {}}
    text = msgspec.json.encode(kept).decode()  # JSON is YAML
    work.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"runtime": text}})
    return kept


def _apply(work: Pass, made: Object | None, runtime: Object) -> None:
    """Create the JobSet, or bring it up to date while it or the job is suspended."""
    suspended = bool(work.spec.get("suspend"))
    wanted = expanded(work.job, runtime)
    spec = wanted["spec"]
    for patch in work.spec.get("runtimePatches") or ():
        if patch.get("manager") == PATCH_MANAGER:
            spec["replicatedJobs"] = [patched(one, patch) for one in spec["replicatedJobs"]]
    spec["suspend"] = suspended
    if made is None:
        work.create(JOB_SETS, {"metadata": {"name": work.name}, "spec": spec})
        return
    was_suspended = bool(made["spec"].get("suspend"))
    if is_deleting(made) or (not suspended and not was_suspended):
        return
    jobs = {one["name"]: one for one in spec["replicatedJobs"]}
    changed = [_with_template(one, jobs.get(one["name"])) for one in made["spec"]["replicatedJobs"]]
    if suspended and not was_suspended:
        work.patch(JOB_SETS, made, {"spec": {"suspend": True}})
    elif changed != made["spec"]["replicatedJobs"] or was_suspended is not suspended:
        work.patch(JOB_SETS, made, {"spec": {"suspend": suspended, "replicatedJobs": changed}})


#: Fields of a pod template that may change while a JobSet is suspended.
_POD_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")


def _with_template(stored: Object, wanted: Object | None) -> Object:
    """The stored replicated job with what its pods gain or lose."""
    if wanted is None:
        return stored
    old = stored["template"]["spec"]["template"]
    new = wanted["template"]["spec"]["template"]
    spec = {key: value for key, value in old["spec"].items() if key not in _POD_FIELDS}
    spec |= {key: new["spec"][key] for key in _POD_FIELDS if new["spec"].get(key)}
    metadata = {
        **(old.get("metadata") or {}),
        **{key: (new.get("metadata") or {}).get(key) or {} for key in ("labels", "annotations")},
    }
    kept = {key: value for key, value in metadata.items() if value}
    template = {**old, "spec": spec, **({"metadata": kept} if kept or old.get("metadata") else {})}
    job = stored["template"]
    return {**stored, "template": {**job, "spec": {**job["spec"], "template": template}}}


def _report(work: Pass, made: Object | None) -> None:
    suspended = bool(work.spec.get("suspend"))
    if suspended:
        work.set_condition("Suspended", True, "Suspended", "TrainJob is suspended")
    elif work.is_true("Suspended"):
        work.set_condition("Suspended", False, "Resumed", "TrainJob is resumed")
    status: Object = (made or {}).get("status") or {}
    for type_, source in (("Complete", "Completed"), ("Failed", "Failed")):
        found = true_condition(status, source)
        if found is not None:
            work.set_condition(type_, True, found["reason"], found.get("message", ""))
    counts = [
        {"name": one["name"], **{field: int(one.get(field) or 0) for field in _COUNTS}}
        for one in status.get("replicatedJobsStatus") or ()
    ]
    if counts:
        work.put(jobsStatus=counts)
    deadline = work.spec.get("activeDeadlineSeconds")
    if deadline is None or suspended or true_condition(work.status, "Complete", "Failed"):
        return
    resumed = condition_of(work.status, "Suspended")
    start = resumed["lastTransitionTime"] if resumed else work.job["metadata"]["creationTimestamp"]
    if work.has_elapsed(float(deadline), start):
        work.set_condition("Failed", True, "DeadlineExceeded", "TrainJob exceeded its active deadline")
        work.delete_all(JOB_SETS, [made] if made is not None else [])
