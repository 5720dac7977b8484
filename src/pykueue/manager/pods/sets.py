"""What the controllers of sets whose pods queue have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pykueue.api.jobkinds import JobKind
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, replaced
from pykueue.clock import Clock
from pykueue.jobs.pod import POD
from pykueue.jobs.pod_owners import plain_owner
from pykueue.jobs.workload import queue_name
from pykueue.kube.controller import Controller
from pykueue.kube.events import WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster, MissingPriorityClassError
from pykueue.manager.jobs.controller import RETRY
from pykueue.manager.workloads.creation import create_workload
from pykueue.manager.writes import Writer


class SetController(ABC):
    """Keyed by namespace and name of the set."""

    name: ClassVar[str]

    def __init__(
        self,
        sets: Informer,
        cluster: Cluster,
        writer: Writer,
        recorder: EventRecorder,
        clock: Clock,
        workers: int = 8,
    ) -> None:
        self._sets = sets
        self._cluster = cluster
        self._pods = cluster.jobs[POD.framework]
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._limit = cluster.configuration.workload_name_limit
        self.controller: Controller[Key] = Controller(
            self.name, self.reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        sets.on_event(self._set_changed)
        self._watch_dependents()

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    @abstractmethod
    def _watch_dependents(self) -> None:
        """Queue a set when its pods or its Workloads change."""

    def _set_changed(self, type_: str, old: Any, new: Any) -> None:
        self.controller.queue.add(key_of(old if new is None else new))

    async def reconcile(self, key: Key) -> float | None:
        """Bring the Workloads and the pods of one set a step on, where it is in a queue."""
        found = self._sets.get(*key)
        if found is None or is_deleting(found):
            return None
        manages_all = self._cluster.configuration.manage_jobs_without_queue_name
        if not self._cluster.manages_namespace(key[0]) or not (queue_name(found) or manages_all):
            return None
        try:
            await self._reconcile(key, found)
        except MissingPriorityClassError as error:
            self._recorder.event(found, WARNING, "WorkloadPriorityClassNotFound", str(error))
            return RETRY
        return None

    @abstractmethod
    async def _reconcile(self, key: Key, found: Object) -> None:
        """The same for a set that is in a queue. Raises MissingPriorityClassError."""

    async def _adopt(self, found: Object, workload: Object, kind: JobKind) -> None:
        """Own the Workload that a manager cluster has created here, so that it goes with the set."""
        known = get(workload, "metadata", "ownerReferences") or []
        if is_deleting(workload) or any(one.get("uid") == found["metadata"]["uid"] for one in known):
            return
        owner = plain_owner(found, kind.resource)
        desired = replaced(workload, ("metadata", "ownerReferences"), [*known, owner])
        await self._writer.change(self._cluster.workloads, workload, desired)

    async def _create_workload(self, found: Object, workload: Object) -> None:
        await create_workload(self._cluster, self._writer, self._recorder, found, workload)
