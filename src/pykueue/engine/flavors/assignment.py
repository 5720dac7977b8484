"""Choosing flavors: which flavor each resource of each pod set gets, and whether that fits, preempts or
fails.

Source of the rules: docs/reference/kueue-semantics.md 6.4 to 6.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from pykueue.engine.capacity import AssignedPodSet
from pykueue.engine.explanation import Attempt, Blocker, Mode
from pykueue.engine.flavors.plan import GroupPlan, Option, Plan, Step, group_requests
from pykueue.engine.flavors.requests import SchedulingClass
from pykueue.engine.queues.cluster_queue import PODS, ClusterQueue
from pykueue.engine.quota import capacity as quota
from pykueue.engine.quota.usage import FlavorUsage

_T = TypeVar("_T")

NO_FIT: Final = 0
NO_CANDIDATES: Final = 1
PREEMPT: Final = 2
RECLAIM: Final = 3
FIT: Final = 4

MODES: Final[tuple[Mode, ...]] = ("NoFit", "NoCandidates", "Preempt", "Reclaim", "Fit")

#: Reasons of a failure, mildest first (6.9).
WAITING: Final = 1
EXCEEDS: Final = 2
NO_FLAVOR: Final = 3
REASONS: Final = ("", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor", "TopologyPlacementFailed")

#: Asks whether preempting could serve one FlavorResource: (mode, borrowing level once the targets are gone).
Oracle = Callable[[FlavorUsage, int, int], tuple[int, int]]

#: Flavors a workload is bound to: by (pod set, resource).
Pinned = Mapping[tuple[int, str], str]


#: What a workload slice that is replaced holds already: by (pod set, resource).
Credit = Mapping[tuple[int, str], int]


class Terms(NamedTuple):
    """What an evaluation depends on besides the workload's requests and the queue."""

    scan: Mapping[tuple[int, str], int] = {}
    """The search goes on after these flavors: indexes by (pod set, resource)."""
    pinned: Pinned | None = None
    """Only these flavors are considered."""
    pinned_by: Blocker = ""
    """Why."""
    credit: Credit | None = None


NO_TERMS: Final = Terms()


class Choice(Struct):
    """A flavor given to one resource of one pod-set group."""

    flavor: str
    flavor_usage: FlavorUsage
    amount: int
    """For all pods of the group."""
    mode: int
    level: int
    index: int = -1
    """Of the last flavor looked at; -1 where that was the last one."""


class Assignment:
    """The outcome for a workload at certain pod counts."""

    __slots__ = ("attempts", "choices", "counts", "level", "mode", "reason", "scan", "shrunk", "usage")

    def __init__(self, counts: Sequence[int], shrunk: bool) -> None:
        self.counts = counts
        #: Smaller than asked for (partial admission).
        self.shrunk = shrunk
        #: NO_FIT, PREEMPT (whatever the kind) or FIT.
        self.mode = FIT
        #: The largest borrowing level of all choices.
        self.level = 0
        #: By pod set: choice by resource.
        self.choices: list[dict[str, Choice]] = [{} for _ in counts]
        #: Amount by FlavorResource; amounts above what a replaced slice holds already.
        self.usage: dict[int, int] = {}
        #: Index of the last flavor looked at, where that was not the last one: the next cycle goes on from
        #: there.
        self.scan: dict[tuple[int, str], int] = {}
        #: Index into REASONS.
        self.reason = 0
        self.attempts: list[Attempt] = []

    def demand(self, queue: ClusterQueue) -> list[tuple[FlavorUsage, int]]:
        """What it demands of the quota of the queue."""
        flavor_usages = queue.flavor_usages
        return [
            (flavor_usages[flavor_resource], amount)
            for flavor_resource, amount in self.usage.items()
            if amount > 0
        ]

    def by_pod_set(
        self, scheduling_class: SchedulingClass, implied: bool, delayed: AbstractSet[str]
    ) -> list[AssignedPodSet]:
        """The pod sets with the flavors they would get.

        `implied`: all flavors of the queue have a topology; `delayed`: those whose nodes are chosen later.
        """
        found = []
        for pods, count, choices in zip(scheduling_class.pod_sets, self.counts, self.choices, strict=True):
            flavors = {resource: choice.flavor for resource, choice in choices.items()}
            later = not delayed.isdisjoint(flavors.values())
            found.append(AssignedPodSet(pods.name, count, flavors, implied, later))
        return found


