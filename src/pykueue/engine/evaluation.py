"""Evaluating one workload: its flavors, whom it would preempt, and how small it could be.

Looks at the live tree and leaves it as it was. Source of the rules: reference/kueue-semantics.md 5.3.1 and 7.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pykueue.api import kueue
from pykueue.engine import fair_preemption, preemption
from pykueue.engine.admission import held_amounts
from pykueue.engine.assignment import (
    FIT,
    NO_CANDIDATES,
    NO_FIT,
    PREEMPT,
    RECLAIM,
    Assignment,
    Chooser,
    Credit,
    Pinned,
)
from pykueue.engine.cluster_queue import ClusterQueue
from pykueue.engine.explanation import Blocker, Search
from pykueue.engine.options import Options
from pykueue.engine.plan import Plan, make_plan
from pykueue.engine.preemption import Chosen, Need, Scene, UsageOf, put_back, take_away
from pykueue.engine.quota import Cell, borrowing_level
from pykueue.engine.requests import Shape
from pykueue.engine.workload import Record


class Evaluation:
    """What became of one workload."""

    __slots__ = ("assignment", "report", "targets")

    def __init__(self, assignment: Assignment, targets: Chosen, report: Search | None) -> None:
        self.assignment = assignment
        self.targets = targets
        self.report = report


class Evaluator:
    """Evaluates workloads under the options of an engine."""

    def __init__(
        self, options: Options, flavors: Mapping[str, kueue.ResourceFlavor], usage_of: UsageOf
    ) -> None:
        self._options = options
        self._flavors = flavors
        self._usage_of = usage_of if options.admission_fair_sharing is not None else None
        self._fungible = options.enabled("FlavorFungibility")
        self._within_nominal = options.enabled("FairSharingPreemptWithinNominal")
        self._partial = options.enabled("PartialAdmission")
        self._ignore_undeclared = (
            options.enabled("QuotaCheckStrategy") and options.quota_check_strategy == "IgnoreUndeclared"
        )

    def plan(self, shape: Shape, queue: ClusterQueue) -> Plan:
        """How the queue's flavors could serve the shape."""
        plan: Plan | None = shape.plans.get(queue.name)
        if plan is None or plan.cells is not queue.cells:
            plan = make_plan(shape, queue, self._flavors, self._ignore_undeclared)
            shape.plans[queue.name] = plan
        return plan

    def evaluate(
        self,
        record: Record,
        queue: ClusterQueue,
        *,
        replaced: Record | None = None,
        nominated: Pinned | None = None,
        taken: Collection[Record] = (),
        scene: Scene | None = None,
    ) -> Evaluation:
        """Flavors and victims for a workload.

        `replaced` is the slice it stands in for, `nominated` binds it to the flavors it was nominated with,
        and `taken` are workloads that are preempted for others already.
        """
        attempt = _Attempt(self, record, queue, replaced, nominated, taken, scene or Scene())
        first = attempt.at()
        if first.assignment.mode == FIT or first.targets:
            return first
        shape = record.shape
        assert shape is not None
        if self._partial and shape.shrinkable and replaced is None:
            smaller = attempt.shrink(shape)
            if smaller is not None:
                return smaller
        return first

    def search(self, need: Need) -> tuple[Chosen, Search]:
        """Victims for a need."""
        names = need.queue.pair_names
        report = Search(needed=tuple(names[pair] for pair in sorted(need.needed)))
        queue = need.queue
        if queue.within == "Never" and (queue.reclaim == "Never" or queue.parent is None):
            return [], report
        if self._options.fair_sharing:
            chosen = fair_preemption.search(
                need, report, self._options.preemption_strategies, self._within_nominal
            )
        else:
            chosen = preemption.search(need, report)
        return chosen, report

    @property
    def usage_of(self) -> UsageOf | None:
        return self._usage_of

    @property
    def fungible(self) -> bool:
        return self._fungible

    @property
    def fair_sharing(self) -> bool:
        return self._options.fair_sharing


