"""Run times of finished workloads, as estimates for workloads that declare none.

A workload is like the finished ones of its queue, kind and size; with fewer than `ENOUGH` of those, like
those of a wider group. What is known follows from the finished workloads that the engine was told of, in
whatever order, and is part of a dump: the same events give the same estimates.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from pykueue.api import kueue
from pykueue.api.kueue.names import ADMITTED, FINISHED
from pykueue.api.meta import find_condition, parse_time
from pykueue.engine.undo_log import UndoLog

#: Finished workloads that make a group worth asking.
ENOUGH: Final = 20
#: Newest finished workloads that are known.
KEPT: Final = 5000

#: Reasons of the condition Finished that say nothing of how long a job runs.
_NO_RUN: Final = frozenset({"WorkloadSliceReplaced", "OutOfSync"})


class Sample(NamedTuple):
    """A finished workload."""

    ended: float
    """In seconds since 1970."""
    uid: str
    seconds: float
    """How long it ran."""
    queue: str
    """Its LocalQueue, as `namespace/name`."""
    owner: str
    """The kind of its job."""
    size: int
    """Its pods, as a power of two."""
    priority: int

    def groups(self) -> tuple[Hashable, ...]:
        """The groups it belongs to, the narrowest first."""
        queue, owner, size = self.queue, self.owner, self.size
        return (queue, owner, size, self.priority), (queue, owner, size), (queue, size), (queue,), (size,), ()


def sample_of(workload: kueue.Workload, ended: float = 0.0, seconds: float = 0.0) -> Sample:
    """A workload as one that ran for so many seconds."""
    metadata, spec = workload.metadata, workload.spec
    return Sample(
        ended,
        metadata.uid or metadata.key,
        seconds,
        f"{metadata.namespace}/{spec.queue_name}",
        next((each.kind for each in metadata.owner_references if each.controller), ""),
        sum(each.count for each in spec.pod_sets).bit_length(),
        spec.priority or 0,
    )


class FittedRunTimes:
    """What is known of run times; bounded by `KEPT`."""

    def __init__(self, undo_log: UndoLog) -> None:
        self._undo_log = undo_log
        #: In order of their ends.
        self._samples: list[Sample] = []
        self._uids: set[str] = set()
        #: Run times in seconds of each group, in ascending order.
        self._seconds: dict[Hashable, list[float]] = {}

    def samples(self) -> list[Sample]:
        """All finished workloads that are known, in order of their ends."""
        return list(self._samples)

    def take_over(self, samples: Iterable[Sample]) -> None:
        """Know these, and no others."""
        for each in self.samples():
            self._discard(each)
        for each in samples:
            self._add(each)

    def learn(self, workload: kueue.Workload) -> bool:
        """A workload has finished; whether anything was learnt from it."""
        status = workload.status
        admitted = find_condition(status.conditions, ADMITTED)
        finished = find_condition(status.conditions, FINISHED)
        if (workload.metadata.uid or workload.metadata.key) in self._uids:
            return False
        if finished is None or not finished.last_transition_time or finished.reason in _NO_RUN:
            return False
        if admitted is None or admitted.status != "True" or not admitted.last_transition_time:
            return False
        ended = parse_time(finished.last_transition_time)
        seconds = ended - parse_time(admitted.last_transition_time)
        if seconds < 0:
            return False
        sample = sample_of(workload, ended, seconds)
        if len(self._samples) >= KEPT:
            if sample < self._samples[0]:
                return False
            self._forget(self._samples[0])
        self._undo_log.record_undo(self._discard, sample)
        self._add(sample)
        return True

    def estimate(self, workload: kueue.Workload, percentile: int) -> float:
        """Seconds within which so many percent of the workloads like this one ended; 0: too few are known."""
        for group in sample_of(workload).groups():
            known = self._seconds.get(group, ())
            if len(known) >= ENOUGH:
                # The smallest run time that at least so many percent do not exceed; at least a second.
                return max(1.0, known[-(-len(known) * percentile // 100) - 1])
        return 0.0

    def problems(self) -> Iterator[str]:
        """What does not agree; nothing, unless there is a defect."""
        groups: dict[Hashable, list[float]] = {}
        for sample in self._samples:
            for group in sample.groups():
                groups.setdefault(group, []).append(sample.seconds)
        if {group: sorted(values) for group, values in groups.items()} != self._seconds:
            yield "run times of groups are not those of the finished workloads"

    def _forget(self, sample: Sample) -> None:
        self._undo_log.record_undo(self._add, sample)
        self._discard(sample)

    def _add(self, sample: Sample) -> None:
        insort(self._samples, sample)
        self._uids.add(sample.uid)
        for group in sample.groups():
            insort(self._seconds.setdefault(group, []), sample.seconds)

    def _discard(self, sample: Sample) -> None:
        del self._samples[bisect_left(self._samples, sample)]
        self._uids.discard(sample.uid)
        for group in sample.groups():
            known = self._seconds[group]
            del known[bisect_left(known, sample.seconds)]
            if not known:
                del self._seconds[group]
