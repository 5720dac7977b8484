"""Which Workload a user means: by its name, or by the name and kind of its job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pykueue.api import kueue
from pykueue.api.kueue.names import QUEUE_LABEL, WORKLOAD_SLICE_REPLACEMENT_ANNOTATION
from pykueue.api.meta import OwnerReference
from pykueue.api.objects import Object, labels_of
from pykueue.api.resources import JOBS, KUEUE_GROUP, Resource
from pykueue.api.similar import did_you_mean
from pykueue.api.variants import flavor_of, is_parent, parent_uid
from pykueue.jobs.kinds import BUILT_IN

#: How the type of a Workload is written before its name, as kubectl prints and accepts it.
WORKLOAD_TYPES: Final = frozenset({"workload", "workloads", "wl", "kwl", "kueueworkload", "kueueworkloads"})


class TargetError(ValueError):
    """No Workload matches, or more than one does."""


class AmbiguousTargetError(TargetError):
    """Several Workloads match."""


def find_workload(workloads: Iterable[kueue.Workload], target: str, namespace: str) -> kueue.Workload:
    """The Workload that `NAME`, `workload/NAME` or `KIND/NAME` of a job names in a namespace.

    Of several Workloads of one job, that which is not finished; of the slices of an elastic job, that which
    asks for its size. Raises TargetError.
    """
    here = [each for each in workloads if each.metadata.namespace == namespace]
    kind, slash, name = target.rpartition("/")
    kind = kind.lower().removesuffix(f".{KUEUE_GROUP}")
    if not name or (slash and not kind):
        raise TargetError(f"{target!r} names no workload; accepted: NAME, workload/NAME, KIND/NAME of a job")
    if not kind or kind in WORKLOAD_TYPES:
        for workload in here:
            if workload.metadata.name == name:
                return workload
    found = [each for each in here if kind not in WORKLOAD_TYPES and _is_of_job(each, kind, name)]
    jobs = sorted({f"{owner.kind}/{name}" for each in found for owner in _owners(each, kind, name)})
    if len(jobs) > 1:
        raise AmbiguousTargetError(f"{target!r} is the name of several jobs: {', '.join(jobs)}")
    running = _newest_slices([each for each in found if not each.condition_is("Finished")])
    if len(running) > 1:
        names = ", ".join(f"workload/{each.metadata.name}" for each in running)
        raise AmbiguousTargetError(f"{jobs[0]} has several workloads: {names}")
    if running or found:
        return (running or found)[-1]
    near = did_you_mean(name, [each.metadata.name for each in here])
    what = f"no Workload {name}" if kind in WORKLOAD_TYPES else f"no Workload or job {target}"
    if kind and kind not in WORKLOAD_TYPES:
        what = f"no Workload of {kind} {name}"
    raise TargetError(f"{what} in namespace {namespace}{near}")


def _newest_slices(workloads: list[kueue.Workload]) -> list[kueue.Workload]:
    """Without the slices of elastic jobs that others of them replace."""
    replaced = {each.metadata.annotations.get(WORKLOAD_SLICE_REPLACEMENT_ANNOTATION) for each in workloads}
    return [each for each in workloads if each.metadata.key not in replaced]


def competing(
    workloads: Iterable[kueue.Workload], workload: kueue.Workload
) -> tuple[kueue.Workload, list[str]]:
    """The Workload that competes for quota in place of one, and notes on that.

    It is the Workload itself, or of one with variants (concurrent admission) that which is admitted, holds
    quota or is pending, in this order.
    """
    if not is_parent(workload.metadata.labels):
        return workload, []
    uid = workload.metadata.uid
    family = [each for each in workloads if parent_uid(each.metadata) == uid]
    if not family:
        return workload, []
    chosen = min(family, key=_standing)
    others = ", ".join(
        f"workload/{each.metadata.name} ({flavor_of(each.metadata.annotations)})"
        for each in family
        if each is not chosen
    )
    flavor = flavor_of(chosen.metadata.annotations)
    return chosen, [
        f"the workload has a variant for each flavor; this is the one for {flavor}"
        + (f", the others are {others}" if others else "")
    ]


def _standing(variant: kueue.Workload) -> tuple[bool, bool, bool]:
    return (
        not variant.condition_is("Admitted"),
        not variant.condition_is("QuotaReserved"),
        not variant.spec.active,
    )


def _is_of_job(workload: kueue.Workload, kind: str, name: str) -> bool:
    return bool(_owners(workload, kind, name))


def _owners(workload: kueue.Workload, kind: str, name: str) -> list[OwnerReference]:
    """The owners of that name whose kind, in any of the ways that kubectl accepts it, is `kind`."""
    return [
        owner
        for owner in workload.metadata.owner_references
        if owner.name == name and (not kind or _is_kind(kind, owner.kind, owner.api_version))
    ]


def _is_kind(written: str, kind: str, api_version: str) -> bool:
    plain, _, group = written.partition(".")
    singular = kind.lower()
    if group and group != api_version.rpartition("/")[0]:
        return False
    return plain in (singular, f"{singular}s", f"{singular}es")


def job_resources(target: str) -> list[Resource]:
    """The built-in job kinds that `KIND/NAME` can mean; Jobs for a name alone."""
    kind, _, _ = target.rpartition("/")
    kind = kind.lower()
    found = [each.resource for each in BUILT_IN]
    if not kind:
        return [each for each in found if each.group_kind == JOBS.group_kind]
    return [each for each in found if _is_kind(kind, each.kind, each.api_version)]


def without_workload(job: Object, local_queues: Sequence[str]) -> str:
    """Why a job has no Workload, and what to do; `local_queues` are the names of those in its namespace."""
    metadata = job["metadata"]
    name = f"{job['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
    accepted = f"LocalQueues of the namespace: {', '.join(sorted(local_queues)) or 'none'}"
    queue = labels_of(job).get(QUEUE_LABEL)
    if not queue:
        return (
            f"{name} is not queued: it has no label {QUEUE_LABEL}. "
            f"Set it to the name of a LocalQueue; {accepted}"
        )
    if queue not in local_queues:
        return f"{name} has no Workload, and its LocalQueue {queue} does not exist; {accepted}"
    return (
        f"{name} has no Workload, although its LocalQueue {queue} exists: its kind is not among the "
        "manager's integrations, another controller manages it, or the manager does not run"
    )
