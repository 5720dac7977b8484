"""What each step of a Workload's life writes into its status: one function per step.

Every function takes a Workload as it is and returns it as it should be; the original is not touched, and what
does not change is shared with it. Sources: docs/reference/kueue-api.md 5, docs/reference/kueue-semantics.md
11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykueue.api import conditions
from pykueue.api.backfill_policies import BACKFILLED
from pykueue.api.budgets import BUDGET_EXHAUSTED
from pykueue.api.conditions import (
    ADMITTED,
    BLOCKED_ON_GATES,
    DEACTIVATION_TARGET,
    DUE_TO,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    PREEMPTION_GATED,
    QUOTA_RESERVED,
    REQUEUED,
    WAIT_FOR_RECOVERY,
    WAIT_FOR_START,
    Workload,
)
from pykueue.api.hybrid_losses import lost_flavors, marked_usable
from pykueue.api.meta import ConditionStatus, format_time, parse_time, remove_condition, set_condition
from pykueue.api.objects import Object, get, replaced
from pykueue.api.pending_reasons import (
    DEACTIVATED,
    NOT_EVALUATED,
    OFF_HOLD_MESSAGE,
    PENDING_EVALUATION,
    PendingReason,
    off_hold,
    on_hold,
)
from pykueue.engine import WorkloadView
from pykueue.engine.explain.render import GATE_CLOSED_MESSAGE

#: Longest message of a condition, in bytes (docs/reference/kueue-api.md 5.2).
MESSAGE_LIMIT = 32768

NO_RESERVATION = "NoReservation"
NO_RESERVATION_TEXT = "The workload has no reservation"
#: Evictions after which the Workload may compete again at once.
_REQUEUED_AT_ONCE = frozenset({"Preempted", "NodeFailures", BUDGET_EXHAUSTED})


def cut(message: str, limit: int = MESSAGE_LIMIT) -> str:
    """The message within `limit` bytes."""
    if 4 * len(message) <= limit:
        return message  # a character takes at most four bytes
    data = message.encode()
    return message if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "..."


def previously(message: object) -> str:
    """The message of a condition that does not hold any more, from the one that it had; within the limit."""
    return cut(f"Previously: {message}")


def with_condition(
    workload: Workload, kind: str, status: ConditionStatus, reason: str, message: str, now: float
) -> Object:
    """With the condition set; the same Workload when it says that already."""
    generation = int(get(workload, "metadata", "generation") or 0)
    message = cut(message)
    known = conditions.condition(workload, kind)
    if (
        known is not None
        and (known.get("status"), known.get("reason"), known.get("message")) == (status, reason, message)
        and known.get("observedGeneration", 0) == generation
    ):
        return dict(workload)
    present = get(workload, "status", "conditions") or ()
    changed = set_condition(present, kind, status, reason, message, now, generation)
    return replaced(workload, ("status", "conditions"), changed)


def without_condition(workload: Workload, kind: str) -> Object:
    """Without the condition."""
    if conditions.condition(workload, kind) is None:
        return dict(workload)
    present = remove_condition(get(workload, "status", "conditions") or (), kind)
    return replaced(workload, ("status", "conditions"), present or None)


def reserved(
    workload: Workload,
    admission: Mapping[str, Any],
    checks: list[Object],
    waits_for_pods: bool,
    now: float,
    backfilled: tuple[str, str] | None = None,
) -> Object:
    """It got its quota, and is admitted in the same write unless a check is still to say yes.

    `backfilled` are reason and message of the condition Backfilled, where it starts before others.
    """
    queue = str(admission.get("clusterQueue"))
    status = dict(workload.get("status") or {})
    status["admission"] = dict(admission)
    status.pop("resourceRequests", None)
    status.pop("admissionChecks", None)
    if checks:
        status["admissionChecks"] = checks
    result = {**workload, "status": status}
    message = f"Quota reserved in ClusterQueue {queue}"
    result = with_condition(result, QUOTA_RESERVED, "True", QUOTA_RESERVED, message, now)
    for kind in (EVICTED, PREEMPTED, BLOCKED_ON_GATES):
        known = conditions.condition(result, kind)
        if known is not None and known.get("status") == "True":
            text = previously(known.get("message") or known.get("reason"))
            result = with_condition(result, kind, "False", QUOTA_RESERVED, text, now)
    if backfilled is not None:
        result = with_condition(result, BACKFILLED, "True", *backfilled, now)
    elif conditions.condition(result, BACKFILLED) is not None:
        result = without_condition(result, BACKFILLED)
    if lost := lost_flavors(result):
        result = marked_usable(result, lost, QUOTA_RESERVED, now)
    result = admitted_as_derived(result, now)
    if waits_for_pods and conditions.is_admitted(result):
        result = waiting_for_start(result, now)
    return result


def taken_over(workload: Workload, old: Workload, now: float) -> Object:
    """It got its quota in place of the slice `old`: it runs on the same cluster, and has run as long."""
    result = dict(workload)
    if name := get(old, "status", "clusterName"):
        result = replaced(result, ("status", "clusterName"), name)
    past = int(get(old, "status", "accumulatedPastExecutionTimeSeconds") or 0)
    if conditions.is_admitted(old):
        past += max(0, int(now - conditions.since(old, ADMITTED)))
    return replaced(result, ("status", "accumulatedPastExecutionTimeSeconds"), past or None)


def assigned(workload: Workload, admission: Mapping[str, Any], waits_for_pods: bool, now: float) -> Object:
    """It got the domains of its pods, for the first time or in place of failed nodes."""
    result = replaced(workload, ("status", "admission"), dict(admission))
    return admitted_by_checks(replaced(result, ("status", "unhealthyNodes"), None), waits_for_pods, now)


def admitted_by_checks(workload: Workload, waits_for_pods: bool, now: float) -> Object:
    """With Admitted following from the rest; pods are awaited from then on."""
    was = conditions.is_admitted(workload)
    result = admitted_as_derived(workload, now)
    if waits_for_pods and conditions.is_admitted(result) and not was:
        result = waiting_for_start(result, now)
    return result


def admission_note(workload: Workload, now: float) -> str:
    """The text of the event for a Workload whose checks have admitted it."""
    waited = max(0, int(now - conditions.since(workload, QUOTA_RESERVED)))
    queue = conditions.cluster_queue(workload)
    return f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s"


def admitted_as_derived(workload: Workload, now: float) -> Object:
    """With the condition Admitted following from the rest (docs/reference/kueue-semantics.md 11.1)."""
    was = conditions.is_admitted(workload)
    if not conditions.has_quota(workload):
        if conditions.condition(workload, ADMITTED) is None:
            return dict(workload)
        reason, message = NO_RESERVATION, NO_RESERVATION_TEXT
    elif pending := [
        str(check.get("name"))
        for check in get(workload, "status", "admissionChecks") or ()
        if check.get("state") != "Ready"
    ]:
        reason = "UnsatisfiedAdmissionChecks"
        message = f"The workload waits for the admission checks {', '.join(pending)}"
    elif _topology_pending(workload):
        reason, message = "PendingDelayedTopologyRequests", "The workload waits for its topology assignment"
    elif was:
        return dict(workload)
    else:
        return with_condition(workload, ADMITTED, "True", ADMITTED, "The workload is admitted", now)
    result = with_condition(workload, ADMITTED, "False", reason, message, now)
    if was:
        past = int(get(workload, "status", "accumulatedPastExecutionTimeSeconds") or 0)
        spent = max(0, int(now - conditions.since(workload, ADMITTED)))
        result = replaced(result, ("status", "accumulatedPastExecutionTimeSeconds"), past + spent)
    return result


def _topology_pending(workload: Workload) -> bool:
    assignments = get(workload, "status", "admission", "podSetAssignments") or ()
    return any(assignment.get("delayedTopologyRequest") == "Pending" for assignment in assignments)


def resource_requests(view: WorkloadView | None) -> list[Object]:
    """`status.resourceRequests`: what a Workload asks for, by pod set."""
    return [
        {"name": name, "resources": {resource: str(amount) for resource, amount in amounts.items()}}
        for name, amounts in (view.requests if view is not None else ())
    ]


def pending(
    workload: Workload, why: PendingReason, now: float, requests: list[Object] | None = None
) -> Object:
    """It has no quota, and this is why."""
    result = replaced(replaced(workload, ("status", "admission"), None), ("status", "clusterName"), None)
    if requests:
        result = replaced(result, ("status", "resourceRequests"), requests)
    result = with_condition(result, QUOTA_RESERVED, "False", why.reason, why.message, now)
    return admitted_as_derived(result, now)


def unadmitted(workload: Workload, now: float) -> Object:
    """It says that it is not admitted, as it has no quota."""
    return with_condition(workload, ADMITTED, "False", NO_RESERVATION, NO_RESERVATION_TEXT, now)


def blocked_on_gates(workload: Workload, now: float) -> Object:
    """It needs preemption, which a closed preemption gate keeps it from."""
    return with_condition(workload, BLOCKED_ON_GATES, "True", PREEMPTION_GATED, GATE_CLOSED_MESSAGE, now)


def held(workload: Workload, why: str, now: float, resumed: str = OFF_HOLD_MESSAGE) -> Object | None:
    """It is on hold for the reason `why`, or (where that is empty) queued again with the message `resumed`.

    None where it is that already. Quota that it has is released, so its pods must be gone.
    """
    if bool(why) == conditions.is_on_hold(workload):
        return None
    return pending(workload, on_hold(why) if why else off_hold(resumed), now)


def evicted(workload: Workload, reason: str, message: str, now: float, cause: str = "") -> Object:
    """It must give its quota back, which it holds until its job has stopped.

    `cause` is what the eviction is due to, for the statistics (docs/reference/kueue-api.md 5.5). The worker
    cluster that runs it stays recorded until it has stopped there (docs/decisions/0014).
    """
    result = with_condition(workload, EVICTED, "True", reason, message, now)
    for field in ("nominatedClusterNames", "unhealthyNodes"):
        result = replaced(result, ("status", field), None)
    result = _with_checks_reset(result, now)
    known = conditions.condition(result, BLOCKED_ON_GATES)
    if known is not None and known.get("status") == "True":
        text = previously(known.get("message"))
        result = with_condition(result, BLOCKED_ON_GATES, "False", EVICTED, text, now)
    gates = get(workload, "status", "preemptionGates")
    if gates:
        closed = [_closed_gate(gate, now) for gate in gates]
        result = replaced(result, ("status", "preemptionGates"), closed)
    return _counted(result, reason, cause)


def _with_checks_reset(workload: Workload, now: float) -> Object:
    """With all checks to be asked again.

    At the release too: what a check said between eviction and release was about a reservation that is gone,
    and a `Retry` left standing would keep the workload out forever.
    """
    checks = get(workload, "status", "admissionChecks")
    if not checks:
        return dict(workload)
    again = [_reset_check(check, now) for check in checks]
    return replaced(workload, ("status", "admissionChecks"), again)


def _reset_check(check: Mapping[str, Any], now: float) -> Object:
    state = check.get("state")
    if state == "Pending":
        return dict(check)
    dropped = ("podSetUpdates", "retryCount")  # retries are counted in a row
    result: Object = {key: value for key, value in check.items() if key not in dropped}
    result["state"] = "Pending"
    result["lastTransitionTime"] = format_time(now)
    result["message"] = cut(f"Reset to Pending after eviction. Previously: {state}")
    if state == "Retry":
        result["retryCount"] = int(check.get("retryCount") or 0) + 1
    return result


def with_open_gate(workload: Workload, name: str, now: float) -> Object:
    """With the preemption gate of that name open."""
    state = {"name": name, "position": "Open", "lastTransitionTime": format_time(now)}
    others = [one for one in get(workload, "status", "preemptionGates") or () if one.get("name") != name]
    return replaced(workload, ("status", "preemptionGates"), [*others, state])


def _closed_gate(gate: Mapping[str, Any], now: float) -> Object:
    if gate.get("position") == "Closed":
        return dict(gate)
    return {**gate, "position": "Closed", "lastTransitionTime": format_time(now)}


def _counted(workload: Workload, reason: str, cause: str) -> Object:
    """With the eviction counted in status.schedulingStats."""
    plain, due, part = reason.partition(DUE_TO)
    if due:
        reason, cause = plain, cause or part
    counts = [dict(entry) for entry in get(workload, "status", "schedulingStats", "evictions") or ()]
    for entry in counts:
        if (entry.get("reason"), entry.get("underlyingCause") or "") == (reason, cause):
            entry["count"] = int(entry.get("count") or 0) + 1
            break
    else:
        counts.append({"reason": reason, "underlyingCause": cause, "count": 1})
    return replaced(workload, ("status", "schedulingStats", "evictions"), counts)


def preempted(workload: Workload, reason: str, message: str, now: float) -> Object:
    """It is preempted."""
    result = evicted(workload, PREEMPTED, message, now)
    return with_condition(result, PREEMPTED, "True", reason, message, now)


def released(workload: Workload, waits_for_pods: bool, now: float) -> Object:
    """Its job has stopped: the quota goes back (docs/reference/kueue-semantics.md 11.2, step 3)."""
    eviction = conditions.condition(workload, EVICTED) or {}
    reason = str(eviction.get("reason") or "")
    message = str(eviction.get("message") or "")
    status: ConditionStatus = "True" if reason in _REQUEUED_AT_ONCE else "False"
    result = with_condition(workload, REQUEUED, status, reason, message, now)
    why = DEACTIVATED if reason.startswith(DEACTIVATED) else PENDING_EVALUATION
    result = pending(_with_checks_reset(result, now), PendingReason(why, message), now)
    return waiting_for_start(result, now) if waits_for_pods else result


def unreserved(workload: Workload, why: PendingReason, waits_for_pods: bool, now: float) -> Object:
    """A reservation that never became an admission is withdrawn."""
    result = pending(workload, why, now)
    return waiting_for_start(result, now) if waits_for_pods else result


def requeued(workload: Workload, reason: str, message: str, now: float) -> Object:
    """What kept it out of its queue is over."""
    result = workload
    if conditions.requeue_at(workload) is not None:
        result = replaced(workload, ("status", "requeueState", "requeueAt"), None)
    return with_condition(result, REQUEUED, "True", reason, message, now)


def backing_off(workload: Workload, count: int, until: float) -> Object:
    """It may not be queued before `until`; `count` is how often that happened so far."""
    known = conditions.requeue_at(workload)
    until = until if known is None else max(known, until)
    result = replaced(workload, ("status", "requeueState", "count"), count)
    return replaced(result, ("status", "requeueState", "requeueAt"), format_time(until))


def delayed(workload: Workload, until: float) -> Object:
    """It may not be queued before `until`, for another reason than pods that were not ready."""
    known = conditions.requeue_at(workload)
    if known is not None and known >= until:
        return dict(workload)
    return replaced(workload, ("status", "requeueState", "requeueAt"), format_time(until))


def deactivation_target(workload: Workload, cause: str, message: str, now: float) -> Object:
    """It is to be deactivated by the system."""
    return with_condition(workload, DEACTIVATION_TARGET, "True", cause, message, now)


def deactivated(workload: Workload, now: float) -> Object:
    """`spec.active` is false: it loses its quota and is not requeued."""
    target = conditions.condition(workload, DEACTIVATION_TARGET)
    if target is not None and target.get("status") == "True":
        cause = str(target.get("reason"))
        reason, message = f"{DEACTIVATED}{DUE_TO}{cause}", str(target.get("message") or "")
        message = f"The workload is deactivated: {message}" if message else "The workload is deactivated"
    else:
        cause, reason, message = "", DEACTIVATED, "The workload is deactivated"
    result = without_condition(workload, DEACTIVATION_TARGET)
    result = replaced(result, ("status", "requeueState"), None)
    if conditions.is_evicted(workload) and conditions.reason(workload, EVICTED).startswith(DEACTIVATED):
        return result
    return evicted(result, reason, message, now, cause)


def reactivated(workload: Workload, now: float) -> Object:
    """`spec.active` is true again: it competes as a new one does."""
    result = replaced(workload, ("status", "requeueState"), None)
    return with_condition(result, REQUEUED, "True", "Reactivated", "The workload was reactivated", now)


def without_past_execution_time(workload: Workload) -> Object:
    """With the time of earlier runs forgotten, which counts only until the limit is reached."""
    return replaced(workload, ("status", "accumulatedPastExecutionTimeSeconds"), None)


def finished(workload: Workload, reason: str, message: str, now: float) -> Object:
    """It is over; its quota is free from here on."""
    return with_condition(workload, FINISHED, "True", reason, message, now)


def unfinished(workload: Workload, runs: bool, now: float) -> Object:
    """It is not over. A job that runs has the quota that it had; one that does not queues again."""
    result = without_condition(workload, FINISHED)
    if not conditions.has_quota(result):
        return admitted_as_derived(result, now)
    if runs:
        return result
    return pending(_with_checks_reset(result, now), NOT_EVALUATED, now)


#: Status, reason and message of PodsReady.
_WAITS_FOR_START: tuple[ConditionStatus, str, str] = (
    "False",
    WAIT_FOR_START,
    "Not all pods are ready or succeeded",
)


def waiting_for_start(workload: Workload, now: float) -> Object:
    """Its pods have not all been ready since it was admitted."""
    return with_condition(workload, PODS_READY, *_WAITS_FOR_START, now)


def pods_ready(workload: Workload, ready: bool, now: float) -> Object:
    """With PodsReady as the job shows it (docs/reference/kueue-integrations.md 9.3, step 13).

    That the Workload has another generation, as each time a slice shrinks, is no new observation of pods.
    """
    known = conditions.condition(workload, PODS_READY) or {}
    was_ready = known.get("status") == "True"
    recovering = known.get("reason") in (WAIT_FOR_RECOVERY, "Recovered")
    shown: tuple[ConditionStatus, str, str]
    if not conditions.is_admitted(workload):
        shown = _WAITS_FOR_START
    elif ready:
        reason = "Recovered" if recovering else "Started"
        shown = ("True", reason, "All pods are ready or have succeeded")
    elif was_ready or recovering:
        shown = ("False", WAIT_FOR_RECOVERY, "At least one pod is not ready any more")
    else:
        shown = _WAITS_FOR_START
    if (known.get("status"), known.get("reason"), known.get("message")) == shown:
        return dict(workload)
    return with_condition(workload, PODS_READY, *shown, now)


def with_reclaimable(workload: Workload, counts: Mapping[str, int]) -> Object:
    """With the pods that will not run again, as the job says, whatever the status said before."""
    known = conditions.reclaimable_counts(workload)
    sizes = {str(p.get("name")): int(p.get("count", 1)) for p in get(workload, "spec", "podSets") or ()}
    wanted = {name: min(count, sizes[name]) for name, count in counts.items() if name in sizes}
    if wanted == known:
        return dict(workload)
    entries = [{"name": name, "count": wanted[name]} for name in sizes if name in wanted]
    return replaced(workload, ("status", "reclaimablePods"), entries or None)


def reclaimable_at_most(workload: Workload, counts: Mapping[str, int]) -> Object:
    """With no more reclaimable pods than `counts` per pod set."""
    known = conditions.reclaimable_counts(workload)
    wanted = {name: min(count, counts.get(name, 0)) for name, count in known.items()}
    if wanted == known:
        return dict(workload)
    entries = [{"name": name, "count": count} for name, count in wanted.items() if count]
    return replaced(workload, ("status", "reclaimablePods"), entries or None)


def with_checks(workload: Workload, required: set[str], now: float) -> Object:
    """With exactly the required checks listed, new ones Pending (docs/reference/kueue-semantics.md 11.4)."""
    present = get(workload, "status", "admissionChecks") or []
    if not present and not required:
        return dict(workload)
    checks = synced_checks(present, required, now)
    if checks == present:
        return dict(workload)
    return replaced(workload, ("status", "admissionChecks"), checks or None)


def synced_checks(present: Any, required: set[str], now: float) -> list[Object]:
    """The list of check states for the required checks, sorted by name."""
    known = {str(check.get("name")): dict(check) for check in present}
    for name in required - known.keys():
        known[name] = {
            "name": name,
            "state": "Pending",
            "lastTransitionTime": format_time(now),
            "message": "",
        }
    return [known[name] for name in sorted(known) if name in required]


def asks_again(workload: Workload, now: float) -> Object:
    """With answers of checks that keep a Workload from its queue withdrawn, as far as it has no quota.

    They were given about a reservation that is gone. A `Retry` still delays the next one.
    """
    checks = get(workload, "status", "admissionChecks") or ()
    if conditions.has_quota(workload) or all(c.get("state") not in ("Retry", "Rejected") for c in checks):
        return dict(workload)
    until = retry_at(workload)
    result = workload if until is None or until <= now else delayed(workload, until)
    again = [_reset_check(c, now) if c.get("state") in ("Retry", "Rejected") else c for c in checks]
    return replaced(result, ("status", "admissionChecks"), again)


def retry_at(workload: Workload) -> float | None:
    """When checks that ask for a retry allow it: the latest of the requested times; None where there is
    none."""
    times = [
        parse_time(str(check["lastTransitionTime"])) + int(check["requeueAfterSeconds"])
        for check in get(workload, "status", "admissionChecks") or ()
        if check.get("state") == "Retry" and check.get("requeueAfterSeconds") is not None
    ]
    return max(times, default=None)
