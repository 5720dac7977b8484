"""LeaderWorkerSets in queues: a group Workload for each group of pods, ahead of them.

What becomes of the pods is the pod group controller's business; this makes them groups. Source:
docs/reference/kueue-integrations.md 9.4, "LeaderWorkerSet".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import LEADER_WORKER_SET, value_at
from pykueue.api.objects import Key, Object, get, is_deleting, replaced
from pykueue.clock import Clock
from pykueue.jobs import workload as construction
from pykueue.jobs.leaderworkerset import LeaderWorkerSet, group_index, set_name
from pykueue.jobs.pod import POD, suspending_parent
from pykueue.jobs.pod_owners import replicas
from pykueue.kube.controller import Controller
from pykueue.kube.errors import ApiError
from pykueue.kube.events import NORMAL, WARNING, EventRecorder
from pykueue.kube.informer import Informer
from pykueue.manager.cluster import Cluster, MissingPriorityClassError
from pykueue.manager.jobs.controller import RETRY
from pykueue.manager.writes import Writer

_POD_INDEX = "leader worker set"
_SURGE = ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")


class LeaderWorkerSetController:
    """Keyed by namespace and name of the set."""

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
        self._kind = LeaderWorkerSet()
        self._limit = 63 if cluster.configuration.gates["ShortWorkloadNames"] else 253
        self.controller: Controller[Key] = Controller(
            "leaderworkerset controller",
            self.reconcile,
            clock=clock,
            workers=workers,
            wait_for=[cluster.synced],
        )
        self._pods.add_index(_POD_INDEX, _set_keys)
        sets.on_event(self._set_changed)
        self._pods.on_event(self._pod_changed)
        cluster.workloads.on_event(self._workload_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _set_changed(self, type_: str, old: Any, new: Any) -> None:
        self.controller.queue.add(conditions.key(old if new is None else new))

    def _pod_changed(self, type_: str, old: Any, new: Any) -> None:
        for key in _set_keys(old if new is None else new):
            self.controller.queue.add(key)

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        workload = old if new is None else new
        for owner in get(workload, "metadata", "ownerReferences") or ():
            if owner.get("kind") == LEADER_WORKER_SET.resource.kind:
                self.controller.queue.add((conditions.key(workload)[0], str(owner.get("name"))))

    # The work

    async def reconcile(self, key: Key) -> float | None:
        """Give each group of one set its Workload, and its pods their place in the group."""
        found = self._sets.get(*key)
        if found is None or is_deleting(found):
            return None
        if not self._cluster.manages_namespace(key[0]) or not self._is_managed(found):
            return None
        pods = [pod for pod in self._pods.by_index(_POD_INDEX, key) if not is_deleting(pod)]
        wanted = {self._kind.workload_name(found, n, self._limit): n for n in self._groups(found, pods)}
        await self._delete_surplus(found, wanted)
        try:
            for name, index in wanted.items():
                workload = self._cluster.workload((key[0], name))
                if workload is None:
                    await self._create(found, index)
                else:
                    await self._synchronise(found, workload)
        except MissingPriorityClassError as error:
            self._recorder.event(found, WARNING, "WorkloadPriorityClassNotFound", str(error))
            return RETRY
        for pod in pods:
            group = group_index(pod)
            if group is not None:
                name = self._kind.workload_name(found, group, self._limit)
                await self._writer.change(self._pods, pod, self._kind.member(pod, found, name))
        return None

    def _is_managed(self, found: Mapping[str, Any]) -> bool:
        manages_all = self._cluster.configuration.manage_jobs_without_queue_name
        return bool(construction.queue_name(found)) or manages_all

    def _groups(self, found: Mapping[str, Any], pods: list[Object]) -> list[int]:
        """The groups that there are to be, and further ones that a rolling update has made."""
        count = replicas(found)
        surge = value_at(found, _SURGE) or 0
        # As a percentage it is a share of the groups; there are never more than twice as many.
        most = count + (surge if isinstance(surge, int) else count)
        extra = {group_index(pod) for pod in pods}
        return [*range(count), *sorted(n for n in extra if n is not None and count <= n < most)]

    async def _delete_surplus(self, found: Object, wanted: Mapping[str, int]) -> None:
        for workload in self._cluster.workloads.by_index("owner", found["metadata"]["uid"]):
            name, namespace = workload["metadata"]["name"], workload["metadata"].get("namespace")
            if name in wanted or namespace != found["metadata"].get("namespace"):
                continue
            if not is_deleting(workload):
                await self._writer.delete(self._cluster.workloads, workload)
                text = f"Deleted Workload of a group that is gone: {namespace}/{name}"
                self._recorder.event(found, NORMAL, "DeletedWorkload", text)

    async def _create(self, found: Object, index: int) -> None:
        priority, reference = self._cluster.priority_of(found, self._kind)
        workload = self._kind.group_workload(found, index, priority, reference, self._limit)
        try:
            created = await self._writer.create(self._cluster.workloads, workload)
        except ApiError as error:
            if error.already_exists:
                return  # it is on its way to the cache, or it is being deleted
            raise
        namespace, name = conditions.key(created)
        self._recorder.event(found, NORMAL, "CreatedWorkload", f"Created Workload: {namespace}/{name}")

    async def _synchronise(self, found: Object, workload: Object) -> None:
        """A Workload without quota follows its set: queue, and what its pods are."""
        if conditions.has_quota(workload) or is_deleting(workload):
            return
        if conditions.is_finished(workload):
            return
        desired = replaced(workload, ("spec", "queueName"), construction.queue_name(found) or None)
        pod_sets = self._kind.pod_sets(found)
        if not construction.same_pod_sets(pod_sets, get(workload, "spec", "podSets") or ()):
            desired = replaced(desired, ("spec", "podSets"), pod_sets)
        await self._writer.change(self._cluster.workloads, workload, desired)


def _set_keys(pod: Object) -> list[Key]:
    """Namespace and name of the LeaderWorkerSet whose pod it is, if any."""
    name = set_name(pod)
    if not name or suspending_parent(pod) != LEADER_WORKER_SET.framework:
        return []
    return [(pod["metadata"].get("namespace") or "", name)]
