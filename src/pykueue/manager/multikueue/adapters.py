"""The job of a Workload as it is dispatched: what there is of it here, its copies on workers, its status.

One class for each way in which kinds are handed over. Only objects that carry this manager's origin label are
touched. Source: docs/reference/admission-checks.md 15, 17.3 and 18.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import JobKind, Path, value_at, with_value
from pykueue.api.kueue import names
from pykueue.api.meta import set_condition
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, labels_of, replaced
from pykueue.api.pods import is_terminal, phase
from pykueue.api.resources import JOBS, Resource
from pykueue.clock import Clock
from pykueue.jobs.base import JobIntegration
from pykueue.jobs.pod import POD, is_gated, runs_remotely
from pykueue.jobs.remote import (
    Origin,
    bound,
    remote_copy,
    remote_external,
    remote_pod,
    remote_set,
    resized,
    with_remote_job_status,
    with_remote_pod_status,
    with_remote_status,
    without_remote_pod_status,
)
from pykueue.jobs.slices import counts_of, is_elastic
from pykueue.kube.errors import ApiError
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster

from .remote import Session, external_name


class ForeignObjectError(ConnectionError):
    """An object of the same name on a worker does not come from this manager."""


@dataclass(frozen=True)
class Home:
    """The manager's own cluster, and the origin label that its copies have."""

    cluster: Cluster
    origin: str
    clock: Clock

    @property
    def mark(self) -> Origin:
        """What copies say about where they come from."""
        return Origin(self.origin, self.cluster.identifiers)

    def check_origin(self, obj: Mapping[str, Any]) -> None:
        """Raises ForeignObjectError unless the object comes from this manager."""
        if labels_of(obj).get(names.MULTIKUEUE_ORIGIN_LABEL) != self.origin:
            raise ForeignObjectError(
                f"{obj.get('kind')} {obj['metadata']['name']} on the worker does not have the label "
                f"{names.MULTIKUEUE_ORIGIN_LABEL}={self.origin}: it was not created by this manager"
            )

    async def create(self, session: Session, informer: Informer, copy: Object) -> None:
        """Create a copy on a worker, or find the one that is there. Raises ForeignObjectError."""
        try:
            await session.writer.create(informer, copy)
            return
        except ApiError as error:
            if not error.already_exists:
                raise
        # The cache has only copies of this manager: what else is there is not taken in.
        namespace, name = key_of(copy)
        found = await session.client.find(informer.resource, name, namespace)
        if found is None:
            raise ConnectionError("the copy of the job was deleted meanwhile")
        self.check_origin(found)

    async def write_status(self, informer: Informer, job: Object, desired: Object) -> None:
        """Write the status of an object of this cluster, if it differs."""
        if desired.get("status") != job.get("status"):
            await self.cluster.connection.writer.change(informer, job, desired, "status")


class DispatchedJob(ABC):
    """The job of one Workload."""

    #: Whether there is something to dispatch; a job that was deleted is nothing.
    exists: bool
    #: The name of its kind.
    framework: str

    def refusal(self) -> str:
        """Why it cannot be dispatched; empty: it can."""
        return ""

    @abstractmethod
    def copies(self, session: Session) -> Sequence[Object]:
        """What a worker has of it."""

    @abstractmethod
    def is_current(self, session: Session) -> bool:
        """Whether a worker has all of it, and as it is here."""

    @abstractmethod
    async def bring_current(self, session: Session, workload: Object) -> None:
        """Create or change what a worker has of it. Raises ForeignObjectError."""

    @abstractmethod
    async def synchronise(self, session: Session) -> bool:
        """Bring the status back; False where that must wait until the job here has started or stopped."""

    @abstractmethod
    def shows_end(self, session: Session) -> bool:
        """Whether the copies that a worker still has show how the job ended."""

    def lacks_parts(self, session: Session) -> bool:
        """Whether a worker does not have all objects of it that are to run."""
        return False

    def was_stopped(self, session: Session) -> bool:
        """Whether it ended on a worker because the worker stopped it, as far as the copies show."""
        return False

    def has_stopped(self, session: Session, copy: Object | None) -> bool:
        """Whether a worker, with its copy of the Workload, shows that no pod of the job runs or will run."""
        if copy is None:
            return not self.copies(session)
        # One that is still active may get quota again at once.
        is_over = conditions.is_finished(copy) or not conditions.is_active(copy)
        return is_over and not conditions.has_quota(copy)

    def bound_otherwise(self, session: Session) -> Sequence[Key]:
        """Other Workloads that its copy on a worker belongs to: earlier slices of an elastic job."""
        return []

    def has_ended(self) -> bool:
        """Whether its status here says that it has come to its end."""
        return False

    @abstractmethod
    def is_active(self) -> bool:
        """Whether its status here says that pods of it run."""

    @abstractmethod
    async def without_pods(self) -> None:
        """Note in the status here that no pods run: their worker is lost, or has none of them left."""


