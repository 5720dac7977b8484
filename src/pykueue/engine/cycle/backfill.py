"""Reservations of pending workloads, and whether others may start before them.

In order of priority and age, each of the first workloads of a ClusterQueue gets the earliest time at which it
fits beside what runs and what is reserved for those before it. A workload behind them may start if what it
gets is not needed for any of these until it ends. Source of the rules: docs/reference/policies.md 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from math import inf
from typing import Any, Final, Literal, NamedTuple

from pykueue.engine import capacity
from pykueue.engine.capacity import Demands
from pykueue.engine.cycle.evaluation import Evaluation, Evaluator
from pykueue.engine.cycle.timeline import Reserved, Timeline
from pykueue.engine.explanation import DECLARED, BackfillProof, Shadow, basis_of, shadow_of
from pykueue.engine.flavors.assignment import Pinned
from pykueue.engine.flavors.plan import Plan
from pykueue.engine.preemption.classical import removed
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.capacity import QuotaDemand
from pykueue.engine.quota.usage import FlavorUsage
from pykueue.engine.state import State
from pykueue.engine.workload import IN_FLIGHT, RESERVED, Promise, WorkloadInfo

#: Pending workloads of a ClusterQueue with reservations under the strategy Conservative; what is behind them
#: waits, as it would under StrictFIFO, so that a cycle costs no more however many there are.
RESERVATIONS_MAX: Final = 100


class ReservedCapacity(NamedTuple):
    """What is reserved in trees that share capacity."""

    valid: tuple[int, int, float]
    """What it was computed for."""
    holders: tuple[Reserved, ...]
    """In order."""


class Planner:
    """The reservations as they are during one cycle."""

    def __init__(self, state: State, evaluator: Evaluator, now: float) -> None:
        self._state = state
        self._evaluator = evaluator
        self._now = now
        #: Heads that the cycle has yet to decide about, or had.
        self.heads: Sequence[tuple[WorkloadInfo, ClusterQueue]] = ()

    def shadow(self, info: WorkloadInfo, queue: ClusterQueue) -> Shadow | None:
        """The reservation of a pending workload; None: it has none."""
        if queue.backfill is None:
            return None
        for each in self._reservations(queue).holders:
            if each.info is info:
                return shadow_of(each.start, each.certainty, queue.backfill.policy)
        return None

    def holders(self, queue: ClusterQueue) -> Sequence[Reserved]:
        """The reservations of the trees that share capacity with a ClusterQueue, in order."""
        return self._reservations(queue).holders

    def proof(
        self,
        info: WorkloadInfo,
        queue: ClusterQueue,
        found: Evaluation,
        placed: capacity.Reservations,
    ) -> BackfillProof | None:
        """Whether a workload may start with what was found for it; None: it is first in order.

        Call it while the tree counts nothing but what is reserved.
        """
        rules = queue.backfill
        if rules is None:
            return None
        queues = self._queues(queue)
        before = self._binding(info, queue, found, self._on_nodes(placed))
        if not before:
            return None
        length, certainty = self._state.backfill.run_time(info, rules)
        end = self._now + length
        own = [each for each in before if each.queue is queue] if rules.depth is None else []
        if len(own) >= RESERVATIONS_MAX:
            return _would_delay(rules.policy, own[-1], end, certainty)
        demand = found.assignment.demand(queue)
        targets = found.targets
        with removed(targets):
            timeline = Timeline(queues, self._now, before, frozenset(target for target, _ in targets))
            timeline.set_windows(self._state.backfill.windows.binding(queue, self._now))
            conflict = timeline.first_conflict(
                length, lambda: quota.fits(demand) and not _is_taken(placed, found.demands)
            )
        touched = [each for each in before if _touches(each, demand, placed)]
        if conflict is None:
            head = min(touched, key=lambda each: each.start, default=before[0])
            ends_before = bool(touched) and end <= head.start
            certainty = min(head.certainty, certainty if ends_before else DECLARED)
            declared, probability = basis_of(certainty)
            kind: Literal["EndsBefore", "SpareCapacity"] = "EndsBefore" if ends_before else "SpareCapacity"
            return BackfillProof(rules.policy, head.info.key, head.start, end, declared, kind, probability)
        head = next((each for each in touched if each.start <= conflict < each.end), before[0])
        return _would_delay(rules.policy, head, end, certainty)

    def window(self, info: WorkloadInfo, queue: ClusterQueue, found: Evaluation) -> BackfillProof | None:
        """The Reservation of others that a workload would run into with what was found for it."""
        windows = self._state.backfill.windows.binding(queue, self._now)
        if not windows:
            return None
        length, certainty = self._state.backfill.run_time(info, queue.backfill)
        demand = found.assignment.demand(queue)
        with removed(found.targets):
            gone = frozenset(target for target, _ in found.targets)
            timeline = Timeline(self._queues(queue), self._now, (), gone)
            timeline.set_windows(windows)
            conflict = timeline.first_conflict(length, lambda: quota.fits(demand))
        if conflict is None:
            return None
        first = next((each for each in windows if each.start <= conflict < each.end), windows[0])
        self._state.flush_at(queue, first.end)
        end = self._now + length
        declared, probability = basis_of(certainty)
        return BackfillProof(first.name, "", first.start, end, declared, "RunsIntoReservation", probability)

    def disturbs(self, info: WorkloadInfo, queue: ClusterQueue, found: Evaluation) -> bool:
        """Whether a workload whose reservation begins now would delay those behind it with other flavors."""
        holders = self._reservations(queue).holders
        own = next((each for each in holders if each.info is info), None)
        demand = found.assignment.demand(queue)
        if own is None or own.start > self._now or _amounts(own.demand) == _amounts(demand):
            return False
        others = [each for each in holders if each is not own]
        timeline = Timeline(self._queues(queue), self._now, others)
        return None is not timeline.first_conflict(
            own.end - own.start,
            lambda: quota.fits(demand) and not _is_taken(found.placed, found.demands),
        )

    def instead(self, info: WorkloadInfo, queue: ClusterQueue, found: Evaluation) -> Evaluation | None:
        """Other flavors for a workload that would delay others with what was found; None: there are none."""
        for each in self._reservations(queue).holders:
            if each.info is info:
                return each.found if each.start <= self._now else None
        before = self._binding(info, queue, found, self._on_nodes(found.placed))
        for each in before:
            quota.reserve(each.demand)
        other = self._evaluator.fitting(info, queue, self._state.replaced_by(info))
        for each in before:
            quota.release(each.demand)
        return other

    def admitted(self, queue: ClusterQueue) -> None:
        """A workload of the queue got quota as its proof or its reservation allows: the others stay."""
        tree = self._queues(queue)[0].tree
        known: ReservedCapacity | None = tree.reserved
        if known is not None:
            left = tuple([each for each in known.holders if each.info.place != RESERVED])
            self._state.undo_log.set(tree, "reserved", ReservedCapacity(self._valid, left))

    # --- reservations -----------------------------------------------------------------------------------

    @property
    def _valid(self) -> tuple[int, int, float]:
        return self._state.changes, self._state.backfill.version, self._now

    def _queues(self, queue: ClusterQueue) -> list[ClusterQueue]:
        """The ClusterQueues of its tree, and of those that share a capacity with it."""
        if not self._state.capacities:
            return queue.tree.queues
        group = self._state.wake_groups([queue.tree])[0]
        return [each for tree in group for each in tree.queues]

    def _reservations(self, queue: ClusterQueue) -> ReservedCapacity:
        queues = self._queues(queue)
        tree = queues[0].tree
        known: ReservedCapacity | None = tree.reserved
        if known is not None and known.valid == self._valid:
            return known
        holders: list[Reserved] = []
        counts = dict.fromkeys(queues, 0)
        timeline = Timeline(queues, self._now)
        lines = [self._line(each, counts) for each in queues if each.backfill is not None]
        for info, owner in merge(*lines, key=_order):
            found = self._earliest(timeline, info, owner, bool(holders))
            if found is not None:
                first = info.promise or Promise(self._now, found.start, found.certainty, None)
                self._state.undo_log.set(info, "promise", first._replace(found=found.found))
                holders.append(found)
                timeline.plan(found)
                counts[owner] += 1
        reserved = ReservedCapacity(self._valid, tuple(holders))
        self._state.undo_log.set(tree, "reserved", reserved)
        return reserved

    def _line(
        self, queue: ClusterQueue, counts: Mapping[ClusterQueue, int]
    ) -> Iterator[tuple[WorkloadInfo, ClusterQueue]]:
        """Pending workloads that capacity may be reserved for, in order, until enough have it."""
        rules = queue.backfill
        if rules is None or queue.inactive or queue.tree.cyclic:
            return
        flight = [info for info, of in self.heads if of is queue and info.place == IN_FLIGHT]
        pending: Iterable[WorkloadInfo] = queue.pending.in_order()
        if flight:
            pending = merge(flight, pending, key=_rank)
        most = RESERVATIONS_MAX if rules.depth is None else rules.depth
        for info in pending:
            if counts[queue] >= most:
                return
            if self._is_eligible(info, queue):
                yield info, queue

    def _is_eligible(self, info: WorkloadInfo, queue: ClusterQueue) -> bool:
        """Whether capacity is all that a workload lacks."""
        state, wanted = self._state, info.scheduling_class
        if not info.reservable or wanted is None or wanted.problem or not state.backoff_over(info):
            return False
        if not state.admits_namespace(queue, info.namespace):
            return False
        if any(check.state in ("Retry", "Rejected") for check in info.obj.status.admission_checks):
            return False
        hook = self._evaluator.policies.eligible
        if hook is not None and hook(info, queue, self._now) is not None:
            return False
        return _possible(self._evaluator.plan(wanted, queue))

    def _earliest(
        self, timeline: Timeline, info: WorkloadInfo, queue: ClusterQueue, after_others: bool
    ) -> Reserved | None:
        assert info.scheduling_class is not None
        replaced = self._state.replaced_by(info)
        length, own = self._state.backfill.run_time(info, queue.backfill)
        last: Evaluation | Pinned | None = info.promise.found if info.promise is not None else None
        earliest: tuple[float, Evaluation, int] | None = None

        timeline.set_windows(
            self._state.backfill.windows.binding(queue, self._now) if self._state.backfill.windows.on else ()
        )

        def holds(found: Evaluation) -> bool:
            return quota.fits(found.assignment.demand(queue)) and not _is_taken(found.placed, found.demands)

        def consider(choose: Callable[[], Evaluation | None]) -> None:
            nonlocal earliest
            found = timeline.earliest(length, choose, holds)
            if found is not None and (earliest is None or found[0] < earliest[0]):
                earliest = found

        def again(found: Evaluation) -> Evaluation | None:
            if not holds(found):
                return None
            if _borrows_as_before(found, queue):
                return found
            return self._evaluator.fitting(info, queue, replaced, found.assignment.pinned())

        if isinstance(last, Evaluation):
            if _is_current(last, queue):
                consider(lambda: again(last))
        elif last is not None:  # flavors from a dump
            consider(lambda: self._evaluator.fitting(info, queue, replaced, last))
        for options in _alternatives(self._evaluator.plan(info.scheduling_class, queue)):
            if earliest is not None and earliest[0] <= self._now:
                break
            consider(
                lambda options=options: (  # type: ignore[misc]
                    self._evaluator.fitting(info, queue, replaced, options.flavors)
                    if replaced is not None or options.may_fit()
                    else None
                )
            )
        if earliest is None:
            return None
        start, found, certainty = earliest
        # Its own run time has no influence on when it starts, but on when others do after it.
        certainty = min(certainty, own if after_others else DECLARED)
        return Reserved(info, queue, start, start + length, found.assignment.demand(queue), found, certainty)

    def _on_nodes(self, placed: capacity.Reservations) -> bool:
        return any(shared is self._state.nodes for shared, _ in placed)

    def _binding(
        self, info: WorkloadInfo, queue: ClusterQueue, found: Evaluation, on_nodes: bool
    ) -> list[Reserved]:
        """The reservations that a workload must not delay.

        Those of its own ClusterQueue before it. Those of other ClusterQueues only if it borrows, or takes
        nodes: nominal quota is the queue's own at any time. Under fair sharing the shares decide between
        ClusterQueues.
        """
        others = (found.assignment.level > 0 or on_nodes) and not self._evaluator.fair_sharing
        holders = self._reservations(queue).holders
        rank, order = _rank(info), _order((info, queue))
        return [
            each
            for each in holders
            if each.info is not info
            and (
                _rank(each.info) < rank
                if each.queue is queue
                else others and _order((each.info, each.queue)) < order
            )
        ]


def _rank(info: WorkloadInfo) -> tuple[Any, ...]:
    """Position of a workload in the order of its ClusterQueue."""
    return -info.priority, info.timestamp, info.uid, info.key


def _order(entry: tuple[WorkloadInfo, ClusterQueue]) -> tuple[Any, ...]:
    """Position of a workload among those of other ClusterQueues: what was reserved first stays first."""
    info, _ = entry
    priority, *rank = _rank(info)
    return priority, info.promise.made if info.promise is not None else inf, *rank


class _Alternative(NamedTuple):
    """A flavor for the first resources of a workload, or any flavors where there is only one."""

    flavors: Pinned
    plan: Plan

    def may_fit(self) -> bool:
        """Whether any flavors have what each step requests; cheaper than choosing among them."""
        return _serves(self.plan, quota.available)


def _alternatives(plan: Plan) -> list[_Alternative]:
    """What to look for one by one: a flavor that is free first may not be free for long enough."""
    group = next((group for group in plan.groups if group.steps), None)
    if group is None or plan.splits:
        return [_Alternative({}, plan)]
    step = group.steps[0]
    flavors = [option.flavor for option in step.options if not option.blocker]
    if len(flavors) < 2:
        return [_Alternative({}, plan)]
    return [
        _Alternative({(member, step.trigger): flavor for member in group.members}, plan) for flavor in flavors
    ]


def _possible(plan: Plan) -> bool:
    """Whether any flavors could serve a workload if nothing were reserved."""
    return _serves(plan, lambda usage: usage.potential)


def _serves(plan: Plan, most: Callable[[FlavorUsage], int]) -> bool:
    """Whether each step of a plan has a flavor with enough of each resource."""
    return all(
        step.split is not None  # whose parts are looked at where flavors are chosen
        or any(
            not option.blocker
            and all(
                amount <= most(usage)
                for amount, usage in zip(step.amounts, option.flavor_usages, strict=True)
            )
            for option in step.options
        )
        for group in plan.groups
        for step in group.steps
    )


def _is_current(found: Evaluation, queue: ClusterQueue) -> bool:
    """Whether the tree is still the one in which something was found."""
    usages = queue.flavor_usages
    return all(
        usages.get(choice.flavor_usage.flavor_resource) is choice.flavor_usage
        for choice in found.assignment.every_choice()
    )


def _borrows_as_before(found: Evaluation, queue: ClusterQueue) -> bool:
    """Whether what was found borrows from the same cohorts beside what is reserved now."""
    assignment = found.assignment
    levels = [quota.borrowing_level(usage, amount)[0] for usage, amount in assignment.demand(queue)]
    return max(levels, default=0) == assignment.level


def _would_delay(policy: str, head: Reserved, end: float, certainty: int) -> BackfillProof:
    """A workload that would end at `end` has to wait for one with a reservation."""
    declared, probability = basis_of(min(head.certainty, certainty))
    return BackfillProof(policy, head.info.key, head.start, end, declared, "WouldDelay", probability)


def _amounts(demand: QuotaDemand) -> dict[int, int]:
    return {usage.flavor_resource: amount for usage, amount in demand}


def _is_taken(placed: capacity.Reservations, demands: Demands) -> bool:
    """Whether others hold what was to be taken of shared capacities."""
    return bool(demands) and (capacity.taken(placed) or not capacity.fits(demands))


def _touches(reserved: Reserved, demand: QuotaDemand, placed: capacity.Reservations) -> bool:
    """Whether a workload uses any flavor and resource, or shared capacity, that is reserved."""
    own = {usage.flavor_resource for usage, _ in reserved.demand}
    if any(usage.flavor_resource in own for usage, _ in demand):
        return True
    return _shares(reserved.found.placed, placed)


def _shares(one: capacity.Reservations, other: capacity.Reservations) -> bool:
    names: Collection[str] = {shared.name for shared, _ in one}
    return any(shared.name in names for shared, _ in other)
