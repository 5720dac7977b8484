"""PreemptionPolicies: protection after the start, victims by lost work, cool-downs and limits per hour.

Every answer follows from the objects, the decisions so far and `now`. After a restart the preemptions of the
last hours are read from the conditions of the workloads that they ended. Without a PreemptionPolicy nothing
is asked, recorded or computed. Source of the rules: docs/reference/policies.md 3.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pykueue.api.kueue.names import ADMITTED, PREEMPTED
from pykueue.api.meta import find_condition, format_time, parse_time
from pykueue.api.preemption_policies import (
    CHECKPOINT_ANNOTATION,
    MIN_ADMIT_DURATION_ANNOTATION,
    MinAdmitDuration,
    PreemptionPolicy,
    seconds,
)
from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.policies import NO_POLICIES, Held, Policies
from pykueue.engine.quota.usage import is_unlimited
from pykueue.engine.scopes import Scopes
from pykueue.engine.undo_log import UndoLog
from pykueue.engine.workload import WorkloadInfo

#: Seconds that a limit of preemptions looks back.
HOUR: Final = 3600.0
#: What the condition Preempted says of the two queues (docs/reference/kueue-semantics.md 8.10).
_PATHS: Final = re.compile(r"; preemptor path: /([^;]*); preemptee path: /([^;]*)$")


@dataclass(frozen=True, slots=True)
class _Rules:
    """A PreemptionPolicy, its durations in seconds."""

    name: str
    durations: Mapping[PreemptionReason, float]
    by_class: Mapping[str, Mapping[PreemptionReason, float]]
    """By name of the WorkloadPriorityClass; reasons without a duration are not in it."""
    requested_max: float
    least_lost_first: bool
    base: float
    """First cool-down; 0: none."""
    longest: float
    window: float
    per_hour: int
    """0: no limit."""

    def protection(self, info: WorkloadInfo, reason: PreemptionReason) -> float:
        """For how many seconds after its admission a workload is protected."""
        reference = info.obj.spec.priority_class_ref
        of_class = self.by_class.get(reference.name) if reference is not None and reference.name else None
        duration = self.durations.get(reason, 0.0)
        if of_class is not None:
            duration = of_class.get(reason, duration)
        asked = info.obj.metadata.annotations.get(MIN_ADMIT_DURATION_ANNOTATION)
        if asked and self.requested_max:
            duration = max(duration, min(seconds(asked), self.requested_max))
        return duration


@dataclass(frozen=True, slots=True)
class _Turn:
    """The last preemption between two ClusterQueues."""

    by: str
    """The ClusterQueue that it was for."""
    at: float
    """When, in seconds since 1970."""
    count: int
    """How often the direction changed within the window, the first preemption included."""
    victim: str
    before: _Turn | None


class Damping:
    """The PreemptionPolicies in force, and what they have to know of the past."""

    def __init__(self, undo_log: UndoLog) -> None:
        self._undo_log = undo_log
        self._scopes: Scopes[_Rules] = Scopes()
        self._specs: dict[str, PreemptionPolicy] = {}
        #: By pair of ClusterQueues, in order of their names.
        self._turns: dict[tuple[str, str], _Turn] = {}
        #: Times of the preemptions for each ClusterQueue within the last hour.
        self._issued: dict[str, tuple[float, ...]] = {}
        self._restored = False
        self._hooks = Policies(may_preempt=self._protection, candidate_order=self._order)

    @property
    def on(self) -> bool:
        """Whether there is any PreemptionPolicy."""
        return bool(self._specs)

    def hooks(self, base: Policies) -> Policies:
        """The hooks of `base` and those of the policies: both may protect; an order of `base` is kept."""
        if not self._specs:
            return base
        return self._hooks if base is NO_POLICIES else self._hooks.after(base)

    # --- policies ---------------------------------------------------------------------------------------

    def set(self, name: str, policy: PreemptionPolicy | None) -> bool:
        """A PreemptionPolicy appeared, changed, or is gone (None); whether that may change decisions."""
        known = self._specs.get(name)
        if known is not None and policy is not None and known.spec == policy.spec:
            return False
        if known is None and policy is None:
            return False
        put = self._undo_log.set
        self._undo_log.replace(self._specs, name, policy)
        if not self._specs:
            put(self, "_turns", {})
            put(self, "_issued", {})
            put(self, "_restored", False)
        put(self, "_scopes", Scopes.of(self._specs, _compiled))
        return True

    def policy_of(self, path: tuple[str, ...]) -> str:
        """Name of the policy of a ClusterQueue, given its path from the root cohort; empty: it has none."""
        rules = self._scopes.rules_of(path)
        return rules.name if rules is not None else ""

    # --- hooks ------------------------------------------------------------------------------------------

    def _protection(
        self, preemptor: WorkloadInfo, candidate: WorkloadInfo, reason: PreemptionReason, now: float
    ) -> Held | None:
        """What keeps a candidate from being preempted, and until when."""
        assert preemptor.queue is not None
        assert candidate.queue is not None
        own, others = preemptor.queue, candidate.queue
        found: Held | None = None
        rules = self._scopes.rules_of(others.path)
        if rules is not None:
            duration = rules.protection(candidate, reason)
            admitted = admitted_at(candidate) if duration else None
            if admitted is not None and admitted + duration > now:
                found = _held(rules, "minimum run time", admitted + duration)
        rules = self._scopes.rules_of(own.path)
        if rules is None:
            return found
        if rules.base and own is not others:
            turn = self._turns.get(_in_order(own.name, others.name))
            if turn is not None and turn.by == others.name and turn.at + rules.window > now:
                wait = min(rules.base * 2 ** min(turn.count - 1, 60), rules.longest)
                if turn.at + wait > now:
                    found = _later(found, _held(rules, "cool-down", turn.at + wait))
        if rules.per_hour:
            issued = [at for at in self._issued.get(own.name, ()) if at + HOUR > now]
            if len(issued) >= rules.per_hour:
                until = sorted(issued)[-rules.per_hour] + HOUR
                found = _later(found, _held(rules, "limit of preemptions per hour", until))
        return found

    def _order(self, preemptor: WorkloadInfo, candidate: WorkloadInfo, now: float) -> float:
        """Lost work, where the preemptor's policy orders candidates by it."""
        assert preemptor.queue is not None
        rules = self._scopes.rules_of(preemptor.queue.path)
        if rules is None or not rules.least_lost_first:
            return 0.0
        return lost_share(candidate) * lost_seconds(candidate, now)

    # --- dumps ------------------------------------------------------------------------------------------

    def policies(self) -> list[PreemptionPolicy]:
        """All PreemptionPolicies, by name."""
        return [policy for _, policy in sorted(self._specs.items())]

    def turns(self) -> list[tuple[str, str, str, float, int, str]]:
        """What it knows of preemptions between pairs of queues, for a dump."""
        return [
            (*queues, turn.by, turn.at, turn.count, turn.victim)
            for queues, turn in sorted(self._turns.items())
        ]

    def issued(self, queue: str) -> tuple[float, ...]:
        """Times of the latest preemptions for a queue, for a dump."""
        return self._issued.get(queue, ())

    def take_over(
        self,
        turns: Iterable[tuple[str, str, str, float, int, str]],
        issued: Mapping[str, tuple[float, ...]],
    ) -> None:
        """Takes the past from a dump, instead of from the conditions of workloads."""
        for one, other, by, at, count, victim in turns:
            self._turns[one, other] = _Turn(by, at, count, victim, None)
        self._issued.update(issued)
        self._restored = self.on

    # --- the past ---------------------------------------------------------------------------------------

    def restore(self, workloads: Collection[WorkloadInfo]) -> None:
        """Once after the first policy: reads past preemptions from the conditions of the workloads."""
        if self._restored or not self._specs:
            return
        self._undo_log.set(self, "_restored", True)
        past: list[tuple[float, str, tuple[str, ...], tuple[str, ...]]] = []
        for info in workloads:
            found = find_condition(info.obj.status.conditions, PREEMPTED)
            if found is not None and found.last_transition_time:
                paths = preemption_paths(found.message)
                if paths is not None:
                    past.append((parse_time(found.last_transition_time), info.key, *paths))
        for at, victim, own, others in sorted(past):
            self.preempted(victim, own, others, at)

    def preempted(self, victim: str, own: tuple[str, ...], others: tuple[str, ...], at: float) -> None:
        """A workload of a queue was preempted for one of another; both by their paths, the key, and when."""
        rules = self._scopes.rules_of(own)
        if rules is not None and rules.per_hour:
            kept = tuple(each for each in self._issued.get(own[-1], ()) if each + HOUR > at)
            self._undo_log.put(self._issued, own[-1], (*kept, at))
        if own[-1] == others[-1]:
            return
        windows = [
            each.window for each in (rules, self._scopes.rules_of(others)) if each is not None and each.base
        ]
        if not windows:
            return
        queues = _in_order(own[-1], others[-1])
        last = self._turns.get(queues)
        if last is None or last.at + max(windows) <= at:
            count = 1
        else:
            count = last.count + (last.by != own[-1])
        before = _Turn(last.by, last.at, last.count, last.victim, None) if last is not None else None
        self._undo_log.put(self._turns, queues, _Turn(own[-1], at, count, victim, before))

    def forget(self, victim: str) -> None:
        """A preemption could not be written: if it was the last one between its queues, it did not happen."""
        for queues, turn in list(self._turns.items()):
            if turn.victim == victim:
                self._undo_log.replace(self._turns, queues, turn.before)