def not_handed_over(job: Mapping[str, Any], path: Path) -> str:
    """Why a job with the field `path` is not MultiKueue's to run; empty: it is."""
    value, wanted = value_at(job, path), names.MULTIKUEUE_CONTROLLER
    if value == wanted:
        return ""
    return f'The owner is not managed by Kueue, Expecting {".".join(path)} to be "{wanted}" not "{value}"'


class _OneObject(DispatchedJob):
    """A job that is one object, whose copy on a worker has its name."""

    def __init__(self, home: Home, framework: str, job: Object | None) -> None:
        self._home = home
        self.framework = framework
        self._job = job or {}
        self.exists = job is not None

    def _informer(self, session: Session) -> Informer:
        return session.jobs[self.framework]

    def _copy(self, session: Session) -> Object | None:
        return self._informer(session).get(*key_of(self._job)) if self.exists else None

    def copies(self, session: Session) -> Sequence[Object]:
        copy = self._copy(session)
        return [] if copy is None else [copy]


class ManagedJob(_OneObject):
    """A job with a field that names MultiKueue as the controller responsible for it."""

    def __init__(self, home: Home, integration: JobIntegration, job: Object | None, workload: Object) -> None:
        super().__init__(home, integration.kind.framework, job)
        self._workload = workload
        gates = home.cluster.configuration.gates
        #: Whether it has several Workloads in a row, its slices, each of another size.
        self._elastic = (
            integration.kind.elastic and gates["ElasticJobsViaWorkloadSlices"] and is_elastic(job or {})
        )
        self._integration = integration

    def refusal(self) -> str:
        path = self._integration.kind.managed_by or ()
        return not_handed_over(self._job, path) if self.exists else ""

    def is_current(self, session: Session) -> bool:
        copy = self._copy(session)
        return copy is not None and self._changed(copy) == copy

    def _changed(self, copy: Object) -> Object:
        """The copy with what may change on the job while it runs."""
        if self._home.cluster.configuration.gates["MultiKueueRemoteSpecSync"]:
            for path in self._integration.kind.passed_on:
                copy = replaced(copy, path, value_at(self._job, path))
        if self._elastic:
            counts = counts_of(get(self._workload, "spec", "podSets"))
            copy = resized(
                self._integration,
                self._job,
                bound(copy, self._workload, self._home.cluster.identifiers),
                counts,
            )
        return copy

    def bound_otherwise(self, session: Session) -> Sequence[Key]:
        own = key_of(self._workload)
        return [key for copy in self.copies(session) for key in session.keys_of(copy) if key != own]

    async def bring_current(self, session: Session, workload: Object) -> None:
        informer, copy = self._informer(session), self._copy(session)
        if copy is None:
            copy = remote_copy(self._integration, self._job, workload, self._home.mark)
            await self._home.create(session, informer, copy)
        elif not is_deleting(copy):
            await session.writer.change(informer, copy, self._changed(copy))

    async def synchronise(self, session: Session) -> bool:
        remote = self._copy(session)
        if remote is None:
            return True
        job, integration = self._job, self._integration
        complete = True
        if integration.kind.resource != JOBS:
            desired = with_remote_status(job, remote)
        else:
            desired = with_remote_job_status(job, remote)
            suspended = integration.suspend_requested(job)
            running = not integration.suspend_requested(remote) and integration.outcome(remote) is None
            if suspended and running:
                # The API server takes no running status of a suspended Job.
                desired, complete = self._shown_suspended(job), False
        await self._write(desired)
        return complete

    def shows_end(self, session: Session) -> bool:
        remote = self._copy(session)
        return remote is None or self._integration.outcome(remote) is not None

    def has_ended(self) -> bool:
        return self.exists and self._integration.outcome(self._job) is not None

    def is_active(self) -> bool:
        return not self.refusal() and self._integration.is_active(self._job)

    async def without_pods(self) -> None:
        job, integration = self._job, self._integration
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
        await self._write(desired)

    def _shown_suspended(self, job: Object) -> Object:
        present = get(job, "status", "conditions") or []
        now = self._home.clock.time()
        changed = set_condition(present, "Suspended", "True", "JobSuspended", "Job suspended", now)
        for one in changed:
            one.pop("observedGeneration", None)
        return replaced(job, ("status", "conditions"), changed)

    async def _write(self, desired: Object) -> None:
        informer = self._home.cluster.jobs[self._integration.kind.framework]
        await self._home.write_status(informer, self._job, desired)


