"""What a Workload's status should become, given its surroundings: the workload controller's rules.

One call looks at everything and returns one status, so that one patch brings a Workload up to date however
many things happened at once. Sources: reference/kueue-api.md 5, reference/kueue-semantics.md 4.10 and 11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pykueue.jobs.objects import Object, get
from pykueue.manager.configuration import WaitForPodsReady

from . import reading, transitions
from .reading import (
    ADMITTED,
    CLUSTER_QUEUE_STOPPED,
    DEACTIVATED,
    DEACTIVATION_TARGET,
    EVICTED,
    LOCAL_QUEUE_STOPPED,
    PENDING_EVALUATION,
    PODS_READY,
    PODS_READY_TIMEOUT,
    QUOTA_RESERVED,
    REQUEUED,
    WAIT_FOR_RECOVERY,
    Workload,
)

#: Relative jitter of the back-off (reference/kueue-api.md 5.6).
BACKOFF_JITTER = 0.0001

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True)
class Queue:
    """What matters of a LocalQueue or ClusterQueue to a Workload in it."""

    name: str
    exists: bool = True
    terminating: bool = False
    stop_policy: str = "None"
    #: Why a ClusterQueue is not active, in words; empty while it is.
    inactive: str = ""

    @property
    def stopped(self) -> bool:
        return self.stop_policy != "None"


@dataclass(frozen=True)
class Surroundings:
    """Everything beside the Workload itself that its status depends on."""

    now: float
    local_queue: Queue
    #: None where the LocalQueue is not there to name one.
    cluster_queue: Queue | None
    #: Admission checks that apply (reference/kueue-semantics.md 11.4).
    required_checks: frozenset[str] = frozenset()
    waiting: WaitForPodsReady | None = None
    #: A number from 0 to 1 that spreads back-offs.
    chance: float = 0.0


@dataclass
class Step:
    """What the rules made of a Workload."""

    workload: Object
    #: When to look again, in seconds since 1970; None: only when something changes.
    wake: float | None = None
    events: list[tuple[EventType, str, str]] = field(default_factory=list)

    def wake_at(self, at: float) -> None:
        self.wake = at if self.wake is None else min(self.wake, at)

    def event(self, kind: EventType, reason: str, note: str) -> None:
        self.events.append((kind, reason, note))


def next_step(workload: Workload, around: Surroundings) -> Step:
    """The Workload as it should be now."""
    step = Step(dict(workload))
    if reading.is_finished(workload):
        return step
    if not reading.is_active(workload):
        _inactive(step, around)
        return step
    if reading.holds(workload, DEACTIVATION_TARGET):
        return step
    _reactivate(step, around)
    step.workload = transitions.with_checks(step.workload, set(around.required_checks), around.now)
    if not reading.has_quota(step.workload):
        _unreserved(step, around)
    elif reading.is_evicted(step.workload):
        _evicted(step, around)
    else:
        for rule in (_checks, _stopped_queues, _derived, _execution_time, _pods_ready):
            rule(step, around)
            if _leaving(step.workload):
                break
        if reading.is_evicted(step.workload):
            _evicted(step, around)
    return step


def _leaving(workload: Workload) -> bool:
    return (
        not reading.has_quota(workload)
        or reading.is_evicted(workload)
        or reading.holds(workload, DEACTIVATION_TARGET)
    )


def _evict(step: Step, around: Surroundings, reason: str, message: str, cause: str = "") -> None:
    step.workload = transitions.evicted(step.workload, reason, message, around.now, cause)
    step.event("Normal", f"EvictedDueTo{reason}", message)


def _inactive(step: Step, around: Surroundings) -> None:
    before = step.workload
    step.workload = transitions.deactivated(before, around.now)
    if reading.has_quota(step.workload):
        if not reading.is_evicted(before):
            eviction = reading.condition(step.workload, EVICTED) or {}
            step.event("Normal", f"EvictedDueTo{eviction.get('reason')}", str(eviction.get("message")))
        _evicted(step, around)
    if not reading.has_quota(step.workload):
        message = "The workload is deactivated"
        step.workload = transitions.pending(step.workload, DEACTIVATED, message, around.now)


def _evicted(step: Step, around: Surroundings) -> None:
    """A Workload that belongs to nobody has nothing to stop; others are released by the job controller."""
    if not get(step.workload, "metadata", "ownerReferences"):
        step.workload = transitions.released(step.workload, around.waiting is not None, around.now)


def _reactivate(step: Step, around: Surroundings) -> None:
    """Whatever it was deactivated for, being active again lifts it (reference/kueue-semantics.md 12, D13)."""
    workload = step.workload
    if reading.has_quota(workload):
        return
    held = reading.denied(workload, REQUEUED) and reading.reason(workload, REQUEUED).startswith(DEACTIVATED)
    never_queued = (
        reading.is_evicted(workload)
        and reading.reason(workload, EVICTED).startswith(DEACTIVATED)
        and not reading.holds(workload, REQUEUED)
    )
    if held or never_queued:
        step.workload = transitions.reactivated(workload, around.now)


def _checks(step: Step, around: Surroundings) -> None:
    checks = get(step.workload, "status", "admissionChecks") or ()
    rejected = [check for check in checks if check.get("state") == "Rejected"]
    if rejected:
        names = _named(rejected)
        message = f"Admission checks {names} rejected the workload"
        step.workload = transitions.deactivation_target(step.workload, "AdmissionCheck", message, around.now)
        step.event("Warning", "AdmissionCheckRejected", message)
        return
    retry = [check for check in checks if check.get("state") == "Retry"]
    if retry:
        until = transitions.retry_at(step.workload)
        if until is not None and until > around.now:
            step.workload = transitions.delayed(step.workload, until)
        _evict(step, around, "AdmissionCheck", f"Admission checks {_named(retry)} ask for another try later")


def _named(checks: list[Mapping[str, Any]]) -> str:
    parts = []
    for check in checks:
        message = check.get("message")
        parts.append(f"{check.get('name')} ({message})" if message else str(check.get("name")))
    return ", ".join(parts)


def _stopped_queues(step: Step, around: Surroundings) -> None:
    admitted = reading.is_admitted(step.workload)
    for queue, kind, reason in (
        (around.local_queue, "LocalQueue", LOCAL_QUEUE_STOPPED),
        (around.cluster_queue, "ClusterQueue", CLUSTER_QUEUE_STOPPED),
    ):
        if queue is None:
            continue
        if admitted:
            if queue.stop_policy == "HoldAndDrain":
                _evict(step, around, reason, f"The {kind} {queue.name} is stopped and drained")
                return
        elif blocked := _blocked_by(replace(queue, inactive=""), kind):
            reason, message = blocked
            waits = around.waiting is not None
            step.workload = transitions.unreserved(step.workload, reason, message, waits, around.now)
            return


def _blocked_by(queue: Queue, kind: str) -> tuple[str, str] | None:
    """The reason and text of a queue that takes nothing in; None for one that does."""
    if not queue.exists:
        return "Misconfigured", f"{kind} {queue.name} doesn't exist"
    if queue.terminating:
        return "Misconfigured", f"{kind} {queue.name} is terminating"
    if queue.stopped:
        return "Suspended", f"{kind} {queue.name} is stopped"
    if queue.inactive:
        return "Suspended", f"{kind} {queue.name} is inactive: {queue.inactive}"
    return None


def _derived(step: Step, around: Surroundings) -> None:
    was = reading.is_admitted(step.workload)
    step.workload = transitions.admitted_as_derived(step.workload, around.now)
    if not was and reading.is_admitted(step.workload):
        waited = max(0, int(around.now - reading.since(step.workload, QUOTA_RESERVED)))
        queue = reading.cluster_queue(step.workload)
        step.event(
            "Normal", ADMITTED, f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s"
        )
        if around.waiting is not None:
            step.workload = transitions.waiting_for_start(step.workload, around.now)


def _execution_time(step: Step, around: Surroundings) -> None:
    limit = get(step.workload, "spec", "maximumExecutionTimeSeconds")
    if limit is None or not reading.is_admitted(step.workload):
        return
    past = int(get(step.workload, "status", "accumulatedPastExecutionTimeSeconds") or 0)
    ends = reading.since(step.workload, ADMITTED) + int(limit) - past
    if around.now < ends:
        step.wake_at(ends)
        return
    message = f"Exceeded the maximum execution time of {limit}s"
    cleared = transitions.without_past_execution_time(step.workload)
    step.workload = transitions.deactivation_target(
        cleared, "MaximumExecutionTimeExceeded", message, around.now
    )
    step.event("Warning", "MaximumExecutionTimeExceeded", message)


def _pods_ready(step: Step, around: Surroundings) -> None:
    waiting = around.waiting
    if waiting is None or not reading.is_admitted(step.workload) or reading.holds(step.workload, PODS_READY):
        return
    if reading.reason(step.workload, PODS_READY) == WAIT_FOR_RECOVERY:
        if not waiting.recovery_timeout:
            return
        cause, ends = WAIT_FOR_RECOVERY, reading.since(step.workload, PODS_READY) + waiting.recovery_timeout
    else:
        cause, ends = "WaitForStart", reading.since(step.workload, ADMITTED) + waiting.timeout
    if around.now < ends:
        step.wake_at(ends)
        return
    namespace, name = reading.key(step.workload)
    count = int(get(step.workload, "status", "requeueState", "count") or 0) + 1
    limit = waiting.requeuing_strategy.backoff_limit_count
    if limit is not None and count > limit:
        message = f"Exceeded the limit of {limit} requeuings after the PodsReady timeout"
        step.workload = transitions.deactivation_target(
            step.workload, "RequeuingLimitExceeded", message, around.now
        )
        return
    until = around.now + backoff(waiting, count) * (1 + BACKOFF_JITTER * around.chance)
    step.workload = transitions.backing_off(step.workload, count, until)
    message = f"Exceeded the PodsReady timeout {namespace}/{name}"
    _evict(step, around, PODS_READY_TIMEOUT, message, cause)


def backoff(waiting: WaitForPodsReady, count: int) -> float:
    """Seconds before the `count`-th requeuing, the first being 1; the first is not capped."""
    strategy = waiting.requeuing_strategy
    base, cap = float(strategy.backoff_base_seconds), float(strategy.backoff_max_seconds)
    if count <= 1:
        return base
    return min(base * 2.0 ** min(count - 1, 64), cap)


def _unreserved(step: Step, around: Surroundings) -> None:
    _requeue(step, around)
    status = _waiting_reason(step.workload, around)
    if status is not None:
        step.workload = transitions.pending(step.workload, *status, around.now)


def _requeue(step: Step, around: Surroundings) -> None:
    workload, now = step.workload, around.now
    at = reading.requeue_at(workload)
    if at is not None and at > now:
        step.wake_at(at)
        return
    reason = reading.reason(workload, REQUEUED) if reading.denied(workload, REQUEUED) else ""
    if at is not None or reason in (PODS_READY_TIMEOUT, "AdmissionCheck"):
        step.workload = transitions.requeued(
            workload, "BackoffFinished", "The workload backoff was finished", now
        )
    elif reason == CLUSTER_QUEUE_STOPPED:
        if around.cluster_queue is not None and not around.cluster_queue.stopped:
            step.workload = transitions.requeued(
                workload, "ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped", now
            )
    elif reason == LOCAL_QUEUE_STOPPED and not around.local_queue.stopped:
        step.workload = transitions.requeued(
            workload, "LocalQueueRestarted", "The LocalQueue was restarted after being stopped", now
        )


#: Reasons this controller writes itself, and therefore takes back when their cause is gone.
_OWN_REASONS = frozenset({"Misconfigured", "Suspended", DEACTIVATED, "AdmissionGated"})
#: What this controller says of queues with the reason Misconfigured; the scheduler says other things with it.
_OWN_MISCONFIGURED = re.compile(r"(Local|Cluster)Queue \S* (doesn't exist|is terminating)")


def _waiting_reason(workload: Workload, around: Surroundings) -> tuple[str, str] | None:
    """Reason and text of QuotaReserved=False as far as the surroundings decide it; None leaves them."""
    if reading.is_on_hold(workload):
        return None
    for queue, kind in ((around.local_queue, "LocalQueue"), (around.cluster_queue, "ClusterQueue")):
        if queue is not None and (blocked := _blocked_by(queue, kind)):
            return blocked
    if reading.is_gated(workload):
        return "AdmissionGated", "Admission is gated by the annotation kueue.x-k8s.io/admission-gated-by"
    known = reading.condition(workload, QUOTA_RESERVED)
    if known is None or known.get("status") != "False" or known.get("reason") not in _OWN_REASONS:
        return None
    if known["reason"] == "Misconfigured" and not _OWN_MISCONFIGURED.fullmatch(str(known.get("message"))):
        return None
    return PENDING_EVALUATION, "The workload has not been evaluated yet"
