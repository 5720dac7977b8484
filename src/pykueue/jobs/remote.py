"""The copy of a job on a worker cluster, and its status brought back (docs/reference/admission-checks.md 17).

The rules that all described kinds share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api.jobkinds import JobKind
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, labels_of, replaced

#: Metadata that belongs to the object in its own cluster.
_COPIED_METADATA = ("name", "namespace")


def remote_copy(kind: JobKind, job: Mapping[str, Any], workload: str, origin: str, annotate: bool) -> Object:
    """The job as it is created on a worker: bound to its Workload there, and responsible for itself.

    `annotate`: the Workload is named by annotation instead of label (gate WorkloadIdentifierAnnotations).
    """
    labels = {**labels_of(job), names.MULTIKUEUE_ORIGIN_LABEL: origin}
    annotations = dict(annotations_of(job))
    (annotations if annotate else labels)[names.PREBUILT_WORKLOAD_LABEL] = workload
    metadata: Object = {key: job["metadata"][key] for key in _COPIED_METADATA if key in job["metadata"]}
    metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    copy: Object = {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": metadata,
        "spec": dict(job.get("spec") or {}),
    }
    return copy if kind.managed_by is None else replaced(copy, kind.managed_by, None)


def with_remote_status(job: Mapping[str, Any], remote: Mapping[str, Any]) -> Object:
    """The local job with the status of its copy."""
    return replaced(job, ("status",), get(dict(remote), "status"))