class ExternalJob(_OneObject):
    """A job of a kind that another controller queues, here and on workers."""

    def __init__(self, home: Home, resource: Resource, job: Object | None) -> None:
        super().__init__(home, external_name(resource), job)
        self._resource = resource

    def refusal(self) -> str:
        return not_handed_over(self._job, ("spec", "managedBy")) if self.exists else ""

    def is_current(self, session: Session) -> bool:
        return bool(self.copies(session))

    async def bring_current(self, session: Session, workload: Object) -> None:
        copy = remote_external(self._resource, self._job, workload, self._home.mark)
        await self._home.create(session, self._informer(session), copy)

    async def synchronise(self, session: Session) -> bool:
        informer = self._home.cluster.external_jobs[self._resource.group_kind]
        for copy in self.copies(session):
            if copy.get("status") is not None:
                await self._home.write_status(informer, self._job, with_remote_status(self._job, copy))
        return True

    def shows_end(self, session: Session) -> bool:
        return True  # only its own controller can tell

    def is_active(self) -> bool:
        return False

    async def without_pods(self) -> None:
        """Nothing: only its own controller knows its status."""


class DispatchedPods(DispatchedJob):
    """A pod, or the pods of a group, which stay gated here: every one of them has a copy of its name."""

    def __init__(self, home: Home, pods: Sequence[Object], namespace: str, workload: str) -> None:
        self._home = home
        self._pods = pods
        self.framework = POD.framework
        self._key = (namespace, workload)
        self.exists = bool(pods)

    def copies(self, session: Session) -> Sequence[Object]:
        return [pod for jobs, pod in session.jobs_of(self._key) if jobs is session.jobs[POD.framework]]

    def _missing(self, session: Session) -> list[Object]:
        """Pods without a copy; one that has ended here needs none."""
        found = {pod["metadata"]["name"] for pod in self.copies(session)}
        live = (pod for pod in self._pods if not (is_terminal(pod) or is_deleting(pod)))
        return [pod for pod in live if pod["metadata"]["name"] not in found]

    def _surplus(self, session: Session) -> list[Object]:
        """Copies of pods that are gone here."""
        known = {pod["metadata"]["name"] for pod in self._pods if not is_deleting(pod)}
        copies = (copy for copy in self.copies(session) if not is_deleting(copy))
        return [copy for copy in copies if copy["metadata"]["name"] not in known]

    def lacks_parts(self, session: Session) -> bool:
        left = {copy["metadata"]["name"] for copy in self.copies(session) if not is_deleting(copy)}
        live = (pod for pod in self._pods if not (is_terminal(pod) or is_deleting(pod)))
        return any(pod["metadata"]["name"] not in left for pod in live)

    def is_current(self, session: Session) -> bool:
        return not self._missing(session) and not self._surplus(session)

    async def bring_current(self, session: Session, workload: Object) -> None:
        informer = session.jobs[POD.framework]
        for copy in self._surplus(session):
            await session.writer.delete(informer, copy)
        for pod in self._missing(session):
            await self._home.create(session, informer, remote_pod(pod, workload, self._home.mark))

    async def synchronise(self, session: Session) -> bool:
        informer = self._home.cluster.jobs[POD.framework]
        copies = {copy["metadata"]["name"]: copy for copy in self.copies(session)}
        for pod in self._pods:
            copy = copies.get(pod["metadata"]["name"])
            if copy is None or is_deleting(pod):
                continue
            # The worker stops a copy that is being deleted: its failure is not the pod's, its success is.
            if is_deleting(copy) and phase(copy) != "Succeeded":
                continue
            await self._home.write_status(informer, pod, with_remote_pod_status(pod, copy))
        return True

    def shows_end(self, session: Session) -> bool:
        return all(map(is_terminal, self.copies(session)))

    def was_stopped(self, session: Session) -> bool:
        left = {copy["metadata"]["name"] for copy in self.copies(session) if not is_deleting(copy)}
        return any(pod["metadata"]["name"] not in left for pod in self._pods if not is_terminal(pod))

    def has_stopped(self, session: Session, copy: Object | None) -> bool:
        left = [pod for pod in self.copies(session) if not is_terminal(pod)]
        if not left:
            return True
        # Pods that wait for admission do not run, nor will they while the Workload is deactivated.
        return copy is not None and all(map(is_gated, left)) and super().has_stopped(session, copy)

    def is_active(self) -> bool:
        return any(map(runs_remotely, self._pods))

    async def without_pods(self) -> None:
        informer = self._home.cluster.jobs[POD.framework]
        for pod in self._pods:
            if not (is_terminal(pod) or is_deleting(pod)):
                await self._home.write_status(informer, pod, without_remote_pod_status(pod))