class Chooser:
    """Chooses flavors in one queue under given rules."""

    __slots__ = ("fungible", "may_preempt_borrowing", "oracle", "queue")

    def __init__(self, queue: ClusterQueue, oracle: Oracle, fair_sharing: bool, fungible: bool) -> None:
        self.queue = queue
        self.oracle = oracle
        #: Preempting may be tried although the queue borrows (6.4 step 4).
        self.may_preempt_borrowing = queue.borrow_within or (fair_sharing and queue.reclaim != "Never")
        #: Gate FlavorFungibility: policies and memory between cycles.
        self.fungible = fungible

    def choose(
        self,
        scheduling_class: SchedulingClass,
        plan: Plan,
        terms: Terms,
        counts: Sequence[int] | None = None,
    ) -> Assignment:
        """Flavors for a workload; `counts` asks for other sizes than the full one."""
        shrunk = counts is not None
        sizes = [pods.count for pods in scheduling_class.pod_sets] if counts is None else counts
        result = Assignment(sizes, shrunk)
        counts_pods = PODS in self.queue.group_of
        for group in plan.groups:
            amounts: dict[str, int] | None = None
            if shrunk:
                members = [scheduling_class.pod_sets[i] for i in group.members]
                amounts = group_requests(members, [sizes[i] for i in group.members], counts_pods)
            chosen: dict[str, Choice] = {}
            failure = 0
            for step in group.steps:
                failure = self._search(result, group, step, amounts, terms, chosen)
                if failure:
                    break
            if failure:
                result.mode = NO_FIT
                result.reason = failure
                return result
            self._record(result, scheduling_class, group, chosen, counts_pods)
        return result

    def _record(
        self,
        result: Assignment,
        scheduling_class: SchedulingClass,
        group: GroupPlan,
        chosen: dict[str, Choice],
        counts_pods: bool,
    ) -> None:
        for resource, choice in chosen.items():
            if choice.mode < result.mode:
                result.mode = PREEMPT
            if choice.level > result.level:
                result.level = choice.level
            if choice.amount:
                flavor_resource = choice.flavor_usage.flavor_resource
                result.usage[flavor_resource] = result.usage.get(flavor_resource, 0) + choice.amount
            index = choice.index
            for member in group.members:
                if resource in scheduling_class.pod_sets[member].per_pod or (
                    resource == PODS and counts_pods
                ):
                    result.choices[member][resource] = choice
                    if index != -1:
                        result.scan[(member, resource)] = index

    def _search(
        self,
        result: Assignment,
        group: GroupPlan,
        step: Step,
        amounts: dict[str, int] | None,
        terms: Terms,
        chosen: dict[str, Choice],
    ) -> int:
        """Finds a flavor for one step; returns the failure (index into REASONS) or 0."""
        options = step.options
        if not options:
            result.attempts.append(
                Attempt(group.name, step.trigger, "", "NoFit", 0, step.amounts[0], 0, "ResourceNotCovered")
            )
            return NO_FLAVOR
        wanted = step.amounts if amounts is None else [amounts[resource] for resource in step.resources]
        queue = self.queue
        scan, pinned, pinned_by, credit = terms
        start = _of_group(scan, group, step, -1) + 1 if scan else 0
        if start >= len(options):
            start = 0  # the queue lost flavors since
        best: list[Choice] | None = None
        best_mode = best_level = 0
        mildest = NO_FLAVOR + 1
        last = start
        for last in range(start, len(options)):
            option = options[last]
            blocker, detail = option.blocker, option.detail
            if not blocker and pinned is not None:
                bound = _of_group(pinned, group, step, "")
                if bound and bound != option.flavor:
                    blocker, detail = pinned_by, bound
            if blocker:
                mildest = min(mildest, NO_FLAVOR)
                result.attempts.append(
                    Attempt(
                        group.name, step.trigger, option.flavor, "NoFit", 0, wanted[0], 0, blocker, detail
                    )
                )
                continue
            mode, level, choices, failure = self._try(result, group, step, option, wanted, credit)
            if mode == NO_FIT:
                mildest = min(mildest, failure)
                continue
            better = best is None or self._better(mode, level, best_mode, best_level)
            if self.fungible:
                stop = not (
                    mode == NO_CANDIDATES
                    or (mode < FIT and queue.preempt_try_next)
                    or (level > 0 and queue.borrow_try_next)
                )
            else:
                stop = mode == FIT
            if better or stop:
                best, best_mode, best_level = choices, mode, level
            if stop:
                break
        if best is None:
            return mildest
        index = last if last < len(options) - 1 else -1
        for resource, choice in zip(step.resources, best, strict=True):
            choice.index = index
            chosen[resource] = choice
        return 0

    def _better(self, mode: int, level: int, than_mode: int, than_level: int) -> bool:
        """Whether one outcome is better than another (6.6); neither is NO_FIT."""
        if not self.fungible:
            return mode > than_mode
        if NO_CANDIDATES in (mode, than_mode):
            if mode != than_mode:
                return than_mode == NO_CANDIDATES
        elif self.queue.prefer_preemption and level != than_level:
            return level < than_level
        if mode != than_mode:
            return mode > than_mode
        return level < than_level

    def _try(
        self,
        result: Assignment,
        group: GroupPlan,
        step: Step,
        option: Option,
        wanted: Sequence[int],
        credit: Credit | None,
    ) -> tuple[int, int, list[Choice], int]:
        """One flavor for all resources of a step: (mode, level, choices, failure if NO_FIT)."""
        worst_mode, worst_level = FIT, 0
        choices: list[Choice] = []
        usage = result.usage
        for resource, flavor_usage, requested in zip(
            step.resources, option.flavor_usages, wanted, strict=True
        ):
            amount = requested
            if credit is not None:
                amount -= sum(credit.get((member, resource), 0) for member in group.members)
            assumed = usage.get(flavor_usage.flavor_resource, 0)
            value = amount + assumed
            attempt = Attempt(group.name, resource, option.flavor, "Fit", 0, requested, assumed)
            result.attempts.append(attempt)
            if value > flavor_usage.potential:  # could not fit if nothing were reserved
                attempt.mode = "NoFit"
                attempt.blocker = "ExceedsMaximum"
                attempt.maximum = flavor_usage.potential
                return NO_FIT, 0, choices, EXCEEDS
            level, in_larger_tree = quota.borrowing_level(flavor_usage, value)
            if value <= 0 or value <= quota.available(flavor_usage):
                mode = FIT
            else:
                attempt.blocker, attempt.detail, attempt.levels = quota.explain(flavor_usage, value)
                if flavor_usage.subtree < value and not in_larger_tree and not self.may_preempt_borrowing:
                    attempt.mode = "NoFit"
                    return NO_FIT, 0, choices, self._worse(result, group, step, option, wanted)
                mode, level = self.oracle(flavor_usage, value, level)
                attempt.mode = MODES[mode]
            attempt.borrowing_level = level
            choices.append(Choice(option.flavor, flavor_usage, amount, mode, level))
            if self.queue.prefer_preemption:
                # Component-wise: the worst mode alone decides whether the flavor fits (defect D4 of the
                # reference).
                worst_mode, worst_level = min(worst_mode, mode), max(worst_level, level)
            elif (mode != FIT or level) and self._better(worst_mode, worst_level, mode, level):
                worst_mode, worst_level = mode, level
        return worst_mode, worst_level, choices, 0

    def _worse(
        self, result: Assignment, group: GroupPlan, step: Step, option: Option, wanted: Sequence[int]
    ) -> int:
        """Why a flavor fails that lacks room: if some resource could never fit, waiting for room is no use.

        The reference reports whichever resource it happens to look at first; this does not depend on the
        order.
        """
        for resource, flavor_usage, requested in zip(
            step.resources, option.flavor_usages, wanted, strict=True
        ):
            assumed = result.usage.get(flavor_usage.flavor_resource, 0)
            if requested + assumed > flavor_usage.potential:
                attempt = Attempt(group.name, resource, option.flavor, "NoFit", 0, requested, assumed)
                attempt.blocker, attempt.maximum = "ExceedsMaximum", flavor_usage.potential
                result.attempts.append(attempt)
                return EXCEEDS
        return WAITING


def _of_group(values: Mapping[tuple[int, str], _T], group: GroupPlan, step: Step, default: _T) -> _T:
    """The value of the first pod set of a group that requests the trigger resource of the step."""
    for member in group.members:
        found = values.get((member, step.trigger))
        if found is not None:
            return found
    return default
