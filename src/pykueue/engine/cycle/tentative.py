"""The usage that one cycle counts on beside the reservations.

While the entries of a cycle are processed, the tree is as it will be once the workloads are gone that the
cycle preempts: what is planned (everything earlier entries request) counts, and what those targets use does
not. Two other views of it are kept beside: with what the targets still hold, and without what is only
planned. A change costs the height of the tree in each view, and so does a question about one queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from pykueue.engine import capacity
from pykueue.engine.capacity import Reservation, Reservations
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.capacity import QuotaDemand
from pykueue.engine.quota.usage import FlavorUsage
from pykueue.engine.workload import WorkloadInfo


class _View:
    """The usage that the nodes have under another assumption than the tree, where it may differ."""

    __slots__ = ("usages",)

    def __init__(self) -> None:
        self.usages: dict[FlavorUsage, int] = {}

    def keep(self, demand: QuotaDemand) -> None:
        """The tree is about to change by a demand, but not this view."""
        usages = self.usages
        for flavor_usage, _ in demand:
            at: FlavorUsage | None = flavor_usage
            while at is not None:
                usages.setdefault(at, at.usage)
                at = at.parent

    def change(self, how: Callable[[QuotaDemand], None], demand: QuotaDemand) -> None:
        """Count a demand, or no longer count it, in this view."""
        self.keep(demand)
        self.exchange_above(demand)
        how(demand)
        self.exchange_above(demand)

    def exchange(self, flavor_usages: Iterable[FlavorUsage]) -> None:
        """Let the tree and this view swap what these nodes use; doing it twice changes nothing."""
        usages = self.usages
        for each in flavor_usages:
            other = usages.get(each)
            if other is not None:
                usages[each], each.usage = each.usage, other

    def exchange_above(self, demand: QuotaDemand) -> None:
        """The same for the nodes of a demand and those above them."""
        for flavor_usage, _ in demand:
            at: FlavorUsage | None = flavor_usage
            while at is not None:
                self.exchange((at,))
                at = at.parent


class TentativeUsage:
    """What earlier entries plan, and what the targets of the cycle will free."""

    __slots__ = ("_freed_shared", "_held", "_planned_shared", "_reserved", "targets")

    def __init__(self) -> None:
        #: Workloads that are preempted in this cycle.
        self.targets: set[WorkloadInfo] = set()
        #: As the tree, but the targets still hold what they use.
        self._held = _View()
        #: What is reserved, as it was before the cycle and with what the cycle has admitted.
        self._reserved = _View()
        #: What the targets free of shared capacities, and what entries request without having been admitted.
        self._freed_shared: list[Reservation] = []
        self._planned_shared: list[Reservation] = []

    @property
    def frees(self) -> bool:
        """Whether the targets free anything."""
        return bool(self._held.usages or self._freed_shared)

    @property
    def differs(self) -> bool:
        """Whether anything but reservations counts in the tree."""
        return bool(self._reserved.usages)

    def includes_target(self, targets: Iterable[tuple[WorkloadInfo, object]]) -> bool:
        """Whether any of these is preempted for an earlier entry."""
        return bool(self.targets) and any(target in self.targets for target, _ in targets)

    # --- changes ----------------------------------------------------------------------------------------

    def add_target(self, target: WorkloadInfo) -> None:
        """A workload is preempted: what it uses, which it does until it stops, will be free."""
        self.targets.add(target)
        demand = quota.reserved_by(target)
        self._reserved.keep(demand)
        self._held.keep(demand)
        quota.release(demand)
        capacity.release(target.shared)
        self._freed_shared += target.shared

    def plan(self, demand: QuotaDemand, placed: Reservations = ()) -> None:
        """Count what an entry requests, for the rest of the cycle."""
        demand = [each for each in demand if each[1] > 0]
        self._reserved.keep(demand)
        if self._held.usages:
            self._held.change(quota.reserve, demand)
        quota.reserve(demand)
        capacity.reserve(placed)
        self._planned_shared += placed

    @contextmanager
    def reserving(self, queue: ClusterQueue) -> Iterator[None]:
        """What is reserved of a queue's quota inside, or released, counts in every view."""
        before = [(each, each.usage) for each in queue.flavor_usages.values()]
        views = (self._reserved, self._held) if self._held.usages else (self._reserved,)
        for view in views:
            view.keep(before)
        yield
        more = [(each, each.usage - usage) for each, usage in before if each.usage > usage]
        less = [(each, usage - each.usage) for each, usage in before if each.usage < usage]
        for view in views:
            view.change(quota.reserve, more)
            view.change(quota.release, less)

    def settle(self) -> None:
        """The cycle is over: the tree counts what is reserved."""
        self._exchange_reserved()

    # --- other views ------------------------------------------------------------------------------------

    def held(self, flavor_usage: FlavorUsage) -> int:
        """What a node uses if the targets still hold what they use."""
        return self._held.usages.get(flavor_usage, flavor_usage.usage)

    def exchange_held(self, queue: ClusterQueue) -> None:
        """Let a queue and the cohorts above it count what the targets hold, or no longer count it."""
        if self._held.usages:
            self._held.exchange(queue.flavor_usages.values())
            for cohort in queue.ancestors():
                self._held.exchange(cohort.flavor_usages.values())

    def fits_reserved(self, demand: QuotaDemand) -> bool:
        """Whether a demand of quota fits beside what is reserved, whatever is planned."""
        self._reserved.exchange_above(demand)
        fits = quota.fits(demand)
        self._reserved.exchange_above(demand)
        return fits

    @contextmanager
    def all_held(self) -> Iterator[None]:
        """The whole tree counts what the targets hold."""
        self._held.exchange(self._held.usages)
        capacity.reserve(self._freed_shared)
        yield
        capacity.release(self._freed_shared)
        self._held.exchange(self._held.usages)

    @contextmanager
    def all_reserved(self) -> Iterator[None]:
        """The whole tree counts what is reserved and nothing else."""
        self._exchange_reserved()
        yield
        self._reserved.exchange(self._reserved.usages)
        capacity.release(self._freed_shared)
        capacity.reserve(self._planned_shared)

    def _exchange_reserved(self) -> None:
        self._reserved.exchange(self._reserved.usages)
        capacity.release(self._planned_shared)
        capacity.reserve(self._freed_shared)
