"""Making the Workload of a job: its spec and its priority, their changes, and events where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.kueue import names
from pykueue.api.objects import Object, annotations_of, get, key_of, labels_of, replaced
from pykueue.api.preemption_policies import CHECKPOINT_ANNOTATION, MIN_ADMIT_DURATION_ANNOTATION
from pykueue.jobs import workload as construction
from pykueue.jobs.base import MissingReferenceError
from pykueue.kube.errors import ApiError
from pykueue.kube.events import WARNING
from pykueue.manager.cluster import MissingPriorityClassError
from pykueue.manager.workloads.creation import create_workload
from pykueue.manager.writes import UnansweredWrites

from .context import JobContext

#: Reason of the event of a job of which no Workload can be made.
_NOT_COMPOSED = "ErrWorkloadCompose"


class WorkloadComposer:
    """Builds and creates the Workloads of the jobs of one kind."""

    def __init__(self, context: JobContext) -> None:
        self._integration = context.integration
        self._cluster = context.cluster
        self._writer = context.writer
        self._recorder = context.recorder
        #: Jobs that are in the cache and whose Workload was deleted, by uid.
        self._without_workload: set[str] = set()
        #: Workloads whose creation was not answered, by uid of the job.
        self._creations: UnansweredWrites[str] = UnansweredWrites(context.writer)

    def workload_deleted(self, namespace: str, owner: Mapping[str, Any]) -> None:
        """The Workload of a job is gone; `owner` is its owner reference."""
        jobs = self._cluster.jobs[self._integration.kind.framework]
        job = jobs.get(namespace, str(owner.get("name")))
        if job is not None and job["metadata"].get("uid") == owner.get("uid"):
            self._without_workload.add(str(owner.get("uid")))

    def forget(self, job: Mapping[str, Any]) -> None:
        """The job is gone."""
        uid = str(job["metadata"].get("uid"))
        self._without_workload.discard(uid)
        self._creations.forget(uid)

    def refuse(self, job: Object, why: str) -> None:
        """Record at the job why it gets no Workload."""
        self._recorder.event(job, WARNING, _NOT_COMPOSED, why)

    def priority_of(self, job: Object) -> tuple[int, Mapping[str, str] | None]:
        """The priority of a job and the class that it comes from.

        Raises MissingPriorityClassError and MissingReferenceError, which are recorded at the job.
        """
        try:
            return self._cluster.priority_of(job, self._integration)
        except MissingPriorityClassError as error:
            self._recorder.event(job, WARNING, "WorkloadPriorityClassNotFound", str(error))
            raise
        except MissingReferenceError as error:
            self.refuse(job, str(error))
            raise

    def built(self, job: Object, priority: int, reference: Mapping[str, str] | None) -> Object:
        """The Workload that a job asks for."""
        configuration = self._cluster.configuration
        workload = construction.build(
            job,
            self._integration,
            priority,
            reference,
            self._cluster.labels_to_copy,
            configuration.annotations_to_copy,
            configuration.workload_name_limit,
        )
        if not configuration.gates["PartialAdmission"]:
            for pod_set in workload["spec"]["podSets"]:
                pod_set.pop("minCount", None)
        return workload

    def changed(self, job: Object, workload: Object) -> Object:
        """The Workload with what may change on a job: queue (while it waits), gates, checkpoint, priority."""
        desired = workload
        if not conditions.has_quota(workload) and self._integration.is_suspended(job):
            desired = replaced(desired, ("spec", "queueName"), construction.queue_name(job) or None)
        gates = annotations_of(job).get(names.ADMISSION_GATED_BY_ANNOTATION)
        if gates != annotations_of(workload).get(names.ADMISSION_GATED_BY_ANNOTATION):
            path = ("metadata", "annotations", names.ADMISSION_GATED_BY_ANNOTATION)
            desired = replaced(desired, path, gates or None)
        for key in (CHECKPOINT_ANNOTATION, MIN_ADMIT_DURATION_ANNOTATION):
            value = annotations_of(job).get(key)
            if value and value != annotations_of(workload).get(key):
                desired = replaced(desired, ("metadata", "annotations", key), value)
        return self._with_priority(job, desired)

    def _with_priority(self, job: Object, workload: Object) -> Object:
        name = labels_of(job).get(names.PRIORITY_CLASS_LABEL)
        reference = get(workload, "spec", "priorityClassRef")
        if not name or get(workload, "spec", "priorityClassRef", "name") == name:
            return workload
        if reference is None and conditions.has_quota(workload):
            return workload  # it cannot be given a class while it holds quota; it gets it when that is over
        try:
            priority, reference = self._cluster.priority_of(job, self._integration)
        except MissingPriorityClassError as error:
            self._recorder.event(job, WARNING, "WorkloadPriorityClassNotFound", str(error))
            return workload
        result = replaced(workload, ("spec", "priorityClassRef"), dict(reference or {}) or None)
        return replaced(result, ("spec", "priority"), priority)

    async def create(self, job: Object, workload: Object) -> None:
        """Create the Workload of a job. Raises ApiError; one that refuses the Workload is recorded.

        After its Workload was deleted the API must still have the job: while the watch of jobs is broken, the
        garbage collector would delete the Workload of a job that is gone, and so on without end. A Workload
        whose creation was not answered may be there: under another name where the job has changed since.
        """
        uid = str(job["metadata"].get("uid"))
        if await self._creations.learn_outcomes(uid, self._cluster.workloads):
            return  # the next step follows from that Workload, which is in the cache now
        if uid in self._without_workload:
            jobs = self._cluster.jobs[self._integration.kind.framework]
            found = await self._writer.reread(jobs, key_of(job))
            if found is None or found["metadata"]["uid"] != uid:
                return
            self._without_workload.discard(uid)
        try:
            with self._creations.remembered(uid, key_of(workload)):
                await create_workload(self._cluster, self._writer, self._recorder, job, workload)
        except ApiError as error:
            if error.code in (400, 403, 422):
                self.refuse(job, error.message)
            raise
