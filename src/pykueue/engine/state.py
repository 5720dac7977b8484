"""The state of the engine, and what changes it: enqueue, dequeue, reserve, release, flush.

Every move keeps the usage of the whole tree true, marks the trees that are worth a cycle, and can be undone
through the undo log. Source of the rules: docs/reference/kueue-semantics.md 3 and 4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from pykueue.api import kueue
from pykueue.api.kueue.names import MULTIKUEUE_CONTROLLER
from pykueue.api.variants import flavor_of, may_be_parent
from pykueue.engine import capacity
from pykueue.engine.budgets.capacity import BudgetCapacity
from pykueue.engine.capacity import Reservations, SharedCapacity
from pykueue.engine.fair_sharing.usage_history import UsageHistory
from pykueue.engine.flavors.requests import NO_LIMITS, Limits
from pykueue.engine.flavors.reservation import reservation_from
from pykueue.engine.flavors.scheduling_classes import SchedulingClasses
from pykueue.engine.options import Options
from pykueue.engine.places import Places
from pykueue.engine.preemption.damping import Damping
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.queues.local_queue import LocalQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.flavor_resources import FlavorResources
from pykueue.engine.quota.tree import Cohort, Forest, Tree, tree_order
from pykueue.engine.quota.usage import to_quantity
from pykueue.engine.run_times import Backfill
from pykueue.engine.topology.capacity import NodeCapacity
from pykueue.engine.topology.requests import TopologyRules
from pykueue.engine.undo_log import UndoLog
from pykueue.engine.workload import (
    ACTIVE,
    INADMISSIBLE,
    OUT,
    RESERVED,
    WorkloadInfo,
    lacks_pods,
    needs_second_pass,
)


class State:
    """The engine's knowledge."""

    def __init__(self, options: Options, capacities: Sequence[SharedCapacity] = ()) -> None:
        self.options = options
        self.undo_log = UndoLog()
        #: What workloads compete for beside quota. The nodes are among them while a flavor has a topology.
        self.capacities = tuple(capacities)
        #: The nodes, unless topology-aware scheduling is off.
        self.nodes = _nodes(options, self.undo_log)
        #: The Budgets, which are among the capacities while there are any.
        self.budgets = BudgetCapacity(self.undo_log, self._path_of)
        #: Unfinished workloads by key, by the name of the shared capacity they request; of capacities that
        #: workloads share by their flavors none.
        self.requesting: dict[str, dict[str, WorkloadInfo]] = {
            shared.name: {} for shared in (*capacities, self.budgets) if shared.flavors is None
        }
        self.flavor_resources = FlavorResources()
        self.places = Places(
            self.undo_log,
            enter={ACTIVE: enter_queue, INADMISSIBLE: enter_queue, RESERVED: self._enter_reserved},
            leave={ACTIVE: leave_queue, INADMISSIBLE: leave_queue, RESERVED: self._leave_reserved},
        )
        self.forest = Forest(self.flavor_resources, self.undo_log)
        self.scheduling_classes = SchedulingClasses(options)
        self.history = UsageHistory(options, self.flavor_resources, self.undo_log)
        self.damping = Damping(self.undo_log)
        self.queues: dict[str, ClusterQueue] = {}
        self.backfill = Backfill(self.undo_log, self.queues, self.flavor_resources)
        self.locals: dict[str, LocalQueue] = {}
        self.workloads: dict[str, WorkloadInfo] = {}
        self.flavors: dict[str, kueue.ResourceFlavor] = {}
        self.checks: dict[str, kueue.AdmissionCheck] = {}
        self.topologies: dict[str, kueue.Topology] = {}
        #: Labels by namespace.
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.limits: dict[str, Limits] = {}
        #: How often something changed that may let a queue decide; goes back only when a fork ends.
        self.changes = 0
        #: Queues whose tree may have something to decide. A fork has its own copy of this, and of `timers`.
        self.ready: dict[ClusterQueue, None] = {}
        #: Queues whose tree is flushed before the next cycle.
        self.to_flush: dict[ClusterQueue, None] = {}
        #: The same for cohorts that changed.
        self.cohorts_to_flush: dict[Cohort, None] = {}
        #: Workloads outside of their queue, by key, of which the next cycle says why.
        self.kept_out: dict[str, WorkloadInfo] = {}
        #: Workloads that hold quota and whose pods are not ready, by key; only where that blocks
        #: admission.
        self.unready: dict[str, WorkloadInfo] = {}
        #: Workloads that hold quota and for which domains are to be chosen: (when, in seconds since 1970;
        #: attempts so far), by key.
        self.second_pass: dict[str, tuple[float, int]] = {}
        #: By key of a slice: the workload that is to replace it.
        self.replacements: dict[str, WorkloadInfo] = {}
        #: By uid of a Workload: its variants, by key.
        self.variants: dict[str, dict[str, WorkloadInfo]] = {}
        #: (time, key): when a workload's back-off ends.
        self.timers: list[tuple[float, str]] = []
        #: When the first protection from preemption ends that keeps a workload of the queue waiting.
        self.alarms: dict[ClusterQueue, float] = {}
        #: The time of the last cycle.
        self.now = 0.0
        self.cycle = 0
        self.scan_memory = options.enabled("FlavorFungibility")
        self.concurrent = options.enabled("ConcurrentAdmission")
        self.hashing = options.enabled("SchedulingEquivalenceHashing")

    # --- finding ----------------------------------------------------------------------------------------

    def queue(self, name: str) -> ClusterQueue:
        """The ClusterQueue of that name, known or not."""
        found = self.queues.get(name)
        if found is None:
            found = ClusterQueue(name, self.flavor_resources, self.undo_log)
            found.tree.queues.append(found)
            self.undo_log.put(self.queues, name, found)
        return found

    def local(self, namespace: str, name: str) -> LocalQueue:
        """The LocalQueue of that name, known or not."""
        key = f"{namespace}/{name}"
        found = self.locals.get(key)
        if found is None:
            found = LocalQueue(key, namespace)
            self.undo_log.put(self.locals, key, found)
        return found

    def limits_of(self, namespace: str) -> Limits:
        """What the LimitRanges of a namespace say; no limits where there are none."""
        return self.limits.get(namespace, NO_LIMITS)

    def replaced_by(self, info: WorkloadInfo) -> WorkloadInfo | None:
        """The slice of the same job that a workload replaces, while that has quota of its queue (11.9)."""
        if not info.replaces:
            return None
        old = self.workloads.get(info.replaces)
        if old is None or old.place != RESERVED or old.queue is not info.queue:
            return None
        if old.obj.metadata.controller_uid != info.obj.metadata.controller_uid:
            return None
        return old

    def admitted_variants(self, info: WorkloadInfo) -> Iterator[tuple[int, WorkloadInfo]]:
        """The other variants of the same parent that are admitted by the same queue (11.10).

        Each with its position among the flavors of the queue relative to that of `info`, whose flavor is the
        zero: a variant with a negative position has a more preferred flavor.
        """
        if info.queue is None:
            return
        order = info.queue.flavor_order()
        own = flavor_of(info.obj.metadata.annotations)
        for other in self.variants.get(info.parent, {}).values() if own in order else ():
            if other is info or other.place != RESERVED or other.queue is not info.queue:
                continue
            flavor = flavor_of(other.obj.metadata.annotations)
            if other.admitted and flavor in order:
                yield order.index(flavor) - order.index(own), other

    def record_undo(self, info: WorkloadInfo) -> None:
        """Notes what a workload is like before its fields are set, so that a fork can be undone."""
        if self.undo_log.on:
            self.undo_log.record_undo(info.restore, info.snapshot())

    # --- waiting ----------------------------------------------------------------------------------------

    def wake(self, queue: ClusterQueue) -> None:
        """Something changed that may let the queue's tree decide."""
        self.changes += 1
        self.ready[queue] = None

    def look_again(self, queue: ClusterQueue) -> None:
        """The queue's tree may have more to decide, although nothing changed since the last cycle."""
        self.ready[queue] = None

    def request_flush(self, queue: ClusterQueue) -> None:
        """Inadmissible workloads of the queue's tree are considered again (4.6)."""
        self.undo_log.put(self.to_flush, queue, None)

    def backoff_over(self, info: WorkloadInfo) -> bool:
        """Whether nothing keeps a waiting workload from being considered (4.8)."""
        return not info.requeue_blocked and info.requeue_at <= self.now

    def is_parent(self, info: WorkloadInfo, queue: ClusterQueue) -> bool:
        """Whether variants of a workload compete in a queue in its place."""
        return (
            queue.variants is not None
            and self.concurrent
            and not info.parent
            and may_be_parent(info.obj.metadata.annotations)
        )

    def enqueue(self, info: WorkloadInfo) -> None:
        """Make a workload pending in the queue its LocalQueue names, unless the LocalQueue is closed.

        One whose claims of devices cannot be counted stays outside (2.10).
        """
        local = info.local
        if local is None or not local.is_open:
            return
        if info.scheduling_class is not None and info.scheduling_class.kept_out:
            self.undo_log.put(self.kept_out, info.key, info)
            self.undo_log.set(info, "reason", "")  # the last decision's does not hold any more
            return
        queue = self.queue(local.cluster_queue)
        if self.is_parent(info, queue):
            return  # its variants are queued in its place
        over = self.backoff_over(info)
        self.places.move(info, ACTIVE if over else INADMISSIBLE, queue)
        if not over and not info.requeue_blocked:
            heappush(self.timers, (info.requeue_at, info.key))
        self.wake(queue)

    def dequeue(self, info: WorkloadInfo) -> None:
        """Take a pending workload out of its queue."""
        if info.place in (ACTIVE, INADMISSIBLE):
            self.withdraw(info)
            assert info.queue is not None
            self.wake(info.queue)
            if info.queue.backfill is not None:
                self.request_flush(info.queue)  # what was reserved for it is free for others

    def withdraw(self, info: WorkloadInfo) -> None:
        """Take a pending workload out of its queue, which does not let the queue decide anything."""
        assert info.queue is not None
        pending = info.queue.pending
        self.places.move(info, OUT)
        if pending.preemptor is info:
            self.undo_log.set(pending, "preemptor", None)

    def regroup(self, queue: ClusterQueue, by_local: bool, by_run_time: bool) -> None:
        """LocalQueues of a queue start, or cease, to compete by usage; or run times start to matter."""
        pending = queue.pending
        if by_local == pending.by_local and by_run_time == pending.by_run_time:
            return
        places = [(info, info.place) for info in pending.workloads.values()]
        for info, _ in places:
            self.withdraw(info)
        self.undo_log.set(pending, "by_local", by_local)
        self.undo_log.set(pending, "by_run_time", by_run_time)
        for info, place in places:
            self.places.move(info, place, queue)

    def flush_at(self, queue: ClusterQueue, time: float) -> None:
        """Consider the inadmissible workloads of the queue's tree again at a time, in seconds since 1970."""
        known = self.alarms.get(queue)
        if known is None or time < known:
            self.undo_log.put(self.alarms, queue, time)

    def fire_timers(self, now: float) -> None:
        """Activate workloads whose back-off has ended, or that a protection kept from preempting others."""
        self.now = now
        for queue in [queue for queue, time in self.alarms.items() if time <= now]:
            self.undo_log.drop(self.alarms, queue)
            if self.options.flush_delay:
                self.rebuild()
                self._flush_tree(queue.tree)
            else:
                self.request_flush(queue)
            self.wake(queue)
        timers = self.timers
        while timers and timers[0][0] <= now:
            _, key = heappop(timers)
            info = self.workloads.get(key)
            if info is None or info.place != INADMISSIBLE or not self.backoff_over(info):
                continue
            assert info.queue is not None
            self.places.move(info, ACTIVE)
            self.wake(info.queue)

    # --- reservations -----------------------------------------------------------------------------------

    def reserve(self, info: WorkloadInfo, queue: ClusterQueue) -> None:
        """Reserve what a workload uses (its `usage` and `shared`) in a queue."""
        self.places.move(info, RESERVED, queue)
        self.wake(queue)

    def release(self, info: WorkloadInfo) -> None:
        """The exact inverse of `reserve`."""
        queue = info.queue
        assert queue is not None
        self.places.move(info, OUT)
        self.wake(queue)

    def _enter_reserved(self, info: WorkloadInfo) -> None:
        queue = info.queue
        assert queue is not None
        usage = info.usage
        queue.reservations[info.key] = info
        queue.add_candidate(info)
        if self.backfill.on:
            self.backfill.add(info, queue)
        if info.evicted:
            queue.evicted[info.key] = info
        queue.usage_counts.reserve(usage, 1, info.admitted)
        if info.local is not None:
            info.local.usage_counts.reserve(usage, 1, info.admitted)
        amounts = quota.reserved_by(info)
        if len(amounts) < len(usage):
            self.forest.touch(queue)  # not in the queue's quota: the rebuild counts it
        quota.reserve(amounts)
        if info.shared:
            capacity.reserve(info.shared)
        if not info.ready and self.options.block_admission:
            self.unready[info.key] = info

    def _leave_reserved(self, info: WorkloadInfo) -> None:
        queue = info.queue
        assert queue is not None
        usage = info.usage
        del queue.reservations[info.key]
        queue.remove_candidate(info)
        if info.end is not None:
            self.backfill.discard(info, queue)
        queue.evicted.pop(info.key, None)
        queue.usage_counts.reserve(usage, -1, info.admitted)
        if info.local is not None:
            info.local.usage_counts.reserve(usage, -1, info.admitted)
        quota.release(quota.reserved_by(info))
        if info.shared:
            capacity.release(info.shared)
        if self.unready and self.unready.pop(info.key, None) is not None and not self.unready:
            self.all_pods_ready()

    def supersede(self, old: WorkloadInfo) -> None:
        """A slice counts for nothing any more: another one took over its quota (11.9)."""
        self.release(old)
        self.undo_log.set(old, "superseded", True)

    def release_and_flush(self, info: WorkloadInfo) -> None:
        """Release what a workload reserved; workloads that need it are considered again."""
        queue = info.queue
        assert queue is not None
        self.release(info)
        queue.advance()
        self.request_flush(queue)
        for shared, _ in info.shared or info.shared_requests:
            self.capacity_changed(shared)

    def allow_preemptions(self, queue: ClusterQueue) -> None:
        """Something else than a preemption changed in the queue's tree: its workloads may preempt again."""
        if queue.tree.preemptions:
            self.undo_log.set(queue.tree, "preemptions", {})

    def capacity_changed(self, shared: SharedCapacity) -> None:
        """Workloads that request a shared capacity are considered again."""
        if shared.flavors is not None:
            for queue in self.queues_with(shared.flavors):
                if queue not in self.to_flush:
                    self.request_flush(queue)
            return
        for info in self.requesting[shared.name].values():
            if info.place in (ACTIVE, INADMISSIBLE) and info.queue is not None:
                self.request_flush(info.queue)

    def queues_with(self, flavors: Collection[str]) -> list[ClusterQueue]:
        """The ClusterQueues that have any of the flavors."""
        return [queue for queue in self.queues.values() if not queue.all_flavors.isdisjoint(flavors)]

    def set_shared_requests(self, info: WorkloadInfo) -> None:
        """Read from a workload's object what it requests of shared capacities."""
        self.drop_shared_requests(info)
        info.shared_requests = tuple(
            [
                (shared, request)
                for shared in self.capacities
                if (request := shared.request_of(info.obj, info.scheduling_class)) is not None
            ]
        )
        for shared, _ in info.shared_requests:
            if shared.flavors is None:
                self.undo_log.put(self.requesting[shared.name], info.key, info)

    def drop_shared_requests(self, info: WorkloadInfo) -> None:
        """Forget a workload among those that request shared capacities."""
        for shared, _ in info.shared_requests:
            if shared.flavors is None:
                self.undo_log.drop(self.requesting[shared.name], info.key)

    def needs_second_pass(self, info: WorkloadInfo) -> bool:
        """Whether domains are to be chosen for a workload that holds quota: not here for other clusters."""
        if info.queue is not None and info.queue.has_check_of(MULTIKUEUE_CONTROLLER, self.checks):
            return False
        return needs_second_pass(info.obj, self.options.enabled("TASFailedNodeReplacement"))

    def queue_second_pass(self, info: WorkloadInfo) -> None:
        """Schedule the second pass of a workload that holds quota, or cancel it if it needs none."""
        if self.nodes is None:
            return
        if not self.nodes.flavors and info.key not in self.second_pass and not lacks_pods(info.obj):
            return
        if info.place != RESERVED or info.evicted or not self.needs_second_pass(info):
            self.undo_log.drop(self.second_pass, info.key)
        elif info.key not in self.second_pass:
            self.undo_log.put(self.second_pass, info.key, (self.now, 0))

    def nodes_changed(self) -> None:
        """The tree of a flavor changed: what workloads reserve of nodes is read again."""
        nodes = self.nodes
        assert nodes is not None
        self._read_requests_again(nodes, bool(nodes.flavors))

    def budgets_changed(self) -> None:
        """Budgets changed, or the queues that they are for: what workloads request of them is read again."""
        self.capacity_changed(self.budgets)
        self._read_requests_again(self.budgets, self.budgets.on)

    def _read_requests_again(self, changed: SharedCapacity, on: bool) -> None:
        """Reads again what workloads request and reserve; the capacity is one of the engine's if it is on."""
        others = tuple([shared for shared in self.capacities if shared is not changed])
        capacities = (*others, changed) if on else others
        if capacities != self.capacities:
            self.undo_log.set(self, "capacities", capacities)
        for info in self.workloads.values():
            self.record_undo(info)
            self.set_shared_requests(info)
            if info.place != RESERVED or info.admission is None:
                continue
            self.queue_second_pass(info)
            shared = capacity.read(info.shared_requests, info.admission)
            if shared != info.shared:
                self.undo_log.record_undo(_exchange, shared, info.shared)
                _exchange(info.shared, shared)
                info.shared = shared
        if on:
            self.capacity_changed(changed)

    def _path_of(self, workload: kueue.Workload) -> tuple[str, ...]:
        """The path of the ClusterQueue of a workload from its root cohort; empty if it has none."""
        admission = workload.status.admission
        if admission is not None:
            name = admission.cluster_queue
        else:
            local = self.locals.get(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
            name = local.cluster_queue if local is not None else ""
        queue = self.queues.get(name)
        return queue.path if queue is not None else ()

    def wake_groups(self, trees: Iterable[Tree]) -> list[list[Tree]]:
        """The trees in groups that are cycled together, with all trees they share a capacity with."""
        groups = [{tree} for tree in trees]
        for shared in self.capacities:
            if shared.flavors is not None:
                sharing = {queue.tree for queue in self.queues_with(shared.flavors)}
            else:
                workloads = self.requesting[shared.name].values()
                sharing = {info.queue.tree for info in workloads if info.queue is not None}
            joined = [group for group in groups if not group.isdisjoint(sharing)]
            if joined:
                groups = [group for group in groups if group.isdisjoint(sharing)]
                groups.append(sharing.union(*joined))
        return [sorted(group, key=tree_order) for group in groups]

    def mark_evicted(self, info: WorkloadInfo, evicted: bool) -> None:
        """A workload that holds quota is on its way out, or no longer is."""
        queue = info.queue
        assert queue is not None
        if info.evicted == evicted:
            return
        self.undo_log.record_undo(self.mark_evicted, info, info.evicted)
        info.evicted = evicted
        if evicted:
            queue.evicted[info.key] = info
        else:
            queue.evicted.pop(info.key, None)
        self.wake(queue)

    def all_pods_ready(self) -> None:
        """No workload blocks admission any more (11.5)."""
        for queue in self.queues.values():
            if queue.pending.workloads:
                self.wake(queue)

    def set_reservation(self, info: WorkloadInfo, admission: kueue.Admission, counts: list[int]) -> None:
        """Sets what a workload holds by its admission; `counts` pods still need quota."""
        pod_sets = info.obj.spec.pod_sets
        full = {pods.name: pods.count for pods in pod_sets}
        effective = {pods.name: count for pods, count in zip(pod_sets, counts, strict=True)}
        info.admission, info.usage, info.flavor_resources = reservation_from(
            admission, full, effective, self.flavor_resources
        )
        info.shared = capacity.read(info.shared_requests, admission) if info.shared_requests else ()

    def penalize(self, info: WorkloadInfo) -> None:
        """Counts the requests of a workload that just got quota as a penalty of its LocalQueue (10.3)."""
        local, queue, scheduling_class = info.local, info.queue, info.scheduling_class
        if (
            not self.history.on
            or local is None
            or queue is None
            or scheduling_class is None
            or not queue.fair_by_usage
        ):
            return
        ignore = self.options.quota_check_strategy == "IgnoreUndeclared"
        requests = [
            (resource, to_quantity(resource, amount).nanos)
            for pods in scheduling_class.pod_sets
            for resource, amount in pods.total.items()
            if not ignore or resource in queue.group_of
        ]
        self.history.penalize(local, info.key, requests)

    # --- settling ---------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Rebuilds the trees in which something changed."""
        trees = list(self.forest.settle())
        for tree in trees:
            for queue in tree.queues:
                if self.backfill.on:
                    self.set_backfill_rules(queue)
                if queue.pending.workloads:
                    self.wake(queue)
        if trees and self.budgets.by_cohort:
            self.budgets_changed()

    def set_backfill_rules(self, queue: ClusterQueue) -> None:
        """Set the rules of the BackfillPolicy that applies to a queue, and whether run times matter to it."""
        rules = self.backfill.rules_of(queue.path)
        by_run_time = rules is not None or self.backfill.windows.on
        self.regroup(queue, queue.pending.by_local, by_run_time)
        if rules == queue.backfill:
            return
        self.undo_log.set(queue, "backfill", rules)
        for info in queue.reservations.values():
            self.backfill.estimate_again(info)
        self.request_flush(queue)

    def settle(self) -> None:
        """Carries out what events put off: rebuilding trees and flushing them."""
        if self.forest.dirty:
            self.rebuild()
        if self.cohorts_to_flush:
            trees = {cohort.tree: None for cohort in self.cohorts_to_flush}
            for cohort in list(self.cohorts_to_flush):
                self.undo_log.drop(self.cohorts_to_flush, cohort)
            for tree in trees:
                for queue in tree.queues:
                    self.request_flush(queue)
        if not self.to_flush:
            return
        done: set[Tree] = set()
        for queue in list(self.to_flush):
            self.undo_log.drop(self.to_flush, queue)
            tree = queue.tree
            if tree in done or tree.cyclic:
                continue
            done.add(tree)
            if self.options.flush_delay:
                self.flush_at(tree.queues[0], self.now + self.options.flush_delay)
            else:
                self._flush_tree(tree)
            self.wake(queue)

    def _flush_tree(self, tree: Tree) -> None:
        for member in tree.queues:
            pending = member.pending
            if pending.inadmissible_buckets or pending.inadmissible or pending.inadmissible_classes:
                self.flush(member)

    def flush(self, queue: ClusterQueue) -> None:
        """Activate the inadmissible workloads of one queue (4.6)."""
        moved = queue.pending.activate_buckets()
        for info in list(queue.pending.inadmissible.values()):
            if self.backoff_over(info) and self.admits_namespace(queue, info.namespace):
                self.places.move(info, ACTIVE)
                moved = True
        if moved:
            self.wake(queue)

    def activate(self, info: WorkloadInfo) -> None:
        """Activate a pending workload, with those of its class where the whole class is inadmissible."""
        if info.place == INADMISSIBLE:
            self.places.move(info, ACTIVE)
        if info.place == ACTIVE and info.bucket is not None and info.queue is not None:
            info.queue.pending.activate_class(info.bucket.equivalence_class)

    def admits_namespace(self, queue: ClusterQueue, namespace: str) -> bool:
        """Whether the namespace exists and the queue's selector takes it (2.9)."""
        labels = self.namespaces.get(namespace)
        return labels is not None and queue.selector is not None and queue.selector.matches(labels)


def _exchange(old: Reservations, new: Reservations) -> None:
    """Release reservations and make others instead."""
    capacity.release(old)
    capacity.reserve(new)


def _nodes(options: Options, undo_log: UndoLog) -> NodeCapacity | None:
    """The nodes as a capacity, as the feature gates say; None if placement is off."""
    if not options.enabled("TopologyAwareScheduling"):
        return None
    rules = TopologyRules.of(options)
    return NodeCapacity(rules, undo_log, options.enabled("TASAssignmentsEncodingByHostnamePrefix"))


def enter_queue(info: WorkloadInfo) -> None:
    """Make a workload pending in its queue."""
    info.queue.pending.add(info)  # type: ignore[union-attr]


def leave_queue(info: WorkloadInfo) -> None:
    """Remove a workload from the pending ones of its queue."""
    info.queue.pending.discard(info)  # type: ignore[union-attr]
