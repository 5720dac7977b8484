"""The copies of jobs on workers: created, their status brought back, removed.

Only objects that carry this manager's origin label are touched. Source: docs/reference/admission-checks.md
15, 17.3 and 18.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import value_at, with_value
from pykueue.api.kueue import names
from pykueue.api.meta import set_condition
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, labels_of, replaced, without_finalizer
from pykueue.api.resources import JOBS, WORKLOAD_PRIORITY_CLASSES
from pykueue.clock import Clock
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.remote import remote_copy, with_remote_status
from pykueue.kube.errors import ApiError
from pykueue.manager.cluster import Cluster

from .remote import Session

#: Seconds after which a status that could not be copied yet is looked at again.
DEFERRED = 2.0


class ForeignObjectError(ConnectionError):
    """An object of the same name on a worker does not come from this manager."""


def expected_field(integration: JobIntegration) -> str:
    """The field that hands a job over, as messages name it."""
    return ".".join(integration.kind.managed_by or ())


def is_handed_over(integration: JobIntegration, job: Mapping[str, Any]) -> bool:
    """Whether a worker is responsible for running the job."""
    path = integration.kind.managed_by
    return path is not None and value_at(job, path) == names.MULTIKUEUE_CONTROLLER


class RemoteJobs:
    """What is written about jobs, on workers and of their status here."""

    def __init__(self, cluster: Cluster, origin: str, clock: Clock) -> None:
        self._cluster = cluster
        self._origin = origin
        self._clock = clock

    def copy_of(self, session: Session, integration: JobIntegration, job: Object) -> Object | None:
        """The job's copy on a worker."""
        found: Object | None = session.jobs[integration.kind.framework].get(*key_of(job))
        return found

    async def create(
        self, session: Session, integration: JobIntegration, job: Object, workload: Object
    ) -> Object:
        """Create the job's copy on a worker, or find the one that is there. Raises ForeignObjectError."""
        informer = session.jobs[integration.kind.framework]
        try:
            return await session.writer.create(
                informer, remote_copy(integration, job, workload, self._origin)
            )
        except ApiError as error:
            if not error.already_exists:
                raise
        # The cache has only copies of this manager: what else is there is not taken in.
        namespace, name = key_of(job)
        found = await session.client.find(informer.resource, name, namespace)
        if found is not None:
            self.check_origin(found)
            return found
        raise ConnectionError("the copy of the job was deleted meanwhile")

    def check_origin(self, obj: Mapping[str, Any]) -> None:
        """Raises ForeignObjectError unless the object comes from this manager."""
        if labels_of(obj).get(names.MULTIKUEUE_ORIGIN_LABEL) != self._origin:
            raise ForeignObjectError(
                f"{obj.get('kind')} {obj['metadata']['name']} on the worker does not have the label "
                f"{names.MULTIKUEUE_ORIGIN_LABEL}={self._origin}: it was not created by this manager"
            )

    async def synchronise(self, integration: JobIntegration, job: Object, remote: Object) -> bool:
        """Bring the status back; False where that must wait until the job here has started or stopped."""
        desired, complete = with_remote_status(job, remote), True
        if integration.kind.resource == JOBS:
            suspended = integration.suspend_requested(job)
            if (
                suspended
                and not integration.suspend_requested(remote)
                and integration.outcome(remote) is None
            ):
                # The API server takes no running status of a suspended Job.
                desired, complete = self._shown_suspended(job), False
        await self._write(integration, job, desired)
        return complete

    def _shown_suspended(self, job: Object) -> Object:
        present = get(job, "status", "conditions") or []
        changed = set_condition(
            present, "Suspended", "True", "JobSuspended", "Job suspended", self._clock.time()
        )
        for one in changed:
            one.pop("observedGeneration", None)
        return replaced(job, ("status", "conditions"), changed)

    async def without_pods(self, integration: JobIntegration, job: Object) -> None:
        """Note in the status that no pods run: their worker is lost, or has none of them left."""
        if not integration.is_active(job):
            return
        desired = job
        for sign in integration.kind.active:
            if isinstance(sign, tuple) and "*" not in sign:
                desired = with_value(desired, sign, None)
        if integration.kind.resource == JOBS:
            for field in ("ready", "terminating"):
                desired = replaced(desired, ("status", field), None)
            desired = self._shown_suspended(desired)
        elif integration.is_active(desired):
            desired = replaced(desired, ("status",), {})
        await self._write(integration, job, desired)

    async def _write(self, integration: JobIntegration, job: Object, desired: Object) -> None:
        informer = self._cluster.jobs[integration.kind.framework]
        if desired.get("status") != job.get("status"):
            await self._cluster.connection.writer.change(informer, job, desired, "status")

    async def push_priority(self, session: Session, key: Key, reference: Mapping[str, Any] | None) -> None:
        """Let the job's copy name the WorkloadPriorityClass of its Workload."""
        if reference is None or reference.get("kind") != WORKLOAD_PRIORITY_CLASSES.kind:
            return
        path = ("metadata", "labels", names.PRIORITY_CLASS_LABEL)
        for informer, job in session.jobs_of(key):
            await session.writer.change(informer, job, replaced(job, path, reference.get("name")))

    async def remove(self, session: Session, key: Key) -> None:
        """Remove the copies of a Workload and of its job from a worker: the job first."""
        for informer, job in session.jobs_of(key):
            if not is_deleting(job):
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
