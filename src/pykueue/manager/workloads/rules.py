"""What a Workload's status should become, given its context: the workload controller's rules.

One call looks at everything and returns one status, so that one patch brings a Workload up to date however
many things happened at once. Sources: docs/reference/kueue-api.md 5, docs/reference/kueue-semantics.md 4.10
and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pykueue.api import conditions, pending_reasons
from pykueue.api.backoff import exponential_delay
from pykueue.api.conditions import (
    ADMITTED,
    CLUSTER_QUEUE_STOPPED,
    DEACTIVATED,
    DEACTIVATION_TARGET,
    EVICTED,
    LOCAL_QUEUE_STOPPED,
    PODS_READY,
    PODS_READY_TIMEOUT,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
    WAIT_FOR_RECOVERY,
    Workload,
)
from pykueue.api.objects import Object, get, key_of
from pykueue.api.pending_reasons import MISCONFIGURED, SUSPENDED, PendingReason
from pykueue.api.variants import FLAVOR_MIGRATION, NO_VARIANT, VARIANT_EVICTED
from pykueue.manager.configuration import WaitForPodsReady

from . import transitions

#: Relative jitter of the back-off (docs/reference/kueue-api.md 5.6).
BACKOFF_JITTER = 0.0001
#: Seconds between looks at whether the job of a Workload that lost its admission has stopped.
STOP_POLL = 2.0

EventType = Literal["Normal", "Warning"]


class Queue(NamedTuple):
    """What matters of a LocalQueue or ClusterQueue to a Workload in it."""

    name: str
    exists: bool = True
    terminating: bool = False
    stop_policy: str = "None"
    #: Why a ClusterQueue is inactive; empty while it is active.
    problems: tuple[str, ...] = ()

    @property
    def stopped(self) -> bool:
        """Whether admission from the queue is stopped, whatever happens to what is admitted."""
        return self.stop_policy != "None"


class Context(NamedTuple):
    """Everything beside the Workload itself that its status depends on."""

    now: float
    local_queue: Queue
    #: None where the LocalQueue is not there to name one.
    cluster_queue: Queue | None
    #: Admission checks that apply (docs/reference/kueue-semantics.md 11.4).
    required_checks: frozenset[str] = frozenset()
    waiting: WaitForPodsReady | None = None
    #: A number from 0 to 1 that spreads back-offs.
    jitter: float = 0.0
    #: The reason of the scheduler for the Workload being pending, without a message if that is to stay.
    scheduler_reason: PendingReason | None = None
    #: Whether it has a job although its owner references do not say so.
    has_unreferenced_job: bool = False
    #: Whether its job runs although it is not admitted: the answers of its checks were removed.
    runs_unadmitted: bool = False
    #: Whether every Workload without quota says so from the start (gate UnadmittedWorkloadsExplicitStatus).
    explicit_status: bool = False
    #: Whether annotations keep Workloads out of their queues (gate AdmissionGatedBy).
    admission_gates: bool = True
    #: Whether variants compete in its place: their admission checks, and those of one of them, are its own.
    is_parent: bool = False
    #: Whether it is a variant: whether pods are ready, and for how long they run, is said by its parent.
    is_variant: bool = False


class Step:
    """What the rules made of a Workload."""

    def __init__(self, workload: Object) -> None:
        self.workload = workload
        #: When to look again, in seconds since 1970; None: only when something changes.
        self.wake: float | None = None
        self.events: list[tuple[EventType, str, str]] = []

    def wake_at(self, at: float) -> None:
        self.wake = at if self.wake is None else min(self.wake, at)

    def event(self, kind: EventType, reason: str, note: str) -> None:
        """Record an event to be emitted when the step is carried out."""
        self.events.append((kind, reason, note))


def next_step(workload: Workload, context: Context) -> Step:
    """The Workload as it should be now."""
    step = Step(dict(workload))
    if conditions.is_finished(workload):
        return step
    if not conditions.is_active(workload):
        _inactive(step, context)
        return step
    if conditions.is_true(workload, DEACTIVATION_TARGET):
        return step
    _consistent(step, context)
    _reactivate(step, context)
    _list_checks(step, context)
    if not conditions.has_quota(step.workload):
        _unreserved(step, context)
        _list_checks(step, context)
    elif conditions.is_evicted(step.workload):
        _evicted(step, context)
    else:
        for rule in (_checks, _stopped_queues, _derived, _execution_time, _pods_ready):
            before = step.workload
            rule(step, context)
            if step.workload is not before and _leaving(step.workload):
                break
        if conditions.is_evicted(step.workload):
            _evicted(step, context)
    return step


def _leaving(workload: Workload) -> bool:
    return (
        not conditions.has_quota(workload)
        or conditions.is_evicted(workload)
        or conditions.is_true(workload, DEACTIVATION_TARGET)
    )


def _evict(step: Step, context: Context, reason: str, message: str, cause: str = "") -> None:
    step.workload = transitions.evicted(step.workload, reason, message, context.now, cause)
    step.event("Normal", f"EvictedDueTo{reason}", message)


def _inactive(step: Step, context: Context) -> None:
    before = step.workload
    step.workload = transitions.deactivated(before, context.now)
    if conditions.has_quota(step.workload):
        if not conditions.is_evicted(before):
            eviction = conditions.condition(step.workload, EVICTED) or {}
            step.event("Normal", f"EvictedDueTo{eviction.get('reason')}", str(eviction.get("message")))
        _evicted(step, context)
    if not conditions.has_quota(step.workload):
        step.workload = transitions.pending(step.workload, pending_reasons.INACTIVE, context.now)


def _consistent(step: Step, context: Context) -> None:
    """A reservation is a condition and an admission: one without the other, as edits leave it, is none."""
    reserved, admission = conditions.has_quota(step.workload), get(step.workload, "status", "admission")
    if reserved != bool(admission) or (conditions.is_admitted(step.workload) and not reserved):
        step.workload = transitions.pending(step.workload, pending_reasons.NOT_EVALUATED, context.now)


def _evicted(step: Step, context: Context) -> None:
    """Release a Workload without a job at once; others are released by the job controller."""
    if not get(step.workload, "metadata", "ownerReferences") and not context.has_unreferenced_job:
        step.workload = transitions.released(step.workload, context.waiting is not None, context.now)


def _reactivate(step: Step, context: Context) -> None:
    """Whatever it was deactivated for, being active again lifts it (docs/reference/kueue-semantics.md 12,
    D13)."""
    workload = step.workload
    if conditions.has_quota(workload):
        return
    held = conditions.is_false(workload, REQUEUED) and conditions.reason(workload, REQUEUED).startswith(
        DEACTIVATED
    )
    never_queued = (
        conditions.is_evicted(workload)
        and conditions.reason(workload, EVICTED).startswith(DEACTIVATED)
        and not conditions.is_true(workload, REQUEUED)
    )
    if held or never_queued:
        step.workload = transitions.reactivated(workload, context.now)


def _list_checks(step: Step, context: Context) -> None:
    """List the checks that apply, once it was evaluated: with quota it gets them from the scheduler."""
    evaluated = conditions.condition(step.workload, QUOTA_RESERVED) is not None
    if not context.is_parent and (evaluated or get(step.workload, "status", "admissionChecks")):
        step.workload = transitions.with_checks(step.workload, set(context.required_checks), context.now)


def _checks(step: Step, context: Context) -> None:
    if context.is_parent:
        return
    checks = get(step.workload, "status", "admissionChecks") or ()
    rejected = [check for check in checks if check.get("state") == "Rejected"]
    if rejected:
        names = _named(rejected)
        message = f"Admission checks {names} rejected the workload"
        step.workload = transitions.deactivation_target(step.workload, "AdmissionCheck", message, context.now)
        step.event("Warning", "AdmissionCheckRejected", message)
        return
    retry = [check for check in checks if check.get("state") == "Retry"]
    if retry:
        until = transitions.retry_at(step.workload)
        if until is not None and until > context.now:
            step.workload = transitions.delayed(step.workload, until)
        _evict(step, context, "AdmissionCheck", f"Admission checks {_named(retry)} requested a retry")


def _named(checks: list[Mapping[str, Any]]) -> str:
    parts = []
    for check in checks:
        message = check.get("message")
        parts.append(f"{check.get('name')} ({message})" if message else str(check.get("name")))
    return ", ".join(parts)


def _stopped_queues(step: Step, context: Context) -> None:
    admitted = conditions.is_admitted(step.workload)
    for queue, kind, reason in (
        (context.local_queue, "LocalQueue", LOCAL_QUEUE_STOPPED),
        (context.cluster_queue, "ClusterQueue", CLUSTER_QUEUE_STOPPED),
    ):
        if queue is None:
            continue
        if admitted:
            if queue.stop_policy == "HoldAndDrain":
                _evict(step, context, reason, f"The {kind} {queue.name} is stopped and drained")
                return
        elif why := _of_queue(queue._replace(problems=()), kind):
            if context.runs_unadmitted:
                step.wake_at(context.now + STOP_POLL)  # its job is stopped first
                return
            waits = context.waiting is not None
            step.workload = transitions.unreserved(step.workload, why, waits, context.now)
            return


def _of_queue(queue: Queue, kind: str) -> PendingReason | None:
    """Why the queue admits no workload; None where it does."""
    return pending_reasons.of_queue(
        kind,
        queue.name,
        exists=queue.exists,
        terminating=queue.terminating,
        stopped=queue.stopped,
        problems=queue.problems,
    )


def _derived(step: Step, context: Context) -> None:
    """A Workload that is admitted stays so until it is evicted, whatever is added to its list of checks
    (docs/reference/admission-checks.md 4)."""
    if conditions.is_admitted(step.workload):
        return
    step.workload = transitions.admitted_by_checks(step.workload, context.waiting is not None, context.now)
    if conditions.is_admitted(step.workload):
        step.event("Normal", ADMITTED, transitions.admission_note(step.workload, context.now))


def _execution_time(step: Step, context: Context) -> None:
    limit = get(step.workload, "spec", "maximumExecutionTimeSeconds")
    if limit is None or context.is_variant or not conditions.is_admitted(step.workload):
        return
    past = int(get(step.workload, "status", "accumulatedPastExecutionTimeSeconds") or 0)
    ends = conditions.since(step.workload, ADMITTED) + int(limit) - past
    if context.now < ends:
        step.wake_at(ends)
        return
    message = f"Exceeded the maximum execution time of {limit}s"
    cleared = transitions.without_past_execution_time(step.workload)
    step.workload = transitions.deactivation_target(
        cleared, "MaximumExecutionTimeExceeded", message, context.now
    )
    step.event("Warning", "MaximumExecutionTimeExceeded", message)


def _pods_ready(step: Step, context: Context) -> None:
    waiting = context.waiting
    if (
        waiting is None
        or context.is_variant
        or not conditions.is_admitted(step.workload)
        or conditions.is_true(step.workload, PODS_READY)
    ):
        return
    if conditions.reason(step.workload, PODS_READY) == WAIT_FOR_RECOVERY:
        if not waiting.recovery_timeout:
            return
        cause, ends = (
            WAIT_FOR_RECOVERY,
            conditions.since(step.workload, PODS_READY) + waiting.recovery_timeout,
        )
    else:
        cause, ends = "WaitForStart", conditions.since(step.workload, ADMITTED) + waiting.timeout
    if context.now < ends:
        step.wake_at(ends)
        return
    namespace, name = key_of(step.workload)
    count = int(get(step.workload, "status", "requeueState", "count") or 0) + 1
    limit = waiting.requeuing_strategy.backoff_limit_count
    if limit is not None and count > limit:
        message = f"Exceeded the limit of {limit} requeuings after the PodsReady timeout"
        step.workload = transitions.deactivation_target(
            step.workload, "RequeuingLimitExceeded", message, context.now
        )
        return
    until = context.now + backoff(waiting, count) * (1 + BACKOFF_JITTER * context.jitter)
    step.workload = transitions.backing_off(step.workload, count, until)
    message = f"Exceeded the PodsReady timeout {namespace}/{name}"
    _evict(step, context, PODS_READY_TIMEOUT, message, cause)


def backoff(waiting: WaitForPodsReady, count: int) -> float:
    """Seconds before the `count`-th requeuing, the first being 1; the first is not capped."""
    strategy = waiting.requeuing_strategy
    base, cap = float(strategy.backoff_base_seconds), float(strategy.backoff_max_seconds)
    if count <= 1:
        return base
    return exponential_delay(base, cap, count - 1)


def _unreserved(step: Step, context: Context) -> None:
    step.workload = transitions.asks_again(step.workload, context.now)
    _requeue(step, context)
    status = _pending_reason(step.workload, context)
    if status is not None:
        known = conditions.condition(step.workload, QUOTA_RESERVED) or {}
        step.workload = transitions.pending(step.workload, status, context.now)
        if status.reason == MISCONFIGURED and known.get("message") != status.message:
            step.event("Warning", *status)
    if context.explicit_status and conditions.condition(step.workload, ADMITTED) is None:
        step.workload = transitions.unadmitted(step.workload, context.now)


#: Reasons of evictions that keep the Workload of a deleted pod out of its queue.
_EVICTIONS = frozenset({PREEMPTED, "NodeFailures", EVICTED, FLAVOR_MIGRATION})


def _requeue(step: Step, context: Context) -> None:
    workload, now = step.workload, context.now
    at = conditions.requeue_at(workload)
    if at is not None and at > now:
        step.wake_at(at)
        return
    reason = conditions.reason(workload, REQUEUED) if conditions.is_false(workload, REQUEUED) else ""
    if at is not None or reason in (PODS_READY_TIMEOUT, "AdmissionCheck"):
        step.workload = transitions.requeued(
            workload, "BackoffFinished", "The workload backoff was finished", now
        )
    elif reason == CLUSTER_QUEUE_STOPPED:
        if context.cluster_queue is not None and not context.cluster_queue.stopped:
            step.workload = transitions.requeued(
                workload, "ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped", now
            )
    elif reason == LOCAL_QUEUE_STOPPED:
        if not context.local_queue.stopped:
            step.workload = transitions.requeued(
                workload, "LocalQueueRestarted", "The LocalQueue was restarted after being stopped", now
            )
    elif reason in (VARIANT_EVICTED, NO_VARIANT):
        if not context.is_parent:
            text = "The workload competes without variants"
            step.workload = transitions.requeued(workload, "WithoutVariants", text, now)
    elif reason and reason not in _EVICTIONS and not reason.startswith(DEACTIVATED):
        # Another client wrote it: there is nothing that would lift it.
        text = f"Requeued=False with the unknown reason {reason} was lifted"
        step.workload = transitions.requeued(workload, "UnknownReason", text, now)


def _pending_reason(workload: Workload, context: Context) -> PendingReason | None:
    """Why it is pending, as far as its queues and its gate decide it; None keeps the reason it has.

    A reason of this controller is withdrawn once its cause is gone. One of the scheduler is kept; both may be
    Misconfigured, and then the message is the scheduler's.
    """
    if conditions.is_on_hold(workload):
        return None
    found = context.scheduler_reason
    kept_out = found is not None and found.reason == MISCONFIGURED and bool(found.message)
    for queue, kind in ((context.local_queue, "LocalQueue"), (context.cluster_queue, "ClusterQueue")):
        if queue is not None and (why := _of_queue(queue, kind)):
            return found if why.reason == SUSPENDED and kept_out else why
    if context.admission_gates and conditions.is_gated(workload):
        return pending_reasons.GATED
    known = conditions.reason(workload, QUOTA_RESERVED)
    if not known and context.explicit_status:
        return pending_reasons.NOT_EVALUATED
    if known not in pending_reasons.OF_QUEUES:
        return None
    if found is not None and found.reason == known:
        return found if kept_out else None
    return pending_reasons.NOT_EVALUATED
