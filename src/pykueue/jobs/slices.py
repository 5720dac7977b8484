"""Workload slices: the Workloads of an elastic job, of which each larger one replaces the one before.

An elastic job changes its size while it runs. Fewer pods are a change of its Workload; for more pods a second
Workload, the replacement, asks for the whole new size and takes over the quota of the first when it is
admitted. Source: docs/reference/kueue-integrations.md 9.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykueue.api import conditions
from pykueue.api.jobkinds import JobKind
from pykueue.api.jobkinds.ray import RAY_JOB, SUBMITTER
from pykueue.api.kueue import names
from pykueue.api.objects import Key, Object, annotations_of, controller_of, get, is_deleting, key_of, replaced

from .base import JobIntegration
from .job import size, sized
from .podsets import count_of
from .workload import workload_name

#: Reason of Finished: another slice took over the quota.
REPLACED: Final = "WorkloadSliceReplaced"
#: Reason of Finished: the job does not ask for this size any more.
OUT_OF_SYNC: Final = "OutOfSync"
#: The gate that keeps the pods of an elastic job from being scheduled until their quota is reserved.
GATE: Final = {"name": names.ELASTIC_JOB_GATE}


def is_elastic(obj: Mapping[str, Any]) -> bool:
    """Whether a job, or the job of a Workload, is to be elastic."""
    return annotations_of(obj).get(names.ELASTIC_JOB_ANNOTATION) == "true"


def is_gated_pod_set(workload: Mapping[str, Any], name: str) -> bool:
    """Whether the pods of a pod set wait for their quota one by one: that which submits a RayJob is alone."""
    owner = controller_of(workload)
    return name != SUBMITTER or owner is None or owner.get("kind") != RAY_JOB.resource.kind


def replaced_key(workload: Mapping[str, Any]) -> Key | None:
    """The slice that a Workload replaces, or has replaced; None where it is the first of its job."""
    namespace, slash, name = (
        annotations_of(workload).get(names.WORKLOAD_SLICE_REPLACEMENT_ANNOTATION, "").partition("/")
    )
    return (namespace, name) if slash else None


def chain_name(workload: Mapping[str, Any]) -> str:
    """The name that all slices of a job share, by which their pods are known: that of the first one."""
    return annotations_of(workload).get(names.WORKLOAD_SLICE_NAME_ANNOTATION) or key_of(workload)[1]


def counts_of(pod_sets: Iterable[Mapping[str, Any]] | None) -> dict[str, int]:
    """Pods by pod set."""
    return {str(pods.get("name")): count_of(pods) for pods in pod_sets or ()}


def with_counts(workload: Mapping[str, Any], counts: Mapping[str, int]) -> Object:
    """The Workload with other numbers of pods; the same one where nothing changes."""
    pod_sets = get(workload, "spec", "podSets") or ()
    changed = [
        pods if counts[name] == count_of(pods) else {**pods, "count": counts[name]}
        for pods in pod_sets
        for name in [str(pods.get("name"))]
    ]
    return dict(workload) if changed == list(pod_sets) else replaced(workload, ("spec", "podSets"), changed)


def reserved_counts(workload: Mapping[str, Any]) -> dict[str, int]:
    """Pods by pod set that quota is reserved for; reclaimable ones are not among them.

    An admission with reclaimable pods is for the others only, so these are subtracted from the size alone.
    """
    admitted = conditions.admitted_counts(workload)
    given_back = conditions.reclaimable_counts(workload)
    return {
        name: max(0, min(count - given_back.get(name, 0), admitted.get(name, count)))
        for name, count in counts_of(get(workload, "spec", "podSets")).items()
    }


def reclaimable(
    job: Mapping[str, Any], workload: Mapping[str, Any], integration: JobIntegration
) -> dict[str, int]:
    """Pods of the slice of an elastic batch/v1 Job that will not run again, and never fewer than before.

    They are those beyond the size of the slice, not beyond the parallelism of the Job.
    """
    name = names.DEFAULT_POD_SET
    count = counts_of(get(workload, "spec", "podSets")).get(name, 0)
    known = count - reserved_counts(workload).get(name, count)
    now = integration.reclaimable(sized(job, count)).get(name, 0)
    return {name: max(known, now)} if known or now else {}


def claimable(job: Mapping[str, Any], workload: Mapping[str, Any], own: Mapping[str, int]) -> dict[str, int]:
    """The most that a slice of an elastic batch/v1 Job may count as reclaimable.

    `own` are the pods of the Job that will not run again, of those that it asks for.
    """
    name = names.DEFAULT_POD_SET
    needed = size(job) - own.get(name, 0)
    return {name: max(0, counts_of(get(workload, "spec", "podSets")).get(name, 0) - needed)}


@dataclass(frozen=True)
class Slices:
    """The unfinished slices of one job, by what becomes of them."""

    #: Holds the quota that the job runs with.
    active: Object | None = None
    #: Asks for what `active` lacks; without an active slice for all of the job.
    pending: Object | None = None
    #: Still hold quota that `active` took over.
    replaced: tuple[Object, ...] = ()
    #: Wait for quota that the job does not need, or are being deleted.
    outdated: tuple[Object, ...] = ()


def classify(workloads: Sequence[Object]) -> Slices:
    """The slices of a job, given its unfinished Workloads, oldest first.

    After a crash two may hold quota: the replacement counts. A replacement is of no use once the slice that
    it replaces is evicted: the job stops, and that slice queues again.
    """
    reserving = [one for one in workloads if conditions.has_quota(one)]
    others = [one for one in workloads if not conditions.has_quota(one)]
    waiting = [one for one in others if not is_deleting(one)]
    if not reserving:
        oldest = waiting[0] if waiting else None
        return Slices(pending=oldest, outdated=tuple(one for one in others if one is not oldest))
    taken_over = {replaced_key(one) for one in reserving}
    heads = [one for one in reserving if key_of(one) not in taken_over] or reserving
    active = heads[-1]
    pending = None
    if not conditions.is_evicted(active):
        successors = [one for one in waiting if replaced_key(one) == key_of(active)]
        pending = successors[-1] if successors else None
    return Slices(
        active,
        pending,
        tuple(one for one in reserving if one is not active),
        tuple(one for one in others if one is not pending),
    )


def as_slice(
    workload: Object,
    job: Mapping[str, Any],
    kind: JobKind,
    old: Mapping[str, Any] | None,
    limit: int,
    taken: Iterable[str],
) -> Object:
    """A new Workload of an elastic job as a slice, which replaces `old` where there is one.

    Its name, of at most `limit` characters and none of `taken`, has the generation of the job.
    """
    metadata, generation = job["metadata"], str(get(job, "metadata", "generation") or 0)
    used = frozenset(taken)
    candidates = (
        workload_name(
            kind.resource.kind,
            kind.resource.group,
            str(metadata["name"]),
            str(metadata.get("uid")),
            limit,
            f"{generation}-{number}" if number else generation,
        )
        for number in range(len(used) + 1)
    )
    name = next(one for one in candidates if one not in used)
    annotations = {**annotations_of(workload), names.WORKLOAD_SLICE_NAME_ANNOTATION: name}
    if old is not None:
        annotations[names.WORKLOAD_SLICE_NAME_ANNOTATION] = chain_name(old)
        annotations[names.WORKLOAD_SLICE_REPLACEMENT_ANNOTATION] = "/".join(key_of(old))
    return {**workload, "metadata": {**workload["metadata"], "name": name, "annotations": annotations}}
