"""The copy of a job on a worker cluster, and its status brought back (docs/reference/admission-checks.md 15).

The rules that all described kinds share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.jobkinds import pod_set_slots, with_value
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, labels_of, replaced
from pykueue.api.resources import WORKLOADS

from .base import JobIntegration

#: Metadata that belongs to the object in its own cluster.
_COPIED_METADATA = ("name", "namespace")
#: Annotations of a start or stop in its own cluster.
_LOCAL = (names.STOPPING_ANNOTATION, names.TEMPLATE_ADDITIONS_ANNOTATION)


#: Labels have values of at most so many characters.
_LABEL_LENGTH = 63


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


def remote_copy(
    integration: JobIntegration, job: Mapping[str, Any], workload: Mapping[str, Any], origin: str
) -> Object:
    """The job as it is created on a worker: suspended, bound to its Workload there, and with no controller
    named, which is the worker's own.

    Its pod templates are those that were queued, without what the admission here added. The Workload is named
    by annotation where a label is too short.
    """
    kind = integration.kind
    labels = {**labels_of(job), names.MULTIKUEUE_ORIGIN_LABEL: origin}
    annotations = {key: text for key, text in annotations_of(job).items() if key not in _LOCAL}
    name = str(workload["metadata"]["name"])
    (annotations if len(name) > _LABEL_LENGTH else labels)[names.PREBUILT_WORKLOAD_LABEL] = name
    spec = integration.queued(job, get(workload, "spec", "podSets") or ())["spec"]
    copy: Object = {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": _metadata(job, labels, annotations),
        "spec": spec,
    }
    for slot in pod_set_slots(copy, kind) if kind.template_labels else ():
        for label in kind.template_labels:
            copy = with_value(copy, (*slot.template, "metadata", "labels", label), None)
    for path in (*kind.own_fields, *([kind.managed_by] if kind.managed_by else [])):
        copy = replaced(copy, path, None)
    return copy


def _metadata(obj: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    metadata: Object = {key: obj["metadata"][key] for key in _COPIED_METADATA if key in obj["metadata"]}
    metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def with_remote_status(job: Mapping[str, Any], remote: Mapping[str, Any]) -> Object:
    """The local job with the status of its copy."""
    return replaced(job, ("status",), get(dict(remote), "status"))
