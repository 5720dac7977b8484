"""batch/v1 Job (docs/reference/kueue-integrations.md 9.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykueue.api.jobkinds import JobKind, PodSetPaths, field_path, pod_count, true_condition
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, replaced, section
from pykueue.api.resources import JOBS
from pykueue.api.validation.fields import FORBIDDEN, INVALID, FieldError, not_supported
from pykueue.api.validation.syntax import FALSE, TRUE, integer

from .additions import with_record
from .base import Write
from .described import DescribedJob
from .podsets import PodSetInfo

_PODS = PodSetPaths(
    ("spec", "template"),
    counts=((("spec", "parallelism"), ("spec", "completions")),),
    index_label="batch.kubernetes.io/job-completion-index",
)
JOB = JobKind(
    framework="batch/job",
    resource=JOBS,
    pod_sets=(_PODS,),
    managed_by=("spec", "managedBy"),
    controller="kubernetes.io/job-controller",
    succeeded=("Complete",),
    failed=("Failed",),
    active=(("status", "active"),),
    ready=(("status", "succeeded"), ("status", "ready")),
    template_labels=(
        "controller-uid",
        "job-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
    ),
    elastic=True,
    own_fields=(("spec", "selector"),),
    custom=False,
    writes_status=True,
)


def parallelism(job: Mapping[str, Any]) -> int:
    """How many of its pods run at a time."""
    value = get(job, "spec", "parallelism")
    return 1 if value is None else int(value)


def sized(job: Mapping[str, Any], count: int) -> Object:
    """The Job with another parallelism."""
    return replaced(job, ("spec", "parallelism"), count)


def size(job: Mapping[str, Any]) -> int:
    """How many pods its Workload is for: no more run at a time."""
    return pod_count(job, _PODS)


def _completions(job: Mapping[str, Any]) -> int:
    """Completions; where there are none, as many as run at a time."""
    value = get(job, "spec", "completions")
    return parallelism(job) if value is None else int(value)


def min_parallelism(job: Mapping[str, Any]) -> int | None:
    """The smallest parallelism it accepts; None where it wants all of it."""
    value = integer(annotations_of(job).get(names.MIN_PARALLELISM_ANNOTATION, ""))
    return value if value is not None and 0 < value < pod_count(job, _PODS) else None


def _syncs_completions(job: Mapping[str, Any]) -> bool:
    return annotations_of(job).get(names.COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION) in TRUE


def _with_parallelism(job: Mapping[str, Any], count: int) -> Object:
    result = sized(job, count)
    return replaced(result, ("spec", "completions"), count) if _syncs_completions(job) else result


class BatchJob(DescribedJob):
    """Jobs whose parallelism may shrink, and that are stopped in several steps."""

    def __init__(self) -> None:
        super().__init__(JOB)

    def is_suspended(self, job: Mapping[str, Any]) -> bool:
        return self.suspend_requested(job) and not self.is_stopping(job)

    def is_stopping(self, job: Mapping[str, Any]) -> bool:
        marked = annotations_of(job).get(names.STOPPING_ANNOTATION) == "true"
        return marked and self.suspend_requested(job)

    def pod_sets(self, job: Mapping[str, Any]) -> list[Object]:
        (result,) = super().pod_sets(job)
        minimum = min_parallelism(job)
        if minimum is not None:
            result["minCount"] = minimum
        return [result]

    def _injected(self, job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Object:
        (info,) = infos
        result = super()._injected(job, infos)
        if min_parallelism(job) is not None and info.count != parallelism(job):
            result = _with_parallelism(result, info.count)
        return result

    def _new_record(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
        record = super()._new_record(before, after)
        if parallelism(before) != parallelism(after):
            record["parallelism"] = parallelism(before)
        return record

    def shrunk(self, job: Mapping[str, Any], counts: Mapping[str, int]) -> Object:
        record = self._record(job)
        count = counts.get(names.DEFAULT_POD_SET, parallelism(job))
        if record is None or count >= parallelism(job):
            return dict(job)
        return with_record(_with_parallelism(job, count), {"parallelism": parallelism(job), **record})

    def original(self, job: Mapping[str, Any]) -> Object:
        count = (self._record(job) or {}).get("parallelism")
        result = super().original(job)
        return _with_parallelism(result, count) if type(count) is int and count >= 0 else result

    def stop(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Write | None:
        """Suspend, then forget the start time, then restore the template: the order the API accepts.

        The template of a Job can be changed only while it has no pods and no start time
        (docs/reference/cluster-workloads.md 1.14). The annotation remembers that the last step is still to
        come, should the Workload be gone by then.
        """
        if not self.suspend_requested(job):
            desired = self.suspended(job)
            if self._restored(job, originals) != job:
                desired = replaced(desired, ("metadata", "annotations", names.STOPPING_ANNOTATION), "true")
            return Write(desired)
        if self.is_active(job):
            return None
        if get(job, "status", "startTime") is not None:
            return Write(replaced(job, ("status", "startTime"), None), "status")
        desired = replaced(
            self._restored(job, originals), ("metadata", "annotations", names.STOPPING_ANNOTATION), None
        )
        return None if desired == job else Write(desired)

    def _restored(self, job: Mapping[str, Any], originals: Sequence[Mapping[str, Any]] | None) -> Object:
        result = super()._restored(job, originals)
        if originals and not self.has_record(job) and names.MIN_PARALLELISM_ANNOTATION in annotations_of(job):
            count = originals[0].get("count")
            if count is not None and get(job, "spec", "parallelism") is not None:
                result = _with_parallelism(result, count)
        return result

    def is_active(self, job: Mapping[str, Any]) -> bool:
        started = get(job, "status", "startTime") is not None
        may_have_pods = started and not true_condition(job, ("Suspended",)) and self.outcome(job) is None
        return super().is_active(job) or may_have_pods

    def pods_ready(self, job: Mapping[str, Any]) -> bool:
        status = section(job, "status")
        uncounted = len(get(status, "uncountedTerminatedPods", "succeeded") or ())
        ready = sum(int(status.get(field) or 0) for field in ("succeeded", "ready"))
        return ready + uncounted >= pod_count(job, _PODS)

    def reclaimable(self, job: Mapping[str, Any]) -> dict[str, int]:
        at_a_time = size(job)
        status = section(job, "status")
        if get(job, "spec", "completionMode") == "Indexed":
            done = _indexes(status.get("completedIndexes")) | _indexes(status.get("failedIndexes"))
            terminal = len(done)
        else:
            terminal = int(status.get("succeeded") or 0)
        remaining = _completions(job) - terminal
        if at_a_time > 1 and terminal > 0 and remaining < at_a_time:
            return {names.DEFAULT_POD_SET: at_a_time - max(remaining, 0)}
        return {}

    def validate(self, job: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterable[FieldError]:
        # What it had before stays: it cannot be corrected while the job runs, and the last write of its stop,
        # which ends the time in which its parallelism is not its user's, must not be refused for it.
        known = [] if old is None else list(_partial_admission_errors(old, bounded=True))
        minima = {annotations_of(one).get(names.MIN_PARALLELISM_ANNOTATION) for one in (job, old or job)}
        found = _partial_admission_errors(job, self._waits(job) or len(minima) > 1)
        yield from (error for error in found if error not in known)
        yield from _elastic_errors(job)
        if old is None or self.suspend_requested(job) or self.suspend_requested(old):
            return
        if (
            min_parallelism(old) is not None
            and parallelism(job) != parallelism(old)
            and not self._shrinks(job, old)
        ):
            text = "cannot change while a job with partial admission runs"
            yield FieldError("spec.parallelism", FORBIDDEN, detail=text)
        if _syncs_completions(job) != _syncs_completions(old):
            yield FieldError(_SYNC_PATH, FORBIDDEN, detail="cannot change while the job runs")

    def _shrinks(self, job: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
        """Whether it goes on without pods that have lost their flavor; its record says how many it had."""
        template = section(job, "spec", "template")
        return (
            names.HYBRID_ASSIGNMENT_ANNOTATION in annotations_of(template)
            and "parallelism" in (self._record(job) or {})
            and (min_parallelism(old) or 1) <= parallelism(job) < parallelism(old)
        )

    def _waits(self, job: Mapping[str, Any]) -> bool:
        """Whether its parallelism is what its user wrote.

        From its start until it has stopped, a job has the parallelism that it was admitted with, which is
        even less than the minimum where some of its pods have ended before. One that has ended keeps it.
        """
        return self.is_suspended(job) and self.outcome(job) is None


_MINIMUM_PATH = f"metadata.annotations[{names.MIN_PARALLELISM_ANNOTATION}]"
_SYNC_PATH = f"metadata.annotations[{names.COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION}]"


def _partial_admission_errors(job: Mapping[str, Any], bounded: bool) -> Iterable[FieldError]:
    """What is wrong with the annotations; `bounded`: the minimum must be less than the parallelism."""
    text = annotations_of(job).get(names.MIN_PARALLELISM_ANNOTATION)
    if text is not None:
        most = pod_count(job, _PODS) - 1
        number = integer(text)
        if number is None or number < 1 or (bounded and number > most):
            detail = f"must be a whole number from 1 to {most}"
            if most < 1:
                detail = "must be at least 1 and less than spec.parallelism, which must be 2 or more"
            yield FieldError(_MINIMUM_PATH, INVALID, text, detail)
    text = annotations_of(job).get(names.COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION)
    if text is not None and text not in (*TRUE, *FALSE):
        yield not_supported(_SYNC_PATH, text, ("true", "false"))
    if text in TRUE:
        if get(job, "spec", "completionMode") != "Indexed":
            yield FieldError(_SYNC_PATH, INVALID, text, "needs spec.completionMode Indexed")
        if get(job, "spec", "completions") != parallelism(job):
            completions = get(job, "spec", "completions")
            yield FieldError("spec.completions", INVALID, completions, "must be equal to parallelism")


def _elastic_errors(job: Mapping[str, Any]) -> Iterable[FieldError]:
    """An elastic job has as many pods as it asks for, on any nodes."""
    if annotations_of(job).get(names.ELASTIC_JOB_ANNOTATION) != "true":
        return
    if names.MIN_PARALLELISM_ANNOTATION in annotations_of(job):
        text = annotations_of(job)[names.MIN_PARALLELISM_ANNOTATION]
        yield FieldError(_MINIMUM_PATH, INVALID, text, "cannot be combined with an elastic job")
    at = ("spec", "template", "metadata", "annotations")
    for annotation in (names.REQUIRED_TOPOLOGY_ANNOTATION, names.PREFERRED_TOPOLOGY_ANNOTATION):
        if annotation in (get(job, *at) or {}):
            path = f"{field_path(at)}[{annotation}]"
            yield FieldError(path, FORBIDDEN, detail="cannot be combined with an elastic job")


def _indexes(text: str | None) -> set[int]:
    """The index list of a Job's status, such as `0,2-5`."""
    found: set[int] = set()
    for part in filter(None, (text or "").split(",")):
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found
