"""LeaderWorkerSets in queues: a group Workload for each group of pods, ahead of them.

The pod group controller admits and stops the pods; this one makes them groups. Source:
docs/reference/kueue-integrations.md 9.4, "LeaderWorkerSet".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.jobkinds import LEADER_WORKER_SET, value_at
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, replaced
from pykueue.jobs import workload as construction
from pykueue.jobs.leaderworkerset import LeaderWorkerSet, group_index, set_name
from pykueue.jobs.pod import suspending_parent
from pykueue.jobs.pod_owners import is_copy, replicas
from pykueue.kube.events import NORMAL

from .sets import SetController

_POD_INDEX = "leader worker set"
_SURGE = ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")


class LeaderWorkerSetController(SetController):
    """Makes a Workload for each group of a LeaderWorkerSet."""

    name = "leaderworkerset controller"
    _kind = LeaderWorkerSet()

    def _watch_dependents(self) -> None:
        self._pods.add_index(_POD_INDEX, _set_keys)
        self._pods.on_event(self._pod_changed)
        self._cluster.workloads.on_event(self._workload_changed)

    def _pod_changed(self, type_: str, old: Any, new: Any) -> None:
        for key in _set_keys(old if new is None else new):
            self.controller.queue.add(key)

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        workload = old if new is None else new
        for owner in get(workload, "metadata", "ownerReferences") or ():
            if owner.get("kind") == LEADER_WORKER_SET.resource.kind:
                self.controller.queue.add((key_of(workload)[0], str(owner.get("name"))))

    # The work

    async def _reconcile(self, key: Key, found: Object) -> None:
        """Give each group of one set its Workload, and its pods their place in the group."""
        pods = [pod for pod in self._pods.by_index(_POD_INDEX, key) if not is_deleting(pod)]
        wanted = {self._kind.workload_name(found, n, self._limit): n for n in self._groups(found, pods)}
        of_manager = is_copy(found)
        if not of_manager:
            await self._delete_surplus(found, wanted)
        for name, index in wanted.items():
            workload = self._cluster.workload((key[0], name))
            if of_manager:
                if workload is not None:
                    await self._adopt(found, workload, LEADER_WORKER_SET)
            elif workload is None:
                priority, reference = self._cluster.priority_of(found, self._kind)
                workload = self._kind.group_workload(found, index, priority, reference, self._limit)
                await self._create_workload(found, workload)
            else:
                await self._synchronise(found, workload)
        for pod in pods:
            group = group_index(pod)
            if group is not None:
                name = self._kind.workload_name(found, group, self._limit)
                await self._writer.change(
                    self._pods, pod, self._kind.member(pod, found, name, self._cluster.identifiers)
                )

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
