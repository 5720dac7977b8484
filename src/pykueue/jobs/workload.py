"""The Workload of a job: its name and content, and whether it still describes the job.

Sources: docs/reference/kueue-integrations.md 9.3 ("Workload construction" and step 6).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pykueue.api.hybrid import split_pod_sets
from pykueue.api.kueue import V1BETA2, names
from pykueue.api.objects import Object, annotations_of, controller_reference, get, labels_of
from pykueue.api.preemption_policies import CHECKPOINT_ANNOTATION, MIN_ADMIT_DURATION_ANNOTATION
from pykueue.api.sameness import says_the_same
from pykueue.api.validation.syntax import integer

from .base import JobIntegration, WorkloadSource
from .identifiers import IDENTIFIERS, Identifiers
from .podsets import count_of
from .structure import MAX_POD_SETS as MAX_POD_SETS

_HASH_DIGITS = 5
_COPIED_ANNOTATIONS = (
    names.ADMISSION_GATED_BY_ANNOTATION,
    names.ELASTIC_JOB_ANNOTATION,
    CHECKPOINT_ANNOTATION,
    MIN_ADMIT_DURATION_ANNOTATION,
)
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def is_label_value(text: str) -> bool:
    """Whether `text` may be the value of a label."""
    return not text or _LABEL_VALUE.fullmatch(text) is not None


def workload_name(kind: str, group: str, name: str, uid: str, limit: int = 253, extra: str = "") -> str:
    """A name of at most `limit` characters that no other owner gets: kind, owner's name, a hash of both."""
    digest = hashlib.sha1(usedforsecurity=False)
    digest.update("\n".join((kind, group, name, uid)).encode())
    if extra:
        digest.update(f"\n{extra}".encode())
    prefix = f"{kind.lower()}-{name}"[: limit - _HASH_DIGITS - 1]
    return f"{prefix}-{digest.hexdigest()[:_HASH_DIGITS]}"


def queue_name(job: Mapping[str, Any]) -> str:
    """The LocalQueue asked for, by label or by the deprecated annotation of the same name; empty: none."""
    return labels_of(job).get(names.QUEUE_LABEL) or annotations_of(job).get(names.QUEUE_LABEL) or ""


def queue_name_by_annotation(job: Mapping[str, Any]) -> bool:
    """Whether only the deprecated annotation names the queue."""
    return not labels_of(job).get(names.QUEUE_LABEL) and bool(annotations_of(job).get(names.QUEUE_LABEL))


def max_execution_time(job: Mapping[str, Any]) -> int | None:
    """Seconds the job may be admitted in all; None: no limit. An invalid label means none."""
    seconds = integer(labels_of(job).get(names.MAX_EXEC_TIME_LABEL, ""))
    return seconds if seconds is not None and 0 < seconds < 2**31 else None


def owner_reference(job: Mapping[str, Any], integration: WorkloadSource) -> Object:
    """The reference that makes the job the Workload's controller."""
    resource = integration.kind.resource
    return controller_reference(job, resource.api_version, resource.kind)


def build(
    job: Mapping[str, Any],
    integration: WorkloadSource,
    priority: int,
    priority_class_ref: Mapping[str, str] | None,
    label_keys: Iterable[str] = (),
    annotation_keys: Collection[str] = (),
    name_limit: int = 253,
) -> Object:
    """The Workload that stands for `job` in its queue, with those of its labels and annotations."""
    uid = str(get(job, "metadata", "uid"))
    job_labels = labels_of(job)
    own_labels = {key: job_labels[key] for key in label_keys if key in job_labels}
    if is_label_value(uid):
        own_labels[names.JOB_UID_LABEL] = uid
    own_annotations = {
        key: value
        for key, value in annotations_of(job).items()
        if key.startswith(names.PROVISIONING_PARAMETER_PREFIX)
        or key in _COPIED_ANNOTATIONS
        or key in annotation_keys
    }
    spec: Object = {
        **({"queueName": queue_name(job)} if queue_name(job) else {}),
        "podSets": integration.pod_sets(job),
        "priority": priority,
        "active": True,
    }
    if priority_class_ref:
        spec["priorityClassRef"] = dict(priority_class_ref)
    limit = max_execution_time(job)
    if limit is not None:
        spec["maximumExecutionTimeSeconds"] = limit
    metadata: Object = {
        "name": workload_name(
            integration.kind.resource.kind,
            integration.kind.resource.group,
            str(get(job, "metadata", "name")),
            uid,
            name_limit,
        ),
        "namespace": get(job, "metadata", "namespace"),
        "labels": own_labels,
        "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
        "ownerReferences": [owner_reference(job, integration)],
    }
    if own_annotations:
        metadata["annotations"] = own_annotations
    return {"apiVersion": V1BETA2, "kind": "Workload", "metadata": metadata, "spec": spec}