class _Attempt:
    """The evaluation of one workload in one state of the tree."""

    def __init__(
        self,
        evaluator: Evaluator,
        record: Record,
        queue: ClusterQueue,
        replaced: Record | None,
        nominated: Pinned | None,
        taken: Collection[Record],
        scene: Scene,
    ) -> None:
        self.scene = scene
        self.evaluator = evaluator
        self.record = record
        self.queue = queue
        shape = record.shape
        assert shape is not None
        self.shape = shape
        self.plan = evaluator.plan(shape, queue)
        self.spared = taken
        self.pinned: Pinned | None = nominated
        self.pinned_by: Blocker = "FlavorNotNominated"
        self.credit: Credit | None = None
        if replaced is not None:
            self.spared = (replaced,)
            self.pinned, self.credit = _slice_terms(replaced, self.shape)
            self.pinned_by = "FlavorOfReplacedSlice"
        fresh = nominated is not None or not evaluator.fungible
        self.scan: Mapping[tuple[int, str], int] = {} if fresh else record.scan
        self.chooser = Chooser(queue, self._oracle, evaluator.fair_sharing, evaluator.fungible)
        #: Searches for one pair, which the search for the whole workload often repeats.
        self.found: dict[tuple[int, int], tuple[Chosen, Search]] = {}

    def at(self, counts: list[int] | None = None) -> Evaluation:
        """The outcome at full size, or at other counts."""
        assignment = self.chooser.choose(
            self.shape, self.plan, self.scan, counts, self.pinned, self.pinned_by, self.credit
        )
        if assignment.mode != PREEMPT:
            return Evaluation(assignment, [], None)
        targets, report = self._targets(assignment)
        return Evaluation(assignment, targets, report)

    def shrink(self, shape: Shape) -> Evaluation | None:
        """The largest size at which it fits or can preempt, by binary search (7)."""
        full = [pods.full_count for pods in shape.pod_sets]
        spare = [
            pods.full_count - pods.min_count if pods.min_count is not None else 0 for pods in shape.pod_sets
        ]
        steps = sum(spare)
        low, high = 0, steps + 1
        best: Evaluation | None = None
        while low < high:
            middle = (low + high) // 2
            counts = [count - less * middle // steps for count, less in zip(full, spare, strict=True)]
            found = self.at(counts)
            if found.assignment.mode == FIT or found.targets:
                best, high = found, middle
            else:
                low = middle + 1
        return best

    def _oracle(self, cell: Cell, amount: int, level: int) -> tuple[int, int]:
        need = Need(
            self.record,
            self.queue,
            [(cell, amount)],
            (cell.pair,),
            self.evaluator.usage_of,
            self.spared,
            self.scene,
        )
        chosen, report = self.evaluator.search(need)
        self.found[(cell.pair, amount)] = chosen, report
        if not chosen:
            return NO_CANDIDATES, level
        for record, _ in chosen:
            take_away(record)
        level, _ = borrowing_level(cell, amount)
        for record, _ in chosen:
            put_back(record)
        own = any(record.queue is self.queue for record, _ in chosen)
        return (PREEMPT if own else RECLAIM), level

    def _targets(self, assignment: Assignment) -> tuple[Chosen, Search]:
        """Victims for all that the assignment lacks (8.2)."""
        needed = {
            choice.cell.pair
            for choices in assignment.choices
            for choice in choices.values()
            if NO_FIT < choice.mode < FIT
        }
        cells = self.queue.cells
        requests = [(cells[pair], amount) for pair, amount in assignment.usage.items() if amount > 0]
        if len(requests) == 1 and len(needed) == 1:
            known = self.found.get((requests[0][0].pair, requests[0][1]))
            if known is not None:
                return known
        need = Need(
            self.record, self.queue, requests, needed, self.evaluator.usage_of, self.spared, self.scene
        )
        return self.evaluator.search(need)


def _slice_terms(replaced: Record, shape: Shape) -> tuple[Pinned, Credit]:
    """The flavors a replacement is bound to, and what its predecessor holds already (11.9)."""
    pinned: dict[tuple[int, str], str] = {}
    credit: dict[tuple[int, str], int] = {}
    assert replaced.admission is not None
    by_name = {given.name: given for given in replaced.admission.pod_set_assignments}
    sizes = {pods.name: pods.count for pods in replaced.obj.spec.pod_sets}
    for index, pods in enumerate(shape.pod_sets):
        given = by_name.get(pods.name)
        if given is None:
            continue
        size = sizes.get(pods.name, 0)
        for resource, flavor, amount in held_amounts(given, size, size):
            pinned[(index, resource)] = flavor
            credit[(index, resource)] = amount
    return pinned, credit
