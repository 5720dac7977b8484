"""Everything the engine knows, and the few moves that change it: wait, park, hold quota, leave, be flushed.

Every move keeps the usage of the whole tree true, marks the trees that are worth a cycle, and can be taken
back through the journal. Source of the rules: reference/kueue-semantics.md 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from pykueue.api import kueue
from pykueue.api.meta import parse_time
from pykueue.engine.admission import holding_from
from pykueue.engine.cluster_queue import ClusterQueue
from pykueue.engine.journal import Journal
from pykueue.engine.local_queue import LocalQueue
from pykueue.engine.names import Pairs
from pykueue.engine.options import Options
from pykueue.engine.quota import add, remove, to_quantity
from pykueue.engine.requests import NO_LIMITS, Limits, Shapes
from pykueue.engine.tree import Cohort, Forest, Tree
from pykueue.engine.usage_history import UsageHistory
from pykueue.engine.workload import ACTIVE, HOLDING, OUT, PARKED, Record


class State:
    """The engine's knowledge."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.journal = Journal()
        self.pairs = Pairs()
        self.forest = Forest(self.pairs, self.journal)
        self.shapes = Shapes(options)
        self.history = UsageHistory(options, self.journal)
        self.queues: dict[str, ClusterQueue] = {}
        self.locals: dict[str, LocalQueue] = {}
        self.records: dict[str, Record] = {}
        self.flavors: dict[str, kueue.ResourceFlavor] = {}
        self.checks: dict[str, kueue.AdmissionCheck] = {}
        self.topologies: dict[str, kueue.Topology] = {}
        #: Labels by namespace.
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.limits: dict[str, Limits] = {}
        #: How often something changed that may let a queue decide; never goes back.
        self.changes = 0
        #: Queues whose tree may have something to decide.
        self.ready: dict[ClusterQueue, None] = {}
        #: Queues whose tree is flushed before the next cycle.
        self.to_flush: dict[ClusterQueue, None] = {}
        #: The same for cohorts that changed.
        self.cohorts_to_flush: dict[Cohort, None] = {}
        #: Workloads that hold quota and whose pods are not ready, by key; kept only where that blocks
        #: admission.
        self.unready: dict[str, Record] = {}
        #: (time, key): when a workload's back-off ends.
        self.timers: list[tuple[float, str]] = []
        #: The time of the last cycle.
        self.now = 0.0
        self.cycle = 0
        self.scan_memory = options.enabled("FlavorFungibility")
        self.hashing = options.enabled("SchedulingEquivalenceHashing")

    # --- finding ----------------------------------------------------------------------------------------

    def queue(self, name: str) -> ClusterQueue:
        """The ClusterQueue of that name, known or not."""
        found = self.queues.get(name)
        if found is None:
            found = ClusterQueue(name, self.pairs, self.journal)
            found.tree.queues.append(found)
            self.journal.put(self.queues, name, found)
        return found

    def local(self, namespace: str, name: str) -> LocalQueue:
        """The LocalQueue of that name, known or not."""
        key = f"{namespace}/{name}"
        found = self.locals.get(key)
        if found is None:
            found = LocalQueue(key, namespace)
            self.journal.put(self.locals, key, found)
        return found

    def limits_of(self, namespace: str) -> Limits:
        return self.limits.get(namespace, NO_LIMITS)

    def replaced_by(self, record: Record) -> Record | None:
        """The slice a workload stands in for, while that holds quota of the same queue (11.9)."""
        if not record.replaces:
            return None
        old = self.records.get(record.replaces)
        if old is None or old.place != HOLDING or old.queue is not record.queue:
            return None
        return old

    def keep(self, record: Record) -> None:
        """Notes what a workload is like before its fields are set, so that a fork can be undone."""
        if self.journal.on:
            self.journal.note(record.restore, record.snapshot())

    # --- waiting ----------------------------------------------------------------------------------------

    def wake(self, queue: ClusterQueue) -> None:
        """Something changed that may let the queue's tree decide."""
        self.changes += 1
        self.look_again(queue)

    def look_again(self, queue: ClusterQueue) -> None:
        """The queue's tree may have more to decide, although nothing changed since the last cycle."""
        if self.journal.on:
            self.journal.put(self.ready, queue, None)
        else:
            self.ready[queue] = None

    def request_flush(self, queue: ClusterQueue) -> None:
        """What is parked in the queue's tree is looked at again (4.6)."""
        self.journal.put(self.to_flush, queue, None)

    def backoff_over(self, record: Record) -> bool:
        """Whether nothing keeps a waiting workload from being considered (4.8)."""
        return not record.requeue_blocked and record.requeue_at <= self.now

    def enqueue(self, record: Record) -> None:
        """Lets a workload wait in the queue its LocalQueue names, if it may wait at all."""
        local = record.local
        if local is None or not local.is_open:
            return
        queue = record.queue = self.queue(local.cluster_queue)
        over = self.backoff_over(record)
        queue.pending.add(record, parked=not over)
        if not over and not record.requeue_blocked:
            heappush(self.timers, (record.requeue_at, record.key))
        self.wake(queue)

    def dequeue(self, record: Record) -> None:
        """Takes a waiting workload out of its queue."""
        if record.place in (ACTIVE, PARKED):
            assert record.queue is not None
            record.queue.pending.discard(record)
            self.wake(record.queue)

    def fire_timers(self, now: float) -> None:
        """Puts back in line what has waited long enough."""
        self.now = now
        timers = self.timers
        while timers and timers[0][0] <= now:
            entry = heappop(timers)
            self.journal.note(heappush, timers, entry)
            record = self.records.get(entry[1])
            if record is None or record.place != PARKED or not self.backoff_over(record):
                continue
            queue = record.queue
            assert queue is not None
            queue.pending.discard(record)
            queue.pending.add(record)
            self.wake(queue)

    # --- holding quota ----------------------------------------------------------------------------------

    def hold(self, record: Record, queue: ClusterQueue) -> None:
        """Counts what a workload holds (its `usage`) in a queue."""
        self.journal.note(self.let_go, record)
        record.queue = queue
        record.place = HOLDING
        usage = record.usage
        queue.holding[record.key] = record
        queue.seat(record)
        if record.evicted:
            queue.evicted[record.key] = record
        queue.tally.reserve(usage, 1, record.admitted)
        if record.local is not None:
            record.local.tally.reserve(usage, 1, record.admitted)
        cells = queue.cells
        for pair, amount in usage:
            cell = cells.get(pair)
            if cell is None:
                self.forest.touch(queue)  # not in the queue's quota: the rebuild counts it
            else:
                add(cell, amount)
        if not record.ready and self.options.block_admission:
            self.unready[record.key] = record
        self.wake(queue)

    def let_go(self, record: Record) -> None:
        """The exact inverse of `hold`."""
        queue = record.queue
        assert queue is not None
        self.journal.note(self.hold, record, queue)
        usage = record.usage
        record.place = OUT
        del queue.holding[record.key]
        queue.unseat(record)
        queue.evicted.pop(record.key, None)
        queue.tally.reserve(usage, -1, record.admitted)
        if record.local is not None:
            record.local.tally.reserve(usage, -1, record.admitted)
        cells = queue.cells
        for pair, amount in usage:
            cell = cells.get(pair)
            if cell is not None:
                remove(cell, amount)
        if self.unready and self.unready.pop(record.key, None) is not None and not self.unready:
            self.everybody_ready()
        self.wake(queue)

    def release(self, record: Record) -> None:
        """A workload gave its quota back: others may need it."""
        queue = record.queue
        assert queue is not None
        self.let_go(record)
        queue.advance()
        self.request_flush(queue)

    def mark_evicted(self, record: Record, evicted: bool) -> None:
        """A workload that holds quota is on its way out, or no longer is."""
        queue = record.queue
        assert queue is not None
        if record.evicted == evicted:
            return
        self.journal.note(self.mark_evicted, record, record.evicted)
        record.evicted = evicted
        if evicted:
            queue.evicted[record.key] = record
        else:
            queue.evicted.pop(record.key, None)
        self.wake(queue)

    def everybody_ready(self) -> None:
        """No workload blocks admission any more (11.5)."""
        for queue in self.queues.values():
            if queue.pending.records:
                self.wake(queue)

    def set_holding(self, record: Record, admission: kueue.Admission, counts: list[int]) -> None:
        """Sets what a workload holds by its admission; `counts` pods still need quota."""
        pod_sets = record.obj.spec.pod_sets
        full = {pods.name: pods.count for pods in pod_sets}
        effective = {pods.name: count for pods, count in zip(pod_sets, counts, strict=True)}
        record.admission, record.usage, record.holds = holding_from(admission, full, effective, self.pairs)

    def penalize(self, record: Record) -> None:
        """Lets a workload that just got quota weigh in on its LocalQueue (10.3)."""
        local, queue, shape = record.local, record.queue, record.shape
        if not self.history.on or local is None or queue is None or shape is None or not queue.fair_by_usage:
            return
        ignore = self.options.quota_check_strategy == "IgnoreUndeclared"
        requests = [
            (resource, to_quantity(resource, amount).nanos)
            for pods in shape.pod_sets
            for resource, amount in pods.total.items()
            if not ignore or resource in queue.group_of
        ]
        self.history.penalize(local, record.key, requests)

    def used_nanos(self, local: LocalQueue) -> list[tuple[str, int]]:
        """What admitted workloads of a LocalQueue use: (resource, nanos)."""
        return [
            (self.pairs.resource(pair), to_quantity(self.pairs.resource(pair), amount).nanos)
            for pair, amount in local.tally.used.items()
            if amount
        ]

    # --- settling ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Carries out what events put off: rebuilding trees and flushing them."""
        for tree in self.forest.settle():
            for queue in tree.queues:
                if queue.pending.records:
                    self.wake(queue)
        for cohort in list(self.cohorts_to_flush):
            self.journal.drop(self.cohorts_to_flush, cohort)
            for queue in cohort.tree.queues:
                self.request_flush(queue)
        if not self.to_flush:
            return
        done: set[Tree] = set()
        for queue in list(self.to_flush):
            self.journal.drop(self.to_flush, queue)
            tree = queue.tree
            if tree in done or tree.cyclic:
                continue
            done.add(tree)
            for member in tree.queues:
                pending = member.pending
                if pending.parked_buckets or pending.lone or pending.memory:
                    self.flush(member)
            self.wake(queue)

    def flush(self, queue: ClusterQueue) -> None:
        """Puts back in line what is parked in one queue (4.6)."""
        if queue.pending.flush(lambda record: self.may_leave_parking(record, queue)):
            self.wake(queue)

    def may_leave_parking(self, record: Record, queue: ClusterQueue) -> bool:
        return self.backoff_over(record) and self.admits_namespace(queue, record.namespace)

    def admits_namespace(self, queue: ClusterQueue, namespace: str) -> bool:
        """Whether the namespace exists and the queue's selector takes it (2.9)."""
        labels = self.namespaces.get(namespace)
        return labels is not None and queue.selector is not None and queue.selector.matches(labels)


def transition_time(text: str) -> float:
    """Seconds of a condition's transition; 0 where it is empty."""
    return parse_time(text) if text else 0.0
