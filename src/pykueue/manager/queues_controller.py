"""Queues, flavors and checks: their status, and the finalizers that keep alive what is in use.

Status is written at most once per second and queue, and at once when it was quiet before: it is for people
and dashboards, and a busy queue must not cost a write per job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pykueue.api.meta import set_condition
from pykueue.clock import Clock
from pykueue.jobs.names import RESOURCE_IN_USE
from pykueue.jobs.objects import Object, get, replaced
from pykueue.kube.controller import Controller
from pykueue.kube.informer import Informer

from .activity import Activity, cluster_queue_activity, local_queue_activity
from .cluster import Cluster, check_names, flavor_names
from .tally import Tally, covered_pairs, flavor_usage, nominal_quotas
from .workloads import reading
from .writes import Writer

#: Seconds between two status writes of one queue.
INTERVAL = 1.0


class Item(NamedTuple):
    """What to look at: a kind and an object's key."""

    kind: str
    namespace: str
    name: str


class QueueController:
    """Reconciles ClusterQueues, LocalQueues, ResourceFlavors and AdmissionChecks."""

    def __init__(self, cluster: Cluster, writer: Writer, clock: Clock, shares: Shares) -> None:
        self._cluster = cluster
        self._writer = writer
        self._clock = clock
        self._shares = shares
        self.tally = Tally()
        self._written: dict[Item, float] = {}
        self.controller: Controller[Item] = Controller(
            "queue controller", self.reconcile, clock=clock, workers=4, wait_for=[cluster.synced]
        )
        cluster.workloads.on_event(self._workload_changed)
        cluster.cluster_queues.on_event(self._cluster_queue_changed)
        cluster.local_queues.on_event(self._local_queue_changed)
        cluster.flavors.on_event(self._flavor_changed)
        cluster.checks.on_event(self._check_changed)
        cluster.topologies.on_event(self._topology_changed)
        cluster.cohorts.on_event(self._cohort_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # What leads to work

    def _add(self, kind: str, namespace: str, name: str) -> None:
        item = Item(kind, namespace, name)
        now = asyncio.get_running_loop().time()
        self.controller.queue.add_after(item, self._written.get(item, now - INTERVAL) + INTERVAL - now)

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        key = reading.key(old if new is None else new)
        for share in self.tally.see(key, new):
            self._add("LocalQueue", *share.local_queue)
            name = share.cluster_queue
            if not name:
                local = self._cluster.local_queues.get(*share.local_queue)
                name = str(get(local, "spec", "clusterQueue") or "") if local else ""
            if name:
                self._add("ClusterQueue", "", name)

    def _cluster_queue_changed(self, type_: str, old: Any, new: Any) -> None:
        name = (old if new is None else new)["metadata"]["name"]
        self._add("ClusterQueue", "", name)
        for local in self._cluster.local_queues.by_index("clusterQueue", name):
            self._add("LocalQueue", local["metadata"].get("namespace") or "", local["metadata"]["name"])
        flavors = {flavor for queue in (old, new) if queue is not None for flavor in flavor_names(queue)}
        checks = {check for queue in (old, new) if queue is not None for check in check_names(queue)}
        for flavor in sorted(flavors):
            self._add("ResourceFlavor", "", flavor)
        for check in sorted(checks):
            self._add("AdmissionCheck", "", check)

    def _local_queue_changed(self, type_: str, old: Any, new: Any) -> None:
        queue = old if new is None else new
        self._add("LocalQueue", queue["metadata"].get("namespace") or "", queue["metadata"]["name"])
        for each in (old, new):
            if each is not None and get(each, "spec", "clusterQueue"):
                self._add("ClusterQueue", "", str(get(each, "spec", "clusterQueue")))

    def _flavor_changed(self, type_: str, old: Any, new: Any) -> None:
        name = (old if new is None else new)["metadata"]["name"]
        self._add("ResourceFlavor", "", name)
        for queue in self._cluster.cluster_queues.by_index("flavor", name):
            self._add("ClusterQueue", "", queue["metadata"]["name"])

    def _check_changed(self, type_: str, old: Any, new: Any) -> None:
        name = (old if new is None else new)["metadata"]["name"]
        self._add("AdmissionCheck", "", name)
        for queue in self._cluster.cluster_queues.by_index("check", name):
            self._add("ClusterQueue", "", queue["metadata"]["name"])

    def _topology_changed(self, type_: str, old: Any, new: Any) -> None:
        for queue in self._cluster.cluster_queues.list():
            self._add("ClusterQueue", "", queue["metadata"]["name"])

    def _cohort_changed(self, type_: str, old: Any, new: Any) -> None:
        if self._shares.enabled:
            self._add("Cohort", "", (old if new is None else new)["metadata"]["name"])

    # The work

    async def reconcile(self, item: Item) -> float | None:
        """Bring one object up to date."""
        match item.kind:
            case "ClusterQueue":
                written = await self._cluster_queue(item.name)
            case "LocalQueue":
                written = await self._local_queue(item.namespace, item.name)
            case "ResourceFlavor":
                written = False
                await self._keep(self._cluster.flavors, item.name, self._flavor_in_use(item.name))
            case "Cohort":
                written = await self._cohort(item.name)
            case _:
                written = False
                await self._keep(self._cluster.checks, item.name, self._check_in_use(item.name))
        if written:
            self._written[item] = asyncio.get_running_loop().time()
        return None

    def activity(self, queue: Mapping[str, Any]) -> Activity:
        """Whether a ClusterQueue takes part."""
        return cluster_queue_activity(
            queue,
            lambda name: self._cluster.flavors.get("", name),
            lambda name: self._cluster.checks.get("", name),
            lambda name: self._cluster.topologies.get("", name),
        )

    async def _cluster_queue(self, name: str) -> bool:
        queue = self._cluster.cluster_queues.get("", name)
        if queue is None:
            self._written.pop(Item("ClusterQueue", "", name), None)
            return False
        await self._keep(self._cluster.cluster_queues, name, self.tally.holds(name))
        return await self._write_status(
            self._cluster.cluster_queues, ("", name), lambda current: self._cluster_queue_status(current)
        )

    def _cluster_queue_status(self, queue: Object) -> Object:
        name = queue["metadata"]["name"]
        totals = self.tally.cluster(name)
        covered, nominal = covered_pairs(queue), nominal_quotas(queue)
        if not get(queue, "spec", "cohortName"):
            nominal = {pair: max(nominal.get(pair, 0), amount) for pair, amount in totals.reservation.items()}
        result = self._with_activity(queue, self.activity(queue))
        shown = {
            "flavorsReservation": flavor_usage(totals.reservation, covered, nominal),
            "flavorsUsage": flavor_usage(totals.usage, covered, nominal),
            "pendingWorkloads": self._pending(name),
            "reservingWorkloads": totals.reserving,
            "admittedWorkloads": totals.admitted,
            "fairSharing": self._shares.of_cluster_queue(name),
        }
        for field, value in shown.items():
            result = replaced(result, ("status", field), value)
        return result

    def _pending(self, cluster_queue: str) -> int:
        pending = 0
        for local in self._cluster.local_queues.by_index("clusterQueue", cluster_queue):
            if (get(local, "spec", "stopPolicy") or "None") == "None":
                key = (local["metadata"].get("namespace") or "", local["metadata"]["name"])
                pending += self.tally.local(key).pending
        return pending

    async def _local_queue(self, namespace: str, name: str) -> bool:
        if self._cluster.local_queues.get(namespace, name) is None:
            self._written.pop(Item("LocalQueue", namespace, name), None)
            return False
        return await self._write_status(
            self._cluster.local_queues, (namespace, name), lambda current: self._local_queue_status(current)
        )

    def _local_queue_status(self, queue: Object) -> Object:
        key = (queue["metadata"].get("namespace") or "", queue["metadata"]["name"])
        target = self._cluster.cluster_queues.get("", str(get(queue, "spec", "clusterQueue") or ""))
        totals = self.tally.local(key)
        covered = [] if target is None else covered_pairs(target)
        active = local_queue_activity(queue, None if target is None else self.activity(target))
        result = self._with_activity(queue, active)
        shown = {
            "flavorsReservation": flavor_usage(totals.reservation, covered) or None,
            "flavorsUsage": flavor_usage(totals.usage, covered) or None,
            "pendingWorkloads": 0 if active.reason == "Stopped" else totals.pending,
            "reservingWorkloads": 0 if target is None else totals.reserving,
            "admittedWorkloads": 0 if target is None else totals.admitted,
        }
        for field, value in shown.items():
            result = replaced(result, ("status", field), value)
        return result

    async def _cohort(self, name: str) -> bool:
        return await self._write_status(
            self._cluster.cohorts,
            ("", name),
            lambda current: replaced(current, ("status", "fairSharing"), self._shares.of_cohort(name)),
        )

    async def _write_status(
        self, informer: Informer, key: tuple[str, str], step: Callable[[Object], Object]
    ) -> bool:
        obj = informer.get(*key)
        if obj is None or step(obj) == obj:
            return False
        await self._writer.update(informer, key, step)
        return True

    def _with_activity(self, queue: Object, activity: Activity) -> Object:
        conditions = get(queue, "status", "conditions") or []
        status = "True" if activity.active else "False"
        for known in conditions:
            same = (known.get("status"), known.get("reason"), known.get("message"))
            if known.get("type") == "Active" and same == (status, activity.reason, activity.message):
                return queue
        changed = set_condition(
            conditions,
            "Active",
            "True" if activity.active else "False",
            activity.reason,
            activity.message,
            self._clock.time(),
            int(queue["metadata"].get("generation") or 0),
        )
        return replaced(queue, ("status", "conditions"), changed)

    # What is in use stays

    def _flavor_in_use(self, name: str) -> bool:
        return bool(self._cluster.cluster_queues.by_index("flavor", name))

    def _check_in_use(self, name: str) -> bool:
        return bool(self._cluster.cluster_queues.by_index("check", name))

    async def _keep(self, informer: Informer, name: str, in_use: bool) -> None:
        """An object in use has our finalizer; one that is being deleted and not in use loses it.

        An AdmissionCheck has it only while it is used; ClusterQueues and flavors from their creation on.
        """
        obj = informer.get("", name)
        if obj is None:
            return
        deleting = bool(obj["metadata"].get("deletionTimestamp"))
        finalizers = obj["metadata"].get("finalizers") or []
        has = RESOURCE_IN_USE in finalizers
        only_while_used = informer is self._cluster.checks
        wanted = in_use if deleting or only_while_used else True
        if deleting and not has:
            return  # finalizers cannot be added any more
        if has == wanted:
            return
        changed = (
            [*finalizers, RESOURCE_IN_USE] if wanted else [f for f in finalizers if f != RESOURCE_IN_USE]
        )
        await self._writer.update(
            informer,
            ("", name),
            lambda current: replaced(current, ("metadata", "finalizers"), changed or None),
            subresource="",
        )


class Shares:
    """Weighted shares of fair sharing, as queues and cohorts publish them; None where it is switched off."""

    enabled = False

    def of_cluster_queue(self, name: str) -> Object | None:
        return None

    def of_cohort(self, name: str) -> Object | None:
        return None
