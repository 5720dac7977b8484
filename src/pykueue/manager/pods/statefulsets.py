"""StatefulSets in queues: a group Workload ahead of the pods, on hold while the set has none.

The pod group controller admits and stops the pods; this one makes them a group. Source:
docs/reference/kueue-integrations.md 9.4, "StatefulSet".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.objects import Key, Object, get, is_deleting, key_of, replaced
from pykueue.jobs import workload as construction
from pykueue.jobs.leaderworkerset import is_part
from pykueue.jobs.pod_owners import STATEFUL_SET, StatefulSet, is_copy, replicas
from pykueue.manager.workloads import transitions

from .sets import SetController

_OWNER_INDEX = "stateful set"


class StatefulSetController(SetController):
    """Makes the group Workload of each StatefulSet."""

    name = "statefulset controller"
    _kind = StatefulSet()

    def _watch_dependents(self) -> None:
        self._pods.add_index(_OWNER_INDEX, _owner_uids)
        self._pods.on_event(self._dependent_changed)
        self._cluster.workloads.on_event(self._dependent_changed)

    def _dependent_changed(self, type_: str, old: Any, new: Any) -> None:
        obj = old if new is None else new
        for reference in _owners(obj):
            self.controller.queue.add((obj["metadata"].get("namespace") or "", str(reference.get("name"))))

    # The work

    async def _reconcile(self, key: Key, found: Object) -> None:
        """Give one set its Workload, and its pods their place in the group."""
        if is_part(found):
            return  # its pods belong to groups of their own
        name = self._kind.workload_name(found, self._limit)
        workload = self._cluster.workload((key[0], name))
        if is_copy(found):
            if workload is not None:
                await self._adopt(found, workload, STATEFUL_SET)
        elif workload is None:
            if replicas(found):
                priority, reference = self._cluster.priority_of(found, self._kind)
                (workload,) = self._kind.workloads(found, priority, reference, self._limit)
                await self._create_workload(found, workload)
                return
        elif not is_deleting(workload):
            await self._synchronise(found, workload)
        for pod in self._pods.by_index(_OWNER_INDEX, found["metadata"]["uid"]):
            if not is_deleting(pod):
                await self._writer.change(
                    self._pods, pod, self._kind.member(pod, found, name, self._cluster.identifiers)
                )

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
            key_of(workload),
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
