"""Workloads waiting in one ClusterQueue: who is next, who is parked, and what is known not to fit.

Workloads of one shape and priority wait in one `Bucket`. Parking a shape that did not fit, or waking it,
moves the bucket and not its workloads, so both cost the same for one workload as for a hundred thousand.
Heaps hold stale entries instead of being searched: an entry counts only while its owner says it is the
current one. Source of the rules: reference/kueue-semantics.md 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Any

from pykueue.engine.journal import Journal
from pykueue.engine.workload import ACTIVE, IN_FLIGHT, OUT, PARKED, Record

if TYPE_CHECKING:
    from pykueue.engine.local_queue import LocalQueue
    from pykueue.engine.requests import Shape

#: What makes workloads alike to a queue: same shape, same priority (4.7).
Likeness = tuple["Shape", int]

_ticket = count().__next__


class Bucket:
    """Waiting workloads of one shape and priority (and LocalQueue, under admission fair sharing)."""

    __slots__ = ("heap", "likeness", "listed", "local", "parked", "size")

    def __init__(self, likeness: Likeness, local: LocalQueue | None) -> None:
        self.likeness = likeness
        self.local = local
        #: (timestamp, key, record); only entries their record knows count.
        self.heap: list[Any] = []
        #: Workloads in it.
        self.size = 0
        #: Reason for which the whole bucket is parked, or empty.
        self.parked = ""
        #: The entry that stands for this bucket in the queue's heap.
        self.listed: Any = None

    def top(self) -> Record | None:
        """The workload that is first in line."""
        heap = self.heap
        while heap:
            entry = heap[0]
            record: Record = entry[3]
            if record.entry is entry:
                return record
            heappop(heap)
        return None

    def records(self) -> Iterator[Record]:
        """All of them, in no particular order."""
        return (entry[3] for entry in self.heap if entry[3].entry is entry)


class Pending:
    """The waiting workloads of one ClusterQueue."""

    __slots__ = (
        "_buckets",
        "_heaps",
        "_journal",
        "by_local",
        "lone",
        "memory",
        "parked_buckets",
        "records",
        "sticky",
    )

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        #: All waiting workloads, by key.
        self.records: dict[str, Record] = {}
        #: Parked on their own.
        self.lone: dict[str, Record] = {}
        self._buckets: dict[Any, Bucket] = {}
        self.parked_buckets: dict[Bucket, None] = {}
        #: Heaps of bucket entries, one for each LocalQueue if they are ordered by usage, else one.
        self._heaps: dict[LocalQueue | None, list[Any]] = {}
        #: Whether LocalQueues compete by usage (10).
        self.by_local = False
        #: Shapes that did not fit, with the reason, until the next flush (4.7).
        self.memory: dict[Likeness, str] = {}
        #: The workload whose preemptions are under way: it goes first (4.5).
        self.sticky: Record | None = None

    # --- membership -------------------------------------------------------------------------------------

    def add(self, record: Record, parked: bool = False) -> None:
        """Puts a workload in line, or parks it on its own."""
        self._journal.note(self.discard, record)
        self.records[record.key] = record
        if parked:
            self.lone[record.key] = record
            record.place = PARKED
            return
        shape = record.shape
        assert shape is not None
        likeness = (shape, record.priority)
        local = record.local if self.by_local else None
        name = (likeness, local)
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(likeness, local)
        entry = (record.timestamp, record.key, _ticket(), record)
        record.entry = entry
        record.bucket = bucket
        record.place = ACTIVE
        bucket.size += 1
        heap = bucket.heap
        heappush(heap, entry)
        if not bucket.parked:
            if likeness in self.memory:
                self.park_bucket(bucket, self.memory[likeness])
            elif bucket.listed is None or heap[0] is entry:
                self._list(bucket, record)

    def discard(self, record: Record) -> None:
        """Takes a workload out, wherever it is."""
        if self.records.pop(record.key, None) is None:
            return
        self._journal.note(self.add, record, record.place == PARKED)
        if self.lone.pop(record.key, None) is None:
            bucket = record.bucket
            assert bucket is not None
            record.entry = None
            record.bucket = None
            bucket.size -= 1
            if bucket.size == 0:
                self._retire(bucket)
        record.place = OUT
        if self.sticky is record:
            self._journal.set(self, "sticky", None)

    def _retire(self, bucket: Bucket) -> None:
        self._buckets.pop((bucket.likeness, bucket.local), None)
        if bucket.parked:
            self.parked_buckets.pop(bucket, None)
        bucket.listed = None
        bucket.heap = []

    # --- order ------------------------------------------------------------------------------------------

    def _list(self, bucket: Bucket, top: Record) -> None:
        heap = self._heaps.get(bucket.local)
        if heap is None:
            heap = self._heaps[bucket.local] = []
        entry = (-top.priority, top.timestamp, top.key, _ticket(), bucket)
        bucket.listed = entry
        heappush(heap, entry)

    def _first(self, heap: list[Any]) -> Record | None:
        while heap:
            entry = heap[0]
            bucket: Bucket = entry[4]
            if bucket.listed is not entry:
                heappop(heap)
                continue
            top = bucket.top()
            if top is None:
                heappop(heap)
                bucket.listed = None
                continue
            if top.key != entry[2] or top.timestamp != entry[1]:
                entry = (-top.priority, top.timestamp, top.key, _ticket(), bucket)
                bucket.listed = entry
                heapreplace(heap, entry)
                continue
            return top
        return None

    def head(self, usage: Callable[[LocalQueue], float] | None = None, strict: bool = False) -> Record | None:
        """The workload that is next; `usage` orders LocalQueues where they compete (4.4)."""
        sticky = None if strict else self.sticky
        if sticky is not None and not self._in_line(sticky):
            sticky = None
        if not self.by_local:
            if sticky is not None:
                return sticky
            heap = self._heaps.get(None)
            return self._first(heap) if heap else None
        best: Record | None = None
        best_order: Any = None
        for local, heap in self._heaps.items():
            first = self._first(heap)
            if first is None or local is None:
                continue
            used = usage(local) if usage is not None else 0.0
            if sticky is not None and sticky.local is local:
                first = sticky
            order = (used, first is not sticky, -first.priority, first.timestamp, first.key)
            if best is None or order < best_order:
                best, best_order = first, order
        return best

    def take(self, record: Record) -> None:
        """Takes the head out for a cycle; `add` or `discard_flying` follows."""
        sticky = self.sticky
        self.discard(record)
        if sticky is record:
            self._journal.set(self, "sticky", sticky)
        record.place = IN_FLIGHT

    @staticmethod
    def _in_line(record: Record) -> bool:
        return record.place == ACTIVE and record.bucket is not None and not record.bucket.parked

    # --- parking and waking -----------------------------------------------------------------------------

    def remember(self, likeness: Likeness, reason: str) -> None:
        """A shape did not fit: its workloads are parked unseen until the next flush."""
        self._journal.put(self.memory, likeness, reason)
        if self.by_local:
            alike = [bucket for bucket in self._buckets.values() if bucket.likeness == likeness]
        else:
            bucket = self._buckets.get((likeness, None))
            alike = [bucket] if bucket is not None else []
        for bucket in alike:
            if not bucket.parked:
                self.park_bucket(bucket, reason)

    def park_bucket(self, bucket: Bucket, reason: str) -> None:
        self._journal.note(self._wake_bucket, bucket)
        bucket.parked = reason
        bucket.listed = None
        self.parked_buckets[bucket] = None

    def _wake_bucket(self, bucket: Bucket) -> None:
        if not bucket.parked:
            return
        self._journal.note(self.park_bucket, bucket, bucket.parked)
        bucket.parked = ""
        self.parked_buckets.pop(bucket, None)
        top = bucket.top()
        if top is not None:
            self._list(bucket, top)

    def flush(self, eligible: Callable[[Record], bool]) -> bool:
        """Puts back in line what is parked, if it is eligible; tells whether anything moved (4.6)."""
        moved = False
        if self.memory:
            self._journal.set(self, "memory", {})
        for bucket in list(self.parked_buckets):
            self._wake_bucket(bucket)
            moved = True
        if self.lone:
            for record in [record for record in self.lone.values() if eligible(record)]:
                self.discard(record)
                self.add(record)
                moved = True
        return moved

    # --- what others may ask ----------------------------------------------------------------------------

    def has_active(self) -> bool:
        """Whether somebody is in line."""
        return any(self._first(heap) is not None for heap in self._heaps.values())

    def buckets(self) -> Iterator[Bucket]:
        """All buckets."""
        return iter(self._buckets.values())

    def is_parked(self, record: Record) -> bool:
        """Whether a waiting workload is parked."""
        return record.place == PARKED or (record.bucket is not None and bool(record.bucket.parked))

    def regroup(self, by_local: bool) -> None:
        """LocalQueues start, or cease, to compete by usage."""
        if by_local == self.by_local:
            return
        records = list(self.records.values())
        parked = [record.place == PARKED for record in records]
        for record in records:
            self.discard(record)
        self._journal.set(self, "by_local", by_local)
        for record, alone in zip(records, parked, strict=True):
            self.add(record, alone)

    def order(self, record: Record) -> tuple[Any, ...]:
        """Sorting key of a workload among those in line."""
        return (
            record is not self.sticky,
            -record.priority,
            record.timestamp,
            record.key,
        )