class DispatchedSet(_OneObject):
    """A set whose pods queue as one group or several, each with its own Workload: one copy for all of them.

    Its pods here stay gated, and its status is that of its own controller, which would overwrite any other.
    """

    def __init__(self, home: Home, kind: JobKind, found: Object | None, has_parts: bool) -> None:
        super().__init__(home, kind.framework, found)
        self._kind = kind
        #: Whether it has a Workload for each of its groups.
        self._has_parts = has_parts

    def is_current(self, session: Session) -> bool:
        copy = self._copy(session)
        return copy is not None and self._sized(copy) == copy

    def _sized(self, copy: Object) -> Object:
        """The copy with the size of the set here."""
        return replaced(copy, ("spec", "replicas"), get(self._job, "spec", "replicas"))

    async def bring_current(self, session: Session, workload: Object) -> None:
        informer, copy = self._informer(session), self._copy(session)
        if copy is None:
            name = "" if self._has_parts else str(workload["metadata"]["name"])
            copy = remote_set(self._kind.resource, self._job, name, self._home.mark)
            await self._home.create(session, informer, copy)
        elif not is_deleting(copy):
            await session.writer.change(informer, copy, self._sized(copy))

    async def synchronise(self, session: Session) -> bool:
        return True

    def shows_end(self, session: Session) -> bool:
        return True

    def has_stopped(self, session: Session, copy: Object | None) -> bool:
        if copy is None and self._has_parts:
            return True  # other groups of the set may go on
        return super().has_stopped(session, copy)

    def is_active(self) -> bool:
        return False

    async def without_pods(self) -> None:
        """Nothing: the pods here have never run."""
