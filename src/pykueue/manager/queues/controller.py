"""Queues, flavors and checks: their status, and the finalizers that keep alive what is in use.

Status is written at most once per second and queue, and at once when it was quiet before; where hundreds of
queues are busy, less often: it is for people and dashboards, and busy queues must not cost a write per job.
When no Workload changes any more, all of them become right soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pykueue.api import conditions, variants
from pykueue.api.hybrid import parts_in
from pykueue.api.kueue import names
from pykueue.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from pykueue.api.meta import format_time
from pykueue.api.objects import Object, get, is_deleting, replaced, spec_differs
from pykueue.api.pending_reasons import MISCONFIGURED
from pykueue.api.queue_specs import check_names, flavor_names, topology_name
from pykueue.clock import Clock
from pykueue.engine import Amount, Engine, QueueView
from pykueue.kube.controller import Controller
from pykueue.kube.informer import MODIFIED, Informer
from pykueue.kube.limiter import TokenBucket
from pykueue.manager.activity import Activity, with_activity
from pykueue.manager.cluster import Cluster
from pykueue.manager.workloads.reservations import Reservations

from .activity import cluster_queue_activity, cohort_activity, local_queue_activity

#: Seconds between two status writes of one queue.
INTERVAL = 1.0
#: Status writes per second of all queues in the long run, and at once, while Workloads change.
RATE = 50.0
BURST = 200
#: Seconds without a change of a Workload after which that many are written per second.
QUIET, QUIET_RATE = 1.0, 1000.0


#: What to look at: a kind, and the namespace and the name of an object.
Item = tuple[str, str, str]


class QueueController:
    """Reconciles ClusterQueues, LocalQueues, Cohorts, ResourceFlavors, AdmissionChecks and Topologies."""

    def __init__(
        self, cluster: Cluster, clock: Clock, engine: Engine, reservations: Reservations, workers: int = 4
    ) -> None:
        self._cluster = cluster
        self._writer = cluster.connection.writer
        self._clock = clock
        self._engine = engine
        self._fair = cluster.configuration.fair_sharing is not None
        self._usage_sharing = cluster.configuration.admission_fair_sharing
        self._written: dict[Item, float] = {}
        self._limiter = TokenBucket(clock, RATE, BURST)
        self._quiet_limiter = TokenBucket(clock, QUIET_RATE, BURST)
        #: From when on Workloads have not changed for a while, in monotonic seconds.
        self._quiet_from = 0.0
        self.controller: Controller[Item] = Controller(
            "queue controller", self.reconcile, clock=clock, workers=workers, wait_for=[cluster.synced]
        )
        cluster.workloads.on_event(self._workload_changed)
        cluster.cluster_queues.on_event(self._cluster_queue_changed)
        cluster.local_queues.on_event(self._local_queue_changed)
        cluster.flavors.on_event(self._flavor_changed)
        cluster.checks.on_event(self._check_changed)
        cluster.topologies.on_event(self._topology_changed)
        cluster.cohorts.on_event(self._cohort_changed)
        reservations.on_undone(self._decision_undone)
        reservations.on_problem(lambda workload: self._workload_changed(MODIFIED, None, workload))
        reservations.on_agreement(
            lambda workload: self._decision_undone(conditions.cluster_queue(workload), workload)
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.controller.run())
            if self._usage_sharing is not None:
                tasks.create_task(self._publish_usage(self._usage_sharing.usage_sampling_interval))

    async def _publish_usage(self, interval: float) -> None:
        """Past usage outlives the manager in the LocalQueues' status, as old as one sample at most."""
        while True:
            await self._clock.sleep(interval)
            for queue in self._cluster.local_queues.list():
                self._add("LocalQueue", queue["metadata"].get("namespace") or "", queue["metadata"]["name"])

    # What leads to work

    def _add(self, kind: str, namespace: str, name: str) -> None:
        item = (kind, namespace, name)
        written = self._written.get(item)
        if written is None:
            self.controller.queue.add(item)
        else:
            self.controller.queue.add_at(item, written + INTERVAL)

    def _workload_changed(self, type_: str, old: Any, new: Any) -> None:
        """Look at the queues a Workload was in and is in, when it counts differently in them now.

        All queues are looked at in any case once all Workloads are known.
        """
        if not self._cluster.workloads.has_synced:
            return
        before, after = _standing(old), _standing(new)
        if before == after:
            return
        if before is not None and after is not None and before[0] == after[0]:
            before = None  # the same queues
        self._quiet_from = self._clock.monotonic() + QUIET
        for standing in (before, after):
            if standing is not None:
                self._add_queues(*standing[0])

    def _add_queues(self, namespace: str, name: str, cluster_queue: str) -> None:
        """Look at a LocalQueue, its ClusterQueue, and that which a Workload of it has quota in."""
        self._add("LocalQueue", namespace, name)
        local = self._cluster.local_queues.get(namespace, name)
        above = str(get(local, "spec", "clusterQueue") or "") if local is not None else ""
        for each in (above,) if cluster_queue in ("", above) else (cluster_queue, above):
            if each:
                self._add("ClusterQueue", "", each)
                if self._fair:
                    self._add_cohorts_above(self._cluster.cluster_queues.get("", each))

    def _decision_undone(self, name: str, workload: Object | None) -> None:
        """A Workload that counted in the ClusterQueue by a decision of the scheduler counts no more.

        It counts in its own queues now, which may be others.
        """
        if workload is not None:
            self._workload_changed(MODIFIED, None, workload)
        self._add("ClusterQueue", "", name)
        for local in self._cluster.local_queues.by_index("clusterQueue", name):
            self._add("LocalQueue", local["metadata"].get("namespace") or "", local["metadata"]["name"])
        self._add_cohorts_above(self._cluster.cluster_queues.get("", name))

    def _cluster_queue_changed(self, type_: str, old: Any, new: Any) -> None:
        name = (old if new is None else new)["metadata"]["name"]
        self._add("ClusterQueue", "", name)
        if old is not None and new is not None and _rules(old) == _rules(new):
            return  # only figures changed, and those are its own
        for local in self._cluster.local_queues.by_index("clusterQueue", name):
            self._add("LocalQueue", local["metadata"].get("namespace") or "", local["metadata"]["name"])
        flavors = {flavor for queue in (old, new) if queue is not None for flavor in flavor_names(queue)}
        checks = {check for queue in (old, new) if queue is not None for check in check_names(queue)}
        for flavor in sorted(flavors):
            self._add("ResourceFlavor", "", flavor)
        for check in sorted(checks):
            self._add("AdmissionCheck", "", check)
        if self._fair and spec_differs(old, new):
            # A share is part of what the whole tree has to lend, which a change of any quota changes.
            self._add_all_in_trees()

    def _add_cohorts_above(self, queue: Mapping[str, Any] | None) -> None:
        """With fair sharing: their shares change with what the queue uses."""
        name = str(get(queue, "spec", "cohortName") or "") if self._fair and queue is not None else ""
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            self._add("Cohort", "", name)
            cohort = self._cluster.cohorts.get("", name)
            name = str(get(cohort, "spec", "parentName") or "") if cohort is not None else ""

    def _add_all_in_trees(self) -> None:
        """Look at all ClusterQueues and Cohorts: any of them may be in the tree that changed."""
        for queue in self._cluster.cluster_queues.list():
            self._add("ClusterQueue", "", queue["metadata"]["name"])
        for cohort in self._cluster.cohorts.list():
            self._add("Cohort", "", cohort["metadata"]["name"])

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
        topologies = {topology_name(flavor) for flavor in (old, new) if flavor is not None}
        for topology in sorted(topologies - {""}):
            self._add("Topology", "", topology)

    def _check_changed(self, type_: str, old: Any, new: Any) -> None:
        name = (old if new is None else new)["metadata"]["name"]
        self._add("AdmissionCheck", "", name)
        for queue in self._cluster.cluster_queues.by_index("check", name):
            self._add("ClusterQueue", "", queue["metadata"]["name"])

    def _topology_changed(self, type_: str, old: Any, new: Any) -> None:
        self._add("Topology", "", (old if new is None else new)["metadata"]["name"])
        for queue in self._cluster.cluster_queues.list():
            self._add("ClusterQueue", "", queue["metadata"]["name"])

    def _cohort_changed(self, type_: str, old: Any, new: Any) -> None:
        self._add("Cohort", "", (old if new is None else new)["metadata"]["name"])
        moved = get(old or {}, "spec", "parentName") != get(new or {}, "spec", "parentName")
        if moved or (self._fair and spec_differs(old, new)):
            # Everything below a cycle is inactive, and a share is one of the whole tree.
            self._add_all_in_trees()

    # The work

    async def reconcile(self, item: Item) -> float | None:
        """Bring one object up to date."""
        kind, _, name = item
        match kind:
            case "ClusterQueue":
                await self._cluster_queue(item)
            case "LocalQueue":
                await self._write_status(item, self._cluster.local_queues, self._local_queue_status)
            case "ResourceFlavor":
                await self._keep(self._cluster.flavors, name, self._flavor_in_use(name))
            case "Topology":
                await self._keep(self._cluster.topologies, name, self._topology_in_use(name))
            case "Cohort":
                await self._write_status(item, self._cluster.cohorts, self._cohort_status)
            case _:
                await self._keep(self._cluster.checks, name, self._check_in_use(name))
        return None

    async def _cluster_queue(self, item: Item) -> None:
        name = item[2]
        view = self._engine.cluster_queue(name)
        await self._keep(self._cluster.cluster_queues, name, view is not None and view.reserving > 0)
        await self._write_status(item, self._cluster.cluster_queues, self._cluster_queue_status)

    def _cluster_queue_status(self, queue: Object) -> Object:
        result = with_activity(queue, self._activity(queue), self._clock.time())
        view = self._engine.cluster_queue(queue["metadata"]["name"])
        if view is None:
            return result
        shown = {
            "flavorsReservation": _flavors(view.reservation, borrowed=True),
            "flavorsUsage": _flavors(view.usage, borrowed=True),
            "pendingWorkloads": view.pending,
            "reservingWorkloads": view.reserving,
            "admittedWorkloads": view.admitted,
            "fairSharing": {"weightedShare": view.weighted_share} if self._fair else None,
        }
        for field, value in shown.items():
            result = replaced(result, ("status", field), value)
        return result

    def _local_queue_status(self, queue: Object) -> Object:
        target = self._cluster.cluster_queues.get("", str(get(queue, "spec", "clusterQueue") or ""))
        active = local_queue_activity(queue, None if target is None else self._activity(target))
        result = with_activity(queue, active, self._clock.time())
        view = self._engine.local_queue(queue["metadata"].get("namespace") or "", queue["metadata"]["name"])
        if view is None:
            return result
        shown = {
            "flavorsReservation": _flavors(view.reservation) if target is not None else None,
            "flavorsUsage": _flavors(view.usage) if target is not None else None,
            "pendingWorkloads": view.pending,
            "reservingWorkloads": view.reserving if target is not None else 0,
            "admittedWorkloads": view.admitted if target is not None else 0,
            "fairSharing": self._past_usage(view),
        }
        for field, value in shown.items():
            result = replaced(result, ("status", field), value)
        return result

    def _past_usage(self, view: QueueView) -> Object | None:
        """`status.fairSharing` of a LocalQueue under admission fair sharing."""
        if self._usage_sharing is None or view.sampled is None:
            return None
        consumed = {resource: str(amount) for resource, amount in view.consumed.items()}
        sampled = format_time(view.sampled)
        status = {"consumedResources": consumed, "lastUpdate": sampled}
        return {"weightedShare": view.weighted_share, "admissionFairSharingStatus": status}

    def _cohort_status(self, cohort: Object) -> Object:
        activity = cohort_activity(cohort, lambda name: self._cluster.cohorts.get("", name))
        if not activity.active or get(cohort, "status", "conditions"):
            cohort = with_activity(cohort, activity, self._clock.time())
        if not self._fair:
            return cohort
        share = self._engine.cohort_share(cohort["metadata"]["name"])
        return replaced(cohort, ("status", "fairSharing", "weightedShare"), share)

    async def _write_status(
        self, item: Item, informer: Informer, status_of: Callable[[Object], Object]
    ) -> None:
        """Write the status of a queue where it differs, within the limit of all such writes."""
        key = (item[1], item[2])
        if informer.get(*key) is None:
            self._written.pop(item, None)
            return
        limiter = self._limiter if self._clock.monotonic() < self._quiet_from else self._quiet_limiter
        await limiter.acquire()

        def step(current: Object) -> Object | None:
            desired = status_of(current)
            if desired == current:
                return None
            # Noted before the write, whose own event asks for another look.
            self._written[item] = self._clock.monotonic()
            return desired

        if await self._writer.update(informer, key, step) is None:
            limiter.give_back()

    def _activity(self, cluster_queue: Object) -> Activity:
        return cluster_queue_activity(self._engine, cluster_queue["metadata"]["name"])

    # What is in use stays

    def _flavor_in_use(self, name: str) -> bool:
        return bool(self._cluster.cluster_queues.by_index("flavor", name))

    def _check_in_use(self, name: str) -> bool:
        return bool(self._cluster.cluster_queues.by_index("check", name))

    def _topology_in_use(self, name: str) -> bool:
        return bool(self._cluster.flavors.by_index("topology", name))

    async def _keep(self, informer: Informer, name: str, in_use: bool) -> None:
        """An object in use has our finalizer; one that is being deleted and not in use loses it.

        An AdmissionCheck has it only while it is used; all others from their creation on.
        """
        obj = informer.get("", name)
        if obj is None:
            return
        deleting = is_deleting(obj)
        finalizers = obj["metadata"].get("finalizers") or []
        has = RESOURCE_IN_USE_FINALIZER in finalizers
        only_while_used = informer is self._cluster.checks
        wanted = in_use if deleting or only_while_used else True
        if deleting and not has:
            return  # finalizers cannot be added any more
        if has == wanted:
            return
        changed = (
            [*finalizers, RESOURCE_IN_USE_FINALIZER]
            if wanted
            else [f for f in finalizers if f != RESOURCE_IN_USE_FINALIZER]
        )
        await self._writer.update(
            informer,
            ("", name),
            lambda current: replaced(current, ("metadata", "finalizers"), changed or None),
            subresource="",
        )


