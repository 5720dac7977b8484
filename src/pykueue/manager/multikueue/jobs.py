"""Which job a Workload stands for, and what is written about jobs on workers whatever their kind.

Source: docs/reference/admission-checks.md 15 and 16.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import LEADER_WORKER_SET
from pykueue.api.kueue import names
from pykueue.api.objects import (
    Key,
    Object,
    annotations_of,
    controller_of,
    get,
    is_deleting,
    key_of,
    replaced,
    without_finalizer,
)
from pykueue.api.resources import WORKLOAD_PRIORITY_CLASSES
from pykueue.jobs.leaderworkerset import group_index
from pykueue.jobs.pod import POD
from pykueue.jobs.pod_owners import STATEFUL_SET, replicas
from pykueue.jobs.slices import replaced_key
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster
from pykueue.manager.indexes import is_group_workload

from .adapters import DispatchedJob, DispatchedPods, DispatchedSet, ExternalJob, Home, ManagedJob
from .remote import Session, is_dispatched
from .state import end_of

#: Seconds after which a status that could not be copied yet is looked at again.
DEFERRED = 2.0


class RemoteJobs:
    """The jobs of Workloads with a MultiKueue check."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._cluster: Cluster = home.cluster

    def of(self, workload: Object) -> DispatchedJob | None:
        """The job of a Workload; None where its kind cannot be dispatched."""
        found = self._set_of(workload)
        if found is not None:
            informer, name = found
            kind = STATEFUL_SET if informer is self._cluster.stateful_sets else LEADER_WORKER_SET
            own = informer.get(workload["metadata"].get("namespace"), name)
            return DispatchedSet(self._home, kind, own, kind is LEADER_WORKER_SET)
        namespace, name = key_of(workload)
        if is_group_workload(workload):
            if POD.framework not in self._cluster.jobs:
                return None
            pods = self._cluster.pods_of_group(namespace, name)
            return DispatchedPods(self._home, pods, namespace, name)
        external = self._external(workload)
        if external is not None:
            return external
        job_of = self._cluster.job_of(workload)
        if job_of is None or not is_dispatched(job_of[0]):
            return None
        integration, job = job_of
        if integration.kind is POD:
            return DispatchedPods(self._home, [] if job is None else [job], namespace, name)
        return ManagedJob(self._home, integration, job, workload)

    def _external(self, workload: Object) -> ExternalJob | None:
        """The job of a Workload whose kind is queued by another controller."""
        owner = controller_of(workload) or {}
        group = str(owner.get("apiVersion") or "").rpartition("/")[0]
        informer = self._cluster.external_jobs.get((group, str(owner.get("kind"))))
        if informer is None:
            return None
        job = informer.get(workload["metadata"].get("namespace"), str(owner.get("name")))
        is_same = job is not None and job["metadata"].get("uid") == owner.get("uid")
        return ExternalJob(self._home, informer.resource, job if is_same else None)

    def missing_adapter(self, workload: Object) -> str:
        """Why a Workload without a job that can be dispatched is rejected."""
        owner = controller_of(workload)
        kind = "without an owner" if owner is None else f"of the kind {owner.get('kind')}"
        return f"No multikueue adapter found for workloads {kind}"

    def _set_of(self, workload: Object) -> tuple[Informer, str] | None:
        """The kind and the name of the set that a group Workload was made for."""
        annotations = annotations_of(workload)
        name = annotations.get(names.JOB_OWNER_NAME_ANNOTATION)
        if not name:
            return None
        kind = annotations.get(names.JOB_OWNER_GVK_ANNOTATION, "").rpartition("Kind=")[2]
        for known, informer in (
            (STATEFUL_SET, self._cluster.stateful_sets),
            (LEADER_WORKER_SET, self._cluster.leader_worker_sets),
        ):
            if informer is not None and kind == known.resource.kind:
                return informer, name
        return None

    # The groups of one set

    def parts(self, workload: Object) -> Sequence[Object] | None:
        """The Workloads of all groups of the LeaderWorkerSet that a Workload is of, by index.

        None for a Workload of anything else; empty while there is not one for each group.
        """
        found = self._set_of(workload)
        if found is None or found[0] is not self._cluster.leader_worker_sets:
            return None
        informer, name = found
        own = informer.get(workload["metadata"].get("namespace"), name)
        if own is None:
            return []
        workloads = self._cluster.workloads.by_index("owner", own["metadata"]["uid"])
        known = sorted((one for one in workloads if not is_deleting(one)), key=lambda w: group_index(w) or 0)
        return known if len(known) >= replicas(own) else []

    def _has_others(self, session: Session, job: Mapping[str, Any], key: Key) -> bool:
        """Whether a copy on a worker is also that of other Workloads that run there."""
        others = (self._cluster.workload(other) for other in session.keys_of(job) if other != key)
        return any(
            get(other, "status", "clusterName") == session.name and not conditions.is_finished(other)
            for other in others
            if other is not None and not is_deleting(other)
        )

    async def remove_unbound(self, session: Session, key: Key) -> None:
        """Remove the copy of a slice that another one has replaced, once the job is that other one's.

        The job is removed too where none of its slices runs on the worker any more: while it could not be
        reached, another one got the larger slice. Its end is kept until the larger slice has it.
        """
        if end_of(session.workloads.get(*key) or {}) is not None and self.unfinished_slices(key):
            return
        if not session.jobs_of(key) or not self._runs_on(session, key):
            await self.remove(session, key)

    def _runs_on(self, session: Session, key: Key) -> bool:
        """Whether the worker is that of an unfinished slice of the job that a slice belongs to."""
        return any(get(one, "status", "clusterName") == session.name for one in self.unfinished_slices(key))

    def unfinished_slices(self, key: Key) -> Sequence[Object]:
        """The unfinished Workloads of the job of a Workload."""
        owner = controller_of(self._cluster.workload(key) or {}) or {}
        return self._cluster.unfinished_of(str(owner.get("uid")))

    def have_replaced(self, key: Key, others: Iterable[Key]) -> bool:
        """Whether one of the others has taken the place of a slice, and has quota for it."""
        return any(self._follows(key, self._cluster.workload(other)) for other in others)

    def _follows(self, key: Key, workload: Object | None) -> bool:
        if workload is None or not conditions.has_quota(workload) or conditions.is_evicted(workload):
            return False
        seen: set[Key] = set()
        before = replaced_key(workload)
        while before is not None and before != key and before not in seen:
            seen.add(before)
            before = replaced_key(self._cluster.workload(before) or {})
        return before == key

    # Writes on workers

    async def push_priority(self, session: Session, key: Key, reference: Mapping[str, Any] | None) -> None:
        """Let the job's copies name the WorkloadPriorityClass of its Workload."""
        if reference is None or reference.get("kind") != WORKLOAD_PRIORITY_CLASSES.kind:
            return
        path = ("metadata", "labels", names.PRIORITY_CLASS_LABEL)
        for informer, job in session.jobs_of(key):
            await session.writer.change(informer, job, replaced(job, path, reference.get("name")))

    async def remove(self, session: Session, key: Key) -> None:
        """Remove the copies of a Workload and of its job from a worker: the job first."""
        for informer, job in session.jobs_of(key):
            if not is_deleting(job) and not self._has_others(session, job, key):
                await session.writer.delete(informer, job, propagation="Background")
        copy = session.workloads.get(*key)
        if copy is None:
            return
        desired = without_finalizer(copy, names.RESOURCE_IN_USE_FINALIZER)
        try:
            if desired is not copy:
                copy = await session.writer.change(session.workloads, copy, desired)
            if not is_deleting(copy):
                await session.writer.delete(session.workloads, copy)
        except ApiError as error:
            if not error.not_found:
                raise


def runs_remotely(copy: Mapping[str, Any]) -> bool:
    """Whether a worker has admitted the copy and is not taking that back."""
    return conditions.is_admitted(copy) and not conditions.is_evicted(copy)
