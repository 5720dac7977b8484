"""What each step of a workload's life makes of its object, and what follows from the queues around it.

Every function takes a Workload and returns it as it should be; the original is not touched. Source of the
rules: docs/reference/kueue-semantics.md 4.10 and 11.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from pykueue.api import kueue
from pykueue.api.admission_checks import required_without
from pykueue.api.budgets import BUDGET_EXHAUSTED
from pykueue.api.hybrid import flavors_of
from pykueue.api.kueue.names import (
    ADMITTED,
    BLOCKED_ON_GATES,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
)
from pykueue.api.meta import (
    Condition,
    ConditionStatus,
    find_condition,
    format_micro_time,
    format_time,
    parse_time,
)
from pykueue.engine.queues.cluster_queue import ClusterQueue
from pykueue.engine.queues.local_queue import LocalQueue
from pykueue.engine.workload import has_delayed_domains

#: Evictions after which a workload may compete again at once.
_REQUEUED_AT_ONCE = frozenset({"Preempted", "NodeFailures", BUDGET_EXHAUSTED})
#: Conditions that a reservation ends.
_ENDED_BY_QUOTA = frozenset({EVICTED, PREEMPTED, BLOCKED_ON_GATES})
_DEACTIVATED = "Deactivated"


#: (type, whether it holds, reason) of a condition.
Statement = tuple[str, bool, str]


@lru_cache(maxsize=8)
def _stamp(now: float) -> str:
    """The time, exact: virtual time may pass in fractions of a second, which an API server would cut off."""
    return format_time(now) if now == int(now) else format_micro_time(now)


def with_condition(
    workload: kueue.Workload, type: str, holds: bool, reason: str, now: float
) -> kueue.Workload:
    """The workload with that condition; the transition time moves only when the status changes."""
    conditions = _stated(workload.status.conditions, [(type, holds, reason)], now)
    return _with(workload, conditions=conditions) if conditions else workload


def _stated(
    conditions: list[Condition], statements: Iterable[Statement], now: float
) -> list[Condition] | None:
    """The conditions with these set; None where they are set already."""
    result: list[Condition] | None = None
    stamp = ""
    for type, holds, reason in statements:
        status: ConditionStatus = "True" if holds else "False"
        known = find_condition(conditions, type)
        if known is not None and known.reason == reason and known.status == status:
            continue
        if known is not None and known.status == status and known.last_transition_time is not None:
            since = known.last_transition_time
            new = Condition(type=type, status=status, reason=reason, message="", last_transition_time=since)
        else:
            stamp = stamp or _stamp(now)
            new = _condition(type, status, reason, stamp)
        if result is None:
            result = conditions = list(conditions)
        if known is None:
            result.append(new)
        else:
            result[[each.type for each in result].index(type)] = new
    return result


@lru_cache(maxsize=256)
def _condition(type: str, status: ConditionStatus, reason: str, since: str) -> Condition:
    """The condition as it is since the present `_stamp`; many workloads have the same.

    Not for times that objects bring: their texts can be of any length, and the cache would keep them.
    """
    return Condition(type=type, status=status, reason=reason, message="", last_transition_time=since)


def _with(workload: kueue.Workload, **fields: Any) -> kueue.Workload:
    return replace(workload, status=replace(workload.status, **fields))


def reserved(
    workload: kueue.Workload, admission: kueue.Admission, admitted: bool, now: float
) -> kueue.Workload:
    """It has its quota, and is admitted with it unless an admission check is not Ready yet (5.8)."""
    status = workload.status
    before = status.conditions
    if not before:
        stamp = _stamp(now)
        conditions = [_condition(QUOTA_RESERVED, "True", QUOTA_RESERVED, stamp)]
        if admitted:
            conditions.append(_condition(ADMITTED, "True", ADMITTED, stamp))
    else:
        statements = [(QUOTA_RESERVED, True, QUOTA_RESERVED)]
        statements += [
            (each.type, False, QUOTA_RESERVED)
            for each in before
            if each.status == "True" and each.type in _ENDED_BY_QUOTA
        ]
        if admitted:
            statements.append((ADMITTED, True, ADMITTED))
        conditions = _stated(before, statements, now) or before
    return replace(workload, status=replace(status, conditions=conditions, admission=admission))


def assigned(
    workload: kueue.Workload, admission: kueue.Admission, admitted: bool, now: float
) -> kueue.Workload:
    """It has the domains its pods go to, in place of failed nodes or after its admission checks."""
    workload = _with(workload, admission=admission, unhealthy_nodes=[])
    return with_condition(workload, ADMITTED, True, ADMITTED, now) if admitted else workload


def evicted(workload: kueue.Workload, reason: str, now: float, preempted: str = "") -> kueue.Workload:
    """It must give its quota back: checks are Pending again and preemption gates closed (11.2, step 1).

    `preempted` is the reason of the condition Preempted, if that is why.
    """
    status = workload.status
    statements = [(EVICTED, True, reason)]
    if workload.condition_is(BLOCKED_ON_GATES):
        statements.append((BLOCKED_ON_GATES, False, EVICTED))
    if preempted:
        statements.append((PREEMPTED, True, preempted))
    return _with(
        workload,
        conditions=_stated(status.conditions, statements, now) or status.conditions,
        admission_checks=[_reset(check, now) for check in status.admission_checks],
        preemption_gates=[_closed(gate, now) for gate in status.preemption_gates],
        unhealthy_nodes=[],
    )


def _reset(check: kueue.AdmissionCheckState, now: float) -> kueue.AdmissionCheckState:
    if check.state == "Pending":
        return check
    retries = (check.retry_count or 0) + 1 if check.state == "Retry" else check.retry_count
    return replace(
        check,
        state="Pending",
        last_transition_time=_stamp(now),
        retry_count=retries,
        pod_set_updates=[],
    )


def checks_ready(workload: kueue.Workload, now: float) -> kueue.Workload:
    """Every admission check of it is Ready."""
    stamp = _stamp(now)
    states = [
        each if each.state == "Ready" else replace(each, state="Ready", last_transition_time=stamp)
        for each in workload.status.admission_checks
    ]
    return _with(workload, admission_checks=states)


def _closed(gate: kueue.PreemptionGateState, now: float) -> kueue.PreemptionGateState:
    if gate.position == "Closed":
        return gate
    return replace(gate, position="Closed", last_transition_time=_stamp(now))


def preempted(workload: kueue.Workload, reason: str, now: float) -> kueue.Workload:
    """It is evicted for another workload (8.9)."""
    return evicted(workload, PREEMPTED, now, reason)


def released(workload: kueue.Workload, now: float) -> kueue.Workload:
    """Its job has stopped: an evicted workload has no quota any more (11.2, step 3)."""
    conditions = workload.status.conditions
    eviction = find_condition(conditions, EVICTED)
    reason = eviction.reason if eviction is not None else ""
    statements = [(REQUEUED, reason in _REQUEUED_AT_ONCE, reason)]
    if find_condition(conditions, PODS_READY) is not None:
        statements.append((PODS_READY, False, "WaitForStart"))
    why = _DEACTIVATED if reason.startswith(_DEACTIVATED) else "PendingEvaluation"
    return _without_quota(workload, [*statements, (QUOTA_RESERVED, False, why)], now, reclaimable_pods=[])


def unreserved(workload: kueue.Workload, reason: str, now: float) -> kueue.Workload:
    """It has no quota, and this is why (5.9)."""
    return _without_quota(workload, [(QUOTA_RESERVED, False, reason)], now)


def _without_quota(
    workload: kueue.Workload, statements: list[Statement], now: float, **fields: Any
) -> kueue.Workload:
    before = workload.status.conditions
    if find_condition(before, ADMITTED) is not None:
        statements.append((ADMITTED, False, "NoReservation"))
    conditions = _stated(before, statements, now)
    if conditions is None and workload.status.admission is None and not fields:
        return workload
    return _with(workload, conditions=conditions or before, admission=None, **fields)


def blocked_on_gates(workload: kueue.Workload, now: float) -> kueue.Workload:
    """It needs preemption, which a closed preemption gate keeps it from (5.5, step 6)."""
    return with_condition(workload, BLOCKED_ON_GATES, True, "PreemptionGated", now)


def finished(workload: kueue.Workload, reason: str, now: float) -> kueue.Workload:
    """It is over: its quota is free."""
    return with_condition(workload, FINISHED, True, reason, now)


def deactivated(workload: kueue.Workload, now: float) -> kueue.Workload:
    """`spec.active` is false: it gives its quota back and is in no queue (11.3)."""
    target = find_condition(workload.status.conditions, DEACTIVATION_TARGET)
    reason = _DEACTIVATED
    if target is not None:
        reason += f"DueTo{target.reason}" if target.status == "True" else ""
        conditions = [each for each in workload.status.conditions if each is not target]
        workload = _with(workload, conditions=conditions)
    if workload.status.requeue_state is not None:
        workload = _with(workload, requeue_state=None)
    eviction = find_condition(workload.status.conditions, EVICTED)
    if eviction is None or eviction.status != "True" or not eviction.reason.startswith(_DEACTIVATED):
        workload = evicted(workload, reason, now)
    return workload


# --- what follows from the queues ---------------------------------------------------------------------------


def settled(
    workload: kueue.Workload, local: LocalQueue | None, queue: ClusterQueue | None, now: float
) -> kueue.Workload:
    """The workload as its queues and admission checks make it; it stays as it is where nothing changes.

    `local` and `queue` are the queues it names, or that it holds quota of.
    """
    status = workload.status
    active, may_have_checks = workload.spec.active, queue is not None and bool(queue.check_rules)
    if active and not (
        status.conditions or status.requeue_state or status.admission_checks or may_have_checks
    ):
        return workload
    holds = {condition.type for condition in status.conditions if condition.status == "True"}
    if not active or DEACTIVATION_TARGET in holds:
        if workload.spec.active:
            workload = replace(workload, spec=replace(workload.spec, active=False))
        workload = deactivated(workload, now)
        if not workload.condition_is(QUOTA_RESERVED):
            workload = unreserved(workload, _DEACTIVATED, now)
        return workload
    has_quota = QUOTA_RESERVED in holds
    if queue is not None and (may_have_checks or status.admission_checks):
        workload = _with_checks(workload, queue, has_quota, now)
    if not has_quota:
        return _requeued(workload, local, queue, now)
    if EVICTED in holds:
        return workload
    for rule in (_check_outcomes, _stopped, _admitted):
        changed = rule(workload, local, queue, now)
        if changed is not workload:
            return settled(changed, local, queue, now)
    return workload


def _with_checks(
    workload: kueue.Workload, queue: ClusterQueue, has_quota: bool, now: float
) -> kueue.Workload:
    """With exactly the checks that apply listed, new ones as Pending (11.4)."""
    admission = workload.status.admission
    if has_quota and admission is not None:
        assigned = {flavor for given in admission.pod_set_assignments for flavor in flavors_of(given)}
        required = set(queue.required_checks(assigned))
    else:
        required = set(required_without(queue.check_rules, queue.all_flavors))
    known = {check.name: check for check in workload.status.admission_checks}
    if known.keys() == required:
        return workload
    checks = [
        known.get(name)
        or kueue.AdmissionCheckState(name=name, state="Pending", last_transition_time=_stamp(now))
        for name in sorted(required)
    ]
    return _with(workload, admission_checks=checks)


def _check_outcomes(
    workload: kueue.Workload, local: LocalQueue | None, queue: ClusterQueue | None, now: float
) -> kueue.Workload:
    """Rejected deactivates, Retry evicts and may delay."""
    states = {check.state for check in workload.status.admission_checks}
    if "Rejected" in states:
        return with_condition(workload, DEACTIVATION_TARGET, True, "AdmissionCheck", now)
    if "Retry" not in states:
        return workload
    until = max(_retries(workload.status.admission_checks), default=0.0)
    if until > max(requeue_at(workload) or 0.0, now):
        state = workload.status.requeue_state or kueue.RequeueState()
        workload = _with(workload, requeue_state=replace(state, requeue_at=_stamp(until)))
    return evicted(workload, "AdmissionCheck", now)


def _retries(checks: Iterable[kueue.AdmissionCheckState]) -> Iterable[float]:
    """When checks that ask for a retry allow it, in seconds since 1970."""
    for check in checks:
        if check.state == "Retry" and check.requeue_after_seconds is not None and check.last_transition_time:
            yield parse_time(check.last_transition_time) + check.requeue_after_seconds


def _stopped(
    workload: kueue.Workload, local: LocalQueue | None, queue: ClusterQueue | None, now: float
) -> kueue.Workload:
    """Stopped queues evict what is admitted if they drain, and take reservations back (4.10)."""
    admitted = workload.condition_is(ADMITTED)
    for obj, kind in (
        (local.obj if local is not None else None, "LocalQueue"),
        (queue.obj if queue is not None else None, "ClusterQueue"),
    ):
        policy = obj.spec.stop_policy if obj is not None else "None"
        if admitted:
            if policy == "HoldAndDrain":
                return evicted(workload, f"{kind}Stopped", now)
        elif obj is None or obj.metadata.deletion_timestamp is not None:
            return unreserved(workload, "Misconfigured", now)
        elif policy != "None":
            return unreserved(workload, "Suspended", now)
    return workload


def _admitted(
    workload: kueue.Workload, local: LocalQueue | None, queue: ClusterQueue | None, now: float
) -> kueue.Workload:
    """Admitted follows from the checks (11.1)."""
    if any(check.state != "Ready" for check in workload.status.admission_checks):
        return with_condition(workload, ADMITTED, False, "UnsatisfiedAdmissionChecks", now)
    if has_delayed_domains(workload.status.admission):
        return with_condition(workload, ADMITTED, False, "PendingDelayedTopologyRequests", now)
    return with_condition(workload, ADMITTED, True, ADMITTED, now)


def _requeued(
    workload: kueue.Workload, local: LocalQueue | None, queue: ClusterQueue | None, now: float
) -> kueue.Workload:
    """What kept it out of its queue may be over: back-off, a stopped queue, deactivation (11.2)."""
    conditions = workload.status.conditions
    known = find_condition(conditions, REQUEUED)
    reason = known.reason if known is not None and known.status == "False" else ""
    eviction = find_condition(conditions, EVICTED)
    never_queued = (
        known is None
        and eviction is not None
        and eviction.status == "True"
        and eviction.reason.startswith(_DEACTIVATED)
    )
    if reason.startswith(_DEACTIVATED) or never_queued:
        workload = _with(workload, requeue_state=None)
        return with_condition(workload, REQUEUED, True, "Reactivated", now)
    at = requeue_at(workload)
    if at is not None and at > now:
        return workload
    if at is not None or reason in ("PodsReadyTimeout", "AdmissionCheck"):
        state = workload.status.requeue_state
        if state is not None:
            workload = _with(workload, requeue_state=replace(state, requeue_at=None))
        return with_condition(workload, REQUEUED, True, "BackoffFinished", now)
    if reason == "ClusterQueueStopped" and not _is_stopped(queue.obj if queue is not None else None):
        return with_condition(workload, REQUEUED, True, "ClusterQueueRestarted", now)
    if reason == "LocalQueueStopped" and not _is_stopped(local.obj if local is not None else None):
        return with_condition(workload, REQUEUED, True, "LocalQueueRestarted", now)
    return workload


def _is_stopped(obj: kueue.ClusterQueue | kueue.LocalQueue | None) -> bool:
    return obj is None or obj.spec.stop_policy != "None"


def requeue_at(workload: kueue.Workload) -> float | None:
    """When its back-off ends, in seconds since 1970; None where it has none."""
    state = workload.status.requeue_state
    return parse_time(state.requeue_at) if state is not None and state.requeue_at else None
