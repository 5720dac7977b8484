"""Choosing flavors: which flavor each resource of each pod set gets, and whether that fits, preempts or
fails.

Source of the rules: docs/reference/kueue-semantics.md 6.4 to 6.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from pykueue.api.hybrid import Part
from pykueue.engine.capacity import AssignedPodSet
from pykueue.engine.explanation import Attempt, Blocker, Mode
from pykueue.engine.flavors.plan import GroupPlan, Option, Plan, Step, group_requests
from pykueue.engine.flavors.scheduling_class import SchedulingClass
from pykueue.engine.flavors.splitting import Slices
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
    unsplittable: str = ""
    """Why no pod set of the workload can be split over flavors; empty: they can be."""


NO_TERMS: Final = Terms()


class Choice(Struct, gc=False):
    """A flavor given to one resource of one pod-set group."""

    flavor: str
    flavor_usage: FlavorUsage
    amount: int
    """For all pods of the group."""
    mode: int
    level: int
    index: int = -1
    """Of the last flavor looked at; -1 where that was the last one."""


class PartChoices(NamedTuple):
    """The pods of a pod set that get one of several flavors."""

    flavor: str
    pods: int
    choices: dict[str, Choice]
    """By resource."""


class Assignment:
    """The outcome for a workload at certain pod counts."""

    __slots__ = (
        "attempts",
        "choices",
        "counts",
        "level",
        "mode",
        "parts",
        "reason",
        "scan",
        "shrunk",
        "usage",
    )

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
        #: By pod set that is split over flavors: its parts, of which the first is in `choices` too.
        self.parts: dict[int, list[PartChoices]] = {}
        #: Amount by FlavorResource; amounts above what a replaced slice holds already.
        self.usage: dict[int, int] = {}
        #: Index of the last flavor looked at, where that was not the last one: the next cycle goes on from
        #: there.
        self.scan: dict[tuple[int, str], int] = {}
        #: Index into REASONS.
        self.reason = 0
        self.attempts: list[Attempt] = []

    def every_choice(self) -> Iterator[Choice]:
        """All choices of all pod sets and their parts."""
        for choices in self.choices:
            yield from choices.values()
        for parts in self.parts.values():
            for part in parts[1:]:
                yield from part.choices.values()

    def pinned(self) -> Pinned:
        """What binds another evaluation to the same flavors, but for the parts of pod sets that are split."""
        return {
            (index, resource): choice.flavor
            for index, choices in enumerate(self.choices)
            for resource, choice in choices.items()
        }

    def flavors(self) -> set[str]:
        """All flavors."""
        return {choice.flavor for choice in self.every_choice()}

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
        rows = zip(scheduling_class.pod_sets, self.counts, self.choices, strict=True)
        for index, (pods, count, choices) in enumerate(rows):
            flavors = {resource: choice.flavor for resource, choice in choices.items()}
            later = not delayed.isdisjoint(flavors.values())
            parts = [Part(part.flavor, part.pods) for part in self.parts.get(index, ())]
            found.append(AssignedPodSet(pods.name, count, flavors, implied, later, parts))
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
                if step.split is not None and sizes[group.members[0]]:
                    failure = self._split(result, group, step, amounts, terms, chosen)
                else:
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
            self._count(result, choice)
            index = choice.index
            for member in group.members:
                if resource in scheduling_class.pod_sets[member].per_pod or (
                    resource == PODS and counts_pods
                ):
                    result.choices[member][resource] = choice
                    if index != -1:
                        result.scan[(member, resource)] = index

    def _count(self, result: Assignment, choice: Choice) -> None:
        if choice.mode < result.mode:
            result.mode = PREEMPT
        if choice.level > result.level:
            result.level = choice.level
        if choice.amount:
            flavor_resource = choice.flavor_usage.flavor_resource
            result.usage[flavor_resource] = result.usage.get(flavor_resource, 0) + choice.amount

    def _split(
        self,
        result: Assignment,
        group: GroupPlan,
        step: Step,
        amounts: dict[str, int] | None,
        terms: Terms,
        chosen: dict[str, Choice],
    ) -> int:
        """Split the pods of a pod set over flavors; returns the failure (index into REASONS) or 0.

        Flavors that a workload is bound to do not bind the parts: they are chosen again.
        """
        split = step.split
        assert split is not None
        wanted = step.amounts if amounts is None else [amounts[resource] for resource in step.resources]
        problem = split.problem or terms.unsplittable
        if problem or split.request is None:
            result.attempts.append(_unsplit(group, step, wanted[0], problem))
            return NO_FLAVOR
        (member,) = group.members
        pods = result.counts[member]
        per_pod = [amount // pods for amount in wanted]
        slices = Slices(pods, split.request)

        def room(most: Callable[[FlavorUsage], int]) -> list[int]:
            return [slices.in_pods(_pods_in(option, per_pod, result.usage, most)) for option in split.options]

        def attempt(index: int, count: int) -> tuple[int, int, list[Choice], int]:
            option = split.options[index]
            return self._try(result, group, step, option, [amount * count for amount in per_pod], None)

        def preempts(index: int, count: int) -> bool:
            before = len(result.attempts)
            mode, _, _, _ = attempt(index, min(pods, count * slices.size))
            del result.attempts[before:]
            return mode > NO_CANDIDATES

        potential = room(lambda usage: usage.potential)
        if slices.fill(potential) is None:
            return self._too_many(result, group, step, slices, potential)
        counts = self._slices(slices, room, potential, preempts)
        parts = []
        for index, count in slices.parts(counts):
            mode, _, choices, failure = attempt(index, count)
            if mode == NO_FIT:
                return failure
            by_resource = dict(zip(step.resources, choices, strict=True))
            parts.append(PartChoices(split.options[index].flavor, count, by_resource))
        chosen.update(parts[0].choices)
        if len(parts) > 1:
            result.parts[member] = parts
            for part in parts[1:]:
                for choice in part.choices.values():
                    self._count(result, choice)
        return 0

    def _slices(
        self,
        slices: Slices,
        room: Callable[[Callable[[FlavorUsage], int]], list[int]],
        potential: list[int],
        preempts: Callable[[int, int], bool],
    ) -> list[int]:
        """Slices by flavor, in the order in which the queue borrows and preempts.

        `room` says how many slices each flavor has room for, by what is available of a flavor resource.
        """
        queue, counts = self.queue, None
        preempts_last = queue.preempt_try_next or not self.fungible
        if self.fungible and queue.borrow_try_next:
            counts = slices.fill(room(quota.available_without_borrowing))
        available = room(quota.available)
        if counts is None and preempts_last:
            counts = slices.fill(available)
        if counts is None:
            counts = slices.fill_with_preemption(available if preempts_last else None, potential, preempts)
        return counts

    def _too_many(
        self, result: Assignment, group: GroupPlan, step: Step, slices: Slices, potential: list[int]
    ) -> int:
        """The failure of a pod set with more pods than its flavors could ever have."""
        assert step.split is not None
        options = step.split.options
        for option in options:
            if option.blocker:
                blocked = (step.amounts[0], 0, option.blocker, option.detail)
                result.attempts.append(Attempt(group.name, step.trigger, option.flavor, "NoFit", 0, *blocked))
        if all(option.blocker for option in options):
            return NO_FLAVOR
        most = ", ".join(
            f"{slices.pods_at_most(count, index)} of flavor {option.flavor}"
            for index, (option, count) in enumerate(zip(options, potential, strict=True))
        )
        text = f"{slices.pods} pods cannot be split over flavors: at most {most} can be used"
        result.attempts.append(_unsplit(group, step, step.amounts[0], text))
        return EXCEEDS

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
        scan, pinned, pinned_by, credit, _ = terms
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
            held = 0  # by the slice that is replaced
            if credit is not None:
                held = sum(credit.get((member, resource), 0) for member in group.members)
            amount = requested - held
            assumed = usage.get(flavor_usage.flavor_resource, 0)
            value = amount + assumed
            attempt = Attempt(
                group.name, resource, option.flavor, "Fit", 0, requested, assumed, continued=held
            )
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


def _unsplit(group: GroupPlan, step: Step, requested: int, text: str) -> Attempt:
    """Why the pods of a pod set are not split."""
    return Attempt(group.name, step.trigger, "", "NoFit", 0, requested, 0, "NotSplit", text)


def _pods_in(
    option: Option, per_pod: Sequence[int], assumed: Mapping[int, int], most: Callable[[FlavorUsage], int]
) -> int | None:
    """Pods that a flavor has enough of each resource for; None: any number."""
    if option.blocker:
        return 0
    found: int | None = None
    for flavor_usage, amount in zip(option.flavor_usages, per_pod, strict=True):
        if amount:
            left = max(0, most(flavor_usage) - assumed.get(flavor_usage.flavor_resource, 0)) // amount
            found = left if found is None else min(found, left)
    return found


def _of_group(values: Mapping[tuple[int, str], _T], group: GroupPlan, step: Step, default: _T) -> _T:
    """The value of the first pod set of a group that requests the trigger resource of the step."""
    for member in group.members:
        found = values.get((member, step.trigger))
        if found is not None:
            return found
    return default
