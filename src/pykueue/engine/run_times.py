"""When running workloads end: by their declared limits, else by those like them, or by an assumption.

Without a BackfillPolicy nothing here is computed. Source of the rules: docs/reference/policies.md 4.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import Final

from pykueue.api import kueue
from pykueue.api.backfill_policies import BackfillPolicy
from pykueue.api.preemption_policies import seconds
from pykueue.api.reservations import Reservation
from pykueue.engine.explanation import DECLARED
from pykueue.engine.fitted import FittedRunTimes
from pykueue.engine.preemption.damping import admitted_at
from pykueue.engine.queues.cluster_queue import BackfillRules, ClusterQueue
from pykueue.engine.quota.flavor_resources import FlavorResources
from pykueue.engine.scopes import Scopes
from pykueue.engine.undo_log import UndoLog
from pykueue.engine.windows import Windows
from pykueue.engine.workload import End, WorkloadInfo

#: Seconds that a workload of a ClusterQueue without BackfillPolicy is assumed to run.
_ASSUMED: Final = 86400.0
#: Seconds that a workload is assumed to need for its end once it is evicted or over its declared limit.
_STOPPING: Final = 30.0
#: Times in conditions are whole seconds, rounded down.
_ROUNDING: Final = 1.0


def _compiled(policy: BackfillPolicy) -> BackfillRules:
    spec = policy.spec
    depth = None if spec.strategy == "Conservative" else spec.depth
    assumed = seconds(spec.assumed_run_time)
    return BackfillRules(policy.metadata.name, depth, assumed, spec.fitted_percentile or 0)


class Backfill:
    """The BackfillPolicies in force, and when the workloads with reserved quota end."""

    def __init__(
        self, undo_log: UndoLog, queues: Mapping[str, ClusterQueue], flavor_resources: FlavorResources
    ) -> None:
        self._undo_log = undo_log
        self.windows = Windows(undo_log, flavor_resources)
        self.fitted = FittedRunTimes(undo_log)
        self._queues = queues
        self._specs: dict[str, BackfillPolicy] = {}
        self._scopes: Scopes[BackfillRules] = Scopes()
        #: Advances when reservations are void although nothing else changed.
        self.version = 0

    @property
    def on(self) -> bool:
        """Whether there is any BackfillPolicy or Reservation."""
        return bool(self._specs) or self.windows.on

    @property
    def learns(self) -> bool:
        """Whether any BackfillPolicy asks for run times of finished workloads."""
        return bool(self._specs) and any(policy.spec.fitted_percentile for policy in self._specs.values())

    def finished(self, workload: kueue.Workload) -> None:
        """A workload has finished, or was found to have."""
        if self.learns and self.fitted.learn(workload):
            self._undo_log.set(self, "version", self.version + 1)
            self._undo_log.record_undo(self._count_ends)
            for queue in self._queues.values():
                for info in [each for each in queue.reservations.values() if each.fitted == 0]:
                    self.estimate_again(info)

    # --- policies ---------------------------------------------------------------------------------------

    def set(self, name: str, policy: BackfillPolicy | None) -> bool:
        """A BackfillPolicy appeared, changed, or is gone (None); whether that may change decisions."""
        known = self._specs.get(name)
        if known is policy or (known is not None and policy is not None and known.spec == policy.spec):
            return False
        self._undo_log.record_undo(self._count_ends)
        self._undo_log.replace(self._specs, name, policy)
        self._undo_log.set(self, "_scopes", Scopes.of(self._specs, _compiled))
        self._count_ends()
        return True

    def set_reservation(self, name: str, obj: Reservation | None) -> bool:
        """A Reservation appeared, changed, or is gone (None); whether that may change decisions."""
        self._undo_log.record_undo(self._count_ends)
        changed = self.windows.set(name, obj)
        self._count_ends()
        return changed

    def rules_of(self, path: tuple[str, ...]) -> BackfillRules | None:
        """The rules of a ClusterQueue, given its path from the root cohort; None: it has no policy."""
        return self._scopes.rules_of(path)

    def policies(self) -> list[BackfillPolicy]:
        """All BackfillPolicies, by name."""
        return [policy for _, policy in sorted(self._specs.items())]

    # --- ends -------------------------------------------------------------------------------------------

    def _count_ends(self) -> None:
        """Computes the ends of all workloads with reserved quota again."""
        for queue in self._queues.values():
            queue.ends.clear()
            for info in queue.reservations.values():
                info.end = None
                if self.on:
                    self.add(info, queue)

    def add(self, info: WorkloadInfo, queue: ClusterQueue) -> None:
        """A workload got quota of a queue."""
        begin = admitted_at(info)
        rules = self.rules_of(queue.path)
        if info.fitted is None and rules is not None and rules.percentile:
            # It stays as it was when the workload got quota: what is learnt later moves no reservation.
            self._undo_log.set(info, "fitted", self.fitted.estimate(info.obj, rules.percentile))
        length, _ = self._length(info, rules, info.fitted)
        info.end = End((info.reserved_at if begin is None else begin) + length, info.key, info)
        insort(queue.ends, info.end)

    def discard(self, info: WorkloadInfo, queue: ClusterQueue) -> None:
        """A workload has no quota of the queue any more."""
        if info.end is not None:
            at = bisect_left(queue.ends, info.end)
            assert queue.ends[at] is info.end
            del queue.ends[at]
            info.end = None

    def run_time(self, info: WorkloadInfo, rules: BackfillRules | None) -> tuple[float, int]:
        """Seconds that a pending workload runs at most once it is admitted, and how certain that is.

        The latter in percent: `DECLARED` is its declared limit, 0 an assumption.
        """
        percentile = rules.percentile if rules is not None else 0
        return self._length(info, rules, self.fitted.estimate(info.obj, percentile) if percentile else None)

    def _length(
        self, info: WorkloadInfo, rules: BackfillRules | None, fitted: float | None
    ) -> tuple[float, int]:
        limit = info.obj.spec.maximum_execution_time_seconds
        if limit is not None:
            past = info.obj.status.accumulated_past_execution_time_seconds or 0
            return max(0.0, float(limit - past)), DECLARED
        if rules is None:
            return _ASSUMED, 0
        return (fitted, rules.percentile) if fitted else (rules.assumed, 0)

    def estimate_again(self, info: WorkloadInfo) -> None:
        """The run time of a workload with reserved quota is to follow from what is known now."""
        if info.fitted is not None:
            self._undo_log.set(info, "fitted", None)
        self.refresh(info)

    def refresh(self, info: WorkloadInfo) -> None:
        """The object of a workload with reserved quota changed."""
        assert info.queue is not None
        self.discard(info, info.queue)
        self.add(info, info.queue)


def certainty_of_end(info: WorkloadInfo, now: float) -> int:
    """Percentage of workloads like one with reserved quota that end when it is assumed to."""
    if info.obj.spec.maximum_execution_time_seconds is not None:
        return DECLARED
    rules = info.queue.backfill if info.queue is not None else None
    in_time = info.end is not None and info.end.at > now
    return rules.percentile if rules is not None and info.fitted and in_time else 0


def ends_after(queue: ClusterQueue, now: float) -> Iterator[tuple[float, str, WorkloadInfo]]:
    """(time, key, workload): when workloads with quota of a queue end, in order, all after `now`.

    One that runs for longer than assumed is assumed to need twice the time, and so on.
    """
    late: list[tuple[float, str, WorkloadInfo]] = []
    first = 0
    for end in queue.ends:
        if end.at > now:
            break
        first += 1
        if not end.info.evicted:
            late.append((_later(end, now), end.key, end.info))
    late += [(now + _STOPPING, key, info) for key, info in queue.evicted.items()]
    late.sort(key=lambda each: each[:2])
    rest = (end for end in islice(queue.ends, first, None) if not end.info.evicted)
    return merge(late, rest, key=lambda each: each[:2]) if late else iter(rest)


def _later(end: End, now: float) -> float:
    info = end.info
    if info.obj.spec.maximum_execution_time_seconds is not None:
        return end.at + _ROUNDING if end.at + _ROUNDING > now else now + _STOPPING
    begin = admitted_at(info)
    begin = info.reserved_at if begin is None else begin
    length = max(end.at - begin, _STOPPING)
    while begin + length <= now:
        length *= 2
    return begin + length
