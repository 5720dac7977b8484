"""Pending workloads of one ClusterQueue: their order, and which are inadmissible.

Pending workloads of one scheduling class and priority are in one `Bucket`. Making a class that did not fit
inadmissible, or active again, moves the bucket and not its workloads: the cost does not depend on how many
they are. Heaps hold stale entries instead of being searched: an entry counts only while its owner says it is
the current one. Source of the rules: docs/reference/kueue-semantics.md 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Any

from pykueue.engine.undo_log import UndoLog
from pykueue.engine.workload import ACTIVE, INADMISSIBLE, WorkloadInfo

if TYPE_CHECKING:
    from pykueue.engine.flavors.scheduling_class import SchedulingClass
    from pykueue.engine.queues.local_queue import LocalQueue

#: What makes workloads alike to a queue: same class, same priority (4.7), and under a BackfillPolicy the same
#: declared run time (else 0).
EquivalenceClass = tuple["SchedulingClass", int, int]

#: What heaps hold; entries count by identity. New ones are declared Any: compiled, a variable that is known
#: to be a tuple of fixed length is another object each time it is read.
Item = tuple[Any, ...]

_ticket = count().__next__


class Bucket:
    """Pending workloads of one class and priority (and LocalQueue, under admission fair sharing)."""

    __slots__ = ("equivalence_class", "explained", "heap", "inadmissible", "listed", "local", "size")

    def __init__(self, equivalence_class: EquivalenceClass, local: LocalQueue | None) -> None:
        self.equivalence_class = equivalence_class
        self.local = local
        #: (timestamp, uid, key, ticket, info); only entries their info knows count.
        self.heap: list[Item] = []
        #: Workloads in it.
        self.size = 0
        #: Reason for which the whole bucket is inadmissible, or empty.
        self.inadmissible = ""
        #: Why its workloads do not fit, in words, as far as that was asked for while it is inadmissible.
        self.explained = ""
        #: The entry that stands for this bucket in the queue's heap.
        self.listed: Any = None

    def top(self) -> WorkloadInfo | None:
        """The workload that is first in line."""
        heap = self.heap
        while heap:
            entry = heap[0]
            info: WorkloadInfo = entry[4]
            if info.entry is entry:
                return info
            heappop(heap)
        return None

    def workloads(self) -> Iterator[WorkloadInfo]:
        """All of them, in no particular order."""
        return (info for entry in self.heap for *_, info in (entry,) if info.entry is entry)


class Pending:
    """The waiting workloads of one ClusterQueue."""

    __slots__ = (
        "_buckets",
        "_heaps",
        "_timestamp",
        "_undo_log",
        "by_local",
        "by_run_time",
        "inadmissible",
        "inadmissible_buckets",
        "inadmissible_classes",
        "preemptor",
        "workloads",
    )

    def __init__(self, undo_log: UndoLog) -> None:
        self._undo_log = undo_log
        #: All waiting workloads, by key.
        self.workloads: dict[str, WorkloadInfo] = {}
        #: Inadmissible on their own.
        self.inadmissible: dict[str, WorkloadInfo] = {}
        self._buckets: dict[Any, Bucket] = {}
        self.inadmissible_buckets: dict[Bucket, None] = {}
        #: Heaps of bucket entries, one for each LocalQueue if they are ordered by usage, else one.
        self._heaps: dict[LocalQueue | None, list[Item]] = {}
        #: That of the newest entry, for the next ones with the same.
        self._timestamp: Any = 0.0
        #: Whether LocalQueues compete by usage (10).
        self.by_local = False
        #: Whether workloads with different run times can fare differently.
        self.by_run_time = False
        #: Classes that did not fit, with the reason, until the next flush (4.7).
        self.inadmissible_classes: dict[EquivalenceClass, str] = {}
        #: The workload whose preemptions are under way: it goes first (4.5).
        self.preemptor: WorkloadInfo | None = None

    # --- membership -------------------------------------------------------------------------------------

    def add(self, info: WorkloadInfo) -> None:
        """Enter a workload that is active, or inadmissible on its own. Called by `Places` only."""
        self.workloads[info.key] = info
        if info.place == INADMISSIBLE:
            self.inadmissible[info.key] = info
            return
        equivalence_class = self.class_of(info)
        local = info.local if self.by_local else None
        name = (equivalence_class, local)
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(equivalence_class, local)
        if info.timestamp != self._timestamp:
            self._timestamp = info.timestamp
        entry: Any = (self._timestamp, info.uid, info.key, _ticket(), info)
        info.entry = entry
        info.bucket = bucket
        bucket.size += 1
        heap = bucket.heap
        heappush(heap, entry)
        if not bucket.inadmissible:
            if equivalence_class in self.inadmissible_classes:
                self.deactivate_bucket(bucket, self.inadmissible_classes[equivalence_class])
            elif bucket.listed is None or heap[0] is entry:
                self._list(bucket, info)

    def class_of(self, info: WorkloadInfo) -> EquivalenceClass:
        """What a workload has in common with those that fare alike."""
        assert info.scheduling_class is not None
        limit = info.obj.spec.maximum_execution_time_seconds if self.by_run_time else None
        return info.scheduling_class, info.priority, limit or 0

    def discard(self, info: WorkloadInfo) -> None:
        """Remove a workload. Called by `Places` only."""
        del self.workloads[info.key]
        if info.place == INADMISSIBLE:
            del self.inadmissible[info.key]
            return
        bucket = info.bucket
        assert bucket is not None
        info.entry = None
        info.bucket = None
        bucket.size -= 1
        if bucket.size == 0:
            self._retire(bucket)

    def _retire(self, bucket: Bucket) -> None:
        self._buckets.pop((bucket.equivalence_class, bucket.local), None)
        if bucket.inadmissible:
            self.inadmissible_buckets.pop(bucket, None)
        bucket.listed = None
        bucket.heap = []

    # --- order ------------------------------------------------------------------------------------------

    def _list(self, bucket: Bucket, top: WorkloadInfo) -> None:
        heap = self._heaps.get(bucket.local)
        if heap is None:
            heap = self._heaps[bucket.local] = []
        entry: Any = (-top.priority, top.timestamp, top.uid, top.key, _ticket(), bucket)
        bucket.listed = entry
        heappush(heap, entry)

    def _first(self, heap: list[Item]) -> WorkloadInfo | None:
        while heap:
            entry = heap[0]
            bucket: Bucket = entry[5]
            if bucket.listed is not entry:
                heappop(heap)
                continue
            top = bucket.top()
            if top is None:
                heappop(heap)
                bucket.listed = None
                continue
            if top.key != entry[3] or top.timestamp != entry[1]:
                current: Any = (-top.priority, top.timestamp, top.uid, top.key, _ticket(), bucket)
                bucket.listed = current
                heapreplace(heap, current)
                continue
            return top
        return None

    def head(
        self, usage: Callable[[LocalQueue], float] | None = None, strict: bool = False
    ) -> WorkloadInfo | None:
        """The workload that is next; `usage` orders LocalQueues where they compete (4.4)."""
        preemptor = None if strict else self.preemptor
        if preemptor is not None and not self._in_line(preemptor):
            preemptor = None
        if not self.by_local:
            if preemptor is not None:
                return preemptor
            heap = self._heaps.get(None)
            return self._first(heap) if heap else None
        best: WorkloadInfo | None = None
        best_order: Any = None
        for local, heap in self._heaps.items():
            first = self._first(heap)
            if first is None or local is None:
                continue
            used = usage(local) if usage is not None else 0.0
            if preemptor is not None and preemptor.local is local:
                first = preemptor
            order = (used, first is not preemptor, -first.priority, first.timestamp, first.uid, first.key)
            if best is None or order < best_order:
                best, best_order = first, order
        return best

    @staticmethod
    def _in_line(info: WorkloadInfo) -> bool:
        return info.place == ACTIVE and info.bucket is not None and not info.bucket.inadmissible

    def in_order(self) -> Iterator[WorkloadInfo]:
        """All pending workloads, the first in order first; those that are asked for cost their logarithm.

        Past usage of LocalQueues has no influence on it.
        """
        # Heaps are walked from their tops: what is below an entry comes after it.
        front: list[tuple[tuple[Any, ...], int, Bucket | None, int, WorkloadInfo | None]] = []
        for info in self.inadmissible.values():
            front.append((self.order(info)[1:], _ticket(), None, 0, info))
        for bucket in self._buckets.values():
            self._push(front, bucket, 0)
        heapify(front)
        while front:
            _, _, within, index, pending = heappop(front)
            if within is not None:
                self._push(front, within, 2 * index + 1)
                self._push(front, within, 2 * index + 2)
            if pending is not None:
                yield pending

    @staticmethod
    def _push(front: list[Any], bucket: Bucket, index: int) -> None:
        if index >= len(bucket.heap):
            return
        entry = bucket.heap[index]
        timestamp, uid, key, ticket, info = entry
        order = (-bucket.equivalence_class[1], timestamp, uid, key)
        heappush(front, (order, ticket, bucket, index, info if info.entry is entry else None))

    # --- inadmissible and active again --------------------------------------------------------------

    def set_class_inadmissible(self, equivalence_class: EquivalenceClass, reason: str) -> None:
        """A class did not fit: its workloads are inadmissible, without a look, until the next flush."""
        self._undo_log.put(self.inadmissible_classes, equivalence_class, reason)
        if self.by_local:
            alike = [
                bucket for bucket in self._buckets.values() if bucket.equivalence_class == equivalence_class
            ]
        else:
            bucket = self._buckets.get((equivalence_class, None))
            alike = [bucket] if bucket is not None else []
        for bucket in alike:
            if not bucket.inadmissible:
                self.deactivate_bucket(bucket, reason)

    def deactivate_bucket(self, bucket: Bucket, reason: str) -> None:
        """Set the workloads of a bucket aside as inadmissible for `reason`; recorded for undo."""
        self._undo_log.record_undo(self._activate_bucket, bucket)
        bucket.inadmissible = reason
        bucket.listed = None
        self.inadmissible_buckets[bucket] = None

    def _activate_bucket(self, bucket: Bucket) -> None:
        if not bucket.inadmissible:
            return
        self._undo_log.record_undo(self.deactivate_bucket, bucket, bucket.inadmissible)
        bucket.inadmissible = bucket.explained = ""
        self.inadmissible_buckets.pop(bucket, None)
        top = bucket.top()
        if top is not None:
            self._list(bucket, top)

    def activate_buckets(self) -> bool:
        """Make every inadmissible bucket active and forget what did not fit; whether any was (4.6)."""
        if self.inadmissible_classes:
            self._undo_log.set(self, "inadmissible_classes", {})
        inadmissible = list(self.inadmissible_buckets)
        for bucket in inadmissible:
            self._activate_bucket(bucket)
        return bool(inadmissible)

    def activate_class(self, equivalence_class: EquivalenceClass) -> None:
        """Make the inadmissible buckets of a class active."""
        if equivalence_class in self.inadmissible_classes:
            self._undo_log.drop(self.inadmissible_classes, equivalence_class)
        for bucket in list(self.inadmissible_buckets):
            if bucket.equivalence_class == equivalence_class:
                self._activate_bucket(bucket)

    # --- what others may ask ----------------------------------------------------------------------------

    def has_active(self) -> bool:
        """Whether any workload is active."""
        for heap in self._heaps.values():  # noqa: SIM110 (asked of every queue, several times a cycle)
            if self._first(heap) is not None:
                return True
        return False

    def buckets(self) -> Iterator[Bucket]:
        """All buckets."""
        return iter(self._buckets.values())

    def is_inadmissible(self, info: WorkloadInfo) -> bool:
        """Whether a pending workload is inadmissible."""
        return info.place == INADMISSIBLE or (info.bucket is not None and bool(info.bucket.inadmissible))

    def order(self, info: WorkloadInfo) -> tuple[Any, ...]:
        """Sorting key of a workload among those in line."""
        return (
            info is not self.preemptor,
            -info.priority,
            info.timestamp,
            info.uid,
            info.key,
        )
