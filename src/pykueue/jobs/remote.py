"""The copy of a job on a worker cluster, and its status brought back (docs/reference/admission-checks.md 15,
18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pykueue.api import conditions
from pykueue.api.jobkinds import pod_set_slots, value_at, with_value
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, labels_of, replaced, true_condition
from pykueue.api.resources import PODS, WORKLOADS, Resource

from .base import JobIntegration
from .identifiers import Identifiers
from .job import JOB, parallelism, sized
from .pod import gated
from .slices import counts_of, is_elastic

#: Metadata that belongs to the object in its own cluster.
_COPIED_METADATA = ("name", "namespace")
#: Annotations of a start or stop in its own cluster.
_LOCAL = (names.STOPPING_ANNOTATION, names.TEMPLATE_ADDITIONS_ANNOTATION)
#: Fields of a pod's spec that its own cluster fills in.
_POD_FIELDS = ("nodeName", "priority", "preemptionPolicy")


def remote_workload(workload: Mapping[str, Any], origin: str) -> Object:
    """The Workload as it is created on a worker (docs/reference/admission-checks.md 15)."""
    labels = {key: value for key, value in labels_of(workload).items() if key != names.JOB_UID_LABEL}
    metadata = _metadata(
        workload, {**labels, names.MULTIKUEUE_ORIGIN_LABEL: origin}, annotations_of(workload)
    )
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": metadata,
        "spec": dict(workload.get("spec") or {}),
    }


class Origin(NamedTuple):
    """The label that says which manager a copy comes from, and how a copy names its Workload."""

    label: str
    identifiers: Identifiers


def remote_copy(
    integration: JobIntegration, job: Mapping[str, Any], workload: Mapping[str, Any], origin: Origin
) -> Object:
    """The job as it is created on a worker: suspended, bound to its Workload there, and with no controller
    named, which is the worker's own.

    Its pod templates are those that were queued, without what the admission here added.
    """
    kind = integration.kind
    spec = integration.queued(job, get(workload, "spec", "podSets") or ())["spec"]
    copy = _copy(kind.resource, job, str(workload["metadata"]["name"]), origin, spec)
    for slot in pod_set_slots(copy, kind) if kind.template_labels else ():
        for label in kind.template_labels:
            copy = with_value(copy, (*slot.template, "metadata", "labels", label), None)
    for path in (*kind.own_fields, *([kind.managed_by] if kind.managed_by else [])):
        copy = replaced(copy, path, None)
    return copy


def bound(copy: Object, workload: Mapping[str, Any], identifiers: Identifiers) -> Object:
    """The copy as that of this Workload."""
    return identifiers.with_name(copy, names.PREBUILT_WORKLOAD_LABEL, str(workload["metadata"]["name"]))


def resized(
    integration: JobIntegration, job: Mapping[str, Any], copy: Object, counts: Mapping[str, int]
) -> Object:
    """The copy of an elastic job, resized like the job up to the pods of its slice (`counts`, by pod set)."""
    if integration.kind is JOB:
        wanted = min(parallelism(job), counts.get(names.DEFAULT_POD_SET, 0))
        follows = get(job, "spec", "completions") == parallelism(job)
        result = sized(copy, wanted)
        return replaced(result, ("spec", "completions"), wanted) if follows else result
    here, slots = counts_of(integration.pod_sets(job)), pod_set_slots(job, integration.kind)
    by_name = {slot.name: slot for slot in slots}
    for slot in pod_set_slots(copy, integration.kind):
        local = by_name.get(slot.name)
        if local is None or here.get(slot.name, 0) > counts.get(slot.name, 0):
            continue
        for path in {path for factor in slot.paths.counts for path in factor}:
            copy = with_value(copy, (*slot.at, *path), value_at(local.element, path))
    return copy


def remote_pod(pod: Mapping[str, Any], workload: Mapping[str, Any], origin: Origin) -> Object:
    """The pod as it is created on a worker: gated, and bound to its Workload there.

    A PriorityClass may have another value there.
    """
    spec = {key: value for key, value in pod["spec"].items() if key not in _POD_FIELDS}
    return gated(_copy(PODS, pod, str(workload["metadata"]["name"]), origin, spec))


def remote_set(resource: Resource, found: Mapping[str, Any], workload: str, origin: Origin) -> Object:
    """A set whose pods queue as it is created on a worker, which derives names from its uid here.

    `workload` is the Workload of all its pods; empty: each of its groups has one.
    """
    copy = _copy(resource, found, workload, origin, found["spec"])
    path = ("metadata", "annotations", names.MULTIKUEUE_ORIGIN_UID_ANNOTATION)
    return replaced(copy, path, str(found["metadata"].get("uid")))


def remote_external(
    resource: Resource, job: Mapping[str, Any], workload: Mapping[str, Any], origin: Origin
) -> Object:
    """A job that another controller queues as it is created on a worker."""
    copy = _copy(resource, job, str(workload["metadata"]["name"]), origin, job.get("spec") or {})
    return replaced(copy, ("spec", "managedBy"), None)


def _copy(
    resource: Resource, obj: Mapping[str, Any], workload: str, origin: Origin, spec: Mapping[str, Any]
) -> Object:
    labels = {**labels_of(obj), names.MULTIKUEUE_ORIGIN_LABEL: origin.label}
    annotations = {key: text for key, text in annotations_of(obj).items() if key not in _LOCAL}
    copy: Object = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": _metadata(obj, labels, annotations),
        "spec": dict(spec),
    }
    if not workload:
        return copy
    return origin.identifiers.with_name(copy, names.PREBUILT_WORKLOAD_LABEL, workload)


def _metadata(obj: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    metadata: Object = {key: obj["metadata"][key] for key in _COPIED_METADATA if key in obj["metadata"]}
    metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def with_remote_status(job: Mapping[str, Any], remote: Mapping[str, Any]) -> Object:
    """The local job with the status of its copy."""
    return replaced(job, ("status",), get(dict(remote), "status"))


def with_remote_job_status(job: Mapping[str, Any], remote: Mapping[str, Any]) -> Object:
    """The local Job with the status of its copy, as far as the API server takes it.

    A copy may have started again since its last status came back: on its own worker while the connection was
    broken, or as a new copy on another worker. The API server keeps the start time of a Job that is not
    suspended and lets no counter of ended pods decrease, except `succeeded` of an elastic Job (`batch/v1`,
    validation of Job status). These stay as they are here; otherwise the end of the job could not be written.
    """
    spec, before, status = job.get("spec") or {}, job.get("status") or {}, dict(remote.get("status") or {})
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for counter in ("failed",) if elastic else ("failed", "succeeded"):
        if (before.get(counter) or 0) > (status.get(counter) or 0):
            status[counter] = before[counter]
    resumes = true_condition(before, "Suspended") and not true_condition(status, "Suspended")
    start = before.get("startTime")
    if start and not spec.get("suspend") and not resumes:
        status["startTime"] = start
        if status.get("completionTime"):
            status["completionTime"] = max(start, status["completionTime"])
    if spec.get("suspend") and not true_condition(status, "Complete", "Failed"):
        # A job that is being stopped loses it here (`JobIntegration.stop`).
        status.pop("startTime", None)
    return replaced(job, ("status",), status if remote.get("status") is not None else None)


def with_remote_pod_status(pod: Mapping[str, Any], remote: Mapping[str, Any]) -> Object:
    """The gated pod with the status of its copy.

    It is shown as gated until the copy has a node: an autoscaler would add one here for a pod that is shown
    as unschedulable.
    """
    result = with_remote_status(pod, remote)
    scheduled = _condition(pod, "PodScheduled")
    if scheduled is None or true_condition(remote.get("status"), "PodScheduled") is not None:
        return result
    others = [one for one in get(result, "status", "conditions") or () if one.get("type") != "PodScheduled"]
    return replaced(result, ("status", "conditions"), [*others, scheduled])


def without_remote_pod_status(pod: Mapping[str, Any]) -> Object:
    """The gated pod as it was before a copy of it ran."""
    status: Object = {"phase": "Pending"}
    if qos := get(pod, "status", "qosClass"):
        status["qosClass"] = qos
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    known = _condition(pod, "PodScheduled")
    kept = known if known is not None and known.get("status") == "False" else scheduled
    return replaced(pod, ("status",), {**status, "conditions": [kept]})


def _condition(pod: Mapping[str, Any], kind: str) -> Object | None:
    found = get(pod, "status", "conditions") or ()
    return next((dict(one) for one in found if one.get("type") == kind), None)


def may_run_remotely(workload: Mapping[str, Any]) -> bool:
    """Whether a worker cluster may run the job of a Workload, as long as its status names that.

    Not of an elastic job: what a worker runs may belong to other slices, which name it too.
    """
    recorded = get(workload, "status", "clusterName")
    return bool(recorded) and not (conditions.is_finished(workload) or is_elastic(workload))
