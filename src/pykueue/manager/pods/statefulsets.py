"""StatefulSets in queues: a group Workload ahead of the pods, on hold while the set has none.

What becomes of the pods is the pod group controller's business; this makes them a group. Source:
docs/reference/kueue-integrations.md 9.4, "StatefulSet".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Key, Object, get, is_deleting, replaced
from pykueue.clock import Clock
from pykueue.jobs import workload as construction
from pykueue.jobs.leaderworkerset import is_part
from pykueue.jobs.pod import POD
from pykueue.jobs.pod_owners import STATEFUL_SET, StatefulSet, replicas
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster, MissingPriorityClassError
from pykueue.manager.jobs.controller import RETRY
from pykueue.manager.workloads import transitions
from pykueue.manager.writes import Writer

_OWNER_INDEX = "stateful set"

log = logging.getLogger(__name__)


class StatefulSetController:
    """Keyed by namespace and name of the set."""

    def __init__(
        self,
        stateful_sets: Informer,
        cluster: Cluster,
        writer: Writer,
        recorder: EventRecorder,
        clock: Clock,
        workers: int = 8,
    ) -> None:
        self._sets = stateful_sets
        self._cluster = cluster
        self._pods = cluster.jobs[POD.framework]
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._kind = StatefulSet()
        self._gates = cluster.configuration.gates
        self.controller: Controller[Key] = Controller(
            "statefulset controller", self.reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        self._pods.add_index(_OWNER_INDEX, _owner_uids)
        stateful_sets.on_event(self._set_changed)
        self._pods.on_event(self._dependent_changed)
        cluster.workloads.on_event(self._dependent_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _set_changed(self, type_: str, old: Any, new: Any) -> None:
        self.controller.queue.add(conditions.key(old if new is None else new))

    def _dependent_changed(self, type_: str, old: Any, new: Any) -> None:
        obj = old if new is None else new
        for reference in _owners(obj):
            self.controller.queue.add((obj["metadata"].get("namespace") or "", str(reference.get("name"))))

    # The work

    async def reconcile(self, key: Key) -> float | None:
        """Give one set its Workload, and its pods their place in the group."""
        stateful_set = self._sets.get(*key)
        if stateful_set is None or is_deleting(stateful_set):
            return None
        if not self._cluster.manages_namespace(key[0]) or not self._is_managed(stateful_set):
            return None
        if is_part(stateful_set):
            return None  # its pods belong to groups of their own
        name = self._kind.workload_name(stateful_set, self._limit)
        workload = self._cluster.workload((key[0], name))
        if workload is None:
            if replicas(stateful_set):
                return await self._create(stateful_set)
        elif not is_deleting(workload):
            await self._synchronise(stateful_set, workload)
        for pod in self._pods.by_index(_OWNER_INDEX, stateful_set["metadata"]["uid"]):
            if not is_deleting(pod):
                await self._writer.change(self._pods, pod, self._kind.member(pod, stateful_set, name))
        return None

    @property
    def _limit(self) -> int:
        return 63 if self._gates["ShortWorkloadNames"] else 253

    def _is_managed(self, stateful_set: Mapping[str, Any]) -> bool:
        manages_all = self._cluster.configuration.manage_jobs_without_queue_name
        return bool(construction.queue_name(stateful_set)) or manages_all

    async def _create(self, stateful_set: Object) -> float | None:
        try:
            priority, reference = self._cluster.priority_of(stateful_set, self._kind)
        except MissingPriorityClassError as error:
            self._recorder.event(stateful_set, WARNING, "WorkloadPriorityClassNotFound", str(error))
            return RETRY
        (workload,) = self._kind.workloads(stateful_set, priority, reference, self._limit)
        try:
            created = await self._writer.create(self._cluster.workloads, workload)
        except ApiError as error:
            if error.already_exists:
                return None  # it is on its way to the cache, or it is being deleted
            raise
        namespace, name = conditions.key(created)
        self._recorder.event(stateful_set, NORMAL, "CreatedWorkload", f"Created Workload: {namespace}/{name}")
        return None

    async def _synchronise(self, stateful_set: Object, workload: Object) -> None:
        """Put the Workload of a set without pods on hold; set its pod counts when the set is scaled up."""
        wanted, present = replicas(stateful_set), int(get(stateful_set, "status", "replicas") or 0)
        if not wanted:
            if not present:
                await self._hold(workload, "The StatefulSet is scaled to 0")
            return
        if conditions.has_quota(workload) or (present and conditions.is_on_hold(workload)):
            return
        desired = replaced(workload, ("spec", "queueName"), construction.queue_name(stateful_set) or None)
        if conditions.is_on_hold(workload):
            desired = replaced(desired, ("spec", "podSets"), self._kind.pod_sets(stateful_set))
        await self._writer.change(self._cluster.workloads, workload, desired)
        await self._hold(workload, "")

    async def _hold(self, workload: Object, why: str) -> None:
        """Put the Workload on hold, or back into its queue where `why` is empty."""
        resumed = "The StatefulSet has been scaled up"
        await self._writer.update(
            self._cluster.workloads,
            conditions.key(workload),
            lambda current: transitions.held(current, why, self._clock.time(), resumed),
        )


def _owners(obj: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    kind, version = STATEFUL_SET.resource.kind, STATEFUL_SET.resource.api_version
    return [
        one
        for one in get(obj, "metadata", "ownerReferences") or ()
        if one.get("kind") == kind and one.get("apiVersion") == version
    ]


def _owner_uids(pod: Object) -> list[str]:
    return [str(one.get("uid")) for one in _owners(pod)]
