"""Rules of the labels and annotations by which jobs of any kind are queued.

They apply whether or not the job names a queue, so that a mistake is reported before the job is queued.
Source: docs/reference/kueue-integrations.md 9.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pykueue.api.jobkinds import JobKind
from pykueue.api.kueue import names
from pykueue.api.objects import annotations_of, labels_of
from pykueue.api.validation.fields import DUPLICATE, FORBIDDEN, INVALID, FieldError
from pykueue.api.validation.syntax import subdomain
from pykueue.jobs import workload as construction
from pykueue.jobs.identifiers import IDENTIFIERS, Identifiers

_GATE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_GATE_LENGTH = 63
_FIXED = "field is immutable while the job is not suspended"


def common_errors(
    job: Mapping[str, Any], kind: JobKind, identifiers: Identifiers = IDENTIFIERS
) -> Iterable[FieldError]:
    """What is wrong with the labels and annotations of a job."""
    yield from queue_errors(job)
    yield from _prebuilt_errors(job, kind, identifiers)
    limit = labels_of(job).get(names.MAX_EXEC_TIME_LABEL)
    if limit is not None and construction.max_execution_time(job) is None:
        text = "must be a whole number of seconds greater than 0"
        yield FieldError(label_path(names.MAX_EXEC_TIME_LABEL), INVALID, limit, text)
    yield from elastic_errors(job, kind)
    yield from gate_errors(annotations_of(job).get(names.ADMISSION_GATED_BY_ANNOTATION))


def queue_errors(job: Mapping[str, Any]) -> Iterable[FieldError]:
    """What is wrong with the name of the queue; a label without a value names none and is an error."""
    label = labels_of(job).get(names.QUEUE_LABEL)
    name = construction.queue_name(job) if label is None else label
    if (name or label is not None) and (problem := subdomain(name)):
        yield FieldError(label_path(names.QUEUE_LABEL), INVALID, name, problem)


def _prebuilt_errors(job: Mapping[str, Any], kind: JobKind, identifiers: Identifiers) -> Iterable[FieldError]:
    name = identifiers.prebuilt_name(job)
    label = labels_of(job).get(names.PREBUILT_WORKLOAD_LABEL)
    path = identifiers.path(job, names.PREBUILT_WORKLOAD_LABEL)
    if (name or label is not None) and (problem := subdomain(name)):
        yield FieldError(path, INVALID, name, problem)
    if name and not kind.prebuilt:
        text = "is not supported for this kind of job"
        yield FieldError(path, FORBIDDEN, detail=text)


def elastic_errors(job: Mapping[str, Any], kind: JobKind) -> Iterable[FieldError]:
    """Whether the kind can be elastic, if the job is to be."""
    if is_elastic(job) and not kind.elastic:
        text = "is not supported for this kind of job"
        yield FieldError(_annotation(names.ELASTIC_JOB_ANNOTATION), FORBIDDEN, detail=text)


def is_elastic(job: Mapping[str, Any]) -> bool:
    """Whether the number of its pods may change while it runs."""
    return annotations_of(job).get(names.ELASTIC_JOB_ANNOTATION) == "true"


def gate_errors(text: str | None) -> Iterable[FieldError]:
    """What is wrong with the form of an admission-gated-by annotation."""
    field = _annotation(names.ADMISSION_GATED_BY_ANNOTATION)
    gates = _gates(text)
    for gate in gates:
        if not _GATE.fullmatch(gate) or len(gate) > _GATE_LENGTH:
            detail = f"a gate is domain/path of at most {_GATE_LENGTH} characters"
            yield FieldError(field, INVALID, gate, detail)
    for gate in sorted({gate for gate in gates if gates.count(gate) > 1}):
        yield FieldError(field, DUPLICATE, gate)


def _gates(text: str | None) -> list[str]:
    return [gate.strip() for gate in text.split(",")] if text and text.strip() else []


def gate_changes(job: Mapping[str, Any], old: Mapping[str, Any]) -> Iterable[FieldError]:
    """Admission gates can be removed, never added."""
    now, was = (_gates(annotations_of(one).get(names.ADMISSION_GATED_BY_ANNOTATION)) for one in (job, old))
    if added := sorted(set(now) - set(was)):
        text = f"gates can only be removed, not added: {', '.join(added)}"
        yield FieldError(_annotation(names.ADMISSION_GATED_BY_ANNOTATION), FORBIDDEN, detail=text)


def priority_changes(job: Mapping[str, Any], old: Mapping[str, Any], suspended: bool) -> Iterable[FieldError]:
    """A WorkloadPriorityClass can be replaced, but not removed, nor added while the job runs."""
    name, old_name = (labels_of(one).get(names.PRIORITY_CLASS_LABEL) for one in (job, old))
    if old_name and not name:
        yield FieldError(label_path(names.PRIORITY_CLASS_LABEL), FORBIDDEN, detail="cannot be removed")
    if name and not old_name and not suspended:
        yield immutable(names.PRIORITY_CLASS_LABEL, name)


def prebuilt_changes(
    job: Mapping[str, Any], old: Mapping[str, Any], suspended: bool, identifiers: Identifiers
) -> Iterable[FieldError]:
    """The prebuilt Workload of a running job cannot change, except to the next slice of an elastic job."""
    name = identifiers.prebuilt_name(job)
    if name != identifiers.prebuilt_name(old) and not suspended and not is_elastic(old):
        path = identifiers.path(job, names.PREBUILT_WORKLOAD_LABEL)
        yield FieldError(path, INVALID, name, _FIXED)


def other_changes(
    job: Mapping[str, Any], old: Mapping[str, Any], suspended: bool, was_suspended: bool
) -> Iterable[FieldError]:
    """What may not change of the maximum execution time and of elasticity."""
    limit = labels_of(job).get(names.MAX_EXEC_TIME_LABEL)
    if limit != labels_of(old).get(names.MAX_EXEC_TIME_LABEL) and not (suspended and was_suspended):
        yield immutable(names.MAX_EXEC_TIME_LABEL, limit or "")
    if is_elastic(job) != is_elastic(old):
        value = annotations_of(job).get(names.ELASTIC_JOB_ANNOTATION) or ""
        yield FieldError(_annotation(names.ELASTIC_JOB_ANNOTATION), INVALID, value, "field is immutable")


def label_path(name: str) -> str:
    """Where a label stands, as errors name it."""
    return f"metadata.labels[{name}]"


def _annotation(name: str) -> str:
    return f"metadata.annotations[{name}]"


def immutable(label: str, value: str) -> FieldError:
    """That a label may not change now."""
    return FieldError(label_path(label), INVALID, value, _FIXED)