def equivalent(
    workload: Mapping[str, Any],
    job: Mapping[str, Any],
    integration: JobIntegration,
    admitted_counts: Mapping[str, int] | None = None,
    identifiers: Identifiers = IDENTIFIERS,
) -> bool:
    """Whether the Workload still describes the job.

    Counts, containers and, while it is not admitted, tolerations are compared; node selectors, affinity and
    labels are not, because starting the job changes them. `admitted_counts` are given once the Workload holds
    quota: a running job may have the admitted counts where it can be admitted in part, and a suspended one
    its own. Where it cannot, fewer are admitted only because some pods have ended (reclaimable), and the job
    runs with what it asks for.
    """
    if get(workload, "spec", "maximumExecutionTimeSeconds") != max_execution_time(job):
        return False
    if integration.kind.references and not identifiers.prebuilt_name(job):
        return True  # what the job refers to was read once, by its operator too
    wanted = integration.pod_sets(job)
    present: Sequence[Mapping[str, Any]] = get(workload, "spec", "podSets") or ()
    if admitted_counts is None:
        return same_pod_sets(wanted, present)
    if len(wanted) != len(present):
        return False
    as_started = all(
        _same(a, b, _running_count(b, admitted_counts), minimum=False)
        for a, b in zip(wanted, present, strict=True)
    )
    if as_started:
        return True
    if not integration.is_suspended(job):
        return _is_to_shrink(workload, wanted, present, admitted_counts)
    return all(_same(a, b, count_of(b)) for a, b in zip(wanted, present, strict=True))


def _is_to_shrink(
    workload: Mapping[str, Any],
    wanted: Sequence[Mapping[str, Any]],
    present: Sequence[Mapping[str, Any]],
    admitted_counts: Mapping[str, int],
) -> bool:
    """Whether a running job has pods that have lost their flavor, and goes on without them."""
    split = set(split_pod_sets(workload))
    return any(pod_set.get("name") in split for pod_set in present) and all(
        _same(
            a,
            b,
            min(count_of(a), count_of(b))
            if b.get("name") in split and count_of(a) > _running_count(b, admitted_counts)
            else _running_count(b, admitted_counts),
            minimum=False,
        )
        for a, b in zip(wanted, present, strict=True)
    )


def same_pod_sets(wanted: Sequence[Mapping[str, Any]], present: Sequence[Mapping[str, Any]]) -> bool:
    """Whether pod sets of a Workload without quota are what is wanted."""
    return len(wanted) == len(present) and all(
        _same(a, b, count_of(b), tolerations=True) for a, b in zip(wanted, present, strict=True)
    )


def same_but_counts(workload: Mapping[str, Any], job: Mapping[str, Any], integration: JobIntegration) -> bool:
    """Whether a Workload with quota describes an elastic job but for the number of its pods."""
    if get(workload, "spec", "maximumExecutionTimeSeconds") != max_execution_time(job):
        return False
    wanted = integration.pod_sets(job)
    present: Sequence[Mapping[str, Any]] = get(workload, "spec", "podSets") or ()
    return len(wanted) == len(present) and all(
        a.get("name") == b.get("name") and _same(a, b, count_of(a))
        for a, b in zip(wanted, present, strict=True)
    )


def running_counts(workload: Mapping[str, Any], admitted_counts: Mapping[str, int]) -> dict[str, int]:
    """How many pods of each pod set a job runs with that was admitted with these counts."""
    pod_sets = get(workload, "spec", "podSets") or ()
    return {str(one.get("name")): _running_count(one, admitted_counts) for one in pod_sets}


def _running_count(pod_set: Mapping[str, Any], admitted_counts: Mapping[str, int]) -> int:
    count = count_of(pod_set)
    return count if pod_set.get("minCount") is None else admitted_counts.get(str(pod_set.get("name")), count)


def _same(
    wanted: Mapping[str, Any],
    present: Mapping[str, Any],
    count: int,
    tolerations: bool = False,
    minimum: bool = True,
) -> bool:
    if count_of(wanted) != count:
        return False
    if minimum and wanted.get("minCount") != present.get("minCount"):
        return False
    fields = ("containers", "initContainers", *(("tolerations",) if tolerations else ()))
    return all(
        says_the_same(get(wanted, "template", "spec", key) or [], get(present, "template", "spec", key) or [])
        for key in fields
    )
