"""Making the Workload of a job: its spec, its priority, and events about a job that gets none."""

from __future__ import annotations

from collections.abc import Mapping

from pykueue.api.objects import Object
from pykueue.jobs import workload as construction
from pykueue.jobs.base import MissingReferenceError
from pykueue.kube.errors import ApiError
from pykueue.kube.events import WARNING
from pykueue.manager.cluster import MissingPriorityClassError
from pykueue.manager.workloads.creation import create_workload

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

    async def create(self, job: Object, workload: Object) -> None:
        """Create the Workload of a job. Raises ApiError; one that refuses the Workload is recorded."""
        try:
            await create_workload(self._cluster, self._writer, self._recorder, job, workload)
        except ApiError as error:
            if error.code in (400, 403, 422):
                self.refuse(job, error.message)
            raise
