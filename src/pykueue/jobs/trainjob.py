"""TrainJob: its pod sets are those of the JobSet that its runtime makes of it.

What an admission gives to the pods is written into an entry of `spec.runtimePatches` that belongs to the
queueing system. It may change only while no Job of the JobSet is active. Source:
docs/reference/kueue-integrations.md 9.4, docs/reference/operators.md 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykueue.api.jobkinds import value_at
from pykueue.api.jobkinds.trainjob import (
    CLUSTER_RUNTIMES,
    GROUP,
    PATCH_MANAGER,
    RUNTIMES,
    TRAIN_JOB,
    expanded,
    runtime_reference,
)
from pykueue.api.objects import Object, replaced
from pykueue.api.validation.fields import INVALID, REQUIRED, FieldError, new_errors, not_supported

from .base import MissingReferenceError, Reader, Write, no_objects
from .described import DescribedJob
from .jobset import JobSet
from .podsets import TEMPLATE_FIELDS, PodSetInfo, injected

_PATCHES = ("spec", "runtimePatches")
#: Fields that its trainer reads once.
_FIXED = ("runtimeRef", "trainer", "initializer")
_JOB_SET = JobSet()


def _own_patch(specification: Mapping[str, Any] | None = None) -> Object:
    return {"manager": PATCH_MANAGER, **({"trainingRuntimeSpec": specification} if specification else {})}


def _with_own_patch(job: Mapping[str, Any], specification: Mapping[str, Any] | None) -> Object:
    """The job with its entry for the queueing system saying this; other fields of the entry stay."""
    patches = value_at(job, _PATCHES) or []
    found = next((one for one in patches if value_at(one, ("manager",)) == PATCH_MANAGER), None)
    if found is None:
        return replaced(job, _PATCHES, [*patches, _own_patch(specification)])
    entry = replaced(found, ("trainingRuntimeSpec",), specification)
    return replaced(job, _PATCHES, [entry if one is found else one for one in patches])


class TrainJob(DescribedJob):
    """Queued as the JobSet that its runtime makes of it."""

    def __init__(self, read: Reader = no_objects) -> None:
        super().__init__(TRAIN_JOB)
        self._read = read

    def bound(self, read: Reader) -> TrainJob:
        return TrainJob(read)

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        return _JOB_SET.pod_sets(self._job_set(job))

    def priority_class(self, job: Mapping[str, Any]) -> str:
        return _JOB_SET.priority_class(self._job_set(job))

    def _job_set(self, job: Mapping[str, Any]) -> Object:
        """The JobSet, with the status of the TrainJob's Jobs."""
        reference = runtime_reference(job)
        runtime = self._read(*reference) if reference is not None else None
        if reference is None or runtime is None:
            kind, name = (value_at(job, ("spec", "runtimeRef", field)) for field in ("kind", "name"))
            raise MissingReferenceError(f"{kind or CLUSTER_RUNTIMES.kind} {name} doesn't exist")
        statuses = value_at(job, ("status", "jobsStatus")) or []
        return {**expanded(job, runtime), "status": {"replicatedJobsStatus": statuses}}

    def started(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        jobs = [_patch_of(info) for info in infos]
        specification = {"template": {"spec": {"replicatedJobs": [one for one in jobs if one]}}}
        return replaced(_with_own_patch(job, specification), ("spec", "suspend"), False)

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        """Suspend, and when no Job is active any more, take the patch back."""
        if not self.suspend_requested(job):
            return Write(self.suspended(job))
        if self.is_active(job):
            return None
        patches = value_at(job, _PATCHES) or []
        written = any(
            value_at(one, ("manager",)) == PATCH_MANAGER and value_at(one, ("trainingRuntimeSpec",))
            for one in patches
        )
        return Write(_with_own_patch(job, None)) if written else None

    def pods_ready(self, job: Mapping[str, Any]) -> bool:
        try:
            return _JOB_SET.pods_ready(self._job_set(job))
        except MissingReferenceError:
            return False

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        try:
            return _JOB_SET.reclaimable(self._job_set(job))
        except MissingReferenceError:
            return {}

    def default(self, job: Mapping[str, Any]) -> Object:
        """With the entry of the queueing system, which cannot be added while the job runs."""
        patches = value_at(job, _PATCHES) or []
        if any(value_at(one, ("manager",)) == PATCH_MANAGER for one in patches):
            return dict(job)
        return _with_own_patch(job, None)

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        yield from super().validate(job, old)
        yield from new_errors(_errors, job, old)
        for field in _FIXED if old is not None else ():
            now, was = value_at(job, ("spec", field)), value_at(old, ("spec", field))
            if now != was:
                yield FieldError(f"spec.{field}", INVALID, now, "field is immutable")


def _patch_of(info: PodSetInfo) -> Object | None:
    """What the pods of a replicated job gain; lists are whole, because a patch replaces them."""
    after = injected(info.template, info)
    template: Object = {}
    for path in TEMPLATE_FIELDS:
        before, now = value_at(info.template, path), value_at(after, path)
        if now == before:
            continue
        if isinstance(now, dict):
            now = {key: value for key, value in now.items() if key not in (before or {})}
        template = replaced(template, path, now)
    if not template:
        return None
    return {"name": info.name, "template": {"spec": {"template": template}}}


def _errors(job: Mapping[str, Any]) -> Iterable[FieldError]:
    reference = value_at(job, ("spec", "runtimeRef"))
    path = "spec.runtimeRef"
    if not value_at(reference, ("name",)):
        yield FieldError(f"{path}.name", REQUIRED, detail="names the runtime")
    group, kind = value_at(reference, ("apiGroup",)), value_at(reference, ("kind",))
    if group not in (None, GROUP):
        yield not_supported(f"{path}.apiGroup", group, (GROUP,))
    if kind not in (None, RUNTIMES.kind, CLUSTER_RUNTIMES.kind):
        yield not_supported(f"{path}.kind", kind, (RUNTIMES.kind, CLUSTER_RUNTIMES.kind))
    nodes = value_at(job, ("spec", "trainer", "numNodes"))
    if nodes is not None and (not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1):
        text = "must be a whole number greater than 0"
        yield FieldError("spec.trainer.numNodes", INVALID, nodes, text)
    patches = value_at(job, _PATCHES)
    if patches is not None and not isinstance(patches, list):
        yield FieldError("spec.runtimePatches", INVALID, patches, "must be a list")
