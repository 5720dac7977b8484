"""Policy hooks: where rules beyond the reference touch decisions (docs/reference/policies.md 1).

A hook is a pure function of what it is given, the time included; it changes nothing it is given. A hook that
is not configured (None) costs a comparison. What is passed: the workload and queues as the engine knows them,
and `now` in seconds since 1970.

| hook | asked |
|---|---|
| `eligible` | of a head before nomination: None to consider it, or `Held` |
| `may_preempt` | of a candidate that the queue allows and that is not evicted yet: None, or `Held` |
| `candidate_order` | of candidates equal by eviction, list and priority: lower keys are preempted first |
| `entry_order` | of the entries of a cycle, before borrowing, shares and priority: lower keys go first |
| `rewrite` | of an assignment: flavors by (pod set, resource) to use instead, or None |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol, TypeVar

from pykueue.engine.decisions import PreemptionReason
from pykueue.engine.explanation import Search
from pykueue.engine.flavors.assignment import Assignment, Pinned
from pykueue.engine.options import Options
from pykueue.engine.queues.cluster_queue import Candidate, ClusterQueue
from pykueue.engine.workload import WorkloadInfo


@dataclass(frozen=True, slots=True)
class Held:
    """A workload is not to be considered now."""

    message: str
    """Why, for its condition QuotaReserved (reason Waiting)."""
    until: float | None = None
    """When it is considered again, in seconds since 1970; None: when something it needs may have changed."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The hooks of an engine."""

    eligible: Callable[[WorkloadInfo, ClusterQueue, float], Held | None] | None = None
    may_preempt: Callable[[WorkloadInfo, WorkloadInfo, PreemptionReason, float], Held | None] | None = None
    """(preemptor, candidate, reason, now)."""
    candidate_order: Callable[[WorkloadInfo, WorkloadInfo, float], Any] | None = None
    """(preemptor, candidate, now)."""
    entry_order: Callable[[WorkloadInfo, ClusterQueue, float], Any] | None = None
    rewrite: Callable[[WorkloadInfo, ClusterQueue, Assignment, float], Pinned | None] | None = None

    def after(self, first: Policies) -> Policies:
        """The hooks of `first` and of these: candidates that either protects are protected; any other hook of
        `first` is asked instead of the same one here."""
        theirs, ours = first.may_preempt, self.may_preempt

        def either(preemptor: WorkloadInfo, candidate: WorkloadInfo, *more: Any) -> Held | None:
            assert theirs is not None
            assert ours is not None
            return theirs(preemptor, candidate, *more) or ours(preemptor, candidate, *more)

        return Policies(
            eligible=first.eligible or self.eligible,
            may_preempt=either if theirs and ours else theirs or ours,
            candidate_order=first.candidate_order or self.candidate_order,
            entry_order=first.entry_order or self.entry_order,
            rewrite=first.rewrite or self.rewrite,
        )


NO_POLICIES = Policies()


class _HasCandidate(Protocol):
    @property
    def candidate(self) -> Candidate: ...


C = TypeVar("C", bound=_HasCandidate)


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What an evaluation depends on besides workloads, queues and quota."""

    now: float
    """Seconds since 1970."""
    options: Options
    policies: Policies = NO_POLICIES

    def allows(
        self, preemptor: WorkloadInfo, candidate: WorkloadInfo, reason: PreemptionReason, report: Search
    ) -> bool:
        """Whether a workload may be preempted; `report` counts those that are protected.

        One that is evicted already is never protected.
        """
        hook = self.policies.may_preempt
        if hook is None or candidate.evicted:
            return True
        held = hook(preemptor, candidate, reason, self.now)
        if held is None:
            return True
        report.protected += 1
        if not report.protection or (
            held.until is not None and (report.protected_until is None or held.until < report.protected_until)
        ):
            report.protection, report.protected_until = held.message, held.until
        return False

    def ordered(
        self, preemptor: WorkloadInfo, candidates: Iterable[C], group: Callable[[C], Any]
    ) -> Iterable[C]:
        """Candidates by the hook's key, within the runs of equal `group` that they come in."""
        hook = self.policies.candidate_order
        if hook is None:
            return candidates
        now = self.now
        return [
            candidate
            for _, run in groupby(candidates, group)
            for candidate in sorted(run, key=lambda each: hook(preemptor, each.candidate.info, now))
        ]