def preemption_paths(message: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Paths from the root cohort to the queue of the preemptor and to that of the preempted workload.

    As the message of a condition Preempted names them; None where it does not.
    """
    found = _PATHS.search(message)
    if found is None:
        return None
    own, others = (tuple(path.split("/")) for path in found.groups())
    return own, others


def preemptor_uid(message: str) -> str:
    """The uid of the preemptor as the message of a condition Preempted names it; empty: it names none."""
    _, found, rest = message.partition("(UID: ")
    return rest.partition(",")[0] if found else ""


def admitted_at(info: WorkloadInfo) -> float | None:
    """When a workload was admitted, in seconds since 1970; None: it holds no quota or its checks go on."""
    if not info.admitted:
        return None
    found = find_condition(info.obj.status.conditions, ADMITTED)
    if found is not None and found.status == "True" and found.last_transition_time:
        return parse_time(found.last_transition_time)
    return info.reserved_at


def lost_seconds(info: WorkloadInfo, now: float) -> float:
    """Seconds of work that a workload would lose: since its admission or its last checkpoint."""
    since = admitted_at(info)
    if since is None:
        return 0.0
    text = info.obj.metadata.annotations.get(CHECKPOINT_ANNOTATION)
    if text:
        with suppress(ValueError):  # not a time: as if there were no checkpoint
            since = max(since, parse_time(text))
    return max(0.0, now - since)


def lost_share(info: WorkloadInfo) -> float:
    """The largest part that a workload has of what its tree has of any flavor and resource."""
    assert info.queue is not None
    largest = 0.0
    for flavor_resource, amount in info.usage:
        flavor_usage = info.queue.flavor_usages.get(flavor_resource)
        if flavor_usage is None:
            continue
        while flavor_usage.parent is not None:
            flavor_usage = flavor_usage.parent
        if flavor_usage.subtree and not is_unlimited(flavor_usage.subtree):
            largest = max(largest, amount / flavor_usage.subtree)
    return largest


def lost_resource_seconds(info: WorkloadInfo, now: float) -> dict[str, int]:
    """Lost work by resource: cpus, bytes or pieces, times seconds, rounded down."""
    lost = lost_seconds(info, now)
    found: dict[str, int] = {}
    assert info.queue is not None
    names = info.queue.flavor_resource_names
    for flavor_resource, amount in info.usage:
        resource = names[flavor_resource][1]
        per = 1000 if resource == "cpu" else 1
        found[resource] = found.get(resource, 0) + int(amount * lost / per)
    return dict(sorted(found.items()))


def _compiled(policy: PreemptionPolicy) -> _Rules:
    spec = policy.spec
    cool_down = spec.cool_down
    return _Rules(
        name=policy.metadata.name,
        durations=_durations(spec.min_admit_duration),
        by_class={each.name: _durations(each.min_admit_duration) for each in spec.priority_classes},
        requested_max=seconds(spec.max_requested_duration),
        least_lost_first=spec.candidate_order == "LeastLostWork",
        base=seconds(cool_down.base) if cool_down is not None else 0.0,
        longest=seconds(cool_down.max) if cool_down is not None else 0.0,
        window=seconds(cool_down.window) if cool_down is not None else 0.0,
        per_hour=spec.max_preemptions_per_hour or 0,
    )


def _durations(spec: MinAdmitDuration | None) -> Mapping[PreemptionReason, float]:
    if spec is None:
        return {}
    given: Iterable[tuple[PreemptionReason, str | None]] = (
        ("InClusterQueue", spec.within_cluster_queue),
        ("InCohortReclamation", spec.reclaim_within_cohort),
        ("InCohortReclaimWhileBorrowing", spec.reclaim_within_cohort),
        ("InCohortFairSharing", spec.fair_sharing),
    )
    return {reason: seconds(text) for reason, text in given if text is not None}


def _held(rules: _Rules, what: str, until: float) -> Held:
    return Held(f"{what} of PreemptionPolicy {rules.name}, until {format_time(until)}", until)


def _later(one: Held | None, other: Held) -> Held:
    """Both hold: what ends later decides."""
    assert other.until is not None
    return other if one is None or one.until is None or one.until < other.until else one


def _in_order(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