def _rules(queue: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a ClusterQueue others depend on."""
    deleted = queue["metadata"].get("deletionTimestamp")
    return (queue["metadata"].get("uid"), deleted, queue.get("spec"), get(queue, "status", "conditions"))


#: What of a Workload its queues count: its namespace, its LocalQueue and the ClusterQueue it has quota in;
#: its state; and which pods of it count, while it has quota: its size may change then, too. While it is
#: misconfigured, its pod sets: they decide whether it is in its queue.
_Standing = tuple[tuple[str, str, str], tuple[bool, ...], Any]


def _standing(workload: Mapping[str, Any] | None) -> _Standing | None:
    if workload is None:
        return None
    finished = held = admitted = replaces = on_hold = misconfigured = False
    for each in get(workload, "status", "conditions") or ():
        kind, status = each["type"], each["status"]
        if kind == names.QUOTA_RESERVED:
            held = status == "True"
            on_hold = status == "False" and each.get("reason") == conditions.ON_HOLD
            # One whose claims of devices cannot be counted stays outside its queue.
            misconfigured = status == "False" and each.get("reason") == MISCONFIGURED
        elif status != "True":
            continue
        elif kind == names.ADMITTED:
            admitted = True
        elif kind == names.FINISHED:
            finished = True
        elif kind == names.WAITING_FOR_REPLACEMENT_PODS:
            replaces = True
    spec = workload.get("spec") or {}
    state = (
        finished,
        spec.get("active") is not False,
        held,
        admitted,
        conditions.is_gated(workload),
        on_hold,
        replaces,
        misconfigured,
        variants.has_variants(workload),
    )
    counted = _counts(workload) if held else misconfigured and spec.get("podSets")
    queues = (
        workload["metadata"].get("namespace") or "",
        str(spec.get("queueName") or ""),
        conditions.cluster_queue(workload),
    )
    return queues, state, (get(workload, "status", "reclaimablePods"), counted)


def _counts(workload: Mapping[str, Any]) -> list[Any]:
    """Pods of each pod set, and of each part of those that are split over flavors."""
    sizes = [pods.get("count") for pods in get(workload, "spec", "podSets") or ()]
    given = get(workload, "status", "admission", "podSetAssignments") or ()
    return [*sizes, *[(one.get("count"), parts_in(one)) for one in given if one.get("topologyAssignment")]]


def _flavors(amounts: Iterable[Amount], borrowed: bool = False) -> list[Object]:
    """`status.flavorsReservation` or `flavorsUsage`, by flavor in the order in which the queue names them."""
    flavors: dict[str, list[Object]] = {}
    for amount in amounts:
        entry: Object = {"name": amount.resource, "total": str(amount.total)}
        if borrowed:
            entry["borrowed"] = str(amount.borrowed)
        flavors.setdefault(amount.flavor, []).append(entry)
    return [{"name": name, "resources": resources} for name, resources in flavors.items()]
