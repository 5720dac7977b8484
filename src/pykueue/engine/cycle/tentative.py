"""The usage that one cycle counts on beside the reservations.

While the entries of a cycle are processed, the tree counts what is planned (everything earlier entries
request) and still counts the workloads that are preempted in the cycle. Both can be lifted off for a question
and counted again; what is only planned is lifted off at the end of the cycle.
"""

from __future__ import annotations

from collections.abc import Iterable

from pykueue.engine import capacity
from pykueue.engine.capacity import Reservations
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.capacity import QuotaDemand
from pykueue.engine.quota.usage import FlavorUsage
from pykueue.engine.workload import WorkloadInfo


class TentativeUsage:
    """What earlier entries plan, and what the targets of the cycle will free."""

    __slots__ = ("_freed", "_freed_shared", "_planned", "_planned_shared", "targets")

    def __init__(self) -> None:
        #: Workloads that are preempted in this cycle.
        self.targets: set[WorkloadInfo] = set()
        #: What they use of the quota of their queues, and of shared capacities.
        self._freed: dict[FlavorUsage, int] = {}
        self._freed_shared: Reservations = ()
        #: What earlier entries request without having been admitted, of quota and of shared capacities.
        self._planned: dict[FlavorUsage, int] = {}
        self._planned_shared: Reservations = ()

    @property
    def frees(self) -> bool:
        """Whether the targets free anything."""
        return bool(self._freed or self._freed_shared)

    def includes_target(self, targets: Iterable[tuple[WorkloadInfo, object]]) -> bool:
        """Whether any of these is preempted for an earlier entry."""
        return bool(self.targets) and any(target in self.targets for target, _ in targets)

    def add_target(self, target: WorkloadInfo) -> None:
        """A workload is preempted: what it uses, which it does until it stops, will be free."""
        self.targets.add(target)
        queue = target.queue
        assert queue is not None
        for flavor_resource, amount in target.usage:
            flavor_usage = queue.flavor_usages[flavor_resource]
            self._freed[flavor_usage] = self._freed.get(flavor_usage, 0) + amount
        self._freed_shared += target.shared

    def plan(self, demand: QuotaDemand, placed: Reservations = ()) -> None:
        """Count what an entry requests, for the rest of the cycle."""
        for flavor_usage, amount in demand:
            if amount > 0:
                quota.reserve(((flavor_usage, amount),))
                self._planned[flavor_usage] = self._planned.get(flavor_usage, 0) + amount
        if placed:
            capacity.reserve(placed)
            self._planned_shared += placed

    def lift_freed(self) -> None:
        """Look at the capacity as it will be once the targets of this cycle are gone."""
        quota.release(self._freed.items())
        capacity.release(self._freed_shared)

    def count_freed(self) -> None:
        """The exact inverse of `lift_freed`."""
        quota.reserve(self._freed.items())
        capacity.reserve(self._freed_shared)

    def lift_planned(self) -> None:
        """Look at the capacity without what earlier entries only plan."""
        quota.release(self._planned.items())
        capacity.release(self._planned_shared)

    def count_planned(self) -> None:
        """The exact inverse of `lift_planned`."""
        quota.reserve(self._planned.items())
        capacity.reserve(self._planned_shared)
